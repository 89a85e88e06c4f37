"""What an explanation is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from accel_helpers.intervals import Estimate
from accel_helpers.records import Record

Symptom = Literal["slow", "wrong"]


@dataclass(frozen=True)
class Cause(Record):
    """Why a model is slow or wrong, what that rests on, and what to do."""

    name: str
    symptom: Symptom
    statement: str  # a sentence
    evidence: str  # a sentence with the figures
    cure: str  # a sentence
    # times faster, or times less error, through the cure: an interval of repeated timings, or the range over the layers concerned
    predicted: Estimate
    changes: Mapping[str, Any] = field(default_factory=dict)  # fields of RunConfig that apply the cure; empty where it lies elsewhere

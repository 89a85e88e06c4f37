"""What is kept of a run: frozen records, to JSON and back. Raw samples are stored; every number is a property of them.

Units: seconds, bytes, items per second. Formatting for people is the business of ``charts`` and ``report``.
"""

from accel_helpers.records.machine import Environment, Gpu
from accel_helpers.records.measurement import (
    Check,
    Claim,
    Finding,
    Measurement,
    Round,
    Scope,
    Score,
    ScoreWord,
    Status,
    Verdict,
    Word,
    score_word,
    word,
)
from accel_helpers.records.plan import Artifact, Census, Compilation, Layer, Plan, Profile, Quantization
from accel_helpers.records.record import SCHEMA, Record

__all__ = [
    "SCHEMA",
    "Artifact",
    "Census",
    "Check",
    "Claim",
    "Compilation",
    "Environment",
    "Finding",
    "Gpu",
    "Layer",
    "Measurement",
    "Plan",
    "Profile",
    "Quantization",
    "Record",
    "Round",
    "Scope",
    "Score",
    "ScoreWord",
    "Status",
    "Verdict",
    "Word",
    "score_word",
    "word",
]

"""Builds of TensorRT that fail: reproduced, explained, cured and built again."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accel_helpers.compilation.builds import _sampled, faulty
from accel_helpers.compilation.builds._trial import absent, trial
from accel_helpers.compilation.builds.faulty import Case
from accel_helpers.compilation.builds.replacing import Replacement, replace_operator
from accel_helpers.compilation.builds.shape_trials import ShapeTrial, ShapeTrials, dynamic_shapes
from accel_helpers.compilation.builds.simplifying import After, SimplifyTrial, SimplifyTrials, simplifying
from accel_helpers.engines._tensorrt_failures import Failure

__all__ = [
    "ABSENT",
    "After",
    "Attempt",
    "Replacement",
    "ShapeTrial",
    "ShapeTrials",
    "SimplifyTrial",
    "SimplifyTrials",
    "attempt",
    "dynamic_shapes",
    "failures",
    "replace_operator",
    "simplifying",
]

ABSENT = "no TensorRT"
"""The kind of the one attempt that is answered where TensorRT is not installed."""


@dataclass(frozen=True)
class Attempt:
    """What was built, why it was refused, and what became of it after the cure."""

    kind: str  # of the case, or ABSENT
    title: str  # what was wrong with it, for people
    ok: bool  # whether the first build succeeded; of these cases none should
    seconds: float  # until it was refused
    failure: Failure  # its kind, cause, cure, node, operator and TensorRT's own words
    done: str = ""  # what was done about it
    cured: bool | None = None  # whether it was built after that; None where nothing was tried
    cured_seconds: float = 0.0
    error: float | None = None  # the largest relative error of an output after the cure; None where the refused graph runs nowhere
    after: str = ""  # why the cured graph was refused too

    @property
    def cause(self) -> str:
        """Why it was refused."""
        return self.failure.cause

    @property
    def cure(self) -> str:
        """What to do about it."""
        return self.failure.cure

    @property
    def node(self) -> str:
        """The node that is to blame: its name, or its operator where it has none; empty where none is."""
        return self.failure.node or self.failure.operator

    @property
    def right(self) -> bool:
        """Whether it was refused, explained as what it is, and built after the cure."""
        return not self.ok and self.failure.kind == self.kind and self.cured is True


def failures(cases: Sequence[Case] | None = None) -> tuple[Attempt, ...]:
    """Build each case (None: all that are refused on this machine), explain the refusal, carry out the cure and build again.

    Where TensorRT is not installed the answer is one attempt of the kind :data:`ABSENT` that says so.
    """
    if missing := absent():
        failure = Failure(ABSENT, missing, "Run the lesson on Linux x86-64, or skip this part.")
        return (Attempt(ABSENT, "nothing was built", False, 0.0, failure),)
    return tuple(map(attempt, faulty.here() if cases is None else cases))


def attempt(case: Case) -> Attempt:
    """One case of :func:`failures`, in a folder that is removed again."""
    with tempfile.TemporaryDirectory() as folder:
        refused = case.write(Path(folder))
        first = trial(refused, case.asked, "the graph")
        if first.error is None:
            return Attempt(case.kind, case.title, True, first.seconds, Failure("", "", ""))
        given = _sampled.inputs(refused, case.asked)
        before = _sampled.tried(refused, given)
        cured, asked = case.remedy(refused, case.asked)
        second = trial(cured, asked, "the cured graph")
        after = _sampled.tried(cured, given)
    return Attempt(
        case.kind,
        case.title,
        False,
        first.seconds,
        first.error.failure,
        case.done,
        second.ok,
        second.seconds,
        _sampled.moved(before, after),
        second.error.what if second.error else "",
    )

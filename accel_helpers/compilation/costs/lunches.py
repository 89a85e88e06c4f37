"""Which speed-up is nearly free: what each plan of a comparison gains, beside the minutes that it took and the calls that pay them back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from accel_helpers.bench import Comparison
from accel_helpers.intervals import Estimate
from accel_helpers.records import Measurement, Plan, ScoreWord, Verdict

MINUTES = 2.0
"""A plan that is ready within so many minutes counts as free, unless somebody asks for another bound."""

Free = Literal["free", "not free", "cannot say"]


@dataclass(frozen=True)
class Lunch:
    """One plan beside the baseline of its comparison."""

    plan: Plan
    speedup: Estimate  # wall time per item
    spent: float  # seconds until its first answer, building included, beyond what the baseline's took; measured once, so no interval
    calls: Estimate  # that pay them back; infinite where the plan may be no faster
    right: bool  # the outputs were compared, and were right
    score: ScoreWord | None  # of the task metric; None where it is not known
    free: Free
    why: str  # what decided it
    edits: int | None = None  # lines of the reader's program that change, where somebody counted them


def rank(comparison: Comparison, edits: Mapping[str, int] | None = None, minutes: float = MINUTES) -> tuple[Lunch, ...]:
    """Every plan of a comparison but its baseline, the fewest calls until it pays back first.

    A lunch is free when the whole interval of its speed-up lies above one, its outputs are right, its task metric is no worse where it
    is known, and no more than ``minutes`` were spent on it.

    Args:
        comparison: the first measurement is what one has without doing anything.
        edits: engine -> lines of the reader's program that change.
        minutes: the most that still counts as free.
    """
    base = comparison.measurements[0]
    pairs = zip(comparison.measurements[1:], comparison.verdicts, strict=True)
    found = [_lunch(base, one, verdict, (edits or {}).get(one.plan.engine), minutes) for one, verdict in pairs]
    return tuple(sorted(found, key=lambda one: (one.calls.value, -one.speedup.value)))


def _lunch(base: Measurement, one: Measurement, verdict: Verdict, edits: int | None, minutes: float) -> Lunch:
    spent = max(0.0, _ready(one) - _ready(base))
    right = any(check.name == "outputs" and check.passed for check in one.checks)
    free, why = _judged(one, verdict, spent, right, minutes)
    gains = [one.p50.value * (speedup - 1) for speedup in (verdict.speedup.value, verdict.speedup.high, verdict.speedup.low)]
    calls = Estimate(*(spent / gain if gain > 0 else math.inf for gain in gains))
    return Lunch(one.plan, verdict.speedup, spent, calls, right, verdict.score_word, free, why, edits)


def _ready(one: Measurement) -> float:
    return one.build_seconds + one.load_seconds + one.first_call


def _judged(one: Measurement, verdict: Verdict, spent: float, right: bool, minutes: float) -> tuple[Free, str]:
    if not right:
        return "not free", "its outputs were not shown to be right"
    if verdict.score_word == "worse":
        return "not free", "its task metric is worse"
    if verdict.speedup.high <= 1:
        return "not free", "it is slower"
    if spent > 60 * minutes:
        return "not free", f"it took more than {minutes:g} minutes"
    if verdict.status == "INVALID":
        return "cannot say", "; ".join(one.reasons) or "the baseline is INVALID"
    if verdict.speedup.low <= 1:
        return "cannot say", "the interval of its speed-up holds one"
    if verdict.score_word == "not enough samples":
        return "cannot say", "too few samples to know its task metric"
    return "free", "it is faster, right, and was ready in time"

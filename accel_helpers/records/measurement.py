"""What was measured, and what it says: raw samples are stored, every number is a property of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from accel_helpers.intervals import Estimate, log_centre, median, paired, quantile_estimate
from accel_helpers.records.machine import Environment
from accel_helpers.records.plan import Plan
from accel_helpers.records.record import Record

Scope = Literal["compute", "end to end"]
Status = Literal["VALID", "INDICATIVE", "INVALID"]
Word = Literal["faster", "slower", "no difference", "too noisy"]
ScoreWord = Literal["better", "no worse", "worse", "not enough samples"]
Finding = Literal["holds", "does not hold here", "too noisy to say", "not tested here"]


@dataclass(frozen=True)
class Round(Record):
    """A few calls in a row: the unit of evidence."""

    wall: tuple[float, ...]  # seconds of each call, in order
    cpu: float  # CPU seconds of the process over these calls

    @property
    def wall_median(self) -> float:
        """Median seconds of a call in this round."""
        return median(self.wall)

    @property
    def cpu_per_call(self) -> float:
        """CPU seconds of a call in this round."""
        return self.cpu / len(self.wall)


@dataclass(frozen=True)
class Check(Record):
    """One thing that must hold for a figure to mean anything. ``passed`` is None where it could not be checked."""

    name: str
    passed: bool | None
    detail: str
    fatal: bool = True  # a failed fatal check makes the figure INVALID, another one INDICATIVE


@dataclass(frozen=True)
class Score(Record):
    """A task metric over labelled samples, in [0, 1] for accuracies."""

    name: str
    value: float
    samples: int
    outcomes: tuple[int | float, ...] = ()  # of each sample, in order: 1 right and 0 wrong, or its error; their mean is the value
    others: Mapping[str, float] = field(default_factory=dict)  # other metrics of the same outputs by name: precision, recall, F1 …
    higher_is_better: bool = True

    def changes(self, baseline: Score) -> tuple[int | float, ...]:
        """Each sample's outcome minus the baseline's on the same sample; empty where either is not known."""
        if (self.name, len(self.outcomes)) != (baseline.name, len(baseline.outcomes)):
            return ()
        pairs = zip(self.outcomes, baseline.outcomes, strict=True)
        return tuple(new - old if isinstance(new, int) else float(f"{new - old:.6g}") for new, old in pairs)


@dataclass(frozen=True)
class Measurement(Record):
    """What one plan did on one machine, sample by sample."""

    model: str
    plan: Plan
    environment: Environment
    scope: Scope
    first_call: float
    warmup: tuple[float, ...]
    rounds: tuple[Round, ...]
    errors: int
    checks: tuple[Check, ...]
    peak_memory_bytes: int  # of the process that ran it
    peak_device_bytes: int | None  # None where there is no device memory
    artifact: str  # Artifact.content: the files that ran
    size_bytes: int
    build_seconds: float
    load_seconds: float
    seed: int
    started: str  # ISO 8601, UTC
    score: Score | None = None
    report: Mapping[str, Any] = field(default_factory=dict)  # what really executed, from the artifact and the live session
    load_model: str = "closed loop, 1 client"

    @cached_property
    def samples(self) -> tuple[float, ...]:
        """Seconds of every timed call, warm-up apart."""
        return tuple(sample for one in self.rounds for sample in one.wall)

    @property
    def p50(self) -> Estimate:
        """Median seconds of a call: centre of the rounds' medians, because raw samples are not independent."""
        return log_centre([one.wall_median for one in self.rounds])

    def percentile(self, q: float) -> Estimate | None:
        """A percentile of the call time in seconds, or None where there are not enough samples for an interval."""
        return quantile_estimate(self.samples, q)

    @property
    def mean(self) -> float:
        """Mean seconds of a call."""
        return sum(self.samples) / len(self.samples)

    @property
    def throughput(self) -> Estimate:
        """Items per second: centre of the rounds' items over elapsed time."""
        return log_centre([self.plan.batch * len(one.wall) / sum(one.wall) for one in self.rounds])

    @property
    def cpu_time(self) -> Estimate:
        """CPU seconds of a call."""
        return log_centre([max(one.cpu_per_call, 1e-9) for one in self.rounds])

    @property
    def status(self) -> Status:
        """VALID, or what the failed checks leave of it."""
        failed = [check for check in self.checks if check.passed is False]
        if self.errors or any(check.fatal for check in failed):
            return "INVALID"
        return "INDICATIVE" if failed else "VALID"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the status is not VALID."""
        errors = (f"{self.errors} calls failed",) if self.errors else ()
        return errors + tuple(f"{check.name}: {check.detail}" for check in self.checks if check.passed is False)


@dataclass(frozen=True)
class Verdict(Record):
    """A candidate against a baseline: one paired ratio per round, an interval and a word."""

    baseline: str  # digest of the measurement
    candidate: str
    wall: tuple[float, ...]  # baseline seconds over candidate seconds per item, one per round: above 1 the candidate is faster
    cpu: tuple[float, ...]  # the same for CPU time
    score_change: float | None = None  # candidate's task metric minus the baseline's
    changes: tuple[
        int | float, ...
    ] = ()  # the same for each labelled sample's outcome, where outcomes are known; score_change is their mean
    higher_is_better: bool = True  # of the task metric
    allowed_loss: float = 0.01  # of the task metric, in its unit: 0.01 is one point of an accuracy
    status: Status = "VALID"
    margin: float = 0.05  # an interval inside [1/(1+margin), 1+margin] is called no difference
    budget: Check | None = None  # whether the candidate stays within the loss it was allowed, where somebody asked

    @property
    def speedup(self) -> Estimate:
        """Wall-clock speed-up with its 95 % interval."""
        return log_centre(self.wall)

    @property
    def cpu_speedup(self) -> Estimate:
        """CPU-time speed-up with its 95 % interval: on a shared machine, the figure that survives."""
        return log_centre(self.cpu)

    @property
    def word(self) -> Word:
        """The speed-up's interval in a word."""
        return word(self.speedup, self.margin)

    @property
    def cpu_word(self) -> Word:
        """The CPU-time speed-up's interval in a word."""
        return word(self.cpu_speedup, self.margin)

    @property
    def score_interval(self) -> Estimate | None:
        """The change of the task metric with its 95 % interval, from the samples that both plans were judged on; None where unknown."""
        return paired(self.changes) if self.changes else None

    @property
    def score_word(self) -> ScoreWord | None:
        """The interval of the task metric's change in a word; None where there is none."""
        interval = self.score_interval
        return score_word(interval, self.allowed_loss, self.higher_is_better) if interval else None


@dataclass(frozen=True)
class Claim(Record):
    """A sentence that people repeat, and what a measurement on one machine says of it."""

    id: str
    statement: str
    verdict: Finding
    evidence: str  # the figures, in a sentence
    hardware: str  # Environment.hardware: where it was measured
    made: str  # ISO 8601, UTC
    model: str = ""
    records: tuple[str, ...] = ()  # digests of the measurements and verdicts that it rests on


def word(speedup: Estimate, margin: float) -> Word:
    """The interval of a speed-up in a word."""
    if speedup.low > 1:
        return "faster"
    if speedup.high < 1:
        return "slower"
    if speedup.low >= 1 / (1 + margin) and speedup.high <= 1 + margin:
        return "no difference"
    return "too noisy"


def score_word(change: Estimate, allowed_loss: float, higher_is_better: bool = True) -> ScoreWord:
    """The interval of a task metric's change in a word: "no worse" and "worse" speak of a loss beyond the one allowed."""
    least, most = (change.low, change.high) if higher_is_better else (-change.high, -change.low)
    if least > 0:
        return "better"
    if least >= -allowed_loss:
        return "no worse"
    return "worse" if most < -allowed_loss else "not enough samples"

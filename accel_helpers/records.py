"""What is kept of a run: frozen records, to JSON and back. Raw samples are stored; every number is a property of them.

Units: seconds, bytes, items per second. Formatting for people is the business of ``charts`` and ``report``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Any, Literal, Self, cast

from accel_helpers.errors import StoreError
from accel_helpers.intervals import Estimate, log_centre, median, paired, quantile_estimate

SCHEMA = 2
"""Raised by one when a field changes its meaning; a record of another schema is refused, never misread."""

Scope = Literal["compute", "end to end"]
Status = Literal["VALID", "INDICATIVE", "INVALID"]
Word = Literal["faster", "slower", "no difference", "too noisy"]
ScoreWord = Literal["better", "no worse", "worse", "not enough samples"]
Finding = Literal["holds", "does not hold here", "too noisy to say"]


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


class Record:
    """JSON both ways for the frozen dataclasses of this module."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with the schema version and the record's kind."""
        return {"schema": SCHEMA, "kind": type(self).__name__, **_adapter(cast(Any, type(self))).dump_python(self, mode="json")}

    def to_json(self) -> str:
        """:meth:`to_dict` as text with sorted keys."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The record that :meth:`to_dict` wrote.

        Raises:
            StoreError: another schema version, another kind, or fields that do not fit.
        """
        if (values.get("schema"), values.get("kind")) != (SCHEMA, cls.__name__):
            found = f"{values.get('kind')} of schema {values.get('schema')}"
            raise StoreError(f"Expected a {cls.__name__} of schema {SCHEMA}, found {found}.", "Measure again with this version.")
        known = {name: value for name, value in values.items() if name not in ("schema", "kind")}
        unknown = known.keys() - {f.name for f in fields(cls)}  # type: ignore[arg-type]
        if unknown:
            raise StoreError(f"A {cls.__name__} has no field {sorted(unknown)[0]!r}.", "Measure again with this version.")
        try:
            record: Self = _adapter(cast(Any, cls)).validate_python(known)
            return record
        except ValueError as error:
            raise StoreError(f"This {cls.__name__} cannot be read: {error}.", "Measure again with this version.") from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """:meth:`from_dict` of a JSON text."""
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise StoreError(f"This {cls.__name__} is not JSON: {error}.", "The file is damaged; measure again.") from None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the record's JSON: its name in the store."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


@dataclass(frozen=True)
class Gpu(Record):
    """One accelerator, as its driver names it."""

    name: str
    memory_bytes: int
    compute_capability: str
    driver: str


@dataclass(frozen=True)
class Environment(Record):
    """The machine and the software that a figure belongs to."""

    cpu: str
    isa: tuple[str, ...]  # instruction sets that decide inference speed: avx2, avx512f, avx512_bf16, avx512_vnni, amx_bf16, amx_int8 …
    cpus: int  # CPUs this process may use: affinity and cgroup quota
    cpus_online: int
    memory_bytes: int  # what this process may use: physical memory or the cgroup's limit
    os: str
    python: str
    gpus: tuple[Gpu, ...] = ()
    cuda: str = ""  # what torch was built for; empty for a CPU build
    cudnn: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)  # distribution name -> installed version
    tools: Mapping[str, str] = field(default_factory=dict)  # compilers and drivers beside Python: name -> version, or what is wrong with it

    @property
    def hardware(self) -> str:
        """What a compiled artifact is bound to: processor, instruction sets and accelerators."""
        parts = [self.cpu, *self.isa, *(f"{gpu.name}/{gpu.compute_capability}" for gpu in self.gpus)]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Quantization(Record):
    """How a plan's numbers become integers. What a scheme does not use holds its default, so that equal files are equal plans."""

    scheme: str  # dynamic, static, weight_only, accuracy_control or qat: see config.Scheme
    calibration: int = 0  # samples that the ranges of the activations are taken from; 0 where the scheme reads none
    calibrator: str = "minmax"  # how a range is taken from them: minmax, entropy or percentile
    calibration_data: str = "representative"  # or one of the experiments in config.CalibrationData
    per_channel: bool = True  # one scale for each output channel of a weight, or one for the whole weight
    symmetric: bool = False  # activations as signed integers around zero, or unsigned with a zero point
    reduce_range: bool = False  # one factor in seven bits, mostly the weight, so that two products fit sixteen (x86 without VNNI)
    rest: str = "fp32"  # the type of what is not quantized
    keep: tuple[str, ...] = ()  # layers left unquantized, by name
    seed: int = 0  # which samples of the calibration part


@dataclass(frozen=True)
class Layer(Record):
    """One layer of a built model, as it really runs."""

    name: str
    operator: str  # as the engine spells it: MatMul, Conv, QLinearConv, onednn::qlinear_pointwise …
    precision: str  # of its multiplications: int8, fp8, fp32 …; "int8 weights" or "int4 weights" where only the weight is short
    parameters: int
    weight_bytes: int
    operations: int  # multiplications of one item at the plan's sequence length
    reason: str = ""  # why it stayed behind, empty where it did not


@dataclass(frozen=True)
class Census(Record):
    """Which layers of a built model run in which type."""

    layers: tuple[Layer, ...]  # those with weights, and products of two activations
    unfused: int = 0  # quantize and dequantize operators that run on their own in the built model
    transitions: int = 0  # places where a value changes its type on the way from one layer to the next

    def share(self, of: Literal["layers", "parameters", "operations"] = "operations") -> float:
        """The share of layers, parameters or multiplications whose type is an integer or FP8."""
        counts = [(1 if of == "layers" else int(getattr(one, of)), one.precision) for one in self.layers]
        total = sum(count for count, _ in counts)
        return sum(count for count, precision in counts if precision.startswith(("int", "fp8"))) / total if total else 0.0


@dataclass(frozen=True)
class Plan(Record):
    """How to run a model: the engine and everything it is asked for."""

    engine: str
    precision: str = "fp32"
    device: str = "cpu"
    batch: int = 1
    sequence: int = 128
    threads: int = 1
    hint: str = "latency"
    quantization: Quantization | None = None  # of the precisions int8, int4 and fp8, and of no other

    @property
    def build_fields(self) -> dict[str, str]:
        """The fields that decide which files are built; the others are chosen when they are loaded."""
        quantized = {"quantization": self.quantization.to_json()} if self.quantization else {}
        return {"engine": self.engine, "precision": self.precision, "device": self.device, **quantized}

    @property
    def label(self) -> str:
        """A short name for tables and legends."""
        scheme = f" {self.quantization.scheme}" if self.quantization else ""
        return f"{self.engine} {self.precision}{scheme} {self.device} b{self.batch}"


@dataclass(frozen=True)
class Artifact(Record):
    """A built model on disk. ``folder`` is relative to the store; ``files`` maps each member to its SHA-256."""

    model: str
    fingerprint: str  # of the model's weights and graph
    plan: Plan
    folder: str
    files: Mapping[str, str]
    size_bytes: int
    build_seconds: float
    hardware: str
    versions: Mapping[str, str]  # the packages that wrote it
    report: Mapping[str, Any] = field(default_factory=dict)  # what executes in which type, what stayed behind; filled by the engine

    @property
    def content(self) -> str:
        """SHA-256 over the files' hashes: names the files, whatever plan they are loaded with."""
        return hashlib.sha256("|".join(f"{name}:{digest}" for name, digest in sorted(self.files.items())).encode()).hexdigest()

    def with_plan(self, plan: Plan) -> Artifact:
        """The same files, loaded with another batch, thread count or hint."""
        if plan.build_fields != self.plan.build_fields:
            raise ValueError(f"{plan.label} needs other files than {self.plan.label}")
        return replace(self, plan=plan)


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

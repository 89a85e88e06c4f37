"""What was asked for, and what was built of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from accel_helpers.records.record import Record


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
class Profile(Record):
    """An optimization profile: the least, usual and greatest size of each open axis that an engine is built for."""

    batch: tuple[int, int, int]
    sequence: tuple[int, int, int] | None = None  # tokens; None where the model reads no sequences


@dataclass(frozen=True)
class Compilation(Record):
    """How an engine is made from a graph. What an engine does not use holds its default, so that equal files are equal plans."""

    simplifier: str = "off"  # off, onnxsim or onnxslim: what rewrites the exported graph before it is used
    profiles: tuple[Profile, ...] = ()  # TensorRT's; where there is none, from one item to the plan's batch and sequence
    workspace_bytes: int = 0  # the most scratch memory that TensorRT may plan with; 0 leaves its own limit
    optimization_level: int = 3  # TensorRT's builder_optimization_level, 0 to 5: how long it searches for kernels
    refit: bool = False  # weights may be replaced in the built engine
    weight_streaming: bool = False  # weights may stay in host memory and be streamed to the GPU


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
    mode: str = "default"  # how the engine runs: one of its ``modes``
    compilation: Compilation = Compilation()

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The optimization profiles; without any of its own, one from a single item of one token to what the plan runs."""
        return self.compilation.profiles or (Profile((1, self.batch, self.batch), (1, self.sequence, self.sequence)),)

    @property
    def build_fields(self) -> dict[str, str]:
        """The fields that decide which files are built; the others are chosen when they are loaded."""
        quantized = {"quantization": self.quantization.to_json()} if self.quantization else {}
        moded = {"mode": self.mode} if self.mode != "default" else {}
        compiled = {"compilation": self.compilation.to_json()} if self.compilation != Compilation() else {}
        return {"engine": self.engine, "precision": self.precision, "device": self.device, **quantized, **moded, **compiled}

    @property
    def label(self) -> str:
        """A short name for tables and legends."""
        scheme = f" {self.quantization.scheme}" if self.quantization else ""
        mode = f" {self.mode}" if self.mode != "default" else ""
        return f"{self.engine}{mode} {self.precision}{scheme} {self.device} b{self.batch}"


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

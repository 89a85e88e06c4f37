"""What is known of a quantized model when somebody asks why it is slow or wrong: figures and facts, no opinion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from accel_helpers.intervals import Estimate, log_centre
from accel_helpers.records import Census, Environment, Plan, Record, Verdict

Kind = Literal["fp32", "unsigned", "signed", "dynamic", "boundary"]
WRONG = 0.1
"""Relative error of the outputs from which a quantized model counts as wrong where no task metric says: noise 20 dB below the signal."""


@dataclass(frozen=True)
class Rate(Record):
    """What one layer's product costs in each type, in the engine's own kernels.

    Each series holds CPU seconds of a call, one per round, and is empty where the engine has no such kernel to run by itself. The rounds of
    all kinds are interleaved, so that the ratio of two kinds in the same round is paired.
    """

    layer: str  # "" for the reference: a product large enough that its kernel and not its call decides
    count: int = 1  # layers of this size in the model
    fp32: tuple[float, ...] = ()
    unsigned: tuple[float, ...] = ()  # activations as unsigned integers, weights as signed ones
    signed: tuple[float, ...] = ()  # both signed
    dynamic: tuple[float, ...] = ()  # the input's range is found and applied in the same call
    boundary: tuple[float, ...] = ()  # the layer's input quantized and dequantized, once each

    def faster(self, kind: Kind, than: Kind = "fp32") -> Estimate:
        """How many times faster one kind is than another."""
        pairs = zip(getattr(self, than), getattr(self, kind), strict=True)
        return log_centre([slow / fast for slow, fast in pairs])


@dataclass(frozen=True)
class LayerFacts(Record):
    """One layer with a constant weight, as it is in the FP32 model and as the plan's integers see it. Errors are relative (2-norm)."""

    name: str
    operator: str
    depthwise: bool = False
    channels: int = 0  # output channels of the weight
    spread: float = 1.0  # the largest range of an output channel's weights over the smallest, dead channels apart
    per_channel: bool | None = None  # of the built file's weight; None where it cannot be read
    channel_error: float = 0.0  # of the weights of a channel, root mean square over channels, rounded with a scale for each
    tensor_error: float = 0.0  # the same with one scale for all
    overflow: float = 0.0  # share of the sums of two products that sixteen bits cannot hold
    overflow_error: float = 0.0  # of the layer's output, if those sums saturate
    rounding_error: float = 0.0  # of the layer's output through rounding alone, in the ranges that the built file has
    reduced_error: float = 0.0  # the same with seven-bit weights
    stretch: float = 1.0  # largest magnitude of the activations over the one that 99 % of them stay below
    clipped: float | None = None  # error of the input from what the built range cuts off; None where the range is not known
    slack: float | None = None  # the built range over that of the activations: 4 wastes two of the eight bits


@dataclass(frozen=True)
class Evidence(Record):
    """Everything the explainer may rest on. What was not measured is None or empty, and no cause may be read from it."""

    model: str
    plan: Plan
    environment: Environment
    census: Census | None = None
    layers: tuple[LayerFacts, ...] = ()
    signed: float = 0.0  # share of the integer products in the built file whose activations are signed
    boundaries: int = 2  # Q/DQ operators that the graph's inputs and outputs need in any case
    rates: tuple[Rate, ...] = ()  # of the layers' sizes, and the reference
    rest: float = 0.0  # CPU seconds of an FP32 call outside the layers that ``rates`` holds
    saturates: bool | None = None  # whether the engine's unsigned-by-signed product saturates here: measured
    error: float | None = None  # of the quantized model's outputs, against FP32
    training: tuple[str, ...] = ()  # nodes of the FP32 graph that are in training mode
    repeats: float | None = None  # relative difference of two FP32 calls on the same input
    batches: float | None = None  # relative difference of a sample in an FP32 batch and alone
    padding: float | None = None  # share of the labelled data's tokens that are padding, batched as the plan does
    padded: float | None = None  # relative difference of the FP32 answer for a padded sample and the same one without padding
    verdict: Verdict | None = None  # the quantized plan against FP32 of the same engine
    notes: Mapping[str, str] = field(default_factory=dict)  # what could not be looked at, and why

    @property
    def slow(self) -> bool | None:
        """Whether the quantized model is not faster than FP32; None where that is not known."""
        if self.verdict is None:
            return None
        said = self.verdict.word if self.verdict.word != "too noisy" else self.verdict.cpu_word
        return None if said == "too noisy" else said != "faster"

    @property
    def wrong(self) -> bool | None:
        """Whether it is less right than FP32: by the task metric, else by the outputs; None where neither is known."""
        said = self.verdict.score_word if self.verdict else None
        if said in ("worse", "no worse", "better"):
            return said == "worse"
        return None if self.error is None else self.error > WRONG

    @property
    def scheme(self) -> str:
        """How the plan is quantized; empty where it is not."""
        return self.plan.quantization.scheme if self.plan.quantization else ""

    @property
    def reference(self) -> Rate | None:
        """The rates of the large product."""
        return next((one for one in self.rates if not one.layer), None)

    @property
    def measured(self) -> tuple[Rate, ...]:
        """The rates of the model's own layers."""
        return tuple(one for one in self.rates if one.layer)

    def facts(self, name: str) -> LayerFacts | None:
        """The layer of that name."""
        return next((one for one in self.layers if one.name == name), None)

    def integer(self, name: str) -> bool:
        """Whether that layer multiplies integers in the built model; one that the census does not name does where any does."""
        if self.census is None:
            return True
        found = next((one for one in self.census.layers if one.name == name), None)
        return self.census.share() > 0 if found is None else found.precision in ("int8", "int4")

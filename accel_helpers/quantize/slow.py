"""Why a quantized model is not faster: from evidence to a cause, or to nothing. Pure; a rule that lacks its figure says nothing.

Each rule predicts the gain of its cure from timings of the model's own layers; what a cure does not touch does not get faster (Amdahl,
"Validity of the single processor approach to achieving large scale computing capabilities", AFIPS 1967).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from accel_helpers.config import QUANTIZED
from accel_helpers.intervals import Estimate, log_centre, median
from accel_helpers.quantize.cause import Cause
from accel_helpers.quantize.evidence import Evidence, Kind, Rate

PAYS = 1.2
"""A large INT8 product must be this many times faster than FP32 for the processor's integer instructions to count as worth having."""
MOSTLY = 0.5
"""Share of the multiplications below which a model counts as not quantized."""
PADDED = 0.3
"""Share of padding from which it is worth naming."""
_WIDER = 4
"""So many bytes fit where one FP32 value does: without timings, the most that a register full of integers can gain."""
_INTEGER_ISA = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")


def _seconds(evidence: Evidence, kind: Callable[[Rate], Kind]) -> tuple[float, ...]:
    """CPU seconds of a call, one figure per round, with each layer in the kind given."""
    series = [[one.count * seconds for seconds in getattr(one, kind(one))] for one in evidence.measured]
    return tuple(sum(each) + evidence.rest for each in zip(*series, strict=True))


def _gain(now: Sequence[float], cured: Sequence[float]) -> Estimate:
    return log_centre([slow / fast for slow, fast in zip(now, cured, strict=True)])


def _kind(evidence: Evidence, *, right: bool = False) -> Callable[[Rate], Kind]:
    """The kind that each layer runs in now; with ``right``, by the kernels that it should have."""

    def of(rate: Rate) -> Kind:
        if not evidence.integer(rate.layer):
            return "fp32"
        if evidence.scheme == "dynamic":
            fixed = not rate.dynamic or (right and _convolution(evidence, rate.layer))
            return "unsigned" if fixed else "dynamic"
        return "signed" if evidence.signed >= 0.5 and rate.signed and not right else "unsigned"

    return of


def _convolution(evidence: Evidence, layer: str) -> bool:
    found = evidence.facts(layer)
    return found is not None and found.operator.startswith("Conv")


def _timed(evidence: Evidence) -> bool:
    """Whether the layers' timings speak of this plan: integer products, not integer weights alone."""
    return bool(evidence.measured) and evidence.plan.precision == "int8" and evidence.scheme not in ("", "weight_only")


def _ms(series: Iterable[float]) -> str:
    return f"{1000 * median(list(series)):.3g} ms"


def _times(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}] times"


def not_quantized(evidence: Evidence) -> Cause | None:
    """Most multiplications stayed in float."""
    if evidence.plan.precision not in QUANTIZED or evidence.census is None or (share := evidence.census.share()) >= MOSTLY:
        return None
    if evidence.census.unfused > evidence.boundaries and share > 0:
        return None  # what stands between the layers keeps them in float, and is named by itself
    left = [one for one in evidence.census.layers if not one.precision.startswith(("int", "fp8"))]
    reasons = sorted({one.reason for one in left if one.reason})
    if evidence.measured:
        predicted = _gain(_seconds(evidence, _kind(evidence)), _seconds(evidence, lambda _: "unsigned"))
    else:
        most = 1 / (share + (1 - share) / _WIDER)
        predicted = Estimate(most, 1.0, most)
    how_much = "Little of the model is" if share else "Nothing is"
    return Cause(
        "not_quantized",
        "slow",
        f"{how_much} quantized: {len(left)} of {len(evidence.census.layers)} layers run in float.",
        f"{share:.0%} of the multiplications and {evidence.census.share('parameters'):.0%} of the parameters are in integers"
        f"{'; the others: ' + '; '.join(reasons) if reasons else ''}.",
        "Choose a scheme that reaches these layers: static for convolutions, static or dynamic for linear layers.",
        predicted,
        {"scheme": "static", "keep": ""},
    )


def dynamic_convolutions(evidence: Evidence) -> Cause | None:
    """Convolutions whose input ranges are found in every call."""
    if not _timed(evidence) or evidence.scheme != "dynamic":
        return None
    layers = [one for one in evidence.measured if one.dynamic and evidence.integer(one.layer) and _convolution(evidence, one.layer)]
    if not layers:
        return None
    now = _seconds(evidence, _kind(evidence))
    cures: dict[Kind, tuple[float, ...]] = {
        kind: _seconds(evidence, lambda one, kind=kind: kind if one in layers else "dynamic")  # type: ignore[misc]
        for kind in ("unsigned", "fp32")
    }
    best: Kind = min(cures, key=lambda kind: median(cures[kind]))
    static = best == "unsigned"
    return Cause(
        "dynamic_convolutions",
        "slow",
        "Convolutions are quantized dynamically: each call looks for the range of every input and rescales every output.",
        f"{sum(one.count for one in layers)} convolutions run as ConvInteger between other operators; the layers take {_ms(now)} of "
        f"CPU time, and would take {_ms(cures['unsigned'])} with fixed ranges and {_ms(cures['fp32'])} in FP32.",
        "Quantize convolutions statically." if static else "Leave these convolutions in FP32: they are too small to gain from integers.",
        _gain(now, cures[best]),
        {"scheme": "static"} if static else {"precision": "fp32"},
    )


def signed_activations(evidence: Evidence) -> Cause | None:
    """Signed activations where the processor multiplies unsigned by signed bytes."""
    if not _timed(evidence) or evidence.signed < 0.5:
        return None
    now, cured = _seconds(evidence, _kind(evidence)), _seconds(evidence, _kind(evidence, right=True))
    reference = evidence.reference
    rate = f"; on a large product it is {_times(reference.faster('unsigned', 'signed'))} slower" if reference else ""
    return Cause(
        "signed_activations",
        "slow",
        "Activations and weights are both signed (S8S8), and this processor has no fast product of two signed bytes.",
        f"{evidence.signed:.0%} of the integer products read signed activations; the layers take {_ms(now)} of CPU time, "
        f"and {_ms(cured)} with unsigned activations{rate}.",
        "Quantize activations as unsigned integers with a zero point (U8S8).",
        _gain(now, cured),
        {"symmetric": False},
    )


def unfused(evidence: Evidence) -> Cause | None:
    """Quantize and dequantize operators that run on their own between the layers."""
    if not _timed(evidence) or evidence.scheme == "dynamic" or evidence.census is None or evidence.census.unfused <= evidence.boundaries:
        return None
    extra = evidence.census.unfused - evidence.boundaries
    if not all(one.boundary for one in evidence.measured):
        return None
    pairs = [one.count * median(one.boundary) for one in evidence.measured]
    cost = extra / 2 * sum(pairs) / sum(one.count for one in evidence.measured)
    cured = _seconds(evidence, _kind(evidence))
    now = tuple(seconds + cost for seconds in cured)
    left = sorted({one.operator for one in evidence.census.layers if not one.precision.startswith("int")})
    asked = evidence.plan.quantization
    changes: dict[str, Any] = {}
    cure = "Quantize only operators that the engine has integer kernels for."
    if asked and asked.keep:
        cure, changes = "Quantize the layers that are kept in float too, or keep whole stretches of the network.", {"keep": ""}
    elif asked and asked.symmetric:
        cure, changes = "Use unsigned activations, for which the runtime has integer kernels of what lies between.", {"symmetric": False}
    return Cause(
        "unfused",
        "slow",
        "Quantize and dequantize operators did not fuse into the layers: values change their type between almost all of them.",
        f"{evidence.census.unfused} of them run on their own ({evidence.boundaries} are needed at the inputs and outputs), and "
        f"{evidence.census.transitions} values change their type; they cost about {1000 * cost:.3g} ms beside {_ms(cured)} of the layers"
        f"{', of which these stay in float: ' + ', '.join(left) if left else ''}.",
        cure,
        _gain(now, cured),
        changes,
    )


def no_integer_instructions(evidence: Evidence) -> Cause | None:
    """A processor whose INT8 products are no faster than its FP32 ones."""
    reference = evidence.reference
    if not _timed(evidence) or reference is None or set(evidence.environment.isa) & set(_INTEGER_ISA):
        return None
    if (rate := reference.faster("unsigned")).high >= PAYS:
        return None
    now, plain = _seconds(evidence, _kind(evidence)), _seconds(evidence, lambda _: "fp32")
    return Cause(
        "no_integer_instructions",
        "slow",
        "This processor has no instructions for products of bytes (VNNI, AMX or their ARM counterparts), so INT8 saves it no work.",
        f"{evidence.environment.cpu} lists {', '.join(evidence.environment.isa) or 'none of these'}; a large INT8 product runs at "
        f"{_times(rate)} the speed of FP32, and the model's layers take {_ms(now)} in INT8 and {_ms(plain)} in FP32.",
        "Run FP32 here, or quantize the weights alone where memory is short; INT8 pays on a processor with VNNI or AMX.",
        _gain(now, plain),
        {"precision": "fp32"},
    )


def small_channels(evidence: Evidence) -> Cause | None:
    """Layers too small for integer kernels, on a processor where larger ones gain."""
    reference = evidence.reference
    if not _timed(evidence) or reference is None or (rate := reference.faster("unsigned")).low < PAYS:
        return None
    now, plain = _seconds(evidence, _kind(evidence, right=True)), _seconds(evidence, lambda _: "fp32")
    widths = [one.channels for one in evidence.layers if one.channels]
    wide = f"its layers have {' to '.join(map(str, sorted({min(widths), max(widths)})))} output channels; " if widths else ""
    return Cause(
        "small_channels",
        "slow",
        "The layers are too small for INT8: with few channels, the call, packing and Q/DQ around a product cost more than it saves.",
        f"{wide}they take {_ms(now)} of CPU time in INT8 and {_ms(plain)} in FP32, while a large INT8 product is {_times(rate)} "
        "faster than FP32 here.",
        "Do not quantize this model: run FP32 (or BF16 where the processor has it).",
        _gain(now, plain),
        {"precision": "fp32"},
    )


def padding_work(evidence: Evidence) -> Cause | None:
    """Tokens that are computed and thrown away because others of the batch are longer."""
    share = evidence.padding
    if not evidence.slow or evidence.plan.batch == 1 or share is None or share < PADDED:
        return None
    return Cause(
        "padding_work",
        "slow",
        "Much of the work is done on padding.",
        f"{share:.0%} of the tokens are padding when the labelled data is batched by {evidence.plan.batch}.",
        "Batch sequences of similar length together, or take a smaller batch.",
        Estimate(1 / (1 - share), 1.0, 1 / (1 - share)),
        {"batch": 1},
    )


RULES: tuple[Callable[[Evidence], Cause | None], ...] = (
    not_quantized,
    dynamic_convolutions,
    signed_activations,
    unfused,
    no_integer_instructions,
    small_channels,
    padding_work,
)
OF_THE_MACHINE = ("no_integer_instructions",)
"""Causes without a cure that is faster than what runs: as fast as FP32 is all that can be had."""

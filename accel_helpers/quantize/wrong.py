"""Why a quantized model is less right: from evidence to a cause, or to nothing. Pure; a rule that lacks its figure says nothing.

Each rule predicts from the model's own weights and activations how much of the error goes away, as if the layers' errors were independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from accel_helpers.accuracy import TOLERANCE
from accel_helpers.config import KEEP
from accel_helpers.intervals import Estimate, median
from accel_helpers.quantize.cause import Cause
from accel_helpers.quantize.evidence import Evidence, LayerFacts

TYPICAL = 0.01
"""Relative error that rounding inputs and weights to eight bits leaves in a product of bell-shaped values; measured 0.8 to 1.1 %."""
STRETCHED = 8.0
"""Activations whose largest is this many times what 99 % stay below lose three of their eight bits to the rest; bell-shaped ones have 2."""
CUT = 0.1
"""Share of the activations' norm that a built range cuts off, from which the range counts as another distribution's."""
SLACK = 4.0
"""A built range this many times too wide wastes two of the eight bits."""


def _rounded(evidence: Evidence) -> list[LayerFacts]:
    """The layers whose inputs and weights are rounded to eight bits."""
    if evidence.plan.precision != "int8" or evidence.scheme in ("", "weight_only"):
        return []
    return [one for one in evidence.layers if evidence.integer(one.name)]


def _noise(layers: Sequence[LayerFacts], *errors: str) -> float:
    """Independent errors of layers together: their powers add up."""
    return math.hypot(*(getattr(one, error) for one in layers for error in errors))


def saturation(evidence: Evidence) -> Cause | None:
    """Sums of two products that sixteen bits cannot hold."""
    if not evidence.saturates or evidence.signed >= 0.5:
        return None
    layers = [one for one in _rounded(evidence) if not one.depthwise]
    hit = [one for one in layers if one.overflow_error > 0]
    if not hit:
        return None

    def gain(some: Sequence[LayerFacts]) -> float:
        return _noise(some, "overflow_error", "rounding_error") / max(_noise(some, "reduced_error"), 1e-9)

    worst = max(hit, key=lambda one: one.overflow_error)
    each = [gain([one]) for one in hit]
    return Cause(
        "saturation",
        "wrong",
        "Integer sums saturate: without VNNI this processor adds two products of bytes in sixteen bits, and the weights fill all eight.",
        f"The largest bytes multiplied in the engine answer less than the exact sum; in {len(hit)} of {len(layers)} layers sums "
        f"overflow, most in {worst.name} ({worst.overflow:.2%} of them, {worst.overflow_error:.1%} error in its output, beside "
        f"{worst.rounding_error:.1%} through rounding).",
        "Reduce the weights' range to seven bits; the same file would be right on a processor with VNNI.",
        Estimate(gain(layers), min(each), max(each)),
        {"reduce_range": "on"},
    )


def per_tensor_weights(evidence: Evidence) -> Cause | None:
    """One scale for channels of very different ranges."""
    asked = evidence.plan.quantization
    layers = [one for one in _rounded(evidence) if one.channel_error > 0]
    layers = [one for one in layers if not (one.per_channel if one.per_channel is not None else asked is None or asked.per_channel)]
    if not layers:
        return None
    each = {one.name: one.tensor_error / one.channel_error for one in layers}
    worst = max(layers, key=lambda one: each[one.name])
    gain = _noise(layers, "tensor_error", "rounding_error") / _noise(layers, "channel_error", "rounding_error")
    where = "depthwise convolutions" if worst.depthwise else "some layers"
    return Cause(
        "per_tensor_weights",
        "wrong",
        f"Weights of {where} have one scale for all channels, whose ranges differ widely.",
        f"In {worst.name} the widest channel's range is {worst.spread:.0f} times the narrowest's; rounding leaves {worst.tensor_error:.1%} "
        f"error in its channels, and {worst.channel_error:.1%} with a scale for each.",
        "Quantize weights per channel.",
        Estimate(gain, min(gain, *each.values()), max(gain, *each.values())),
        {"per_channel": True},
    )


def calibration(evidence: Evidence) -> Cause | None:
    """Ranges that fit other data than the model meets."""
    layers = [one for one in _rounded(evidence) if one.clipped is not None and one.slack is not None]
    cut = [one for one in layers if (one.clipped or 0) > CUT]
    wide = [one for one in layers if (one.slack or 0) > SLACK]
    if not (cut or wide):
        return None
    ratio = [(one.clipped or 0) / TYPICAL for one in cut] or [one.slack or 0 for one in wide]
    worst = max(cut, key=lambda one: one.clipped or 0) if cut else max(wide, key=lambda one: one.slack or 0)
    what = f"cuts off {worst.clipped:.0%} of the input of {worst.name}" if cut else f"of {worst.name} is {worst.slack:.0f} times too wide"
    asked = evidence.plan.quantization
    changes: dict[str, Any] = {}
    if asked and asked.calibration_data != "representative":
        changes = {"calibration_data": "representative"}
    elif asked and cut and asked.calibrator != "minmax":
        changes = {"calibrator": "minmax"}
    elif asked and asked.calibration < 64:
        changes = {"calibration": 256}
    return Cause(
        "calibration",
        "wrong",
        "The calibration samples are unlike the data: the ranges of the activations fit something else.",
        f"Of {len(layers)} layers, {len(cut)} have a range that is too narrow and {len(wide)} one that is too wide; the range {what}.",
        "Calibrate with samples of the kind that the model meets, prepared the same way, and with enough of them.",
        Estimate(median(ratio), min(ratio), max(ratio)),
        changes,
    )


def outliers(evidence: Evidence) -> Cause | None:
    """A few large activations that leave the others few steps."""
    layers = _rounded(evidence)
    hit = [
        one
        for one in layers
        if one.stretch >= STRETCHED and one.rounding_error > 2 * TYPICAL and (one.clipped or 0) <= CUT and (one.slack or 0) <= SLACK
    ]
    if not hit:
        return None
    worst = max(hit, key=lambda one: one.rounding_error)
    each = [one.rounding_error / TYPICAL for one in hit]
    rest = math.hypot(_noise([one for one in layers if one not in hit], "rounding_error"), TYPICAL)
    gain = _noise(layers, "rounding_error") / rest
    known = {one.name for one in evidence.census.layers} if evidence.census else set()
    few = len(hit) <= max(1, len(layers) // 4) and all(one.name in known for one in hit)
    keep = KEEP.join(sorted({*(evidence.plan.quantization.keep if evidence.plan.quantization else ()), *(one.name for one in hit)}))
    return Cause(
        "outliers",
        "wrong",
        "A few activations are far larger than the rest and stretch the range, so that the others share few of the 256 steps.",
        f"In {len(hit)} of {len(layers)} layers the largest activation is {STRETCHED:.0f} times what 99 % stay below, or more; "
        f"in {worst.name} it is {worst.stretch:.0f} times, and rounding leaves {worst.rounding_error:.1%} error in its output, "
        f"where {TYPICAL:.0%} is usual.",
        f"Leave {'these layers' if few else 'the layers with outliers'} in float, or cut the range where few values lie.",
        Estimate(gain, min(gain, *each), max(gain, *each)),
        {"keep": keep} if few else {"calibrator": "percentile"},
    )


def training_mode(evidence: Evidence) -> Cause | None:
    """A graph exported without ``eval()``."""
    tolerance = TOLERANCE["fp32"]
    differs = max(evidence.repeats or 0.0, evidence.batches or 0.0)
    if differs <= tolerance:
        return None
    first = f"in training mode are {', '.join(evidence.training[:3])}; " if evidence.training else ""
    return Cause(
        "training_mode",
        "wrong",
        "The network was exported in training mode, without eval(): an answer depends on chance, or on the other samples of its batch.",
        f"{first}two FP32 calls on the same input differ by {evidence.repeats or 0:.2g}, and samples in a batch and alone by "
        f"{evidence.batches or 0:.2g}, where {tolerance:g} is rounding.",
        "Call eval() on the network, export it again and quantize that.",
        Estimate(differs / tolerance, 1.0, math.inf),
    )


def padding(evidence: Evidence) -> Cause | None:
    """A model that reads its padding."""
    tolerance = TOLERANCE["fp32"]
    if evidence.padded is None or evidence.padded <= tolerance:
        return None
    share = f"; {evidence.padding:.0%} of the labelled data's tokens are padding" if evidence.padding is not None else ""
    return Cause(
        "padding",
        "wrong",
        "The model reads its padding: the mask does not reach everything that mixes tokens.",
        f"In FP32, a padded sample and the same one without padding differ by {evidence.padded:.2g}{share}.",
        "Apply the attention mask in attention and in pooling, and export again; until then, run each sequence without padding.",
        Estimate(evidence.padded / tolerance, 1.0, math.inf),
    )


RULES: tuple[Callable[[Evidence], Cause | None], ...] = (saturation, per_tensor_weights, calibration, outliers, training_mode, padding)
OF_THE_MODEL = ("training_mode", "padding")
"""Causes that are wrong in FP32 too, so that no comparison with FP32 shows them."""

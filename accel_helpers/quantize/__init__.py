"""Quantization looked at from above: which layers are sensitive, and why a quantized model is slow or wrong."""

from accel_helpers.quantize._observed import Range
from accel_helpers.quantize.calibrating import Trial, Trials, experiment, spread
from accel_helpers.quantize.cause import Cause
from accel_helpers.quantize.compared import LayerError, layer_errors
from accel_helpers.quantize.cure import Cure, verify
from accel_helpers.quantize.eager import Attempt, attempts
from accel_helpers.quantize.evidence import Evidence, LayerFacts, Rate
from accel_helpers.quantize.explain import explain
from accel_helpers.quantize.gather import examine, gather
from accel_helpers.quantize.mixed import Mixed, greedy
from accel_helpers.quantize.qat import BitWidth, bit_widths
from accel_helpers.quantize.sensitivity import (
    Scores,
    SensitivePart,
    Sensitivity,
    group_scores,
    layer_noise,
    ranges,
    sensitive_part,
)

__all__ = [
    "Attempt",
    "BitWidth",
    "Cause",
    "Cure",
    "Evidence",
    "LayerError",
    "LayerFacts",
    "Mixed",
    "Range",
    "Rate",
    "Scores",
    "SensitivePart",
    "Sensitivity",
    "Trial",
    "Trials",
    "attempts",
    "bit_widths",
    "examine",
    "experiment",
    "explain",
    "gather",
    "greedy",
    "group_scores",
    "layer_errors",
    "layer_noise",
    "ranges",
    "sensitive_part",
    "spread",
    "verify",
]

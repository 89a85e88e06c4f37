"""Is it still right? Outputs against a reference, and the task metric on the validation part."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from accel_helpers.engine import Session
from accel_helpers.errors import ModelError
from accel_helpers.models import Array, Model
from accel_helpers.records import Score

_QUANTIZED = 0.5
TOLERANCE: Mapping[str, float] = {
    "fp32": 1e-3,
    "tf32": 64 * 2**-11,
    "fp16": 64 * 2**-11,
    "bf16": 64 * 2**-8,
    "int8": _QUANTIZED,
    "int4": _QUANTIZED,
    "fp8": _QUANTIZED,
}
"""Largest relative error of an output that rounding in the type explains.

Sixty-four unit roundoffs, 2^-8 for bf16 (7 stored bits) and 2^-11 for fp16 and tf32 (10 stored bits): they add up over some tens of layers
(Higham, Accuracy and Stability of Numerical Algorithms, chapters 2 and 3). FP32, at 2^-24, has room for another order of summation. An
output outside is wrong, not rounded: one without its mask or of zeros is off by 0.6 and more. Eight bits and fewer have no such bound,
because their error depends on the ranges: half the output's norm (6 dB) is where noise begins to drown the signal. Whether the rounding
is acceptable is for the task metric to say.
"""


def relative_error(outputs: Mapping[str, Array], reference: Mapping[str, Array]) -> float:
    """The largest ``‖output - reference‖₂ / ‖reference‖₂`` over the reference's outputs.

    Infinite when an output is missing, misshapen or not finite.
    """
    worst = 0.0
    for name, expected in reference.items():
        actual = outputs.get(name)
        if actual is None or actual.shape != expected.shape or not np.isfinite(actual).all():
            return float("inf")
        scale = float(np.linalg.norm(expected.astype(np.float64).ravel()))
        error = float(np.linalg.norm((actual.astype(np.float64) - expected).ravel()))
        worst = max(worst, error / scale if scale else error)
    return worst


def evaluate(session: Session, model: Model, batch: int = 32) -> Score:
    """The model's task metric over its whole validation part, through a loaded session.

    Raises:
        ModelError: the model has no labelled data or no metric.
    """
    if model.dataset is None or model.metric is None:
        raise ModelError(
            f"{model.name} has no labelled data, so no task metric.", "Give Model.dataset and Model.metric; outputs are still compared."
        )
    validation = model.dataset().validation
    if validation.labels is None:
        raise ModelError(f"The validation part of {model.name} has no labels.", "Give Split.labels.")
    collected: dict[str, list[Array]] = {name: [] for name in model.outputs}
    for inputs, _ in validation.batches(batch):
        outputs = session(inputs)
        for name in model.outputs:
            collected[name].append(outputs[name])
    everything = {name: np.concatenate(parts) for name, parts in collected.items()}
    return Score(model.metric.name, model.metric.function(everything, validation.labels), len(validation))

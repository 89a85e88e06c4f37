"""Which samples a quantizer sees: from the model's own calibration part, never from its validation part, never random."""

from __future__ import annotations

import numpy as np

from accel_helpers.errors import ModelError, ParameterError
from accel_helpers.models import Model, Split
from accel_helpers.records import Quantization


def samples(model: Model, quantization: Quantization) -> Split:
    """The calibration samples of a plan: ``quantization.calibration`` of them, drawn without replacement by ``quantization.seed``.

    All of the calibration part where it holds fewer. ``Split.batches(1)`` gives them one at a time, without padding that none needs.

    Raises:
        ModelError: the model has no data.
        ParameterError: an experiment that this model's inputs do not allow.
    """
    if model.dataset is None:
        raise ModelError(
            f"{model.name} has no data to calibrate with.",
            "Give Model.dataset, or choose scheme=dynamic or weight_only, which need none.",
        )
    part = model.dataset().calibration
    if quantization.calibration_data != "representative":
        raise ParameterError(f"calibration_data={quantization.calibration_data} is not there yet.", "Choose representative.")
    chosen = np.random.default_rng(quantization.seed).permutation(len(part))[: quantization.calibration]
    labels = None if part.labels is None else part.labels[chosen]
    return Split({name: values[chosen] for name, values in part.inputs.items()}, labels, part.mask)

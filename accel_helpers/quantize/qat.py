"""What quantization-aware training gives back of what quantizing after training loses, at fewer and fewer bits."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from accel_helpers.accuracy import score, validation_of
from accel_helpers.engines import _torchao_graph
from accel_helpers.errors import UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Quantization, Score

CALIBRATION = 256
_SEQUENCE = 128  # of the example inputs that a graph is exported with; its length stays open


@dataclass(frozen=True)
class BitWidth:
    """One network at one number of bits, judged on the same held-out samples three ways; each score keeps its samples' outcomes."""

    bits: int  # of weights and of activations
    fp32: Score
    ptq: Score  # post-training quantization: ranges from calibration samples
    qat: Score  # the same integers after training with them
    ptq_seconds: float
    qat_seconds: float


def bit_widths(model: Model, bits: Iterable[int] = (8, 4, 3, 2), seed: int = 0, per_channel: bool = True) -> list[BitWidth]:
    """Quantize a model at several bit widths with and without training, and judge each on the whole validation part.

    The scores are those of the converted graphs run as they are: quantized and dequantized numbers, multiplied in FP32. Eight bits and
    fewer have the same integers as the kernels of the ``compiled`` engine, which hold them in bytes, so fewer bits are no faster there.

    Args:
        model: one that brings ``train``, data and a metric.
        bits: each from 2 to 8.
        seed: of the calibration samples and of the training.
        per_channel: one scale for each output channel of a weight, or one for the whole weight.

    Raises:
        UnsupportedError: the model has no training recipe.
        ModelError: it has no labelled data, or cannot be exported.
    """
    if model.train is None or model.build is None:
        raise UnsupportedError(f"{model.name} brings no training recipe.", "Give Model.train, a function that trains the network given.")
    reference = _score(model, model.build().eval())
    answers = []
    for width in bits:
        asked = [
            Quantization(scheme, calibration=CALIBRATION, per_channel=per_channel, symmetric=False, seed=seed)
            for scheme in ("static", "qat")
        ]
        (ptq, ptq_seconds), (qat, qat_seconds) = (_quantized(model, one, width) for one in asked)
        answers.append(BitWidth(width, reference, ptq, qat, ptq_seconds, qat_seconds))
    return answers


def _quantized(model: Model, asked: Quantization, bits: int) -> tuple[Score, float]:
    assert model.build is not None
    start = time.perf_counter()
    prepared = _torchao_graph.prepare(model, asked, model.build(), _SEQUENCE, bits)
    _torchao_graph.fit(model, prepared, asked)
    converted = _torchao_graph.convert(prepared)
    seconds = time.perf_counter() - start
    return _score(model, converted), seconds


def _score(model: Model, network: Any) -> Score:
    import numpy as np
    import torch

    split, metric = validation_of(model)
    assert split.labels is not None
    parts = []
    with torch.inference_mode():
        for inputs, _ in split.batches(100):
            answer = network(**{name: torch.from_numpy(values) for name, values in inputs.items()})
            answer = answer if isinstance(answer, tuple | list) else (answer,)
            parts.append([value.numpy() for value in answer])
    outputs = {name: np.concatenate(values) for name, values in zip(model.outputs, zip(*parts, strict=True), strict=True)}
    return score(metric, outputs, split.labels)

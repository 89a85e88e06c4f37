"""What calibration data shows: the range of every tensor that could be quantized; and other samples, to judge by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from accel_helpers import calibration
from accel_helpers.engine import Array
from accel_helpers.engines import _onnx_calibrate
from accel_helpers.errors import ModelError, UnsupportedError
from accel_helpers.models import Model, Split
from accel_helpers.quantize._simulated import FEW, MASKED, Scale, Simulated, batches, scale
from accel_helpers.records import Quantization, Record

PERCENTILES = (0.1, 1.0, 50.0, 99.0, 99.9)
_DRAWN = 65536  # values of a tensor that percentiles are taken from
_LEAST = 8  # samples that ranges, and again figures, are taken from


@dataclass(frozen=True)
class Range(Record):
    """What an observer saw of one tensor. Masked scores (below -1e9) are left out."""

    tensor: str
    layers: tuple[str, ...]  # that read it; of a normalisation or softmax, also the one that writes it
    low: float
    high: float
    percentiles: tuple[float, ...]  # at PERCENTILES, of 65,536 values drawn evenly from the batches, or all where they are fewer
    samples: int

    @property
    def outliers(self) -> float:
        """The range over that of the inner 99.8 % of the values: how many times coarser the rarest values make the integers."""
        inner = max(self.percentiles[-1], 0.0) - min(self.percentiles[0], 0.0)
        return (max(self.high, 0.0) - min(self.low, 0.0)) / inner if inner else 1.0


def samples(model: Model, quantization: Quantization, count: int) -> tuple[Split, Split]:
    """Calibration samples, and ``count`` others of the calibration part that their ranges were not taken from; shortest first.

    Where the part is too small for both, the calibration gets fewer, but not below half of the part.

    Raises:
        ModelError: the model has no data, or too little.
        UnsupportedError: the scheme takes no ranges from data.
    """
    if not quantization.calibration:
        raise UnsupportedError(
            f"scheme={quantization.scheme} takes no ranges from data, so there is nothing to compare layer by layer.",
            "Choose scheme=static: it rounds the same layers with fixed ranges.",
        )
    everything = replace(quantization, calibration=2**31 - 1, calibration_data="representative")
    part = calibration.samples(model, everything)
    if len(part) < 2 * _LEAST:
        raise ModelError(f"The calibration part of {model.name} holds {len(part)} samples.", f"Give {2 * _LEAST} or more.")
    count = min(count, len(part) // 2)
    seen = calibration.samples(model, replace(quantization, calibration=min(quantization.calibration, len(part) - count)))
    return shortest_first(seen), shortest_first(taken(part, np.arange(len(part) - count, len(part))))


def taken(split: Split, rows: Array) -> Split:
    """Some samples of a split, in the order given."""
    labels = None if split.labels is None else split.labels[rows]
    return Split({name: values[rows] for name, values in split.inputs.items()}, labels, split.mask)


def shortest_first(split: Split) -> Split:
    """The samples in an order in which batches need little padding."""
    return split if split.mask is None else taken(split, np.argsort(split.inputs[split.mask].sum(axis=1), kind="stable"))


def observe(simulated: Simulated, split: Split) -> tuple[Range, ...]:
    """The range of every tensor of a graph over some samples."""
    generator = np.random.default_rng(0)
    lows: dict[str, list[float]] = {tensor: [] for tensor in simulated.tensors}
    highs: dict[str, list[float]] = {tensor: [] for tensor in simulated.tensors}
    drawn: dict[str, list[Array]] = {tensor: [] for tensor in simulated.tensors}
    each = max(_DRAWN * FEW // len(split), 32)
    for inputs, _ in batches(split, FEW):
        for tensor, values in simulated.run(inputs, outputs=simulated.tensors).items():
            flat = values.ravel()
            if not flat.min() >= MASKED:
                flat = flat[flat >= MASKED]
            if not flat.size or not np.isfinite(flat.max()):
                raise ModelError(
                    f"The tensor {tensor!r} of {simulated.model.name} holds no finite range on the calibration samples.",
                    "Look for a division by zero or an overflow in the FP32 model.",
                )
            lows[tensor].append(float(flat.min()))
            highs[tensor].append(float(flat.max()))
            drawn[tensor].append(flat if flat.size <= each else flat[generator.integers(flat.size, size=each)])
    readers: dict[str, list[str]] = {tensor: [] for tensor in simulated.tensors}
    for layer in simulated.layers:
        for tensor in dict.fromkeys((*layer.inputs, *layer.outputs)):
            readers[tensor].append(layer.name)
    return tuple(
        Range(
            tensor=tensor,
            layers=tuple(readers[tensor]),
            low=min(lows[tensor]),
            high=max(highs[tensor]),
            percentiles=tuple(float(value) for value in np.percentile(np.concatenate(drawn[tensor]), PERCENTILES)),
            samples=len(split),
        )
        for tensor in simulated.tensors
    )


def scales(simulated: Simulated, quantization: Quantization, split: Split) -> Mapping[str, Scale]:
    """The scale of every tensor, from the extremes that were seen or, for tensors of products, by the plan's calibrator."""
    seen = {one.tensor: (one.low, one.high) for one in observe(simulated, split)}
    if quantization.calibrator != "minmax":
        read = dict.fromkeys(tensor for layer in simulated.layers if layer.multiplies for tensor in layer.inputs)
        found = _onnx_calibrate.ranges(
            simulated.path, list(read), lambda: (inputs for inputs, _ in split.batches(1)), quantization.calibrator
        )
        seen |= {tensor: (float(low), float(high)) for tensor, (low, high) in found.items()}
    return {tensor: scale(low, high, quantization.symmetric) for tensor, (low, high) in seen.items()}

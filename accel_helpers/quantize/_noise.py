"""How far a quantized model's numbers are from the FP32 ones, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from accel_helpers.engine import Array
from accel_helpers.models import Split
from accel_helpers.quantize._graph import Node
from accel_helpers.quantize._simulated import FEW, Places, Simulated, batches

Watch = Callable[[int, int], None]
"""Told how many runs of the model are done, of how many."""


def decibels(noise: Sequence[float]) -> float:
    """The signal-to-noise ratio of a mean noise power; infinite where there is none."""
    mean = sum(noise) / len(noise)
    return -10 * math.log10(mean) if mean else math.inf


def noises(simulated: Simulated, split: Split, runs: Sequence[Places], watch: Watch | None = None) -> list[tuple[float, ...]]:
    """The noise of the model's outputs in every run, one figure for each sample: the mean over the floating-point outputs."""
    wanted = simulated.model.outputs
    meters = {chosen: {name: Meter() for name in wanted} for chosen in runs}  # what is asked for twice runs once
    parts = list(batches(split))
    for number, (inputs, rows) in enumerate(parts):
        right = simulated.run(inputs)
        for index, (chosen, meter) in enumerate(meters.items()):
            answers = simulated.run(inputs, chosen)
            for name in wanted:
                meter[name].add(right[name], answers[name], rows.stop - rows.start)
            if watch:
                watch(number * len(meters) + index + 1, len(parts) * len(meters))
    found = {chosen: np.mean([one.shares for one in meter.values() if one.used], axis=0) for chosen, meter in meters.items()}
    return [tuple(float(value) for value in found[chosen]) for chosen in runs]


def accumulated(simulated: Simulated, split: Split, every: Places) -> tuple[dict[str, tuple[float, ...]], dict[str, int]]:
    """The noise of each layer's output with every layer quantized, and the multiplications of each layer for one item."""
    outputs = {layer.name: layer.output for layer in simulated.layers}
    meters = {name: Meter() for name in outputs}
    operations: dict[str, int] = {}
    for inputs, rows in batches(split, FEW):
        items, mask = rows.stop - rows.start, inputs[split.mask] if split.mask else None
        right = simulated.run(inputs, outputs=list(dict.fromkeys((*simulated.tensors, *outputs.values()))))
        answers = simulated.run(inputs, every, list(outputs.values()))
        for layer in simulated.layers:
            meters[layer.name].add(right[layer.output], answers[layer.output], items, mask)
            operations.setdefault(layer.name, operations_of(layer, right, items))
    return {name: meter.shares for name, meter in meters.items()}, operations


def operations_of(layer: Node, values: Mapping[str, Array], items: int) -> int:
    """Multiplications of one item: those behind each number of the output, times how many there are."""
    if not layer.multiplies:
        return 0
    if layer.weight is None or layer.axis is None:
        each = values[layer.inputs[0]].shape[-1]
    else:
        each = layer.weight.size // layer.weight.shape[layer.axis]
    return int(each * values[layer.output].size // items)


class Meter:
    """Adds up signal and noise of one tensor, sample by sample."""

    def __init__(self) -> None:
        self.signal: list[Array] = []
        self.errors: list[Array] = []

    def add(self, right: Array, answer: Array, items: int, mask: Array | None = None) -> None:
        """One batch of ``items`` samples, right and as it came out; ``mask`` is zero where a sequence is padded. Integers are skipped."""
        if not np.issubdtype(right.dtype, np.floating):
            return
        error = answer - right
        if mask is not None and right.ndim > 2 and right.shape[:2] == mask.shape:  # padding is no part of the answer
            real, owner = mask > 0, np.repeat(np.arange(items), mask.sum(axis=1))
            self.signal.append(np.bincount(owner, _squares(right[real]), items))
            self.errors.append(np.bincount(owner, _squares(error[real]), items))
        else:
            self.signal.append(_of_items(_squares(right), items))
            self.errors.append(_of_items(_squares(error), items))

    @property
    def used(self) -> bool:
        """Whether the tensor holds floats at all."""
        return bool(self.signal)

    @property
    def shares(self) -> tuple[float, ...]:
        """The noise of each sample."""
        signal = float(np.concatenate(self.signal).mean())
        return tuple(float(value) for value in np.concatenate(self.errors) / (signal or 1.0))


def _squares(values: Array) -> Array:
    """The sum of squares along all axes but the first, float64."""
    return np.asarray(np.square(values).reshape(len(values), -1).sum(axis=1, dtype=np.float64))


def _of_items(sums: Array, items: int) -> Array:
    """Sums along a tensor's first axis as sums of each sample; what samples share (an embedding of positions) counts for each."""
    return sums.reshape(items, -1).sum(axis=1) if len(sums) % items == 0 else np.full(items, sums.sum())

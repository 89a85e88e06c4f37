"""The Model record and its data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

TRIM = 32
"""Batches of padded sequences are cut to a multiple of this many tokens, so that a compiled engine meets few shapes."""


@dataclass(frozen=True)
class Split:
    """Samples with their labels: ``inputs`` maps each input name to an array whose first axis is the sample; ``labels`` may be absent.

    ``mask`` names the input that is one where a sequence has a token and zero where it is padded on the right; every input of such a
    split has the shape (samples, sequence).
    """

    inputs: dict[str, Array]
    labels: Array | None
    mask: str | None = None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def batches(self, size: int) -> Iterator[tuple[dict[str, Array], Array | None]]:
        """The samples in order, ``size`` at a time; the last batch may be smaller.

        Sequences lose the padding that no sample of the batch needs: each batch is as long as its longest sample, rounded up to a
        multiple of :data:`TRIM`.
        """
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            batch = {name: values[part] for name, values in self.inputs.items()}
            if self.mask is not None:
                length = -(-int(batch[self.mask].sum(axis=1).max()) // TRIM) * TRIM
                batch = {name: np.ascontiguousarray(values[:, :length]) for name, values in batch.items()}
            yield batch, None if self.labels is None else self.labels[part]


@dataclass(frozen=True)
class Dataset:
    """Two disjoint parts: one to calibrate on, one to judge by."""

    calibration: Split
    validation: Split


@dataclass(frozen=True)
class Metric:
    """A task metric over a whole validation part. Its functions take the outputs of all samples and their labels."""

    name: str
    function: Callable[[dict[str, Array], Array], float]
    higher_is_better: bool = True
    published: float | None = None  # the FP32 figure it must reproduce
    # (samples,): booleans, right or wrong, or each sample's error. Their mean is the metric; without them its change has no interval.
    outcomes: Callable[[dict[str, Array], Array], Array] | None = None
    others: Callable[[dict[str, Array], Array], Mapping[str, float]] | None = None  # metrics to show beside it, by name


@dataclass(frozen=True)
class Model:
    """What to run.

    ``example(batch, sequence, seed)`` gives named inputs; models without a sequence axis ignore ``sequence``. The names are those of the
    network's ``forward`` parameters, in the same order. ``axes`` names every dynamic axis of every input and output, e.g.
    ``{"input_ids": {0: "batch", 1: "sequence"}}``.
    """

    name: str  # what `get` finds it by, here or in another process
    example: Callable[[int, int, int], dict[str, Array]]
    axes: Mapping[str, Mapping[int, str]]
    outputs: tuple[str, ...]
    fingerprint: str  # SHA-256 of the weights (or the ONNX file) and of what else decides the graph
    # a torch.nn.Module in eval mode, FP32, that answers one tensor, or a tuple in the order of `outputs`; None where there is an ONNX file
    build: Callable[[], Any] | None = None
    onnx: Path | None = None  # the reader's own ONNX file
    dataset: Callable[[], Dataset] | None = None  # read when asked
    metric: Metric | None = None
    # trains the network given, in place, for quantization-aware training: the weights of `build` to start with, labelled data of its own
    train: Callable[[Any], None] | None = None
    has_sequence: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)  # licence, source, what was converted

"""Cheap experiments on the machine and the model, each under two seconds. They answer figures; what these mean is for ``causes`` to say."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.accuracy import relative_error
from accel_helpers.engine import Array
from accel_helpers.models import Model, Split
from accel_helpers.quantize import kernels
from accel_helpers.quantize._graph import Node
from accel_helpers.quantize._session import open_graph
from accel_helpers.quantize.evidence import Rate
from accel_helpers.quantize.facts import activations, options_of, weighted_layers

Answer = Callable[[dict[str, Array]], Mapping[str, Array]]

ROUNDS = 7
"""Rounds of each timing: six is the fewest that have a 95 % interval."""
SIZES = 6
"""Layer sizes that are timed, the most costly first."""
LARGE = 256
"""Rows, depth and columns of the reference product: 17 million multiplications, where the call itself costs nothing."""
_ROUND_SECONDS = 2e-3
_LEAST = 5e-7  # seconds: no layer costs less, whatever the clock says


def saturates(engine: str) -> bool:
    """Whether an engine's product of unsigned and signed bytes saturates on this machine.

    The largest values, 255 and 127, make sums of two products of 64,770, which sixteen bits cannot hold; the exact answer tells.

    Args:
        engine: one of :data:`kernels.ENGINES <accel_helpers.quantize.kernels.ENGINES>`.
    """
    rows, depth, columns = 4, 64, 16
    found = kernels.product(np.full((rows, depth), 255), np.full((depth, columns), 127, np.int8), engine)
    return bool((found != 255 * 127 * depth).any())


def rates(path: Path, sample: dict[str, Array], engine: str) -> tuple[tuple[Rate, ...], float]:
    """What the layers of an FP32 graph cost in each type on one thread, in an engine's kernels, and what the rest of an FP32 call costs.

    Layers of further sizes count to the rest, so that a predicted gain is rather too small than too large.

    Args:
        path: the FP32 graph.
        sample: one item's inputs; they decide the sizes.
        engine: one of :data:`kernels.ENGINES <accel_helpers.quantize.kernels.ENGINES>`.

    Returns:
        The rates of the :data:`SIZES` costliest layer sizes and of the reference, and the CPU seconds of a call outside of those layers.
    """
    layers, graph = weighted_layers(path)
    seen = next(activations(path, layers, [sample]))
    sizes: dict[tuple[Any, ...], list[Node]] = {}
    for layer in layers:
        assert layer.weight is not None
        options = tuple(sorted((name, str(value)) for name, value in options_of(graph.producers[layer.output]).items()))
        sizes.setdefault((layer.operator, seen[layer.inputs[0]].shape, layer.weight.shape, options), []).append(layer)
    costly = sorted(sizes.values(), key=lambda same: -len(same) * _work(same[0], seen[same[0].inputs[0]]))[:SIZES]
    found = []
    with kernels.one_thread(engine):
        idle = min(_timed({"idle": kernels.idle(engine)})["idle"])
        for same in costly:
            layer, given = same[0], options_of(graph.producers[same[0].output])
            calls = kernels.layer(layer.operator, _straight(layer), seen[layer.inputs[0]].shape, given, engine)
            found.append(Rate(layer.name, len(same), **_timed(calls, idle)))
        square = np.random.default_rng(0).normal(size=(LARGE, LARGE)).astype(np.float32)
        reference = Rate("", 1, **_timed(kernels.layer("MatMul", square, (1, LARGE, LARGE), {}, engine), idle))
    whole = min(_timed({"fp32": kernels.opened(path, sample, engine)})["fp32"])
    inside = sum(one.count * min(one.fp32) for one in found)
    return (*found, reference), max(0.0, whole - inside)


def _straight(layer: Node) -> Array:
    """The weight of a product with its output channels last; that of a convolution as it is."""
    assert layer.weight is not None
    straight = layer.operator == "Conv" or layer.axis == layer.weight.ndim - 1
    return layer.weight if straight else np.ascontiguousarray(layer.weight.T)


def _work(layer: Node, values: Array) -> float:
    """Proportional to a layer's multiplications."""
    assert layer.weight is not None
    places = values[0, 0].size if layer.operator == "Conv" else values.size / layer.weight.shape[0]
    return float(places * layer.weight.size)


def _timed(calls: Mapping[str, Callable[[], Any]], idle: float = 0.0) -> dict[str, tuple[float, ...]]:
    """CPU seconds of a call of each kind beyond those of an idle one: the fastest of each round, rounds interleaved."""
    repeats = {}
    for kind, call in calls.items():
        call()
        begin = time.thread_time()
        call()
        repeats[kind] = int(min(20, max(2, _ROUND_SECONDS / max(time.thread_time() - begin, 1e-6))))
    series: dict[str, list[float]] = {kind: [] for kind in calls}
    for _ in range(ROUNDS):
        for kind, call in calls.items():
            best = float("inf")
            for _ in range(repeats[kind]):
                begin = time.thread_time()
                call()
                best = min(best, time.thread_time() - begin)
            series[kind].append(max(best - idle, _LEAST))
    return {kind: tuple(seconds) for kind, seconds in series.items()}


def answer_of(path: Path) -> Answer:
    """An ONNX file as a function from named inputs to named outputs."""
    session = open_graph(path)
    names = [one.name for one in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def boundaries(path: Path) -> int:
    """The quantize and dequantize operators that a graph's inputs and outputs need: one for each floating-point value."""
    session = open_graph(path)
    return sum("float" in one.type for one in (*session.get_inputs(), *session.get_outputs()))


def repeats(answer: Answer, sample: dict[str, Array]) -> float:
    """The relative difference of two calls on the same input: 0 for a network in eval mode, far from it where dropout drops."""
    return relative_error(answer(sample), answer(sample))


def batches(answer: Answer, batch: dict[str, Array]) -> float:
    """The relative difference between a batch and its samples one at a time."""
    together = answer(batch)
    alone = [answer({name: values[row : row + 1] for name, values in batch.items()}) for row in range(len(next(iter(batch.values()))))]
    return relative_error(together, {name: np.concatenate([one[name] for one in alone]) for name in together})


def padded(answer: Answer, sample: dict[str, Array], mask: str, extra: int) -> float:
    """The relative difference between a sample padded on the right by ``extra`` tokens and the same sample without padding.

    Outputs that have a value for each token are compared on the sample's own tokens.
    """
    length = int(sample[mask].sum())
    bare = {name: values[:1, :length] for name, values in sample.items()}
    longer = {name: np.pad(values, ((0, 0), (0, extra))) for name, values in bare.items()}
    alone, together = answer(bare), answer(longer)
    cut = {
        name: values[:, :length] if values.ndim > 1 and values.shape[1] == length + extra else values for name, values in together.items()
    }
    return relative_error(cut, alone)


def padding_share(split: Split, batch: int) -> float | None:
    """The share of tokens that are padding when the samples are batched in order; None for inputs without a mask."""
    if split.mask is None:
        return None
    masks = [inputs[split.mask] for inputs, _ in split.batches(batch)]
    return 1 - sum(int(one.sum()) for one in masks) / sum(one.size for one in masks)


def open_samples(model: Model, count: int) -> list[dict[str, Array]]:
    """A few items like those that the model will meet: of its validation part, else made examples. Each holds one item."""
    if model.dataset is None:
        return [model.example(1, 32, seed) for seed in range(count)]
    part = model.dataset().validation
    chosen = np.random.default_rng(0).permutation(len(part))[:count]
    return [
        next(iter(Split({name: values[[index]] for name, values in part.inputs.items()}, None, part.mask).batches(1)))[0]
        for index in chosen
    ]

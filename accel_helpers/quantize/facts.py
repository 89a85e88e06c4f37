"""Facts of the files: the layers of the FP32 graph, what the built file made of them, and what activations really flow through.

Works on ONNX graphs: every model of the package has one, whatever engine runs it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.engine import Array
from accel_helpers.quantize._graph import Graph, Node
from accel_helpers.quantize._session import open_graph
from accel_helpers.quantize.evidence import LayerFacts

Samples = Sequence[dict[str, Array]]

ROWS, COLUMNS = 64, 32
"""Of a product, at most this many are worked through by hand to count overflows; drawn with a fixed seed."""
_KEPT = 20_000
_DEAD = 1e-3  # of the widest channel's range: a channel narrower than this is rounded away in any range of activations that it shares
_ITEMS = 4
REDUCED = 64
"""The largest magnitude of seven-bit weights: two products with 255 then fit sixteen bits."""
_SIXTEEN_BITS = 2**15 - 1
_SHAPES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Flatten")
_INTEGER = ("QLinearConv", "QLinearMatMul", "QGemm", "ConvInteger", "MatMulInteger")


@dataclass(frozen=True)
class BuiltLayer:
    """What a quantized ONNX file holds for one layer."""

    low: float | None = None  # of the range that its input is rounded to; None for dynamic ranges
    high: float | None = None
    per_channel: bool | None = None
    limit: int = 127  # the largest magnitude of its integer weights


def training_nodes(path: Path) -> tuple[str, ...]:
    """Nodes that behave as in training: dropout that drops, batch norm that normalises by the batch."""
    import onnx

    graph = Graph(onnx.load(path).graph)
    found = []
    for node in graph.graph.node:
        options = {one.name: one.i for one in node.attribute}
        dropping = node.op_type == "Dropout" and len(node.input) > 2 and bool(np.any(graph.constant(node.input[2])))
        if dropping or (node.op_type == "BatchNormalization" and options.get("training_mode")):
            found.append(f"{node.op_type} {node.name or node.output[0]}")
    return tuple(found)


def built_layers(path: Path) -> dict[str, BuiltLayer]:
    """The integer layers of a quantized ONNX file by the name they have in the FP32 graph, in either of ONNX Runtime's formats."""
    import onnx

    graph = Graph(onnx.load(path).graph)
    found = {}
    for node in graph.graph.node:
        if (layer := _built(graph, node)) is not None:
            found[node.name.removesuffix("_quant")] = layer
    return found


def _built(graph: Graph, node: Any) -> BuiltLayer | None:
    if node.op_type in ("QLinearConv", "QLinearMatMul"):
        return _layer(graph, node.input[1:3], node.input[3:5])
    if node.op_type in ("ConvInteger", "MatMulInteger"):
        return _layer(graph, (), (node.input[1],))
    if node.op_type not in ("Conv", "MatMul", "Gemm"):
        return None
    data, weight = (_dequantized(graph, name) for name in node.input[:2])
    return _layer(graph, data.input[1:3], weight.input[:2]) if data is not None and weight is not None else None


def _dequantized(graph: Graph, name: str) -> Any:
    """The DequantizeLinear that a value comes from, past operators that only change its shape."""
    node = graph.producers.get(name)
    while node is not None and node.op_type in _SHAPES:
        node = graph.producers.get(node.input[0])
    return node if node is not None and node.op_type == "DequantizeLinear" else None


def _layer(graph: Graph, data: Sequence[str], weight: Sequence[str]) -> BuiltLayer | None:
    constants = {one.name for one in graph.graph.initializer}
    if weight[0] not in constants:
        return None
    values = graph.constant(weight[0])
    assert values is not None
    limit = int(np.abs(values.astype(np.int32) - (128 if values.dtype == np.uint8 else 0)).max())
    scales = graph.constant(weight[1]) if len(weight) > 1 else None
    per_channel = None if scales is None else scales.size > 1
    if len(data) < 2 or (scale := graph.constant(data[0])) is None or (zero := graph.constant(data[1])) is None:
        return BuiltLayer(per_channel=per_channel, limit=limit)
    kind = np.iinfo(zero.dtype)
    low, high = (float((edge - int(zero.ravel()[0])) * scale.ravel()[0]) for edge in (kind.min, kind.max))
    return BuiltLayer(low, high, per_channel, limit)


def signed_share(path: Path) -> float:
    """The share of a quantized file's integer products whose activations are signed once ONNX Runtime has optimised the graph.

    It turns signed activations of the QDQ format into unsigned ones on x86; those of the operator format stay as they are.
    """
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        optimised = Path(folder) / "optimised.onnx"
        open_graph(path, optimised=optimised)
        graph = Graph(onnx.load(optimised).graph)
    zeros = [graph.constant(node.input[2]) if len(node.input) > 2 else None for node in graph.graph.node if node.op_type in _INTEGER]
    return sum(zero is not None and zero.dtype == np.int8 for zero in zeros) / len(zeros) if zeros else 0.0


def activations(path: Path, layers: Sequence[Node], samples: Samples) -> Iterator[dict[str, Array]]:
    """The inputs of layers, by tensor name, for one sample after the other: those of all at once may not fit in memory."""
    wanted = sorted({layer.inputs[0] for layer in layers})
    session = open_graph(path, outputs=wanted)
    given = {one.name for one in session.get_inputs()}
    internal = [name for name in wanted if name not in given]
    for sample in samples:
        yield {name: sample[name] for name in wanted if name in given} | dict(zip(internal, session.run(internal, sample), strict=True))


def ranges(path: Path, samples: Samples) -> dict[str, tuple[float, float]]:
    """The smallest and largest input of each weighted layer over samples, zero among them, as minmax calibration takes them."""
    layers, _ = weighted_layers(path)
    found = {layer.name: (0.0, 0.0) for layer in layers}
    for seen in activations(path, layers, samples):
        for layer in layers:
            low, high = found[layer.name]
            values = seen[layer.inputs[0]]
            found[layer.name] = min(low, float(values.min())), max(high, float(values.max()))
    return found


def weighted_layers(path: Path) -> tuple[tuple[Node, ...], Graph]:
    """The products with a constant weight, and the graph they are in."""
    import onnx

    graph = Graph(onnx.load(path).graph)
    return tuple(layer for layer in graph.layers if layer.multiplies and layer.weight is not None and layer.place == 1), graph


def layer_facts(path: Path, samples: Samples, built: Mapping[str, BuiltLayer], reduce_range: bool = False) -> tuple[LayerFacts, ...]:
    """What rounding to eight bits does to each weighted layer.

    Args:
        path: the FP32 graph.
        samples: inputs like those that the model will meet; a handful is enough.
        built: :func:`built_layers` of the quantized file; empty where another engine's files cannot be read.
        reduce_range: whether weights have seven bits where ``built`` does not say.
    """
    layers, graph = weighted_layers(path)
    seen = {layer.name: _Seen() for layer in layers}
    for inputs in activations(path, layers, samples):
        for layer in layers:
            seen[layer.name].add(layer, graph, inputs[layer.inputs[0]])
    usual = BuiltLayer(limit=REDUCED if reduce_range else 127)
    return tuple(_facts(layer, seen[layer.name], built.get(layer.name, usual)) for layer in layers)


@dataclass
class _Seen:
    """What is kept of a layer's input over the samples: its range, some values, and some rows of the product beside the weight."""

    low: float = 0.0
    high: float = 0.0
    values: list[Array] = field(default_factory=list)
    rows: list[Array] = field(default_factory=list)
    weight: Array | None = None

    def add(self, layer: Node, graph: Graph, values: Array) -> None:
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        draw, flat = np.random.default_rng(0), values.ravel()
        self.values.append(flat.copy() if flat.size <= _KEPT else draw.choice(flat, _KEPT))
        if len(self.rows) < _ITEMS and (found := _rows(layer, graph, values)) is not None:
            rows, self.weight = found
            self.rows.append(rows[draw.permutation(len(rows))[: ROWS // _ITEMS]])


def _facts(layer: Node, seen: _Seen, built: BuiltLayer) -> LayerFacts:
    weight = _columns(layer)
    ranges = np.abs(weight).max(axis=0)
    alive = ranges > _DEAD * ranges.max()
    values = np.concatenate(seen.values)
    usual, most = float(np.quantile(np.abs(values), 0.99)), max(-seen.low, seen.high)
    low, high = (seen.low, seen.high) if built.low is None or built.high is None else (built.low, built.high)
    known = built.low is not None
    overflow, overflow_error, rounding_error, reduced_error = _products(seen, (low, high), built.limit)
    return LayerFacts(
        name=layer.name,
        operator=layer.operator,
        depthwise=layer.group == "depthwise convolutions",
        channels=weight.shape[1],
        spread=float(ranges[alive].max() / ranges[alive].min()) if alive.any() else 1.0,
        per_channel=built.per_channel,
        channel_error=_rounded(weight[:, alive], ranges[alive]),
        tensor_error=_rounded(weight[:, alive], np.full(int(alive.sum()), ranges.max())),
        overflow=overflow,
        overflow_error=overflow_error,
        rounding_error=rounding_error,
        reduced_error=reduced_error,
        stretch=most / usual if usual else 1.0,
        clipped=_relative(np.clip(values, low, high), values) if known else None,
        slack=(high - low) / (seen.high - seen.low) if known and seen.high > seen.low else None,
    )


def _columns(layer: Node) -> Array:
    """The weight as (products summed, output channels)."""
    assert layer.weight is not None
    assert layer.axis is not None
    return np.moveaxis(layer.weight, layer.axis, -1).reshape(-1, layer.weight.shape[layer.axis])


def _relative(actual: Array, expected: Array) -> float:
    scale = float(np.linalg.norm(expected))
    return float(np.linalg.norm(actual - expected)) / scale if scale else 0.0


def _rounded(weight: Array, ranges: Array) -> float:
    """The relative error that rounding to [-127, 127] leaves in a channel, root mean square over the channels."""
    if not weight.size:
        return 0.0
    scale = ranges / 127
    errors = np.linalg.norm(np.round(weight / scale) * scale - weight, axis=0) / np.linalg.norm(weight, axis=0)
    return float(np.sqrt((errors**2).mean()))


def _products(seen: _Seen, bounds: tuple[float, float], limit: int) -> tuple[float, float, float, float]:
    """Part of a layer's products in integers: ``overflow``, ``overflow_error``, ``rounding_error`` and ``reduced_error`` of its facts.

    VPMADDUBSW multiplies unsigned by signed bytes and adds neighbours in sixteen bits with saturation (Intel, "64 and IA-32 Architectures
    Software Developer's Manual", volume 2). Which products are neighbours depends on the kernel's layout; channels-last is assumed.
    Depthwise and grouped convolutions have kernels of their own: nothing of them overflows here.
    """
    if seen.weight is None:
        return 0.0, 0.0, 0.0, 0.0
    rows = np.concatenate(seen.rows).astype(np.float64)
    chosen = np.random.default_rng(0).permutation(seen.weight.shape[1])[:COLUMNS]
    weight = seen.weight[:, chosen].astype(np.float64)
    low, high = bounds
    step = (high - low) / 255 or 1.0
    zero = round(-low / step)
    data = np.clip(np.round(rows / step) + zero, 0, 255)
    exact = rows @ weight

    def summed(most: int, saturating: bool) -> tuple[Array, float]:
        """The product with weights of that magnitude at most, and the share of its pairs that sixteen bits cannot hold."""
        scale = np.maximum(np.abs(weight).max(axis=0), 1e-12) / most
        coefficients = np.round(weight / scale)
        pairs = _pairs(data, coefficients)
        held = np.clip(pairs, -_SIXTEEN_BITS - 1, _SIXTEEN_BITS) if saturating else pairs
        beyond = float((np.abs(pairs) > _SIXTEEN_BITS).mean())
        return (held.sum(axis=1) - zero * coefficients.sum(axis=0)) * step * scale, beyond

    (rounded, overflow), (saturated, _), (reduced, _) = summed(limit, False), summed(limit, True), summed(min(limit, REDUCED), False)
    return overflow, _relative(saturated, rounded), _relative(rounded, exact), _relative(reduced, exact)


def _pairs(data: Array, coefficients: Array) -> Array:
    """Sums of two neighbouring products: (rows, depth / 2, columns)."""
    if data.shape[1] % 2:
        data, coefficients = np.pad(data, ((0, 0), (0, 1))), np.pad(coefficients, ((0, 1), (0, 0)))
    products: Array = data[:, :, None] * coefficients[None]
    pairs: Array = products[:, 0::2] + products[:, 1::2]
    return pairs


def _rows(layer: Node, graph: Graph, values: Array) -> tuple[Array, Array] | None:
    """Rows that the layer multiplies with its weight (products summed, output channels), channels last; None for grouped convolutions."""
    if layer.operator != "Conv":
        weight = _columns(layer)
        return (values.reshape(-1, weight.shape[0]), weight) if values.shape[-1] == weight.shape[0] else None
    assert layer.weight is not None
    options = options_of(graph.producers[layer.output])
    kernel = layer.weight.shape[2:]
    usual = options.get("group", 1) == 1 and set(options.get("dilations", (1,))) == {1} and options.get("auto_pad", b"NOTSET") == b"NOTSET"
    if not usual or len(kernel) != 2 or values.ndim != 4:
        return None
    pads = options.get("pads", [0, 0, 0, 0])
    padded = np.pad(values[:1], ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    if padded.shape[2] < kernel[0] or padded.shape[3] < kernel[1]:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(padded[0], kernel, axis=(1, 2))
    down, across = options.get("strides", [1, 1])
    windows = windows[:, ::down, ::across]
    draw = np.random.default_rng(0)
    places = draw.integers(windows.shape[1], size=ROWS), draw.integers(windows.shape[2], size=ROWS)
    rows = windows[:, places[0], places[1]].transpose(1, 2, 3, 0).reshape(ROWS, -1)
    return rows, layer.weight.transpose(2, 3, 1, 0).reshape(-1, layer.weight.shape[0])


def options_of(node: Any) -> dict[str, Any]:
    """A node's attributes by name."""
    from onnx import helper

    return {one.name: helper.get_attribute_value(one) for one in node.attribute}

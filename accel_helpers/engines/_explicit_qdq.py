"""Explicit quantization for TensorRT: signed scales around zero, written into the graph as QuantizeLinear and DequantizeLinear.

TensorRT quantizes nothing by itself in a strongly typed network; it fuses what the graph says. So each product with a constant weight gets
a pair before its input and a pair before its weight, and its bias stays in floating point: TensorRT reads neither unsigned bytes nor
biases in 32-bit integers, which is what ONNX Runtime's quantizer writes for a CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.engines import _onnx_calibrate, _onnx_quantize
from accel_helpers.errors import UnknownNameError, UnsupportedError
from accel_helpers.records import Quantization

LARGEST = {"int8": 127.0, "fp8": 448.0}
"""The largest magnitude of each type; FP8 is E4M3. Micikevicius et al., "FP8 Formats for Deep Learning", 2022, table 1."""
_PER_CHANNEL = ("int8",)  # TensorRT takes one scale for a whole FP8 weight


def explicit(source: Path, precision: str, quantization: Quantization, batches: _onnx_calibrate.Batches) -> tuple[Any, dict[str, str]]:
    """The graph in ``source`` as an ``onnx.ModelProto`` with its pairs, and the type that each of its products is to run in.

    A scale is the largest magnitude seen in calibration, or in the weight (or in each of its output channels), over :data:`LARGEST`.

    Raises:
        UnknownNameError: ``keep`` names a layer that is not there.
        UnsupportedError: no product has a constant weight.
        ModelError: an activation has no range.
    """
    import onnx

    loaded = _onnx_quantize.named(onnx.load(source))
    products = {node.name: node for node in loaded.graph.node if node.op_type in _onnx_quantize.PRODUCTS}
    for name in quantization.keep:
        if name not in products:
            raise UnknownNameError("layer", name, products)
    chosen = [node for node in _onnx_quantize.weighted(loaded) if node.name not in quantization.keep]
    if not chosen:
        raise UnsupportedError(
            f"No product of this graph would run in {precision.upper()}: none has a constant weight that keep does not name.",
            "Name fewer layers in keep, or choose precision=fp16.",
        )
    ranges = _onnx_calibrate.ranges(source, list(dict.fromkeys(node.input[0] for node in chosen)), batches, quantization.calibrator)
    pairs = _Pairs(loaded, precision)
    weights = {one.name: one for one in loaded.graph.initializer}
    for node in chosen:
        low, high = ranges[node.input[0]]
        node.input[0] = pairs.around(node.input[0], np.float32(max(abs(low), abs(high))))
        weight = np.abs(onnx.numpy_helper.to_array(weights[node.input[1]], str(source.parent)))
        axis = _channels(node) if quantization.per_channel and precision in _PER_CHANNEL else None
        others = None if axis is None else tuple(place for place in range(weight.ndim) if place != axis)
        node.input[1] = pairs.around(node.input[1], weight.max(axis=others), axis)
    pairs.insert()
    return loaded, {name: precision if node in chosen else "" for name, node in products.items()}


def _channels(node: Any) -> int:
    """The axis of a weight that counts its outputs."""
    if node.op_type == "Conv":
        return 0
    transposed = any(one.name == "transB" and one.i for one in node.attribute)
    return 0 if transposed else 1


class _Pairs:
    """QuantizeLinear and DequantizeLinear around tensors of a graph, one pair for each however often it is read."""

    def __init__(self, loaded: Any, precision: str) -> None:
        import onnx

        self._loaded, self._largest = loaded, LARGEST[precision]
        self._type = {"int8": onnx.TensorProto.INT8, "fp8": onnx.TensorProto.FLOAT8E4M3FN}[precision]
        self._nodes: list[Any] = []
        self._made: dict[tuple[str, int | None], str] = {}

    def around(self, tensor: str, largest: Any, axis: int | None = None) -> str:
        """The name of ``tensor`` after its pair; ``largest`` is its largest magnitude, an array along ``axis`` or a scalar."""
        import onnx

        if (tensor, axis) in self._made:
            return self._made[tensor, axis]
        scale = np.maximum(np.asarray(largest, np.float32), np.float32(1e-6)) / np.float32(self._largest)
        names = [f"{tensor}_{end}" for end in ("scale", "zero", "quantized", "dequantized")]
        zero = onnx.helper.make_tensor(names[1], self._type, scale.shape, bytes(scale.size), raw=True)
        self._loaded.graph.initializer.extend([onnx.numpy_helper.from_array(scale, names[0]), zero])
        options: dict[str, Any] = {} if axis is None else {"axis": axis}
        for operator, read, written in (("QuantizeLinear", tensor, names[2]), ("DequantizeLinear", names[2], names[3])):
            self._nodes.append(onnx.helper.make_node(operator, [read, *names[:2]], [written], f"{operator}_{tensor}", **options))
        self._made[tensor, axis] = names[3]
        return names[3]

    def insert(self) -> None:
        """Put the pairs into the graph, in an order in which each tensor is made before it is read."""
        nodes = self._loaded.graph.node
        rest = list(nodes)
        del nodes[:]
        made = {one.name for one in (*self._loaded.graph.initializer, *self._loaded.graph.input)}
        waiting = self._nodes
        for node in rest:
            while ready := [pair for pair in waiting if set(pair.input) <= made]:
                nodes.extend(ready)
                made.update(pair.output[0] for pair in ready)
                waiting = [pair for pair in waiting if pair not in ready]
            nodes.append(node)
            made.update(node.output)

"""Standard operators that TensorRT lacks, written in those that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from accel_helpers.engine import Array
from accel_helpers.errors import UnsupportedError

Rewrite = Callable[[Any, Any], Any]
"""A node and its ``ModelProto`` with inferred shapes -> an ONNX function with the same inputs, or the first of them, and outputs."""


class _Facts:
    """What is known of a node before it runs: its attributes, its constant inputs and the shapes of the others."""

    def __init__(self, node: Any, typed: Any) -> None:
        import onnx

        self.node = node
        self.options = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        self._constants = {one.name: onnx.numpy_helper.to_array(one) for one in typed.graph.initializer}
        for one in typed.graph.node:
            if one.op_type == "Constant" and one.attribute[0].name == "value":
                self._constants[one.output[0]] = onnx.numpy_helper.to_array(one.attribute[0].t)
        values = (*typed.graph.input, *typed.graph.value_info, *typed.graph.output)
        self._dims = {one.name: one.type.tensor_type.shape.dim for one in values}

    def constant(self, place: int) -> Array | None:
        """The value of a constant input; None where it is left out."""
        name = self.node.input[place] if place < len(self.node.input) else ""
        if name and name not in self._constants:
            raise self.refused(f"its input {name!r} is computed, not a constant")
        return self._constants.get(name)

    def shape(self, place: int) -> list[int]:
        """The shape of an input; 0 for an open axis."""
        dims = self._dims.get(self.node.input[place])
        if dims is None:
            raise self.refused(f"the shape of its input {self.node.input[place]!r} is unknown")
        return [int(one.dim_value) for one in dims]

    def refused(self, why: str) -> UnsupportedError:
        return UnsupportedError(
            f"No replacement of {self.node.op_type} is known for node {self.node.name!r}: {why}.", "Give its body as an ONNX function."
        )


def _function(reads: int, nodes: list[tuple[str, list[str], list[str], dict[str, Any]]], constants: Mapping[str, Array]) -> Any:
    """An ONNX function from ``x0``, ``x1`` … to ``y``; nodes are (operator, inputs, outputs, attributes)."""
    import onnx
    from onnx import helper

    held = [helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array)) for name, array in constants.items()]
    made = [helper.make_node(operator, read, written, **options) for operator, read, written, options in nodes]
    inputs = [f"x{place}" for place in range(reads)]
    return helper.make_function("replaced", "function", inputs, ["y"], [*held, *made], [helper.make_opsetid("", 20)])


def _fold(node: Any, typed: Any) -> Any:
    """Col2Im (torch.nn.Fold) sums overlapping blocks: a transposed convolution whose kernels hold a single one each."""
    facts = _Facts(node, typed)
    image, block = facts.constant(1), facts.constant(2)
    rows = facts.shape(0)[1]
    if image is None or block is None or len(block) != 2 or not rows:
        raise facts.refused("it is replaced for images of two axes and a fixed number of channels")
    strides, dilations, pads = (list(facts.options.get(key, usual)) for key, usual in _SLIDING.items())
    spans = [1 + (size - 1) * gap for size, gap in zip(block, dilations, strict=True)]
    padded = [int(image[axis]) + pads[axis] + pads[axis + 2] for axis in range(2)]
    counts = [(padded[axis] - spans[axis]) // strides[axis] + 1 for axis in range(2)]
    left = [padded[axis] - (counts[axis] - 1) * strides[axis] - spans[axis] for axis in range(2)]
    area = int(np.prod(block))
    kernel = np.zeros((rows, rows // area, *(int(size) for size in block)), np.float32)
    for row in range(rows):
        kernel[row, row // area].flat[row % area] = 1
    options = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": left}
    nodes = [("Reshape", ["x0", "shape"], ["grid"], {}), ("ConvTranspose", ["grid", "kernel"], ["y"], options)]
    return _function(1, nodes, {"shape": np.array([-1, rows, *counts]), "kernel": kernel})


_SLIDING = {"strides": [1, 1], "dilations": [1, 1], "pads": [0, 0, 0, 0]}


def _fourier(node: Any, typed: Any) -> Any:
    """DFT of real numbers along the last axis before the complex one: products with cosines and sines of every frequency."""
    facts = _Facts(node, typed)
    shape, axis, length = facts.shape(0), facts.constant(2), facts.constant(1)
    along = int(axis) % len(shape) if axis is not None else len(shape) - 2
    size = shape[along]
    told = size and shape[-1] == 1 and along == len(shape) - 2 and not facts.options.get("inverse", 0)
    if not told or (length is not None and int(length) != size):
        raise facts.refused("it is replaced for a forward transform of real numbers, over the whole of a last axis of fixed size")
    bins = size // 2 + 1 if facts.options.get("onesided", 0) else size
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(bins)) / size
    constants = {
        "cosines": np.cos(angles).astype(np.float32),
        "sines": -np.sin(angles).astype(np.float32),
        "last": np.array([-1]),
    }
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = [("Squeeze", ["x0", "last"], ["real"], {})]
    for part in ("cosines", "sines"):
        nodes.append(("MatMul", ["real", part], [f"{part}_sum"], {}))
        nodes.append(("Unsqueeze", [f"{part}_sum", "last"], [f"{part}_part"], {}))
    nodes.append(("Concat", ["cosines_part", "sines_part"], ["y"], {"axis": -1}))
    return _function(1, nodes, constants)


def _masked(node: Any, typed: Any) -> Any:
    """BitwiseAnd with a mask of the lowest bits: the remainder of a division by the next power of two, of negative numbers too."""
    facts = _Facts(node, typed)
    mask = facts.constant(1)
    if mask is None or np.any(mask < 0) or np.any(mask & (mask + 1)):
        raise facts.refused("it is replaced for a constant second input of the form 2**n - 1")
    return _function(1, [("Mod", ["x0", "power"], ["y"], {})], {"power": mask + np.ones_like(mask)})


def _dilated_mean(node: Any, typed: Any) -> Any:
    """AveragePool with dilations and no padding: a convolution of each channel with a constant kernel."""
    facts = _Facts(node, typed)
    channels, kernel = facts.shape(0)[1], list(facts.options["kernel_shape"])
    if not channels or any(facts.options.get("pads", [0])) or facts.options.get("ceil_mode", 0) or "auto_pad" in facts.options:
        raise facts.refused("it is replaced without padding, for a fixed number of channels")
    weight = np.full((channels, 1, *kernel), 1 / np.prod(kernel), np.float32)
    options = {key: facts.options[key] for key in ("strides", "dilations") if key in facts.options}
    return _function(1, [("Conv", ["x0", "weight"], ["y"], {"group": channels, **options})], {"weight": weight})


REWRITES: Mapping[str, Rewrite] = MappingProxyType({"Col2Im": _fold, "DFT": _fourier, "BitwiseAnd": _masked, "AveragePool": _dilated_mean})
"""The replacements that come with this package, by the operator that they replace."""

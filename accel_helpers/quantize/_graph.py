"""The layers of an ONNX graph that a quantizer could touch, and which part of a network each belongs to. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accel_helpers.engine import Array

PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
NORMALISATIONS = ("LayerNormalization", "RMSNormalization", "SkipLayerNormalization")
ATTENTION = ("attention products", "softmax")
"""The groups that the claim "softmax and attention are the sensitive part" speaks of."""


@dataclass(frozen=True)
class Node:
    """One layer: ``inputs`` and ``outputs`` are the activations that a quantizer would put into integers around it."""

    name: str
    operator: str
    group: str
    output: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    weight: Array | None = None
    place: int = 0  # which input of the node is the weight
    axis: int | None = None  # of the weight's output channels; None where it has one scale

    @property
    def multiplies(self) -> bool:
        """Whether it does a network's arithmetic, as a census counts it."""
        return self.operator in PRODUCTS


class Graph:
    """An ONNX graph with its constants, producers and layers."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self._constants = {one.name: one for one in graph.initializer}
        self.producers = {output: node for node in graph.node for output in node.output}
        self.layers = self._grouped([layer for node in graph.node if (layer := self._layer(node))])

    def constant(self, name: str) -> Array | None:
        """The value of a tensor that no input decides, seen through Constant, Identity and Transpose; None for others."""
        from onnx import numpy_helper

        if name in self._constants:
            return np.asarray(numpy_helper.to_array(self._constants[name]))
        node = self.producers.get(name)
        if node is None:
            return None
        if node.op_type == "Constant":
            return next((np.asarray(numpy_helper.to_array(one.t)) for one in node.attribute if one.name == "value"), None)
        if node.op_type not in ("Identity", "Transpose") or (value := self.constant(node.input[0])) is None:
            return None
        return value if node.op_type == "Identity" else np.ascontiguousarray(value.transpose(_attribute(node, "perm", None)))

    def _layer(self, node: Any) -> Node | None:
        name = node.name or node.output[0]
        if node.op_type in PRODUCTS:
            return self._product(node, name)
        if node.op_type == "Gather":
            table = self.constant(node.input[0])
            if table is None or table.ndim != 2 or table.dtype != np.float32:
                return None
            return Node(name, node.op_type, "embeddings", node.output[0], (), weight=table)
        if node.op_type == "Softmax" or node.op_type in NORMALISATIONS:
            group = "softmax" if node.op_type == "Softmax" else "layer norm"
            return Node(name, node.op_type, group, node.output[0], (node.input[0],), (node.output[0],))
        return None

    def _product(self, node: Any, name: str) -> Node | None:
        for place in (1, 0):
            if (weight := self.constant(node.input[place])) is not None:
                if weight.dtype != np.float32 or weight.ndim < 2:
                    return None
                axis = _axis(node, weight, place)
                depthwise = node.op_type == "Conv" and weight.shape[1] == 1 and _attribute(node, "group", 1) > 1
                group = "depthwise convolutions" if depthwise else "convolutions" if "Conv" in node.op_type else "linear layers"
                return Node(name, node.op_type, group, node.output[0], (node.input[1 - place],), weight=weight, place=place, axis=axis)
        return Node(name, node.op_type, "attention products", node.output[0], tuple(node.input[:2]))

    def _grouped(self, layers: list[Node]) -> tuple[Node, ...]:
        """The linear layers of a network with attention told apart: what feeds its products, what reads them, the rest, the head."""
        products = {layer.output for layer in layers if layer.multiplies and layer.weight is None}
        multiply = {layer.output for layer in layers if layer.multiplies}
        feeds = self._upstream([tensor for layer in layers if layer.output in products for tensor in layer.inputs], multiply)
        last = [layer for layer in layers if layer.multiplies][-1:]
        grouped = []
        for layer in layers:
            group, reads = layer.group, self._upstream(layer.inputs, multiply)
            if group == "softmax" and not reads & products:
                group = "final softmax"
            if group == "linear layers" and products:
                projection = layer.output in feeds or (reads and reads <= products)
                group = "attention projections" if projection else "feed-forward"
            if group in ("linear layers", "feed-forward") and layer in last:
                group = "head"
            grouped.append(replace(layer, group=group))
        return tuple(grouped)

    def _upstream(self, tensors: Iterable[str], stops: set[str]) -> set[str]:
        """The nearest of ``stops`` on every path back from ``tensors``."""
        found, seen, todo = set(), set(), list(tensors)
        while todo:
            tensor = todo.pop()
            if tensor in stops:
                found.add(tensor)
            elif tensor not in seen and (node := self.producers.get(tensor)) is not None:
                todo += node.input
            seen.add(tensor)
        return found


def _axis(node: Any, weight: Array, place: int) -> int:
    """Where a weight's output channels lie. ONNX operator documents of MatMul, Gemm, Conv and ConvTranspose."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    if node.op_type == "Gemm":
        transposed = _attribute(node, "transB" if place else "transA", 0)
        return int(bool(transposed) != bool(place))
    return weight.ndim - 1 if place else weight.ndim - 2


def _attribute(node: Any, name: str, default: Any) -> Any:
    from onnx import helper

    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)


def groups(layers: Iterable[Node]) -> Mapping[str, tuple[str, ...]]:
    """Group -> names of its layers, in the graph's order; "first layer" and "last layer" overlap with the others."""
    listed = list(layers)
    found: dict[str, tuple[str, ...]] = {}
    for layer in listed:
        found[layer.group] = (*found.get(layer.group, ()), layer.name)
    ends = [layer.name for layer in listed if layer.multiplies]
    if len(ends) > 1:
        found |= {"first layer": (ends[0],), "last layer": (ends[-1],)}
    return found

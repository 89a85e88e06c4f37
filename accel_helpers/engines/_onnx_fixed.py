"""The node of an ONNX graph where a size that should be open is written as a number: found from shapes alone, without running it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accel_helpers.engine import Array

Shape = tuple[int, ...]
_TARGETS = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Tile": 1}
"""Operators that are told the shape they give -> which input tells it."""
_MEASURES = ("Shape", "Size")  # their outputs have one shape, whatever their input's


def culprit(path: Path, few: Mapping[str, Array], many: Mapping[str, Array], start: str = "") -> str:
    """The node that fixes a size, in words: its name, its operator, and the numbers it holds; empty where none is found.

    Walks up from ``start`` over values whose shape is the same for both samples, to the node that is told its shape in numbers, whose
    inputs change their shape while its outputs do not, or whose inputs fit one another for one sample only. Where there is none, an output
    is given by the node named.

    Args:
        path: the graph; its external weights are not read.
        few: inputs of one size.
        many: inputs of another.
        start: where to begin: an error message of ONNX Runtime that names a node, or the name of an output; empty for every output.
    """
    import onnx

    graph = onnx.load(path, load_external_data=False)
    walk = _Walk(graph.graph, _shapes(graph, few), _shapes(graph, many))
    nodes = walk.beginning(start)
    found = walk.up(nodes)
    if found is None and start in (value.name for value in graph.graph.output) and nodes:
        found = nodes[0]
    return "" if found is None else walk.told(found)


def _shapes(graph: Any, sample: Mapping[str, Array]) -> dict[str, Shape]:
    """The shape of every value that ONNX can infer for inputs of these shapes."""
    import onnx

    closed = type(graph)()
    closed.CopyFrom(graph)
    del closed.graph.value_info[:]
    for value in closed.graph.output:
        value.type.tensor_type.ClearField("shape")
    for value in closed.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, sample[value.name].shape if value.name in sample else (), strict=False):
            dim.dim_value = size
    try:
        inferred = onnx.shape_inference.infer_shapes(closed, data_prop=True).graph
    except onnx.shape_inference.InferenceError:
        return {}
    known = {}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            known[value.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
    return known


class _Walk:
    """A graph with the shapes of its values for two samples."""

    def __init__(self, graph: Any, few: Mapping[str, Shape], many: Mapping[str, Shape]) -> None:
        self._graph, self._few, self._many = graph, few, many
        self._givers = {output: node for node in graph.node for output in node.output}
        self._constants = {one.name: one for one in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t

    def beginning(self, start: str) -> list[Any]:
        """The nodes to walk up from."""
        named = re.search(r"Name:'([^']+)'", start)
        if found := [node for node in self._graph.node if named and node.name == named[1]]:
            return found
        outputs = [value.name for value in self._graph.output]
        return [self._givers[name] for name in ([start] if start in outputs else outputs) if name in self._givers]

    def up(self, nodes: Sequence[Any]) -> Any:
        """The nearest node above, or among, ``nodes`` that fixes a size; else the nearest whose inputs fit at one size only; or None."""
        queue, seen, unfit = list(nodes), set(), None
        while queue:
            node = queue.pop(0)
            if self._fixes(node):
                return node
            if unfit is None and any(self._moves(name) for name in node.input) and any(self._fits_once(name) for name in node.output):
                unfit = node
            for name in node.input:
                giver = self._givers.get(name)
                if giver is not None and name not in seen and not self._moves(name):
                    seen.add(name)
                    queue.append(giver)
        return unfit

    def _moves(self, name: str) -> bool:
        return name in self._few and name in self._many and self._few[name] != self._many[name]

    def _fits_once(self, name: str) -> bool:
        return (name in self._few) != (name in self._many)

    def _stays(self, name: str) -> bool:
        return name in self._few and self._few[name] == self._many.get(name)

    def _fixes(self, node: Any) -> bool:
        """Whether a node is told its shape in numbers, or gives one shape for inputs of two."""
        if node.op_type in _MEASURES or any(self._moves(name) for name in node.output):
            return False
        told, given = self._target(node) is not None, all(self._stays(name) for name in node.output)
        return told or (given and any(self._moves(name) for name in node.input))

    def _target(self, node: Any) -> list[int] | None:
        """The shape that a node is told in numbers; None where it is told none, or takes it from a tensor."""
        import onnx

        place = _TARGETS.get(node.op_type, len(node.input))
        tensor = self._constants.get(node.input[place]) if place < len(node.input) else None
        if tensor is None or tensor.data_location == tensor.EXTERNAL:
            return None
        return [int(size) for size in onnx.numpy_helper.to_array(tensor).reshape(-1)]

    def told(self, node: Any) -> str:
        target = self._target(node)
        beside = [list(self._constants[name].dims) for name in node.input if name in self._constants and target is None]
        numbers = f" to {target}" if target is not None else f" with a constant of {beside[0]}" if beside and beside[0] else ""
        return (
            f"node {node.name!r} ({node.op_type}{numbers})" if node.name else f"the {node.op_type}{numbers} that gives {node.output[0]!r}"
        )

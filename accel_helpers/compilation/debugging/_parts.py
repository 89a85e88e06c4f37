"""Parts of an ONNX graph as models of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import ModelError

_ONE_FILE = 1_500_000_000  # bytes of weights; protobuf ends at 2 GB


@dataclass(frozen=True)
class Node:
    """One operator of a graph: where it stands in the graph's order, and what it reads and answers."""

    place: int
    name: str
    operator: str  # with its domain, where that is not ONNX's own
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def read(graph: Path | Any) -> Any:
    """An ONNX ``ModelProto`` from a file, or the one given.

    Raises:
        ModelError: the file is missing, is not an ONNX file, or holds no operator.
    """
    import onnx

    if not isinstance(graph, Path):
        return graph
    if not graph.is_file():
        raise ModelError(f"{graph} does not exist.", "Check the path.")
    try:
        loaded = onnx.load(graph)
    except Exception as error:  # protobuf's, onnx's and the file system's errors share no base class
        raise ModelError(f"{graph.name} cannot be read: {first_line(error)}.", "Give an ONNX file, with its weights beside it.") from error
    if not loaded.graph.node:
        raise ModelError(f"{graph.name} is not an ONNX file, or holds no operator.", "Give a file that torch.onnx.export wrote.")
    return loaded


class Parts:
    """A graph to take parts of. ``nodes`` are its operators in the graph's order."""

    def __init__(self, model: Any) -> None:
        import onnx
        import onnx_ir as ir

        with contextlib.suppress(Exception):  # over 2 GB, or too wrong to infer: a cut between operators then has no type
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        self._model = ir.from_proto(model)
        self._model.graph.sort()  # ONNX Runtime's converter to FP16 leaves its casts at the end
        self._nodes = tuple(self._model.graph)
        self.nodes = tuple(_node(place, one) for place, one in enumerate(self._nodes))
        self.inputs = tuple(str(one.name) for one in self._model.graph.inputs)
        self.outputs = tuple(str(one.name) for one in self._model.graph.outputs)

    def beginning(self, count: int, path: Path) -> Path:
        """The first ``count`` operators, with every value that none of them reads as an output; written to ``path``."""
        kept = set(self._nodes[:count])
        outputs = [
            value
            for node in self._nodes[:count]
            for value in node.outputs
            if value.name and (value.is_graph_output() or not any(use.node in kept for use in value.uses()))
        ]
        return self._write((), outputs, path)

    def up_to(self, node: Node, known: Iterable[str], path: Path) -> Path:
        """What ``node`` needs, from the graph's inputs and the values ``known`` on, which become inputs; written to ``path``.

        Constants stay inside.
        """
        cuts = set(known)
        inside = [one for one in self._nodes[: node.place] if one.op_type != "Constant"]
        inputs = [value for one in inside for value in one.outputs if value.name in cuts]
        return self._write(inputs, [value for value in self._nodes[node.place].outputs if value.name], path)

    def _write(self, inputs: Iterable[Any], outputs: list[Any], path: Path) -> Path:
        import onnx_ir as ir

        whole = self._model.graph
        graph = ir.convenience.extract(whole, [*whole.inputs, *inputs], outputs)
        for value in [value for value in graph.inputs if not value.uses() and not value.is_graph_output()]:
            graph.inputs.remove(value)
        part = ir.Model(graph, ir_version=self._model.ir_version, functions=list(self._model.functions.values()))
        weights = sum(one.const_value.nbytes for one in graph.initializers.values() if one.const_value is not None)
        ir.save(part, path, external_data=f"{path.name}.data" if weights > _ONE_FILE else None)
        return path


def _node(place: int, node: Any) -> Node:
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    inputs, outputs = (
        tuple(str(value.name) for value in values if value is not None and value.name) for values in (node.inputs, node.outputs)
    )
    return Node(place, node.name or outputs[0], operator, inputs, outputs)

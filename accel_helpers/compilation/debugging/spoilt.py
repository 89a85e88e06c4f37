"""A graph that was made wrong on purpose, to be found."""

from __future__ import annotations

import tempfile
from pathlib import Path

from accel_helpers import models
from accel_helpers.compilation.debugging.bisect import Culprit, failing_node
from accel_helpers.engines import _onnx_export
from accel_helpers.errors import ModelError

SWAPS = {"Add": "Sub", "Relu": "Abs", "Mul": "Div"}
"""An operator, and one that reads the same inputs and answers something else."""


def wrong_operator(model_name: str) -> tuple[str, Culprit]:
    """Replace one operator in the middle of a model's graph by another, and look for it by what the graph answers.

    Returns:
        What was put where ("Sub for Add at node …"), and what was found.

    Raises:
        ModelError: the model cannot be exported, or holds none of the operators in :data:`SWAPS`.
    """
    import onnx

    model = models.get(model_name)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _onnx_export.export(model, folder)
        source, spoilt = folder / _onnx_export.FILE, folder / "spoilt.onnx"
        graph = onnx.load(source)
        found = [node for node in graph.graph.node if node.op_type in SWAPS and _float(graph, node.output[0])]
        if not found:
            raise ModelError(f"{model.name} holds no {' or '.join(SWAPS)} to spoil.", "Choose another model.")
        node = found[len(found) // 2]
        done = f"{SWAPS[node.op_type]} for {node.op_type} at {node.name or node.output[0]}"
        node.op_type = SWAPS[node.op_type]
        onnx.save(graph, spoilt)
        return done, failing_node(spoilt, "differs", reference=source, inputs=model.example(2, 16, 0))


def _float(graph: object, value: str) -> bool:
    """Whether a value is declared as FP32: shape computations hold integers, and are no part of the arithmetic."""
    declared = graph.graph.value_info  # type: ignore[attr-defined]
    return any(one.name == value and one.type.tensor_type.elem_type == 1 for one in declared)

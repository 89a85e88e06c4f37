"""ONNX Runtime sessions at a level of graph optimisation of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import ModelError

LEVELS = {
    "DISABLE_ALL": "nothing is changed",
    "BASIC": "constants are folded and nodes that do nothing go",
    "EXTENDED": "nodes become fused operators of ONNX Runtime's own",
    "ALL": "and layouts are chosen for the processor: what runs by default",
}
"""ONNX Runtime's levels of graph optimisation, and what each adds."""


def opened(graph: Path | bytes, level: str, settings: Mapping[str, Any] | None = None) -> Any:
    """A session of the CPU provider, on one thread where ``settings`` says no other.

    Args:
        graph: an ONNX file, or what one holds.
        level: one of :data:`LEVELS`.
        settings: attributes of ``SessionOptions``: optimized_model_filepath, enable_profiling, enable_mem_pattern ...

    Raises:
        ModelError: ONNX Runtime does not load the graph.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what it would log is raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    name = f"ORT_{level}" if level == "DISABLE_ALL" else f"ORT_ENABLE_{level}"
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, name)
    for setting, value in (settings or {}).items():
        setattr(options, setting, value)
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise ModelError(f"ONNX Runtime does not load the graph: {first_line(error)}.", "Check it with onnx.checker.") from error

"""ONNX Runtime sessions for looking into graphs: one thread, nothing logged, nothing left running."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import ModelError


def open_graph(source: Path | Any, outputs: Sequence[str] = (), optimised: Path | None = None) -> Any:
    """A session on one thread on an ONNX file or ``ModelProto``.

    Args:
        source: a file, or a model in memory.
        outputs: values inside the graph to answer beside its own outputs.
        optimised: where to write the graph as it runs, except for layouts.

    Raises:
        ModelError: ONNX Runtime does not load it.
    """
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what it would log is raised
    if optimised is not None:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(optimised)
    given = source
    if not isinstance(source, Path) or outputs:
        model = onnx.load(source) if isinstance(source, Path) else source
        known = {one.name for one in (*model.graph.output, *model.graph.input)}
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs if name not in known)
        given = model.SerializeToString()
    try:
        return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise ModelError(
            f"The ONNX graph does not load: {first_line(error)}.", "Check it with onnx.checker, and export it again."
        ) from error

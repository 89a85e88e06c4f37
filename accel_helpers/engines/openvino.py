"""OpenVINO on a CPU, from the exported graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_helpers.engine import Array, Built, Engine, Session, Support
from accel_helpers.engines import _hardware, _onnx_export
from accel_helpers.engines._executed import executed
from accel_helpers.engines._inputs import Shapes, Signature, closed, first_line, refused
from accel_helpers.engines.onnx_runtime import as_float32
from accel_helpers.errors import ArtifactError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan

_GRAPH, _WEIGHTS = "model.xml", "model.bin"
_TYPES = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}
_NOT_COMPUTING = {"Const", "Input", "Output", "Reorder", "Reshape", "ShapeOf"}
_KEPT = "OpenVINO keeps it in this type"


class OpenVinoSession(Session):
    """A model compiled for the plan's shapes and, once others come, a second time with open sizes.

    ``hint="throughput"`` lets OpenVINO choose several streams; one call here still runs one request, on one stream.
    """

    def __init__(self, model: Model, plan: Plan, folder: Path) -> None:
        import openvino

        self._model, self._plan = model, plan
        self._signature = Signature.of(model, plan)
        self._core: Any = openvino.Core()
        try:
            self._graph: Any = self._core.read_model(folder / _GRAPH, folder / _WEIGHTS)
        except RuntimeError as error:
            raise ArtifactError(f"{_GRAPH} of {model.name} cannot be read: {first_line(error)}.", "Build the artifact again.") from error
        self._planned = self._request(static=True)
        self._open: Any = None
        self._report: dict[str, Any] | None = None
        self._types = self._executed()

    def _request(self, static: bool) -> Any:
        graph = self._graph
        if static:
            graph = graph.clone()
            graph.reshape(dict(zip(self._signature.inputs, map(list, self._signature.planned), strict=True)))
        settings = {
            "INFERENCE_PRECISION_HINT": _TYPES[self._plan.precision],
            "INFERENCE_NUM_THREADS": self._plan.threads,
            "PERFORMANCE_HINT": self._plan.hint.upper(),
        }
        if self._plan.hint == "latency":
            settings["NUM_STREAMS"] = 1
        return self._core.compile_model(graph, "CPU", settings).create_infer_request()

"""OpenVINO on a CPU, from the exported graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_helpers.engine import Array, Built, Engine, Session, Support
from accel_helpers.engines import _hardware, _onnx_export
from accel_helpers.engines._executed import executed
from accel_helpers.engines._inputs import Signature, closed, first_line, refused
from accel_helpers.engines.onnx_runtime import as_float32
from accel_helpers.errors import ArtifactError, ModelError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan

_GRAPH, _WEIGHTS = "model.xml", "model.bin"
_TYPES = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}
_NOT_COMPUTING = {"Const", "Input", "Output", "Reorder", "Reshape", "Transpose", "ShapeOf"}
_KEPT = "OpenVINO keeps it in this type"


class OpenVinoSession(Session):
    """A model compiled for the plan's shapes and, once others come, a second time with open sizes.

    ``hint="throughput"`` lets OpenVINO choose several streams; one call here still runs one request, on one stream.
    """

    def __init__(self, model: Model, plan: Plan, folder: Path) -> None:
        import openvino

        self._model, self._plan = model, plan
        self._signature = Signature(model, plan)
        self._core: Any = openvino.Core()
        try:
            self._graph: Any = self._core.read_model(folder / _GRAPH, folder / _WEIGHTS)
        except RuntimeError as error:
            raise ArtifactError(f"{_GRAPH} of {model.name} cannot be read: {first_line(error)}.", "Build the artifact again.") from error
        self._rows = _table_rows(self._graph)
        planned = self._graph.clone()
        planned.reshape(dict(zip(self._signature.inputs, map(list, self._signature.planned), strict=True)))
        self._planned, self._report = self._compiled(planned)
        self._open: Any = None

    def _compiled(self, graph: Any) -> tuple[Any, dict[str, Any]]:
        """A request on the graph, and what was read back of it."""
        settings = {
            "INFERENCE_PRECISION_HINT": _TYPES[self._plan.precision],
            "INFERENCE_NUM_THREADS": self._plan.threads,
            "PERFORMANCE_HINT": self._plan.hint.upper(),
        }
        if self._plan.hint == "latency":
            settings["NUM_STREAMS"] = 1
        compiled = self._core.compile_model(graph, "CPU", settings)
        report = {
            "device": ", ".join(compiled.get_property("EXECUTION_DEVICES")),
            "threads": compiled.get_property("INFERENCE_NUM_THREADS"),
            "streams": compiled.get_property("NUM_STREAMS"),
            **executed(_layers(compiled), self._plan, _KEPT),
        }
        return compiled.create_infer_request(), report

    @property
    def report(self) -> Mapping[str, Any]:
        """Version, device, threads, streams, and the layers by type as the compiled model lists them."""
        import openvino

        if self._core is None:
            raise closed(self._model.name)
        return {"engine_version": openvino.__version__, **self._report}

    def place(self, inputs: dict[str, Array]) -> dict[str, Array]:
        checked = self._signature.check(inputs)
        for name, rows in self._rows.items():  # OpenVINO reads zeros beyond a table's end, without a word
            if (most := checked[name].max()) >= rows or checked[name].min() < 0:
                raise ModelError(
                    f"{name} of {self._model.name} holds {most if most >= rows else checked[name].min()}.",
                    f"It numbers the rows of a table: 0 to {rows - 1}.",
                )
        return checked

    def run(self, placed: dict[str, Array]) -> Any:
        if self._core is None:
            raise closed(self._model.name)
        request = self._planned
        if tuple(array.shape for array in placed.values()) != self._signature.planned:
            if self._open is None:
                self._open, _ = self._compiled(self._graph)
            request = self._open
        try:  # a request writes into the same outputs each time, so they are copied while they are its own
            return request.infer(placed, share_inputs=True, share_outputs=False)
        except RuntimeError as error:
            raise refused(self._model.name, "OpenVINO", error) from error

    def fetch(self, result: Any) -> dict[str, Array]:
        return {name: as_float32(result[name]) for name in self._model.outputs}

    def close(self) -> None:
        self._planned = self._open = self._graph = self._core = None


class OpenVino(Engine):
    """FP32 everywhere, BF16 and FP16 where the processor has them, for latency or throughput."""

    name = "openvino"
    needs = ("openvino", "onnxruntime", "onnx", "onnxscript", "torch")
    packages = ("openvino", "torch", "onnx", "onnxscript", "transformers")

    def supports(self, plan: Plan, environment: Environment) -> Support:
        """The processor's types; no NVIDIA GPU."""
        if not (answer := _hardware.quantized(self, plan)):
            return answer
        if plan.device != "cpu":
            return Support(False, "OpenVINO does not run on NVIDIA GPUs; choose device=cpu")
        return _hardware.cpu(plan, environment)

    def build(self, model: Model, plan: Plan, out: Path) -> Built:
        """Convert the exported graph to OpenVINO's own files, weights in FP32; the plan's type is chosen when they are loaded."""
        import openvino

        exported = _onnx_export.export(model, out)
        try:
            graph = openvino.Core().read_model(out / _onnx_export.FILE)
        except RuntimeError as error:
            raise _unreadable(model, error) from error
        openvino.save_model(graph, out / _GRAPH, compress_to_fp16=False)
        del graph  # it maps the exported weights
        for name in exported["files"]:
            (out / name).unlink()
        with self.load(model, plan, out) as session:
            report = dict(session.report)
        return Built((_GRAPH, _WEIGHTS), {**report, "export": exported})

    def load(self, model: Model, plan: Plan, folder: Path) -> OpenVinoSession:
        """A compiled model whose layers run in the type asked for, or an error."""
        return OpenVinoSession(model, plan, folder)


def _unreadable(model: Model, error: Exception) -> UnsupportedError | ModelError:
    _, found, operators = str(error).partition("No conversion rule found for operations:")
    if found:
        return UnsupportedError(
            f"OpenVINO has no operator {operators.strip().splitlines()[0]}, which {model.name} holds.",
            "Export it with standard operators, or try engine=onnx_runtime.",
        )
    return ModelError(f"OpenVINO cannot read the ONNX graph of {model.name}: {first_line(error)}.", "Try engine=onnx_runtime.")


def _layers(compiled: Any) -> Counter[tuple[str, str]]:
    """The compiled model's layers by type of execution; those that only hold, move or measure data, or compute integers, are left out."""
    layers: Counter[tuple[str, str]] = Counter()
    for node in compiled.get_runtime_model().get_ops():
        facts = {name: node.rt_info[name].astype(str) for name in ("layerType", "runtimePrecision")}
        if facts["layerType"] not in _NOT_COMPUTING and facts["runtimePrecision"] in ("f32", "bf16", "f16"):
            layers[facts["layerType"], facts["runtimePrecision"]] += 1
    return layers


def _table_rows(graph: Any) -> dict[str, int]:
    """The inputs that number rows of a constant table, such as token ids, and how many rows the smallest such table has."""
    rows: dict[str, int] = {}
    for node in graph.get_ops():
        if node.get_type_name() != "Gather" or node.input_value(0).get_node().get_type_name() != "Constant":
            continue
        indices = node.input_value(1)
        while indices.get_node().get_type_name() == "Convert":
            indices = indices.get_node().input_value(0)
        if indices.get_node().get_type_name() == "Parameter":
            count = node.input_value(0).get_shape()[int(node.input_value(2).get_node().data)]
            rows[indices.any_name] = min(count, rows.get(indices.any_name, count))
    return rows


ENGINE = OpenVino()

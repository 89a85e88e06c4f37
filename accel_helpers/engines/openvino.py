"""OpenVINO on a CPU, from the exported graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accel_helpers.engine import Array, Built, Engine, Session, Support
from accel_helpers.engines import _hardware, _nncf, _onnx_export, _openvino_census
from accel_helpers.engines._executed import executed
from accel_helpers.engines._inputs import Signature, closed, first_line, refused
from accel_helpers.engines.onnx_runtime import as_float32
from accel_helpers.errors import ArtifactError, ModelError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Census, Environment, Plan

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
        compiled = self._compiled(self._closed(plan.batch))
        self._planned: Any = compiled.create_infer_request()
        self._census: Census | None = None
        if plan.quantization and not self._counted().share():
            raise _nothing(model, plan, self._counted())
        self._report = self._read_back(compiled)
        self._open: Any = None

    def _closed(self, batch: int) -> Any:
        """The graph for one batch at the plan's sequence length."""
        graph = self._graph.clone()
        graph.reshape({name: [batch, *shape[1:]] for name, shape in zip(self._signature.inputs, self._signature.planned, strict=True)})
        return graph

    def _compiled(self, graph: Any) -> Any:
        chosen = self._plan.quantization
        settings = {
            "INFERENCE_PRECISION_HINT": _TYPES[chosen.rest if chosen else self._plan.precision],
            "INFERENCE_NUM_THREADS": self._plan.threads,
            "PERFORMANCE_HINT": self._plan.hint.upper(),
        }
        if self._plan.hint == "latency":
            settings["NUM_STREAMS"] = 1
        if chosen and chosen.scheme == "weight_only":  # with VNNI, OpenVINO would quantize the activations of these layers too
            settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
        return self._core.compile_model(graph, "CPU", settings)

    def _read_back(self, compiled: Any) -> dict[str, Any]:
        return {
            "device": ", ".join(compiled.get_property("EXECUTION_DEVICES")),
            "threads": compiled.get_property("INFERENCE_NUM_THREADS"),
            "streams": compiled.get_property("NUM_STREAMS"),
            **executed(_layers(compiled), self._plan, _KEPT),
        }

    @property
    def report(self) -> Mapping[str, Any]:
        """Version, device, threads, streams, and the layers by type as the compiled model lists them."""
        import openvino

        if self._core is None:
            raise closed(self._model.name)
        return {"engine_version": openvino.__version__, **self._report, "census": self._counted().to_dict()}

    def _counted(self) -> Census:
        """The census of the compiled model, made when it is first asked for."""
        if self._census is None:
            self._census = _openvino_census.census(self._closed(1), self._planned.get_compiled_model(), self._plan)
        return self._census

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
                self._open = self._compiled(self._graph).create_infer_request()
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
    """FP32 everywhere, BF16 and FP16 where the processor has them, INT8 and INT4 by NNCF, for latency or throughput."""

    name = "openvino"
    needs = ("openvino", "nncf", "onnxruntime", "onnx", "onnxscript", "torch")
    packages = ("openvino", "nncf", "torch", "onnx", "onnxscript", "transformers")
    compiles = frozenset({"simplifier"})
    schemes = MappingProxyType({"int8": ("static", "accuracy_control", "weight_only"), "int4": ("weight_only",)})

    def supports(self, plan: Plan, environment: Environment) -> Support:
        """The processor's types, and what NNCF knows; no NVIDIA GPU."""
        if not (answer := _hardware.known(self, plan)):
            return answer
        if (chosen := plan.quantization) and chosen.calibrator == "entropy":
            return Support(False, "NNCF has no entropy calibrator; choose calibrator=minmax or percentile, or engine=onnx_runtime")
        if chosen and chosen.scheme == "weight_only" and not chosen.per_channel:
            return Support(False, "NNCF gives each output channel of a compressed weight its own scale; choose per_channel=true")
        if plan.device != "cpu":
            return Support(False, "OpenVINO does not run on NVIDIA GPUs; choose device=cpu")
        return _hardware.cpu(plan, environment)

    def build(self, model: Model, plan: Plan, out: Path) -> Built:
        """Convert the exported graph to OpenVINO's own files, quantized where asked; other types are chosen when they are loaded."""
        import openvino
        from openvino.passes import ConstantFolding, Manager

        exported = _onnx_export.export(model, out, plan.compilation.simplifier)
        try:
            graph = openvino.Core().read_model(out / _onnx_export.FILE)
        except RuntimeError as error:
            raise _unreadable(model, error) from error
        passes = Manager()
        passes.register_pass(ConstantFolding())  # NNCF sees no bias behind the reshaping that the importer leaves, and corrects none
        passes.run_passes(graph)
        control: dict[str, Any] = {}
        if plan.quantization:
            graph, control = _nncf.quantize(graph, model, plan.quantization, plan.precision)
        openvino.save_model(graph, out / _GRAPH, compress_to_fp16=False)
        del graph  # it maps the exported weights
        for name in exported["files"]:
            (out / name).unlink()
        with self.load(model, plan, out) as session:
            report = dict(session.report)
        return Built((_GRAPH, _WEIGHTS), {**report, **({"accuracy_control": control} if control else {}), "export": exported})

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


def _nothing(model: Model, plan: Plan, census: Census) -> UnsupportedError:
    """What to raise where no multiplication runs quantized."""
    stayed = Counter(f"{one.operator} ({one.reason})" for one in census.layers if one.operations)
    told = "; ".join(f"{count} of {what}" for what, count in stayed.most_common(3)) or "it has no matrix product or convolution"
    return UnsupportedError(
        f"No multiplication of {model.name} runs in {plan.precision.upper()} with OpenVINO: {told}.",
        "Choose another scheme, or engine=onnx_runtime.",
    )


def _layers(compiled: Any) -> Counter[tuple[str, str]]:
    """The compiled model's layers by type of execution; those that only hold, move or measure data, or compute integers, are left out.

    A layer whose weight alone is short counts as that type.
    """
    layers: Counter[tuple[str, str]] = Counter()
    for node in compiled.get_runtime_model().get_ops():
        layer, kind = node.rt_info["layerType"].astype(str), _openvino_census.kind(node).removesuffix(" weights")
        integers = layer in _openvino_census.PRODUCTS and kind in ("int8", "int4")
        if layer not in _NOT_COMPUTING and (integers or kind in ("fp32", "bf16", "fp16")):
            layers[layer, kind] += 1
        for short, count in _openvino_census.products_in(node).items():
            layers["MatMul in a Subgraph", short] += count
    return layers


def _table_rows(graph: Any) -> dict[str, int]:
    """The inputs that number rows of a constant table, such as token ids, and how many rows the smallest such table has."""
    rows: dict[str, int] = {}
    for node in graph.get_ops():
        if node.get_type_name() != "Gather" or _openvino_census.constant(node.input_value(0)) is None:
            continue
        indices = node.input_value(1)
        while indices.get_node().get_type_name() == "Convert":
            indices = indices.get_node().input_value(0)
        if indices.get_node().get_type_name() == "Parameter":
            count = node.get_input_shape(0)[int(node.input_value(2).get_node().data)]
            rows[indices.any_name] = min(count, rows.get(indices.any_name, count))
    return rows


ENGINE = OpenVino()

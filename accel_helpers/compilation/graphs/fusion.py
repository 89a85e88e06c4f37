"""One model's graph as each compiler sees it, before and after it has fused what it can."""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_helpers import bench, engines, models
from accel_helpers.compilation.graphs import _kernels
from accel_helpers.compilation.graphs._onnx_session import LEVELS, opened
from accel_helpers.compilation.graphs.graph import Graph, Stage, grouped, linked, onnx_nodes
from accel_helpers.config import RunConfig
from accel_helpers.engine import Array
from accel_helpers.engines import _onnx_census, _onnx_export
from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import ParameterError
from accel_helpers.models import Model
from accel_helpers.records import Plan

EXPORTED = Stage("exported", "ONNX", None).name
_NO_GPU = "fused when the engine is built; its layers are read from an engine on a GPU: not yet run on a GPU"


@dataclass(frozen=True)
class Fusion:
    """The stages of a model's graph; the exported graph is the first."""

    model: str
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        """The stage of that name.

        Raises:
            ParameterError: there is none.
        """
        for one in self.stages:
            if one.name == name:
                return one
        raise ParameterError(f"There is no stage {name!r}.", f"Choose one of: {'; '.join(one.name for one in self.stages)}.")

    def fused(self, name: str) -> dict[str, tuple[str, ...]]:
        """Of a compiled stage, the nodes that do the work of two computing nodes or more, and the names of those."""
        stage = self.stage(name)
        before = self.stage(stage.source).graph if stage.source else None
        computing = {node.name for node in before.nodes if node.computes} if before else set()
        groups = {node: tuple(one for one in names if one in computing) for node, names in stage.groups.items()}
        return {node: names for node, names in groups.items() if len(names) > 1}


def fused(config: RunConfig, inductor: bool = True) -> Fusion:
    """A model's graph as it is exported, and as ONNX Runtime, OpenVINO, TorchInductor and TensorRT have it, on a CPU.

    Some seconds, most of them Inductor's; the first export of a model takes more.

    Args:
        config: the model, its sizes and the simplifier; the graphs are those of FP32.
        inductor: whether to ask TorchInductor, which takes the most time.

    Raises:
        ParameterError: another precision or device was asked for.
        ModelError: the model cannot be exported, or a compiler refuses its graph.
    """
    if (config.precision, config.device) != ("fp32", "cpu"):
        raise ParameterError(
            f"Fusion is shown in FP32 on a CPU, not in {config.precision.upper()} on {config.device}.",
            "Choose precision=fp32 and device=cpu.",
        )
    model, plan = models.get(config.model), bench.plan_of(config)
    example = model.example(plan.batch, plan.sequence, 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _onnx_export.FILE
        _onnx_export.export(model, Path(folder), config.simplifier)
        _onnx_census.name_nodes(path)
        exported = read(path)
        stages = [Stage("exported", "ONNX", exported)]
        stages += [_onnx_runtime(path, exported, level) for level in LEVELS]
        stages += [_openvino(model, plan, path, exported, example), *_kernels.stages(model, plan, inductor), *_tensorrt(model, path)]
    return Fusion(model.name, tuple(stages))


def read(path: Path) -> Graph:
    """The nodes of an ONNX file."""
    import onnx

    return linked(onnx_nodes(onnx.load(path, load_external_data=False).graph))


def _onnx_runtime(path: Path, exported: Graph, level: str) -> Stage:
    import onnx

    out = path.with_name(f"{level}.onnx")
    begin = time.perf_counter()
    opened(path, level, {"optimized_model_filepath": str(out)})
    seconds = time.perf_counter() - begin
    before, after = (onnx.load(one, load_external_data=False).graph for one in (path, out))
    graph = linked(onnx_nodes(after))
    return Stage("onnx_runtime", level, graph, EXPORTED, grouped(exported, graph, _claims(before, after)), seconds)


def _claims(before: Any, after: Any) -> dict[str, tuple[str, ...]]:
    """Of each node of a graph that ONNX Runtime optimised, the nodes of the exported one whose values it answers."""
    nodes = onnx_nodes(before)
    makers = {value: name for name, _, _, writes in nodes for value in writes}
    readers = {value: name for name, _, reads, _ in nodes for value in reads}
    claims = {}
    for (name, _, reads, writes), node in zip(onnx_nodes(after), after.node, strict=True):
        claims[name] = tuple(makers[value] for value in writes if value in makers)
        if name.endswith("_nchwc") and (value := name.removesuffix("_nchwc")) in makers:
            # In a processor's own layout a node answers new values, and its name tells which value that is. A fourth input is what a
            # merged addition adds, and an activation may follow that.
            merged = [makers[value]]
            if len(reads) > 3 and reads[3]:
                merged += [added := readers[value]]
                output = next(writes[0] for other, _, _, writes in nodes if other == added)
                merged += [readers[output]] if any(one.name == "activation" for one in node.attribute) else []
            claims[name] = tuple(merged)
    return claims


def _openvino(model: Model, plan: Plan, path: Path, exported: Graph, example: Mapping[str, Array]) -> Stage:
    """The runtime graph of a model compiled for the plan's sizes."""
    import onnx
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": plan.threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    try:
        graph = core.read_model(path)
        graph.reshape({name: list(values.shape) for name, values in example.items()})
        begin = time.perf_counter()
        compiled = core.compile_model(graph, "CPU", settings)
    except RuntimeError as error:
        return Stage("openvino", "runtime graph", None, reason=f"OpenVINO refuses the graph of {model.name}: {first_line(error)}")
    seconds = time.perf_counter() - begin
    written = onnx_nodes(onnx.load(path, load_external_data=False).graph)
    known = {node.name: node.name for node in exported.nodes}
    known |= {value: name for name, _, _, writes in written for value in writes}  # what answers the model's output bears that name
    nodes, claims = [], {}
    for layer in compiled.get_runtime_model().get_ordered_ops():
        name = str(layer.get_friendly_name())
        sources = [value.get_node().get_friendly_name() for value in layer.input_values()]
        nodes.append((name, layer.rt_info["layerType"].astype(str), sources, [name]))
        merged = [*layer.rt_info["originalLayersNames"].astype(str).split(","), name]
        claims[name] = tuple(known[one] for one in merged if one in known)
    after = linked(nodes)
    return Stage("openvino", "runtime graph", after, EXPORTED, grouped(exported, after, claims), seconds)


def _tensorrt(model: Model, path: Path) -> tuple[Stage, Stage]:
    """The network that TensorRT parses, and the engine whose layers take a GPU to read."""
    after = Stage("tensorrt", "engine", None, reason=_NO_GPU)
    engine = engines.get("tensorrt")
    if missing := engine.missing():
        return Stage("tensorrt", "network", None, reason=f"needs {', '.join(missing)}: {engine.install}"), after
    trt = importlib.import_module(engine.needs[0])
    builder = trt.Builder(log := trt.Logger(trt.Logger.INTERNAL_ERROR))
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(path)):
        return Stage("tensorrt", "network", None, reason=f"TensorRT does not read the graph: {parser.get_error(0).desc()}"), after
    nodes = []
    for place in range(network.num_layers):
        layer = network.get_layer(place)
        reads = [layer.get_input(one).name for one in range(layer.num_inputs) if layer.get_input(one) is not None]
        writes = [layer.get_output(one).name for one in range(layer.num_outputs)]
        nodes.append((f"{place} {layer.name}", layer.type.name, reads, writes))
    return Stage("tensorrt", "network", linked(nodes)), after

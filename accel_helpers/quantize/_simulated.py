"""A model with a switch at every place that could be quantized: integers are simulated by rounding, the arithmetic stays FP32.

One session answers every question of the form "what if only this were quantized": a run names the places whose numbers are rounded to
eight bits and back. Products of real integer kernels add nothing to that error but their own faults (sums that overflow where a processor
lacks VNNI), which would hide the thing sought.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from accel_helpers.device import usable_cpus
from accel_helpers.engine import Array
from accel_helpers.engines import _onnx_export, _onnx_quantize
from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import ModelError
from accel_helpers.models import Model, Split
from accel_helpers.quantize._graph import Graph, Node
from accel_helpers.records import Quantization

Part = Literal["weights", "activations"]
Places = frozenset[tuple[str, Part]]
BATCH = 8
FEW = 2
"""Samples at a time where every tensor of the graph is held: their memory is that of so many samples, however many are seen."""
MASKED = -1e9
"""Scores below this are masked: no part of a range, and left alone, as in a kernel that applies the mask after its own rounding."""


class Scale(NamedTuple):
    """One step of an activation's integers, and the integer that stands for zero."""

    step: float
    zero: int


def scale(low: float, high: float, symmetric: bool) -> Scale:
    """The 256 levels (255 around zero) over a range that is widened to hold zero.

    Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", section 2.1.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if symmetric:
        return Scale(max(-low, high) / 127 or 1.0, 128)
    step = (high - low) / 255 or 1.0
    return Scale(step, int(np.clip(round(-low / step), 0, 255)))


def rounded(weight: Array, axis: int | None, quantization: Quantization) -> Array:
    """A weight as its eight bits (seven with ``reduce_range``) show it: symmetric, one scale for each channel along ``axis`` or for all."""
    levels = 64 if quantization.reduce_range else 127
    others = None if axis is None or not quantization.per_channel else tuple(set(range(weight.ndim)) - {axis % weight.ndim})
    largest = np.abs(weight).max(axis=others, keepdims=True)
    step = np.where(largest > 0, largest / levels, 1).astype(np.float32)
    return np.asarray(np.clip(np.rint(weight / step), -levels, levels) * step, dtype=np.float32)


class Simulated:
    """The session. ``layers`` are those that could be quantized, in the graph's order; ``path`` is the exported graph without switches.

    Raises:
        ModelError: the model cannot be exported, or holds no layer that could be quantized.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._weights: dict[tuple[str, bool, bool], Array] = {}
        self._scales: dict[str, Scale] = {}
        self._quantization = Quantization("static")
        with contextlib.ExitStack() as stack:
            self.path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / _onnx_export.FILE
            self._read()
            self._held = stack.pop_all()

    def _read(self) -> None:
        import onnx

        _onnx_export.export(self.model, self.path.parent)
        loaded = _onnx_quantize.named(onnx.load(self.path))
        self.layers = Graph(loaded.graph).layers
        if not any(layer.multiplies for layer in self.layers):
            raise ModelError(
                f"The graph of {self.model.name} holds no matrix product and no convolution.", "There is nothing to quantize in it."
            )
        self.tensors = tuple(dict.fromkeys(tensor for layer in self.layers for tensor in (*layer.inputs, *layer.outputs)))
        _Switched(loaded.graph, self.layers).write()
        self._session: Any = open_graph(self.model, loaded)

    def calibrate(self, scales: Mapping[str, Scale], quantization: Quantization) -> None:
        """The scale of each of :attr:`tensors`, and how weights are rounded, from now on."""
        self._scales, self._quantization = dict(scales), quantization

    def run(self, inputs: Mapping[str, Array], places: Places = frozenset(), outputs: Sequence[str] = ()) -> dict[str, Array]:
        """The named tensors (the model's outputs where none are named) with the numbers at ``places`` rounded, all else in FP32."""
        wanted = list(outputs or self.model.outputs)
        feeds: dict[str, Array] = dict(inputs)
        for layer in self.layers:
            if layer.weight is not None:
                short = (layer.name, "weights") in places
                feeds[f"{layer.name}/weight"] = self._rounded(layer) if short else layer.weight
            if layer.inputs:
                feeds[f"{layer.name}/switch"] = np.array((layer.name, "activations") in places)
        for tensor in self.tensors:
            step, zero = self._scales.get(tensor, Scale(1.0, 0))
            feeds[f"{tensor}/step"], feeds[f"{tensor}/zero"] = np.array(step, np.float32), np.array(zero, np.uint8)
        made = [name for name in wanted if name not in inputs]
        answers = dict(zip(made, self._session.run(made, feeds) if made else [], strict=True))
        return {name: inputs[name] if name in inputs else answers[name] for name in wanted}

    def _rounded(self, layer: Node) -> Array:
        assert layer.weight is not None
        key = (layer.name, self._quantization.per_channel, self._quantization.reduce_range)
        if key not in self._weights:
            self._weights[key] = rounded(layer.weight, layer.axis, self._quantization)
        return self._weights[key]

    def close(self) -> None:
        """Free the session, the weights and the exported file."""
        self._session, self._weights = None, {}
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def places(layers: Iterable[Node], parts: Sequence[Part] = ("weights", "activations")) -> Places:
    """Every place of some layers where numbers can be rounded."""
    found = {(layer.name, part) for layer in layers for part in parts}
    return frozenset(found)


def batches(split: Split, size: int = BATCH) -> Iterator[tuple[dict[str, Array], slice]]:
    """The samples ``size`` at a time with where they stand; sort them by length before, so that little is padding."""
    start = 0
    for inputs, _ in split.batches(size):
        count = len(next(iter(inputs.values())))
        yield inputs, slice(start, start + count)
        start += count


class _Switched:
    """Writes the switches into a graph: weights become inputs, activations pass a branch that rounds them or not."""

    def __init__(self, graph: Any, layers: Sequence[Node]) -> None:
        self.graph, self.layers = graph, layers
        self.nodes = {node.name or node.output[0]: node for node in graph.node}
        self.added: list[Any] = []

    def write(self) -> None:
        from onnx import TensorProto

        for tensor in dict.fromkeys(tensor for layer in self.layers for tensor in (*layer.inputs, *layer.outputs)):
            self._input(f"{tensor}/step", TensorProto.FLOAT, ())
            self._input(f"{tensor}/zero", TensorProto.UINT8, ())
        for layer in self.layers:
            node = self.nodes[layer.name]
            if layer.weight is not None:
                node.input[layer.place] = self._input(f"{layer.name}/weight", TensorProto.FLOAT, layer.weight.shape)
            if layer.inputs:
                self._input(f"{layer.name}/switch", TensorProto.BOOL, ())
            for tensor in dict.fromkeys(layer.inputs):
                switched = self._switch(layer, tensor, tensor, f"{layer.name}/{tensor}")
                for place, name in enumerate(node.input):
                    if name == tensor:
                        node.input[place] = switched
            for tensor in layer.outputs:
                node.output[list(node.output).index(tensor)] = f"{tensor}/float"
                self._switch(layer, f"{tensor}/float", tensor, tensor)
        self._expose()
        self._sorted()

    def _expose(self) -> None:
        """Every tensor of a layer as an output; constants and shapes that are no longer needed go."""
        import onnx
        from onnx import TensorProto, helper

        there = {one.name for one in (*self.graph.output, *self.graph.input)}
        shown = dict.fromkeys(tensor for layer in self.layers for tensor in (layer.output, *layer.inputs))
        self.graph.output.extend(onnx.ValueInfoProto(name=name) for name in shown if name not in there)
        used = {name for node in (*self.graph.node, *self.added) for name in _reads(node)} | {one.name for one in self.graph.output}
        constants = [one for one in self.graph.initializer if one.name in used]
        del self.graph.initializer[:], self.graph.value_info[:]
        self.graph.initializer.extend([*constants, helper.make_tensor("/masked", TensorProto.FLOAT, (), [MASKED])])

    def _input(self, name: str, kind: int, shape: Sequence[int]) -> str:
        from onnx import helper

        self.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def _switch(self, layer: Node, tensor: str, scales: str, output: str) -> str:
        """A branch: ``tensor`` in eight bits and back where the layer's switch is on, else as it is. ``scales`` names step and zero."""
        from onnx import TensorProto, helper

        grid, names = [f"{scales}/step", f"{scales}/zero"], [f"{output}/{part}" for part in ("integers", "back", "hidden", "short", "same")]
        integers, back, hidden, short, same = names
        rounds = [
            helper.make_node("QuantizeLinear", [tensor, *grid], [integers]),
            helper.make_node("DequantizeLinear", [integers, *grid], [back]),
        ]
        if layer.operator == "Softmax":
            rounds += [helper.make_node("Less", [tensor, "/masked"], [hidden]), helper.make_node("Where", [hidden, tensor, back], [short])]
        else:
            short = back
        branches = {
            "then_branch": helper.make_graph(rounds, short, [], [helper.make_tensor_value_info(short, TensorProto.FLOAT, None)]),
            "else_branch": helper.make_graph(
                [helper.make_node("Identity", [tensor], [same])], same, [], [helper.make_tensor_value_info(same, TensorProto.FLOAT, None)]
            ),
        }
        self.added.append(helper.make_node("If", [f"{layer.name}/switch"], [output], output, **branches))
        return output

    def _sorted(self) -> None:
        """All nodes in an order in which each comes after what it reads."""
        from graphlib import TopologicalSorter

        nodes = [*self.graph.node, *self.added]
        made = {output: index for index, node in enumerate(nodes) for output in node.output}
        order = TopologicalSorter({index: {made[name] for name in _reads(node) if name in made} for index, node in enumerate(nodes)})
        listed = [nodes[index] for index in order.static_order()]
        copies = [type(node).FromString(node.SerializeToString()) for node in listed]
        del self.graph.node[:]
        self.graph.node.extend(copies)


def _reads(node: Any) -> Iterator[str]:
    """What a node reads, its inner graphs included."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            for one in inner.node:
                yield from _reads(one)


def open_graph(model: Model, loaded: Any) -> Any:
    """A session that runs a graph as it is written.

    Raises:
        ModelError: ONNX Runtime refuses it.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # nothing is fused into integer kernels
    options.intra_op_num_threads = usable_cpus()
    options.log_severity_level = 4  # what it would log is raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(loaded.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise ModelError(
            f"The graph of {model.name} cannot be analysed: {first_line(error)}.", "Export it again with opset 17 or newer."
        ) from error

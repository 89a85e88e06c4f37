"""A quantized ONNX file against the graph that it was made from, layer by layer."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_helpers.engines import _onnx_export, _onnx_quantize
from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import ArtifactError, UnsupportedError
from accel_helpers.models import Model, Split
from accel_helpers.quantize._graph import Graph, Node
from accel_helpers.quantize._noise import Meter, decibels
from accel_helpers.quantize._simulated import FEW, batches, open_graph
from accel_helpers.records import Record


@dataclass(frozen=True)
class LayerError(Record):
    """One layer's output in the quantized file against the same tensor in FP32."""

    name: str
    operator: str
    noise: tuple[float, ...]  # of each sample: squared error over the mean squared size in FP32

    @property
    def snr(self) -> float:
        """Signal-to-noise ratio in dB."""
        return decibels(self.noise)


def layer_errors(model: Model, quantized: Path, samples: Split) -> tuple[LayerError, ...]:
    """Each product, normalisation and softmax of a model as a quantized file computes it, in the graph's order.

    The file runs as it is written, nothing fused: its rounding is seen, and not the faults of a processor's integer kernels.

    Args:
        model: the model that the file was built from.
        quantized: ``model.onnx`` of an onnx_runtime artifact, or another quantization of the model's exported graph that left its
            tensors their names.
        samples: inputs to compare on; labels are not read.

    Raises:
        ArtifactError: the file cannot be read.
        UnsupportedError: it shares no layer with the model's graph.
    """
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        _onnx_export.export(model, Path(folder))
        original = _onnx_quantize.named(onnx.load(Path(folder) / _onnx_export.FILE))
    try:
        other = onnx.load(quantized)
    except Exception as error:  # protobuf's, onnx's and the file system's errors share no base class
        raise ArtifactError(f"{quantized.name} cannot be read: {first_line(error)}.", "Build the artifact again.") from error
    pairs = _pairs(original.graph, other.graph)
    if not pairs:
        raise UnsupportedError(
            f"{quantized.name} shares no layer with the graph of {model.name}.", "Compare a file that was quantized from this model."
        )
    expected, actual = [one[1] for one in pairs], [one[2] for one in pairs]
    right, answer = open_graph(model, _exposed(original, expected)), open_graph(model, _exposed(other, actual))
    meters = [Meter() for _ in pairs]
    for inputs, rows in batches(samples, FEW):
        mask = inputs[samples.mask] if samples.mask else None
        for meter, before, after in zip(meters, right.run(expected, inputs), answer.run(actual, inputs), strict=True):
            meter.add(before, after, rows.stop - rows.start, mask)
    return tuple(LayerError(layer.name, layer.operator, meter.shares) for (layer, _, _), meter in zip(pairs, meters, strict=True))


def _pairs(original: Any, quantized: Any) -> list[tuple[Node, str, str]]:
    """Each layer with a tensor of the original graph and the one that stands for it in the quantized graph.

    That is the layer's output, or what a Relu or Clip makes of it where the quantizer let a saturating integer do its work; as those
    that read it see it, rounded where it is rounded.
    """
    clipped = {node.input[0]: node.output[0] for node in original.node if node.op_type in ("Relu", "Clip")}
    made = {output for node in quantized.node for output in node.output}
    integers = {node.output[0]: node.input[0] for node in quantized.node if node.op_type == "QuantizeLinear"}
    back = {
        integers[node.input[0]]: node.output[0]
        for node in quantized.node
        if node.op_type == "DequantizeLinear" and node.input[0] in integers
    }
    found = []
    for layer in Graph(original).layers:
        tensor = layer.output if layer.output in made else clipped.get(layer.output, "")
        if tensor in made:
            found.append((layer, tensor, back.get(tensor, tensor)))
    return found


def _exposed(loaded: Any, tensors: list[str]) -> Any:
    """The graph (changed in place) with more outputs."""
    import onnx

    there = {one.name for one in loaded.graph.output}
    loaded.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in there)
    return loaded

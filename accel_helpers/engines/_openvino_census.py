"""Which layers of a compiled OpenVINO model run in which type: its runtime model, read beside the graph it was compiled from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from accel_helpers.engines._executed import table
from accel_helpers.records import Census, Layer, Plan

_CONVOLUTIONS = ("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData")
_THROUGH = {"Convert", "Multiply", "Subtract", "FakeQuantize", "Reshape", "Transpose", "Squeeze", "Unsqueeze"}
"""What may lie between a weight's constant and the layer: unfolding it from integers, and shaping it."""
_HELD = {"Reorder", "Transpose", "Reshape", "Convert"}  # the same, in a runtime model
PRODUCTS = {"FullyConnected", "MatMul", "Convolution", "Deconvolution"}
"""The runtime model's layers that multiply."""
_KINDS = {"f32": "fp32", "f16": "fp16", "i8": "int8", "u8": "int8", "i4": "int4", "u4": "int4"}
_REVERTED = ["accel_helpers", "reverted"]  # where a graph's file keeps what accuracy control took back


@dataclass(frozen=True)
class _Op:
    """A layer of the graph: its weight's place among the inputs, or None for a product of two activations."""

    node: Any
    weight: int | None

    @property
    def name(self) -> str:
        return str(self.node.get_friendly_name())

    @property
    def constant(self) -> Any:
        return None if self.weight is None else constant(self.node.input_value(self.weight))

    @property
    def parameters(self) -> int:
        return 0 if self.weight is None else math.prod(self.constant.get_output_shape(0))

    @property
    def quantized(self) -> bool:
        """Whether the graph holds it quantized: a weight in integers or with a quantizer, or quantizers before a product of activations."""
        if self.weight is None:
            return any(_after_quantizer(value) for value in self.node.input_values())
        return _short(self.constant) or _after_quantizer(self.node.input_value(self.weight))

    def operations(self) -> int:
        """Multiplications, from the shapes; the graph must be closed."""
        out = math.prod(self.node.get_output_shape(0))
        if self.node.get_type_name() == "MatMul":
            return int(out * self.node.get_input_shape(0)[-2 if self.node.get_attributes()["transpose_a"] else -1])
        kernel = self.node.get_input_shape(1)
        skipped = 2 if "Group" in self.node.get_type_name() else 1
        if "Backprop" in self.node.get_type_name():
            out = math.prod(self.node.get_input_shape(0))
        return int(out * math.prod(kernel[skipped:]))


def constant(value: Any) -> Any:
    """The constant that a value is computed from by rescaling and reshaping alone, or None."""
    node = value.get_node()
    if node.get_type_name() == "Constant":
        return node
    if node.get_type_name() not in _THROUGH:
        return None
    rescaled = node.get_type_name() in ("Multiply", "Subtract")
    sources = [constant(one) for one in (node.input_values() if rescaled else [node.input_value(0)])]
    return None if any(one is None for one in sources) else sources[0]


def _short(node: Any) -> bool:
    return bool(node.get_element_type().bitwidth <= 8)


def _after_quantizer(value: Any) -> bool:
    node = value.get_node()
    while node.get_type_name() in (*_THROUGH - {"FakeQuantize"}, "Split", "VariadicSplit"):
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "FakeQuantize")


def _ops(graph: Any) -> Iterator[_Op]:
    """The products with a weight and those of two activations, in order; products of constants are folded, and left out."""
    for node in graph.get_ordered_ops():
        kind = node.get_type_name()
        if kind in _CONVOLUTIONS:
            yield _Op(node, 1 if constant(node.input_value(1)) is not None else None)
        elif kind == "MatMul":
            weights = [place for place in (1, 0) if constant(node.input_value(place)) is not None]
            if len(weights) < 2:
                yield _Op(node, weights[0] if weights else None)


def names(graph: Any) -> list[str]:
    """The names of the graph's layers, as the census prints them and ``keep`` takes them."""
    return [op.name for op in _ops(graph)]


def quantized_names(graph: Any) -> set[str]:
    """The layers that the graph holds quantized."""
    return {op.name for op in _ops(graph) if op.quantized}


def mark_reverted(graph: Any, reverted: list[str]) -> None:
    """Keep in the graph, and in its file, which layers accuracy control took back."""
    graph.set_rt_info(",".join(reverted), _REVERTED)


def census(graph: Any, compiled: Any, plan: Plan) -> Census:
    """The layers of ``graph``, closed at one item and the plan's sequence length, as ``compiled`` runs them."""
    runtime = compiled.get_runtime_model().get_ordered_ops()
    places = _places(runtime)
    reverted = set(graph.get_rt_info(_REVERTED).astype(str).split(",")) if graph.has_rt_info(_REVERTED) else set()
    quantizers = {node.get_friendly_name() for node in graph.get_ops() if node.get_type_name() == "FakeQuantize"}
    layers = []
    for op in _ops(graph):
        node = next((places[name] for name in _aliases(op) if name in places), None)
        if node is None:  # folded into a constant: it does not run
            continue
        held = _held(node, op.parameters) if op.weight is not None else None
        weight = op.constant if held is None else held
        precision = _fused(node, held) if op.quantized else kind(node)
        reason = "" if precision.startswith("int") or plan.quantization is None else _reason(op, plan, reverted)
        layers.append(
            Layer(
                name=op.name,
                operator=_fact(node, "layerType"),
                precision=precision,
                parameters=op.parameters,
                weight_bytes=0 if weight is None else -(-math.prod(weight.get_output_shape(0)) * weight.get_element_type().bitwidth // 8),
                operations=op.operations(),
                reason=reason,
            )
        )
    return Census((*layers, *_tables(graph, plan)), *_between(runtime, quantizers))


def _tables(graph: Any, plan: Plan) -> Iterator[Layer]:
    """The constant tables of numbers that rows are looked up in: embeddings, in the type that the file keeps them in."""
    for node in graph.get_ordered_ops():
        held = constant(node.input_value(0)) if node.get_type_name() == "Gather" else None
        if held is None or len(held.get_output_shape(0)) < 2 or not node.get_output_element_type(0).is_real():
            continue
        kept, count = held.get_element_type(), math.prod(held.get_output_shape(0))
        short = _KINDS.get(kept.get_type_name(), kept.get_type_name())
        precision = f"{short} weights" if short.startswith("int") else short
        yield table(plan, str(node.get_friendly_name()), "Gather", precision, count, -(-count * kept.bitwidth // 8))


def _fact(node: Any, name: str) -> str:
    return str(node.rt_info[name].astype(str))


def _places(runtime: list[Any]) -> dict[str, Any]:
    """Where each of the graph's names went: to a layer that multiplies, or else to whichever holds it.

    A layer's own name counts more than ``originalLayersNames``, in which several layers may list what they have in common.
    """
    multiplying = [node for node in runtime if _fact(node, "layerType") in PRODUCTS]
    places = {node.get_friendly_name().partition("/Dequantization")[0]: node for node in multiplying}
    for node in (*multiplying, *runtime):
        for name in _fact(node, "originalLayersNames").split(","):
            places.setdefault(name.partition("/Dequantization")[0], node)
    return places


def _aliases(op: _Op) -> Iterator[str]:
    """The layer's name, and those of what follows it alone: a bias that OpenVINO merges into the layer gives it its own name."""
    node = op.node
    yield node.get_friendly_name()
    for _ in range(3):
        followers = [target.get_node() for target in node.output(0).get_target_inputs()]
        if len(followers) != 1 or followers[0].get_type_name() not in ("Add", "Multiply", "Subtract", "Reshape"):
            return
        node = followers[0]
        yield node.get_friendly_name()


def _held(node: Any, parameters: int) -> Any:
    """The runtime model's constant that holds a layer's weight, or None."""
    for value in node.input_values():
        source = value.get_node()
        while _fact(source, "layerType") in _HELD and source.get_input_size():
            source = source.input_value(0).get_node()
        if _fact(source, "layerType") == "Const" and math.prod(source.get_output_shape(0)) == parameters:
            return source
    return None


def _fused(node: Any, held: Any) -> str:
    """The type of a product that the graph holds quantized.

    A short chain of them may become one Subgraph, whose own type is that of its ends. Its products are made for bytes: those that are not
    have their weights unfolded to floats when the model is compiled, and read no bytes any more.
    """
    if held is not None and _fact(node, "layerType") == "Subgraph" and _short(held):
        return _KINDS[held.get_element_type().get_type_name()]
    return kind(node)


def products_in(node: Any) -> Counter[str]:
    """The products inside a Subgraph by the type of the weight they read, where that is short: see :func:`_fused`."""
    held = [value.get_node() for value in node.input_values()] if _fact(node, "layerType") == "Subgraph" else []
    return Counter(_KINDS[one.get_element_type().get_type_name()] for one in held if _fact(one, "layerType") == "Const" and _short(one))


def kind(node: Any) -> str:
    """The type of a runtime layer's arithmetic; "int8 weights" or "int4 weights" where only the weight is short.

    ``runtimePrecision`` is the shortest of a layer's inputs, so the types of the inputs themselves decide.
    """
    lowest = _KINDS.get(_fact(node, "runtimePrecision"), _fact(node, "runtimePrecision"))
    layer = _fact(node, "layerType")
    if not lowest.startswith("int") or layer not in PRODUCTS:
        return lowest
    if all(node.get_input_element_type(place).bitwidth <= 8 for place in (0, 1)):
        return lowest
    return f"{lowest} weights"


def _reason(op: _Op, plan: Plan, reverted: set[str]) -> str:
    chosen = plan.quantization
    if chosen is None:
        return ""
    if op.name in chosen.keep:
        return "kept by request"
    if op.name in reverted:
        return "accuracy control took it back"
    if op.weight is None and chosen.scheme == "weight_only":
        return "a product of two activations, and only weights are quantized"
    if not op.quantized:
        return "NNCF put no quantizer before it"
    return "quantized in the file, but OpenVINO unfolds it here: it has no kernel for these types and this shape"


def _between(runtime: list[Any], quantizers: set[str]) -> tuple[int, int]:
    """Quantizers that run on their own, and places where a value changes between floating point and integers or between floats."""
    kinds = {"f32", "bf16", "f16", "i8", "u8"}
    alone = changes = 0
    for node in runtime:
        layer = _fact(node, "layerType")
        merged = _fact(node, "originalLayersNames").split(",")
        lone = layer == "FakeQuantize" or (
            layer == "Subgraph" and all(name in quantizers or name.startswith("FakeQuantize") for name in merged)
        )
        alone += lone
        if (lone or layer in ("Reorder", "Convert")) and node.get_input_size():
            ends = {one.get_type_name() for one in (node.get_input_element_type(0), node.get_output_element_type(0))}
            changes += len(ends) == 2 and ends <= kinds
    return alone, changes

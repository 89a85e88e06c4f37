"""Which products of an exported graph run in which type, from a profiled call of the session that was built from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.config import QUANTIZED
from accel_helpers.engine import Array
from accel_helpers.engines import _onnx_calibrate
from accel_helpers.engines._executed import _HEAVY, _NAMES, table
from accel_helpers.engines._onnx_quantize import PRODUCTS, named
from accel_helpers.records import Census, Layer, Plan, Quantization

_INTEGER = re.compile(r"QLinear|^QGemm$|^QAttention$|Integer|DynamicQuantizeMatMul")
"""Operators of ONNX Runtime that multiply integers, though some of them read and answer floats."""
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_CLASSES = {"int8": "integer", "uint8": "integer", "int32": "integer", "float": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Product:
    """A matrix product or convolution of the exported graph."""

    name: str
    operator: str
    constant: bool  # whether it multiplies by a weight, or two activations
    parameters: int
    operations: int  # multiplications of one item
    tensors: frozenset[str]  # its output, and what comes of it up to the next product: the names that a fused operator may bear


@dataclass(frozen=True)
class Ran:
    """One operator that a profiled call ran."""

    name: str
    operator: str
    provider: str
    reads: str  # type of its first input, as ONNX Runtime spells it: float, uint8 …
    answers: str  # type of its first output
    constant_bytes: int  # of the initializers that it reads


def name_nodes(path: Path) -> None:
    """Give every node of a graph on disk a name, where a census could not tell them apart."""
    import onnx

    loaded = onnx.load(path, load_external_data=False)
    names = [node.name for node in loaded.graph.node]
    if "" in names or len(set(names)) < len(names):
        onnx.save(named(loaded), path)


def products(source: Path, item: dict[str, Array]) -> list[Product]:
    """The products of an exported graph, in its order, with their sizes for the inputs ``item`` of batch one. Runs the graph once."""
    import onnx

    loaded = named(onnx.load(source, load_external_data=False))
    constants = {one.name: tuple(one.dims) for one in loaded.graph.initializer}
    nodes = [node for node in loaded.graph.node if node.op_type in PRODUCTS and not set(node.input[:2]) <= constants.keys()]
    wanted = {name for node in nodes for name in (*node.input[:2], node.output[0])} - constants.keys()
    sizes = constants | _onnx_calibrate.shapes(source, sorted(wanted), item)
    return [_product(node, constants, sizes, _follow(loaded, node)) for node in nodes]


def ran(profile: Path, optimised: Path) -> list[Ran]:
    """The operators of one profiled call: ``profile`` is ONNX Runtime's trace, ``optimised`` the graph that the same session saved."""
    import onnx

    graph = onnx.load(optimised, load_external_data=False).graph
    constants = {one.name: _bytes(one) for one in graph.initializer}
    held = {node.name: sum(constants.get(name, 0) for name in node.input) for node in graph.node}
    found = []
    for event in json.loads(profile.read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name, arguments = event["name"].removesuffix("_kernel_time"), event["args"]
            reads, answers = (_first(arguments[side]) for side in ("input_type_shape", "output_type_shape"))
            found.append(Ran(name, arguments["op_name"], arguments["provider"], reads, answers, held.get(name, 0)))
    return found


def tables(path: Path, plan: Plan) -> tuple[Layer, ...]:
    """The tables of numbers that a built graph looks rows up in: embeddings."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    held = {one.name: one for one in graph.initializer if len(one.dims) > 1 and one.data_type in (1, 10, 16)}
    looked = {node.input[0]: node.name for node in graph.node if node.op_type == "Gather" and node.input[0] in held}
    kinds = {1: "fp32", 10: "fp16", 16: "bf16"}
    return tuple(
        table(plan, name, "Gather", kinds[held[tensor].data_type], int(np.prod(held[tensor].dims)), _bytes(held[tensor]))
        for tensor, name in looked.items()
    )


def precision(one: Ran, plan: Plan) -> str:
    """The type of an operator's multiplications, short: int8, fp32 …; that of its answer where it multiplies nothing."""
    if one.operator == "MatMulNBits":
        return f"{plan.precision} weights"
    if _INTEGER.search(one.operator):
        return "int8"
    kind = _NAMES.get(one.answers, one.answers)
    return "tf32" if (plan.precision, kind) == ("tf32", "fp32") else kind


def census(expected: Iterable[Product], operators: Iterable[Ran], plan: Plan, looked_up: Iterable[Layer] = ()) -> Census:
    """Each product of the exported graph, by its name there, as it really runs; then the tables."""
    operators = list(operators)
    waiting = {one.name: one for one in expected}
    layers: dict[str, Layer] = {name: _layer(one, None, plan) for name, one in waiting.items()}
    for one in operators:
        if _HEAVY.search(one.operator) and (product := _owner(one, waiting)):
            layers[product.name] = _layer(product, one, plan)
            del waiting[product.name]
    classes = [(_CLASSES.get(one.reads), _CLASSES.get(one.answers)) for one in operators]
    return Census(
        layers=(*layers.values(), *looked_up),
        unfused=sum(one.operator in _QUANTIZERS for one in operators),
        transitions=sum(before != after for before, after in classes if before and after),
    )


def _product(node: Any, constants: dict[str, Any], sizes: dict[str, tuple[int, ...]], tensors: frozenset[str]) -> Product:
    left, right, answer = (sizes[name] for name in (*node.input[:2], node.output[0]))
    options = {one.name: one for one in node.attribute}
    match node.op_type:
        case "Conv":  # right: (outputs, inputs of a group, *kernel)
            each = np.prod(answer) * np.prod(right[1:])
        case "ConvTranspose":  # right: (inputs, outputs of a group, *kernel)
            each = np.prod(left) * np.prod(right[1:])
        case "Gemm":
            each = np.prod(answer) * left[0 if "transA" in options and options["transA"].i else 1]
        case _:
            each = np.prod(answer) * left[-1]
    weights = [name for name in node.input if name in constants]
    count = sum(int(np.prod(constants[name])) for name in weights)
    return Product(node.name, node.op_type, bool(weights) and bool(set(node.input[:2]) & constants.keys()), count, int(each), tensors)


def _follow(loaded: Any, node: Any) -> frozenset[str]:
    """The tensors that come of a node's output without another product between."""
    reached = set(node.output)
    for after in loaded.graph.node:
        if after.op_type not in PRODUCTS and reached & set(after.input):
            reached.update(after.output)
    return frozenset(reached)


def _owner(one: Ran, waiting: dict[str, Product]) -> Product | None:
    """The product that an operator carries out. Fusions keep a node's name and add to it; NCHWc ones bear their last output's."""
    if one.name.endswith("_nchwc"):
        tensor = one.name.removesuffix("_nchwc")
        holders = [product for product in waiting.values() if tensor in product.tensors]
        return max(holders, key=lambda product: list(waiting).index(product.name), default=None)  # the last before it
    bare = one.name.removeprefix("fused ")
    bases = [name for name in waiting if bare == name or bare.startswith((f"{name}_", f"{name}/"))]
    return waiting[max(bases, key=len)] if bases else None


def _layer(product: Product, one: Ran | None, plan: Plan) -> Layer:
    kind = precision(one, plan) if one else "fp32"
    reason = "" if kind.startswith(plan.precision) else _reason(product, one, plan.quantization if plan.precision in QUANTIZED else None)
    return Layer(
        name=product.name,
        operator=one.operator if one else product.operator,
        precision=kind,
        parameters=product.parameters,
        weight_bytes=one.constant_bytes if one else 0,
        operations=product.operations,
        reason=reason,
    )


def _reason(product: Product, one: Ran | None, quantization: Quantization | None) -> str:
    if one is None:
        return "it does not run on its own: ONNX Runtime folded it or fused it with another product"
    if quantization is None:
        return "the graph or the provider computes it in this type"
    if product.name in quantization.keep:
        return "keep names it"
    if not product.constant:
        return "it multiplies two activations, which this engine leaves in float: rounding both costs accuracy"
    if product.operator.startswith("Conv") and quantization.scheme == "dynamic":
        return "a dynamically quantized convolution is slower than FP32"
    if product.operator.startswith("Conv") and quantization.scheme == "weight_only":
        return "MatMulNBits multiplies matrices only"
    return "ONNX Runtime found no integer kernel for it and dequantizes what it reads"


def _first(values: list[dict[str, Any]]) -> str:
    return next(iter(values[0]), "") if values else ""


def _bytes(tensor: Any) -> int:
    import onnx

    return int(np.prod(tensor.dims)) * int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)

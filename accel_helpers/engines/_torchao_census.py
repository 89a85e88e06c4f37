"""Which products of a quantized network run in which type: read off the graph that TorchInductor makes code from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from accel_helpers.engines._executed import table
from accel_helpers.records import Census, Layer, Plan

_SHORT = ("qlinear", "qconv", "_int_mm")
"""Operators that multiply integers, in oneDNN and in ATen."""
_WEIGHTED = re.compile(r"linear|(^|_|add)mm$|conv(?!ert)")
"""Operators that multiply by a weight."""
_ATTENTION = ("scaled_dot_product", "bmm")
_QUANTIZERS = ("quantize_per_tensor", "dequantize_per_tensor", "quantize_per_channel", "dequantize_per_channel")
_ATTENDS = "a product of two activations; torch.compile quantizes products with a weight"
_STAYED = "no integer kernel of oneDNN matched it"
_KEPT = "kept unquantized, as asked"
_NO_LINEAR = "this scheme quantizes linear layers only"


@dataclass(frozen=True)
class Product:
    """One product of the network as it runs eagerly, in FP32."""

    layer: str
    operator: str
    channels: int  # of its output
    parameters: int
    operations: int  # multiplications of one item

    @property
    def attends(self) -> bool:
        """Whether it multiplies two activations."""
        return any(part in self.operator for part in _ATTENTION)


@dataclass(frozen=True)
class Ran:
    """One operator of the graph that code is made from."""

    operator: str
    channels: int  # of its output, 0 where the graph does not say
    precision: str


def products(network: Any, inputs: dict[str, Any]) -> list[Product]:
    """The products of one eager call in order. ``inputs`` are tensors whose first axis is the batch."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry, sdpa_flop_count

    def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query.shape, key.shape, value.shape))

    formulas = {**flop_registry, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention}
    batch = len(next(iter(inputs.values())))
    found: list[Product] = []
    inside: list[tuple[str, Any]] = []

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            answer = function(*args, **(kwargs or {}))
            formula = formulas.get(function.overloadpacket)
            if formula is not None:
                first = answer[0] if isinstance(answer, tuple | list) else answer
                count = formula(*args, **(kwargs or {}), out_val=answer) // 2 // batch
                name, module = inside[-1]
                held = getattr(module, "weight", None)
                operator = function.overloadpacket.__name__
                one = Product(name, operator, _channels(operator, first), 0, count)
                found.append(one if one.attends or held is None else replace(one, parameters=held.numel()))
            return answer

    hooks = []
    for name, module in network.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda one, _, name=name: inside.append((name, one))))
        hooks.append(module.register_forward_hook(lambda *_: inside.pop() and None))
    try:
        with torch.no_grad(), Watch():
            network(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def tables(network: Any, plan: Plan) -> tuple[Layer, ...]:
    """The embeddings of a network, which no scheme quantizes."""
    import torch

    found = [(name, one.weight.numel()) for name, one in network.named_modules() if isinstance(one, torch.nn.Embedding)]
    return tuple(table(plan, name, "embedding", "fp32", count, 4 * count) for name, count in found)


def ran(graph: Any, plan: Plan) -> list[Ran]:
    """The operators of a lowered graph that answer numbers, in order, by the type of their products."""
    import torch

    found = []
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        value = value[0] if isinstance(value, tuple | list) and value else value
        operator = _name(node.target)
        if node.op != "call_function":
            continue
        if any(part in operator for part in _SHORT):
            found.append(Ran(operator, _channels(operator, value), "int8"))
        elif isinstance(value, torch.Tensor) and value.is_floating_point():
            found.append(Ran(operator, _channels(operator, value), _widened(node, plan) or str(value.dtype).removeprefix("torch.")))
    return found


def _widened(node: Any, plan: Plan) -> str:
    """The plan's precision where a float product reads a weight that was widened from integers in the same call."""
    import torch

    if _name(node.target) not in ("mm", "addmm"):
        return ""
    reach = [node.args[-1]]
    for _ in range(12):  # transposes, scales and shifts between the bytes and the product
        sources = [source for one in reach if hasattr(one, "all_input_nodes") for source in (one, *one.all_input_nodes)]
        if any(source.op == "placeholder" and source.meta["val"].dtype in (torch.int8, torch.uint8) for source in sources):
            return plan.precision
        reach = [one for one in dict.fromkeys(sources) if one.op != "placeholder"]
    return ""


def _name(target: Any) -> str:
    packet = getattr(target, "overloadpacket", target)
    return str(getattr(packet, "__name__", packet))


def _channels(operator: str, value: Any) -> int:
    """The channels of an answer; 0 where the graph does not say."""
    shape: Any = getattr(value, "shape", ())
    return int(shape[1] if "conv" in operator and len(shape) > 2 else shape[-1]) if len(shape) else 0


def types(operators: Iterable[Ran]) -> Counter[tuple[str, str]]:
    """How often each (operator, type) is in the graph; quantizing and dequantizing are no products and are left out."""
    return Counter((one.operator, one.precision) for one in operators if one.operator not in _QUANTIZERS)


def census(known: Iterable[Product], operators: Sequence[Ran], plan: Plan, looked_up: Iterable[Layer] = ()) -> Census:
    """The products of a network, each in the type that the operator made of it multiplies in.

    Both lists are in the order of the calls, so each product takes the next operator with its number of channels; one that finds none
    counts as float.
    """
    executed = [one for one in operators if _WEIGHTED.search(one.operator)]
    used = [False] * len(executed)
    layers, names = [], Counter[str]()
    for product in known:
        names[product.layer] += 1
        again = f" {names[product.layer]}" if names[product.layer] > 1 else ""
        layers.append(replace(_layer(product, executed, used, plan), name=(product.layer or product.operator) + again))
    unfused = sum(one.operator in _QUANTIZERS for one in operators)
    kinds = [one.precision for one in layers]
    return Census((*layers, *looked_up), unfused, sum(one != other for one, other in pairwise(kinds)))


def _layer(product: Product, executed: list[Ran], used: list[bool], plan: Plan) -> Layer:
    count, asked = product.parameters, plan.quantization
    if product.attends:
        return Layer(product.layer, product.operator, "fp32", 0, 0, product.operations, _ATTENDS)
    for index, one in enumerate(executed):
        if not used[index] and one.channels in (product.channels, 0):
            used[index] = True
            break
    else:
        return Layer(product.layer, product.operator, "fp32", count, 4 * count, product.operations, _STAYED)
    if one.precision not in ("int8", "int4"):
        kept = asked is not None and any(product.layer == name or product.layer.startswith(f"{name}.") for name in asked.keep)
        only_linear = asked is not None and asked.scheme in ("dynamic", "weight_only") and "conv" in product.operator
        reason = _KEPT if kept else _NO_LINEAR if only_linear else _STAYED
        return Layer(product.layer, one.operator, "fp32", count, 4 * count, product.operations, reason)
    weights = " weights" if asked is not None and asked.scheme == "weight_only" else ""
    held = count if one.precision == "int8" else count // 2 + 4 * (count // 32)
    return Layer(product.layer, one.operator, one.precision + weights, count, held, product.operations)

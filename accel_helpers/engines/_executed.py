"""What really executed in which type, said the same way for every engine."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from accel_helpers.errors import UnsupportedError
from accel_helpers.records import Layer, Plan

_HEAVY = re.compile(r"(^|_|add|b)mm$|matmul|gemm|conv(?!ert)|(?<![a-z])q?linear(?![a-z0-9])|attention|fullyconnected|einsum", re.IGNORECASE)
"""The operators that do a network's arithmetic, as PyTorch, ONNX and OpenVINO spell them."""
_NAMES = {
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "f16": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
    "double": "fp64",
    "f64": "fp64",
    "int8": "int8",
    "uint8": "int8",
    "i8": "int8",
    "u8": "int8",
    "int4": "int4",
    "uint4": "int4",
    "i4": "int4",
    "u4": "int4",
}


def table(plan: Plan, name: str, operator: str, precision: str, parameters: int, weight_bytes: int) -> Layer:
    """A layer whose weight is looked up, as an embedding's: it counts by what it holds, and has no multiplications."""
    reason = "it is looked up and multiplies nothing" if plan.quantization and not precision.startswith("int") else ""
    return Layer(name, operator, precision, parameters, weight_bytes, 0, reason)


def executed(operators: Counter[tuple[str, str]], plan: Plan, reason: str) -> dict[str, Any]:
    """Operators by type, and those that stayed in another type than the plan's.

    Args:
        operators: how often each (operator, type) ran; only operators that answer floating-point values.
        plan: what was asked for.
        reason: why an operator stays in another type, for this engine.

    Returns:
        ``types``: type -> operators that ran in it; ``kept``: operator and type -> how often and why.

    Raises:
        UnsupportedError: no matrix product or convolution ran in the type asked for, or FP32 was asked for and one ran in less.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for (operator, kind), count in operators.items():
        kind = _NAMES.get(kind, kind)
        counts[operator, "tf32" if (plan.precision, kind) == ("tf32", "fp32") and _HEAVY.search(operator) else kind] += count
    heavy = {kind for operator, kind in counts if _HEAVY.search(operator)} or {kind for _, kind in counts}
    lower = heavy & {"tf32", "bf16", "fp16"} if plan.precision == "fp32" else set()
    if heavy and (plan.precision not in heavy or lower):
        ran = ", ".join(sorted(lower or heavy)).upper()
        raise UnsupportedError(
            f"{plan.engine} was asked for {plan.precision.upper()}, but its matrix products and convolutions run in {ran}.",
            f"Ask for {min(lower or heavy)}, or choose another engine.",
        )
    types: Counter[str] = Counter()
    kept: dict[str, str] = {}
    for (operator, kind), count in sorted(counts.items()):
        types[kind] += count
        if kind != plan.precision:
            kept[f"{operator} in {kind}"] = f"{count} times: {reason}"
    return {"types": dict(types), "kept": kept}

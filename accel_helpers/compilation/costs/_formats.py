"""The formats of a tensor core's factors, emulated: how exact each is, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accel_helpers.engine import Array

_BITS = {"fp32": (8, 23), "tf32": (8, 10), "fp16": (5, 10), "bf16": (8, 7)}
"""Bits of the exponent and of the mantissa. NVIDIA, "A100 Tensor Core GPU Architecture", figure 9, for TF32; IEEE 754 for FP32 and FP16."""
MAGNITUDES = (1e-6, 1.0, 1e6)
"""Of the factors: where FP16 has few bits left, all of them, and no number at all."""


@dataclass(frozen=True)
class Format:
    """A floating-point format: what it can hold, and what a matrix product loses whose factors are rounded to it."""

    name: str
    exponent: int  # bits
    mantissa: int  # bits stored
    largest: float
    smallest: float  # normal number
    errors: tuple[tuple[float, float], ...]  # (factors' magnitude, relative error of the product); infinite where it overflows

    @property
    def spread(self) -> float:
        """The worst error over all magnitudes."""
        return max(error for _, error in self.errors)


def formats(size: int = 256, seed: int = 0) -> tuple[Format, ...]:
    """The formats that a tensor core multiplies in, by emulation: round the factors, multiply in FP64. Runs anywhere, and exactly.

    The error is the norm of the difference over the norm of the exact product; a product that is no number any more counts as infinite.

    Args:
        size: rows and columns of the two factors, drawn from a normal distribution.
        seed: of the draw.
    """
    draw = np.random.default_rng(seed)
    left, right = (draw.normal(size=(size, size)) for _ in range(2))
    found = []
    for name, (exponent, mantissa) in _BITS.items():
        top = 2 ** (exponent - 1) - 1
        largest, smallest = (2 - 2.0**-mantissa) * 2.0**top, 2.0 ** (1 - top)
        errors = tuple((scale, _product_error(left * scale, right, name)) for scale in MAGNITUDES)
        found.append(Format(name, exponent, mantissa, largest, smallest, errors))
    return tuple(found)


def rounded(values: Array, name: str) -> Array:
    """Numbers rounded to the nearest of a format, ties to even, as float64; beyond its largest they are infinite."""
    exponent, mantissa = _BITS[name]
    top = 2 ** (exponent - 1) - 1
    _, power = np.frexp(values)
    # Below the smallest normal number the last place stays where it is: subnormal numbers.
    step = np.exp2(np.maximum(power - 1, 1 - top) - mantissa)
    near = np.round(values / step) * step
    kept: Array = np.where(np.abs(near) > (2 - 2.0**-mantissa) * 2.0**top, np.copysign(np.inf, near), near)
    return kept


def _product_error(left: Array, right: Array, name: str) -> float:
    exact = left @ right
    with np.errstate(invalid="ignore"):
        product = rounded(left, name) @ rounded(right, name)
    if not np.isfinite(product).all():
        return float("inf")
    return float(np.linalg.norm(product - exact) / np.linalg.norm(exact))

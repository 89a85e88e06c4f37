"""Figures for people: a value, or an estimate with its interval, in a unit of a readable size.

Each function takes a number or an :class:`~accel_helpers.intervals.Estimate`; an estimate reads ``value [low, high]`` in one unit.

>>> seconds(0.00123)
'1.23 ms'
>>> seconds(Estimate(0.00123, 0.0012, 0.0013))
'1.23 ms [1.20, 1.30]'
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from accel_helpers.intervals import Estimate

Scale = tuple[float, str]
"""How many base units one shown unit holds, and its name."""

NO_INTERVAL = "no interval: under 6 rounds"

_TIMES: tuple[Scale, ...] = ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))
_PREFIXES: tuple[Scale, ...] = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))


def _pick(value: float, scales: Sequence[Scale]) -> Scale:
    """The largest scale that leaves at least one unit, judged on three digits so that 999.9 µs reads 1.00 ms."""
    rounded = abs(float(f"{value:.3g}"))
    if not rounded:
        return next(scale for scale in scales if scale[0] == 1)
    return max((scale for scale in scales if rounded >= scale[0] * (1 - 1e-9)), default=scales[0])


def time_scale(value: float) -> Scale:
    """The unit in which ``value`` seconds are shown."""
    return _pick(value, _TIMES)


def rate_scale(value: float, unit: str) -> Scale:
    """The unit in which ``value`` per second are shown. Symbols in capitals (B, FLOP) take an SI prefix, words (items, tokens) none."""
    factor, prefix = _pick(value, _PREFIXES) if unit.isupper() else (1.0, "")
    return factor, f"{prefix}{unit}/s"


def size_scale(value: float) -> Scale:
    """The unit in which ``value`` bytes are shown."""
    factor, prefix = _pick(value, _PREFIXES)
    return factor, f"{prefix}B"


def seconds(value: float | Estimate) -> str:
    """A time given in seconds."""
    return _show(value, time_scale(_middle(value)))


def size(value: float | Estimate) -> str:
    """A size given in bytes, in decimal units: 1 MB is 1,000,000 bytes."""
    return _show(value, size_scale(_middle(value)))


def rate(value: float | Estimate, unit: str = "items") -> str:
    """A rate given in ``unit`` per second."""
    return _show(value, rate_scale(_middle(value), unit))


def ratio(value: float | Estimate) -> str:
    """A speed-up: how many times."""
    return _show(value, (1.0, "×"))


def bounded(estimate: Estimate) -> bool:
    """Whether a positive estimate has an interval: below six rounds the bounds are 0 and infinity."""
    return 0 < estimate.low <= estimate.high < math.inf


def interval(estimate: Estimate, factor: float) -> str:
    """The two bounds of an estimate in units of ``factor``, in brackets."""
    if not bounded(estimate):
        return f"[{NO_INTERVAL}]"
    digits = _decimals(estimate, factor)
    return f"[{estimate.low / factor:,.{digits}f}, {estimate.high / factor:,.{digits}f}]"


def _middle(value: float | Estimate) -> float:
    return value.value if isinstance(value, Estimate) else value


def _decimals(value: float | Estimate, factor: float) -> int:
    """Enough for three digits of the value, or one digit of the interval's width where that is finer, by two at most."""
    shown = float(f"{_middle(value) / factor:.3g}")
    if not shown or not math.isfinite(shown):
        return 0
    places = 2 - math.floor(math.log10(abs(shown)))
    if isinstance(value, Estimate) and 0 < (width := (value.high - value.low) / factor) < math.inf:
        places = max(places, min(places + 2, -math.floor(math.log10(width))))
    return max(0, places)


def _show(value: float | Estimate, scale: Scale) -> str:
    factor, unit = scale
    space = "" if unit == "×" else " "
    text = f"{_middle(value) / factor:,.{_decimals(value, factor)}f}{space}{unit}"
    return f"{text} {interval(value, factor)}" if isinstance(value, Estimate) else text

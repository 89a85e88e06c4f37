"""Where a series of call times becomes steady, and whether it does: a test, not a hope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from accel_helpers.intervals import median

_TYPICAL = 2.5
"""Deviations from the plateau, in robust standard deviations, that steady noise exceeds too seldom to add up."""
_CLIP = 4.0
"""One outlier counts for at most this many deviations, so that a single slow call is not a phase."""
DRIFT_LIMIT = 0.10
"""Largest spread between the medians of the plateau's quarters, as a share of its level, that still counts as steady."""


@dataclass(frozen=True)
class Steady:
    """``change`` calls of warm-up come first; ``stable`` says whether what follows stays on one level."""

    change: int
    stable: bool
    detail: str


def steady(samples: Sequence[float]) -> Steady:
    """Split a series into warm-up and plateau.

    The level and the noise come from the second half. The change point maximises a clipped cumulative sum of absolute deviations minus a
    reference value, the decision rule of Page's CUSUM (Biometrika 41, 1954): it climbs while calls sit off the plateau and falls as soon
    as they sit on it, for steps, ramps and saw-teeth alike. UNSTABLE when the plateau's quarters differ by more than DRIFT_LIMIT and by
    more than their noise explains, or when no plateau begins in the first half.
    """
    n = len(samples)
    if n < 8:
        return Steady(0, False, f"{n} calls are too few to judge")
    tail = samples[n // 2 :]
    level = median(tail)
    # 1.4826 turns a median absolute deviation into a standard one. Successive differences measure the noise even where the level drifts.
    floor = max(0.002 * level, 1e-9)
    noise = max(1.4826 * median([abs(b - a) for a, b in pairwise(tail)]) / 2**0.5, floor)
    width = max(1.4826 * median([abs(sample - level) for sample in tail]), noise)
    change, total, best = 0, 0.0, 0.0
    for index, sample in enumerate(samples[: 3 * n // 4]):
        total += min(abs(sample - level) / width, _CLIP) - _TYPICAL
        if total > best:
            change, best = index + 1, total
    plateau = samples[change:]
    quarter = max(len(plateau) // 4, 2)
    medians = [median(plateau[start : start + quarter]) for start in range(0, 4 * quarter, quarter) if plateau[start : start + quarter]]
    spread = max(medians) - min(medians)
    # The standard error of a median of m normal samples is 1.2533 sigma / sqrt(m); four of them bound the spread of four medians.
    explained = 4 * 1.2533 * noise / quarter**0.5
    if change > n // 2:
        return Steady(change, False, f"UNSTABLE: no plateau in the first half of {n} calls")
    if spread > max(DRIFT_LIMIT * level, explained):
        return Steady(change, False, f"UNSTABLE: the level moves by {spread / level:.0%} over {len(plateau)} calls")
    return Steady(change, True, f"steady after {change} of {n} calls, level within {spread / level:.1%}")

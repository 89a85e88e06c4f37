"""Distribution-free intervals: the only statistics a figure in this project rests on.

Raw latency samples are autocorrelated and skewed, so nothing here assumes a distribution or, for comparisons, independent samples:
the unit of evidence is the round, and a comparison is one paired log ratio per round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement


@dataclass(frozen=True)
class Estimate:
    """A value and its two-sided interval, in the unit of the samples."""

    value: float
    low: float
    high: float


def quantile(samples: Sequence[float], q: float) -> float:
    """The q-quantile by linear interpolation between order statistics (NumPy's default, Hyndman and Fan's type 7)."""
    ordered = sorted(samples)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(samples: Sequence[float]) -> float:
    """The middle order statistic."""
    return quantile(samples, 0.5)


def quantile_estimate(samples: Sequence[float], q: float, level: float = 0.95) -> Estimate | None:
    """A quantile with the interval between two of its order statistics, or None where no such interval exists.

    The number of samples below the true quantile is Binomial(n, q) for independent samples (David and Nagaraja, Order Statistics,
    section 7.1). For p99 at 95 % the interval first exists at 368 samples, for p95 at 72, for p90 at 36.
    """
    n = len(samples)
    tail = (1 - level) / 2
    if n == 0 or q**n > tail or (1 - q) ** n > tail:
        return None
    ordered = sorted(samples)
    cumulative = 0.0
    low_rank, high_rank = 0, n
    for k in range(n + 1):
        cumulative += math.exp(
            math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(q) + (n - k) * math.log1p(-q)
        )
        if cumulative <= tail:
            low_rank = k + 1
        if cumulative >= 1 - tail:
            high_rank = min(k + 1, n)
            break
    return Estimate(quantile(ordered, q), ordered[max(low_rank - 1, 0)], ordered[high_rank - 1])


def samples_needed(q: float, level: float = 0.95) -> int:
    """The fewest samples for which :func:`quantile_estimate` gives an interval."""
    extreme = max(q, 1 - q)
    n = math.ceil(math.log((1 - level) / 2) / math.log(extreme))
    return n if extreme**n <= (1 - level) / 2 else n + 1


@lru_cache(maxsize=512)
def _signed_rank_cutoff(n: int, level: float) -> int:
    """The largest c with P(W <= c) <= (1 - level)/2 under the exact null distribution of Wilcoxon's signed-rank sum; -1 where none."""
    counts = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(counts) - 1, rank - 1, -1):
            counts[total] += counts[total - rank]
    limit = (1 - level) / 2 * 2**n
    cumulative = 0
    for total, count in enumerate(counts):
        cumulative += count
        if cumulative > limit:
            return total - 1
    return len(counts) - 1


def centre(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The centre of a symmetric distribution with Wilcoxon's signed-rank interval.

    The Hodges-Lehmann estimate: the median of all Walsh averages (a + b) / 2; the interval cuts the ordered averages at the exact
    critical value (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, section 3.3). Below six values no 95 % interval
    exists and the bounds are infinite. O(n^2): meant for rounds, not for samples.
    """
    averages = sorted((a + b) / 2 for a, b in combinations_with_replacement(values, 2))
    cutoff = _signed_rank_cutoff(len(values), level)
    if cutoff < 0:
        return Estimate(median(averages), -math.inf, math.inf)
    return Estimate(median(averages), averages[cutoff], averages[len(averages) - 1 - cutoff])


def log_centre(values: Sequence[float], level: float = 0.95) -> Estimate:
    """:func:`centre` of positive values on the log scale, where ratios are symmetric."""
    logs = centre([math.log(value) for value in values], level)
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high) if logs.high < math.inf else math.inf)

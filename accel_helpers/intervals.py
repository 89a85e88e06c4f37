"""Distribution-free intervals: the only statistics a figure in this project rests on.

Raw latency samples are autocorrelated and skewed, so nothing here assumes a distribution or, for comparisons, independent samples:
the unit of evidence is the round, and a comparison is one paired log ratio per round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from statistics import NormalDist


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


def paired(changes: Sequence[float], level: float = 0.95) -> Estimate:
    """The mean of paired differences with its interval: one difference for each sample that two models were judged on.

    Differences of right and wrong answers, all of them -1, 0 or 1, have :func:`paired_proportions`; others have :func:`paired_mean`.
    """
    if all(change in (-1, 0, 1) for change in changes):
        return paired_proportions(sum(change == 1 for change in changes), sum(change == -1 for change in changes), len(changes), level)
    return paired_mean(changes, level)


def paired_proportions(gained: int, lost: int, samples: int, level: float = 0.95) -> Estimate:
    """The difference of two proportions of right answers on the same samples, with Tango's score interval.

    Only the discordant pairs carry evidence, as in McNemar's test, whose statistic is this one at a difference of zero. Unlike Wald's,
    the interval keeps its coverage where they are few, and exists where there is none (Tango, Statistics in Medicine 17 (1998) 891-908).

    Args:
        gained: samples that only the second model answers right.
        lost: samples that only the first one answers right.
        samples: all of them.
        level: of confidence.
    """
    critical = NormalDist().inv_cdf((1 + level) / 2)
    value = (gained - lost) / samples

    def excess(difference: float) -> float:
        """How far the score statistic of a difference lies from zero, beyond the critical value."""
        linear = -gained - lost + (2 * samples - gained + lost) * difference
        constant = -lost * difference * (1 - difference)
        losing = (math.sqrt(max(linear**2 - 8 * samples * constant, 0)) - linear) / (4 * samples)  # its likeliest share of lost samples
        variance = samples * (2 * losing + difference * (1 - difference))
        return abs(gained - lost - samples * difference) - critical * math.sqrt(max(variance, 0))

    return Estimate(value, _crossing(excess, value, -1.0), _crossing(excess, value, 1.0))


def _crossing(excess: Callable[[float], float], inside: float, outside: float) -> float:
    """Where ``excess`` becomes positive on the way from ``inside`` to ``outside``, by bisection."""
    if excess(outside) <= 0:
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if excess(middle) > 0 else (middle, outside)
    return (inside + outside) / 2


def paired_mean(changes: Sequence[float], level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Estimate:
    """The mean of paired differences with a bootstrap-t interval, the same one every time.

    Each resample of the differences gives its mean's distance from theirs in units of its own standard error; the quantiles of those
    distances replace Student's (Efron and Tibshirani, An Introduction to the Bootstrap, section 12.5). With fewer than eight differences
    the interval is unbounded.
    """
    import numpy as np

    values = np.asarray(changes, np.float64)
    mean = float(values.mean())
    if len(values) < 8:
        return Estimate(mean, -math.inf, math.inf)
    generator = np.random.default_rng(seed)
    block = max(1, 2**20 // len(values))  # resamples at a time: some megabytes
    distances = []
    for start in range(0, resamples, block):
        drawn = values[generator.integers(len(values), size=(min(block, resamples - start), len(values)))]
        distance, error = drawn.mean(axis=1) - mean, drawn.std(axis=1)
        endless = np.where(distance == 0, 0.0, np.copysign(math.inf, distance))  # where a resample is all the same
        distances.append(np.divide(distance, error, out=endless, where=error > 0))
    low, high = np.quantile(np.concatenate(distances), [(1 - level) / 2, (1 + level) / 2], method="nearest")
    spread = float(values.std())
    return Estimate(mean, mean - float(high) * spread, mean - float(low) * spread)

"""Intervals against known distributions and against enumeration."""

import itertools
import math
import random

import pytest

from accel_helpers.intervals import centre, log_centre, median, quantile, quantile_estimate, samples_needed


def test_quantile_interpolates_between_order_statistics():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([0.0, 10.0], 0.25) == 2.5
    assert median([4.0]) == 4.0


@pytest.mark.parametrize(("q", "least"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368)])
def test_percentile_needs_enough_samples(q, least):
    assert samples_needed(q) == least
    assert quantile_estimate([float(i) for i in range(least - 1)], q) is None
    assert quantile_estimate([float(i) for i in range(least)], q) is not None


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95, 0.99])
def test_percentile_interval_covers(q):
    draw = random.Random(7)
    true = -math.log(1 - q)
    covered = 0
    for _ in range(600):
        estimate = quantile_estimate([draw.expovariate(1.0) for _ in range(700)], q)
        covered += estimate.low <= true <= estimate.high
    assert 0.93 <= covered / 600 <= 0.985


def test_signed_rank_interval_matches_enumeration():
    """For n = 8 the interval leaves out the values that an exhaustive signed-rank test would reject."""
    values = [0.3, -0.1, 0.8, 0.45, 0.2, 1.1, 0.05, 0.6]
    found = centre(values)

    def p_value(shift):
        ranked = sorted(abs(v - shift) for v in values)
        ranks = {size: index + 1 for index, size in enumerate(ranked)}
        seen = sum(ranks[abs(v - shift)] for v in values if v > shift)
        sums = [sum(r for r, sign in zip(range(1, 9), signs, strict=True) if sign) for signs in itertools.product([0, 1], repeat=8)]
        below, above = sum(s <= seen for s in sums), sum(s >= seen for s in sums)
        return min(1.0, 2 * min(below, above) / len(sums))

    inside, outside = 1e-6, -1e-6
    assert p_value(found.low + inside) > 0.05
    assert p_value(found.low + outside) <= 0.05
    assert p_value(found.high - inside) > 0.05
    assert p_value(found.high - outside) <= 0.05


def test_no_interval_below_six_rounds():
    assert centre([1.0, 2.0, 3.0, 4.0, 5.0]).low == -math.inf
    assert centre([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).low == 1.0


def test_log_centre_is_symmetric_in_ratio():
    forward = log_centre([1.1, 1.2, 1.3, 1.25, 1.15, 1.18, 1.22])
    backward = log_centre([1 / r for r in [1.1, 1.2, 1.3, 1.25, 1.15, 1.18, 1.22]])
    assert forward.value == pytest.approx(1 / backward.value)
    assert forward.low == pytest.approx(1 / backward.high)

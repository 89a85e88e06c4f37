"""Intervals against known distributions and against enumeration."""

import itertools
import math
import random

import numpy as np
import pytest

from accel_helpers.intervals import (
    centre,
    log_centre,
    median,
    paired,
    paired_mean,
    paired_proportions,
    quantile,
    quantile_estimate,
    samples_needed,
)


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


def judged_twice(samples, gained, lost, seed, runs=2000):
    """How many of so many samples only the second of two models answers right, and only the first, in each of many runs."""
    return np.random.default_rng(seed).multinomial(samples, [gained, lost, 1 - gained - lost], runs)[:, :2].tolist()


@pytest.mark.parametrize(("samples", "gained", "lost"), [(858, 0.01, 0.02), (300, 0.02, 0.04), (200, 0.02, 0.05)])
def test_the_interval_of_a_paired_difference_covers_and_an_unpaired_one_is_far_wider(samples, gained, lost):
    """Both models answer nine in ten right. The twin forgets which samples they share: Newcombe's interval of independent proportions."""
    covered, width, unpaired = 0, 0.0, 0.0
    for more, fewer in judged_twice(samples, gained, lost, seed=samples):
        found = paired_proportions(more, fewer, samples)
        covered += found.low <= gained - lost <= found.high
        width += found.high - found.low
        first = round(0.9 * samples)
        twin = independent(first, first + more - fewer, samples)
        unpaired += twin[1] - twin[0]
    assert 0.93 <= covered / 2000 <= 0.97
    assert unpaired > 1.3 * width


def independent(first, second, samples):
    """Newcombe (1998), method 10 for two independent proportions."""
    (low1, high1), (low2, high2) = wilson(first, samples), wilson(second, samples)
    one, two = first / samples, second / samples
    return two - one - math.hypot(two - low2, high1 - one), two - one + math.hypot(high2 - two, one - low1)


def wilson(right, samples):
    square, share = 1.96**2, right / samples
    half = 1.96 * math.sqrt(share * (1 - share) / samples + square / (4 * samples**2))
    return tuple((share + square / (2 * samples) + sign * half) / (1 + square / samples) for sign in (-1, 1))


@pytest.mark.parametrize(("gained", "lost", "samples"), [(3, 9, 300), (0, 4, 60), (12, 2, 50), (0, 0, 40), (7, 7, 20)])
def test_a_paired_interval_ends_where_the_score_test_rejects(gained, lost, samples):
    """Against a search for the likeliest shares under each difference: the definition, without the formula."""
    found = paired_proportions(gained, lost, samples)

    def statistic(difference):
        losing = np.linspace(max(0.0, -difference), (1 - difference) / 2, 200_001)[1:-1]
        gaining, same = losing + difference, 1 - 2 * losing - difference
        fits = (gaining > 0) & (same > 0)
        losing, gaining, same = losing[fits], gaining[fits], same[fits]
        likelihood = gained * np.log(gaining) + lost * np.log(losing) + (samples - gained - lost) * np.log(same)
        best = likelihood.argmax()
        return abs(gained - lost - samples * difference) / math.sqrt(samples * (gaining[best] + losing[best] - difference**2))

    assert statistic(found.low) == pytest.approx(1.96, abs=2e-3)
    assert statistic(found.high) == pytest.approx(1.96, abs=2e-3)


def test_a_paired_interval_at_zero_is_mcnemars_test():
    """(b - c)^2 / (b + c) against chi-squared's 3.84: zero lies outside exactly when McNemar's test rejects."""
    for gained, lost in itertools.product(range(13), repeat=2):
        found = paired_proportions(gained, lost, 200)
        rejects = gained != lost and (gained - lost) ** 2 / (gained + lost) > 3.8415
        assert (found.low > 0 or found.high < 0) == rejects, (gained, lost)


def test_a_bootstrapped_mean_covers_skewed_changes_and_an_unpaired_one_does_not_shrink():
    draw = np.random.default_rng(3)
    covered, width, unpaired = 0, 0.0, 0.0
    for _ in range(1000):
        before = draw.exponential(1, 60)  # errors of a regression: skewed, and mostly the sample's own
        after = before + draw.exponential(0.2, 60) - 0.1
        found = paired_mean(after - before, resamples=400)
        covered += found.low <= 0.1 <= found.high
        width += found.high - found.low
        unpaired += 2 * 1.96 * math.sqrt((before.var() + after.var()) / 60)
    assert 0.93 <= covered / 1000 <= 0.97
    assert unpaired > 4 * width


def test_a_bootstrap_answers_the_same_each_time_and_says_nothing_of_seven():
    changes = list(np.random.default_rng(0).normal(size=30))
    assert paired(changes) == paired(changes) == paired_mean(changes)
    assert paired(changes[:7]).low == -math.inf
    assert paired([0, 1, -1, 0, 0]) == paired_proportions(1, 1, 5)


def test_a_single_change_in_many_samples_gives_no_false_certainty():
    """In a third of the resamples that sample is missing, so that nothing is known of the spread."""
    found = paired_mean([0.0] * 99 + [0.5])
    assert found.low <= 0.005 <= found.high
    assert found.high == math.inf

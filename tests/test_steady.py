"""H8: step, ramp, saw-tooth and never-steady warm-ups; each with a twin that must not pass."""

import random

import pytest

from accel_helpers.steady import steady


def noisy(levels, seed, noise=0.02):
    draw = random.Random(seed)
    return [level * (1 + draw.gauss(0, noise)) for level in levels]


WARMUPS = {
    "step": ([2.0] * 14, 14),
    "ramp": ([2.0 - 0.05 * i for i in range(20)], 20),
    "saw-tooth": ([1.2 + 0.15 * (i % 6) for i in range(18)], 18),
}


@pytest.mark.parametrize("shape", WARMUPS)
def test_change_point_within_three_calls(shape):
    warmup, length = WARMUPS[shape]
    for seed in range(60):
        found = steady(noisy(warmup + [1.0] * 100, seed))
        assert found.stable, found
        assert abs(found.change - length) <= 3, found


@pytest.mark.parametrize("levels", [[1 + 0.01 * i for i in range(120)], [1.0 if (i // 25) % 2 else 1.5 for i in range(120)]])
def test_never_steady_is_unstable(levels):
    for seed in range(60):
        found = steady(noisy(levels, seed))
        assert not found.stable, found
        assert "UNSTABLE" in found.detail


def test_steady_input_loses_at_most_five_percent():
    for seed in range(50):
        found = steady(noisy([1.0] * 120, seed))
        assert found.stable, found
        assert found.change <= 6, found


def test_one_slow_call_is_not_a_phase():
    series = noisy([1.0] * 100, 3)
    series[40] = 30.0
    assert steady(series).change <= 5


def test_too_few_calls_are_not_judged():
    assert not steady([1.0] * 7).stable

"""The harness against sessions with known answers: H1, H5, H6, H10 and the harness's own cost.

Each self-test has a broken twin, which the same assertion must refuse.
"""

import math
import random
import statistics
import time

import numpy as np
import pytest
from scipy.stats import mannwhitneyu
from synthetic import FakeClock, Neighbour, Timed, inputs, references

from accel_helpers.engine import Session
from accel_helpers.engines.null import NullSession
from accel_helpers.errors import MeasurementError, StoppedError
from accel_helpers.intervals import log_centre, median, quantile_estimate
from accel_helpers.measure import MOST_CALLS, Subject, calls_per_round, interleave
from accel_helpers.records import word


def subject(session, clock, scope="end to end", count=4):
    sets = inputs(count)
    return Subject(session, sets, references(sets), "fp32", scope, clock, clock)


# H1: known distributions


def lognormal(draw):
    return lambda: 0.01 * math.exp(draw.gauss(0, 0.5))


def two_humped(draw):
    return lambda: draw.gauss(0.010, 0.0002) if draw.random() < 0.7 else draw.gauss(0.030, 0.0004)


def constant(draw):
    return lambda: 0.01


@pytest.mark.parametrize("shape", [lognormal, two_humped, constant])
def test_h1_known_distribution(shape):
    clock = FakeClock()
    measured = subject(Timed(clock, shape(random.Random(1))), clock)
    measured.warm_up(0.1)
    samples = [s for _ in range(250) for s in measured.round(MOST_CALLS).wall]
    truth = shape(random.Random(2))
    reference = [truth() for _ in range(400_000)]
    for q in (0.5, 0.9, 0.99):
        assert quantile_estimate(samples, q).value == pytest.approx(statistics.quantiles(reference, n=1000)[int(q * 1000) - 1], rel=0.02)


def test_h1_exact_on_a_virtual_clock():
    """The harness adds nothing: what it records is what passed, call by call."""
    clock, passed = FakeClock(), []
    draw = lognormal(random.Random(5))

    def duration():
        passed.append(draw())
        return passed[-1]

    measured = subject(Timed(clock, duration), clock)
    measured.warm_up(0.1)
    passed.clear()
    wall = measured.round(100).wall
    assert wall == pytest.approx(passed[1:])  # one call before each round is not counted


def test_h1_sleep_within_two_percent_of_what_sleep_takes():
    class Sleeps(Session):
        def run(self, placed):
            time.sleep(0.02)
            return placed

        def fetch(self, result):
            return {"y": result["x"] + np.float32(1)}

    measured = subject(Sleeps(), time.perf_counter)
    measured.warm_up(0.3)
    found = median(measured.round(25).wall)
    floor = []
    for _ in range(25):
        begin = time.perf_counter()
        time.sleep(0.02)
        floor.append(time.perf_counter() - begin)
    assert found == pytest.approx(median(floor), rel=0.02)


def test_first_call_and_warmup_stay_apart():
    clock, calls = FakeClock(), iter([5.0, *[0.05] * 10])
    measured = subject(Timed(clock, lambda: next(calls, 0.01)), clock)
    measured.warm_up(3.0)
    samples = [s for _ in range(6) for s in measured.round(20).wall]
    assert measured.first_call == 5.0
    assert max(measured.warmup) == pytest.approx(0.05)
    assert max(samples) == pytest.approx(0.01)


# H5 and H6: an engine against itself and against a slower one, beside a busy neighbour


def comparison(seed, slowdown=1.0, rounds=12, calls=5, blocks=False):
    """Seconds of two engines, the second ``slowdown`` times slower, as rounds; the work is fixed and the neighbour stretches it."""
    clock = FakeClock()
    neighbour = Neighbour(clock, seed)
    pair = [subject(Timed(clock, lambda f=f: 0.001 * f * neighbour.factor()), clock) for f in (1.0, slowdown)]
    if blocks:
        return [[one.round(calls) for _ in range(rounds)] for one in pair]
    return interleave(pair, [calls, calls], rounds, seed)


def speedup(seed, **settings):
    a, b = comparison(seed, **settings)
    return log_centre([x.wall_median / y.wall_median for x, y in zip(a, b, strict=True)])


def test_h5_an_engine_against_itself():
    wrong = sum(word(speedup(seed), 0.05) in ("faster", "slower") for seed in range(200))
    assert wrong / 200 <= 0.075


def test_h5_twin_blocks_cry_wolf():
    """All of A, then all of B, Mann-Whitney on raw samples: the textbook way, and it fails."""
    wrong = 0
    for seed in range(200):
        a, b = comparison(seed, blocks=True)
        wrong += mannwhitneyu([s for r in a for s in r.wall], [s for r in b for s in r.wall]).pvalue < 0.05
    assert wrong / 200 > 0.15


@pytest.mark.parametrize(("slowdown", "found_in"), [(1.05, 0.90), (1.10, 0.99)])
def test_h6_injected_slowdown(slowdown, found_in):
    found = [speedup(seed, slowdown=slowdown, rounds=40, calls=10) for seed in range(100)]
    assert sum(one.high < 1 for one in found) / 100 >= found_in
    assert not any(one.low > 1 for one in found)
    assert statistics.mean(1 / one.value for one in found) == pytest.approx(slowdown, abs=0.02)


def test_h6_twin_two_rounds_find_nothing():
    assert word(speedup(1, slowdown=1.10, rounds=5), 0.05) == "too noisy"


# H10: engines that cheat


class Works(Session):
    """Really takes two milliseconds and answers right."""

    def run(self, placed):
        time.sleep(0.002)
        return placed

    def fetch(self, result):
        return {"y": result["x"] + np.float32(1)}


class ReturnsEarly(Works):
    """Returns at once; the work ends while the result is fetched."""

    def run(self, placed):
        return time.perf_counter() + 0.002, placed

    def fetch(self, result):
        ready, placed = result
        time.sleep(max(0.0, ready - time.perf_counter()))
        return super().fetch(placed)


class Caches(Works):
    """Works only for inputs it has not seen."""

    def __init__(self):
        self.seen = set()

    def run(self, placed):
        key = placed["x"].tobytes()
        if key not in self.seen:
            self.seen.add(key)
            time.sleep(0.002)
        return placed


class Zeros(Works):
    def fetch(self, result):
        return {"y": np.zeros_like(result["x"])}


class Drops(Works):
    """Every hundredth answer is empty."""

    calls = 0

    def fetch(self, result):
        self.calls += 1
        return {"y": np.zeros_like(result["x"])} if self.calls % 100 == 0 else super().fetch(result)


class Fails(Works):
    """Every hundredth call raises."""

    calls = 0

    def run(self, placed):
        self.calls += 1
        if self.calls % 100 == 0:
            raise RuntimeError("lost the device")
        return super().run(placed)


def verdicts(session):
    measured = subject(session, time.perf_counter, "compute")
    measured.warm_up(0.2)
    for _ in range(6):
        measured.round(30)
    return {check.name: check.passed for check in measured.checks()}, measured.errors


def test_h10_an_honest_engine_passes():
    checks, errors = verdicts(Works())
    assert checks["outputs"]
    assert checks["no result cache"]
    assert checks["device finished"]
    assert not errors


@pytest.mark.parametrize(
    ("session", "check"), [(ReturnsEarly, "device finished"), (Caches, "no result cache"), (Zeros, "outputs"), (Drops, "outputs")]
)
def test_h10_a_cheat_is_caught(session, check):
    assert verdicts(session())[0][check] is False


def test_h10_failed_calls_are_counted():
    assert len(verdicts(Fails())[1]) >= 1


def test_null_answers_wrong_and_is_caught():
    assert verdicts(NullSession({"y": (64,)}))[0]["outputs"] is False


# what else the harness promises


def test_the_harness_costs_under_two_microseconds_a_call():
    measured = Subject(NullSession({"y": (2,)}), inputs(), (), clock=time.perf_counter)
    measured.warm_up(0.2)
    assert min(median(measured.round(MOST_CALLS).wall) for _ in range(30)) < 2e-6 + fetch_seconds()


def fetch_seconds():
    """What the null session itself does in ``fetch``: making its array of zeros."""
    session = NullSession({"y": (2,)})
    placed = session.place(inputs()[0])
    times = []
    for _ in range(500):
        begin = time.perf_counter()
        session.fetch(placed)
        times.append(time.perf_counter() - begin)
    return median(times)


def test_a_first_call_that_fails_says_so():
    class Broken(Works):
        def run(self, placed):
            raise ValueError("wrong rank")

    with pytest.raises(MeasurementError, match="first call failed: ValueError: wrong rank"):
        subject(Broken(), time.perf_counter).warm_up()


def test_stop_ends_the_run_between_turns():
    clock = FakeClock()
    turns = []
    pair = [subject(Timed(clock, lambda: 0.001), clock) for _ in range(2)]
    with pytest.raises(StoppedError, match="after 2 of 10 rounds"):
        interleave(pair, [2, 2], 10, 0, lambda done, rounds: turns.append(done), lambda: len(turns) == 2)


def test_every_round_runs_everything_in_a_new_order():
    class Notes:
        def __init__(self, name, log):
            self.name, self.log = name, log

        def round(self, calls):
            self.log.append(self.name)

    log = []
    interleave([Notes("a", log), Notes("b", log)], [1, 1], 40, seed=3)
    pairs = ["".join(log[i : i + 2]) for i in range(0, 80, 2)]
    assert set(pairs) == {"ab", "ba"}
    again = []
    interleave([Notes("a", again), Notes("b", again)], [1, 1], 40, seed=3)
    assert again == log


def test_calls_per_round_fit_the_time():
    assert calls_per_round(0.01, 1.2, 12) == 10
    assert calls_per_round(10.0, 1.0, 12) == 1
    assert calls_per_round(1e-7, 1.0, 12) == MOST_CALLS

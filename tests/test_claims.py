"""What records say of claims: each verdict reached from figures, and its opposite from others."""

import dataclasses
import math

import example_records
import pytest
from example_records import MACHINE, measurement, verdict

from accel_helpers import claims
from accel_helpers.bench import Comparison
from accel_helpers.charts import Ceiling
from accel_helpers.compilation.costs.memory import FREED, FUSED, KEPT, UNFUSED, Peaks, Way
from accel_helpers.compilation.costs.reusing import Cost, Reuse
from accel_helpers.compilation.graphs.liveness import Liveness, Value
from accel_helpers.environment import Ceilings, Limit
from accel_helpers.instructions import Effect
from accel_helpers.intervals import Estimate
from accel_helpers.records import Check, Plan, Round


@pytest.mark.parametrize(
    ("estimate", "word"),
    [
        (Estimate(2.0, 1.6, 2.4), "holds"),
        (Estimate(1.2, 1.1, 1.4), "does not hold here"),
        (Estimate(1.5, 1.2, 1.8), "too noisy to say"),
        (Estimate(9.0, -math.inf, math.inf), "too noisy to say"),
    ],
)
def test_the_whole_interval_has_to_lie_on_one_side(estimate, word):
    assert claims.judge(estimate, at_least=1.5) == word


def test_a_slow_first_call():
    made = claims.first_call(measurement(first_call=0.3))
    assert (made.id, made.verdict, made.model, made.hardware) == ("C3", "holds", "text-encoder", MACHINE.hardware)
    assert made.records == (measurement(first_call=0.3).digest,)
    assert "300 ms" in made.evidence
    assert claims.first_call(measurement(first_call=0.031)).verdict == "does not hold here"


def test_an_invalid_measurement_decides_nothing():
    wrong = measurement(first_call=0.3, checks=(Check("outputs", False, "all zero"),))
    assert claims.first_call(wrong).verdict == "too noisy to say"
    assert "INVALID" in claims.first_call(wrong).evidence


def _sweep(levels):
    found = [measurement(level, Plan("pytorch", batch=batch, threads=2), seed=batch) for batch, level in levels.items()]
    return Comparison(tuple(found), tuple(verdict(found[0], one) for one in found[1:]))


@pytest.mark.parametrize(
    ("levels", "word"),
    [
        ({1: 0.010, 2: 0.011, 8: 0.020}, "holds"),
        ({1: 0.010, 2: 0.019, 8: 0.080}, "does not hold here"),
        ({1: 0.010, 2: 0.0100, 8: 0.0099}, "does not hold here"),  # throughput grows, latency does not
        ({1: 0.010, 2: 0.01333, 8: 0.040}, "too noisy to say"),
    ],
)
def test_throughput_over_the_batch(levels, word):
    assert claims.batch_growth(_sweep(levels)).verdict == word


def test_busy_is_not_fast():
    busy = measurement()  # CPU time is 1.9 times wall time on two threads
    assert 0.9 < claims.utilisation(busy).value < 1.0
    assert claims.busy_is_not_fast(busy, [Ceiling("GEMM", 3e9, 1e12, "FLOP")]).verdict == "does not hold here"
    assert claims.busy_is_not_fast(busy, [Ceiling("memory", 1, 1e12, "B"), Ceiling("GEMM", 25e9, 1e12, "FLOP")]).verdict == "holds"
    idle = measurement(plan=Plan("pytorch", threads=8))
    made = claims.busy_is_not_fast(idle, [Ceiling("GEMM", 25e9, 1e12, "FLOP")])
    assert made.verdict == "too noisy to say"
    assert "cannot test it" in made.evidence


def test_the_fastest_engine_and_that_tensorrt_has_not_run():
    found, verdicts = example_records.comparison()
    made = claims.faster_engine(Comparison(tuple(found), tuple(verdicts)))
    assert made.verdict == "holds"
    assert "openvino bf16" in made.evidence
    assert "not yet run on a GPU" in made.evidence
    fast = measurement(0.01, Plan("tensorrt", "fp16", "cuda", threads=2), seed=1)
    ran = claims.faster_engine(Comparison((found[0], fast), (verdict(found[0], fast),)))
    assert "not yet run" not in ran.evidence
    eager = measurement(0.001, Plan("pytorch", "bf16", threads=2), seed=1)
    slow = measurement(0.031, Plan("openvino", threads=2), seed=2)
    compared = Comparison((found[0], eager, slow), (verdict(found[0], eager), verdict(found[0], slow)))
    assert claims.faster_engine(compared).verdict == "does not hold here"


def test_building_and_using_again():
    base = measurement()
    free = measurement(0.01, Plan("openvino", threads=2), build_seconds=20.0, load_seconds=0.5, first_call=0.1)
    again = measurement(0.01, Plan("compiled", threads=2), build_seconds=2.0, load_seconds=1.0, first_call=9.0)
    assert claims.build_once(Comparison((base, free), (verdict(base, free),))).verdict == "holds"
    both = claims.build_once(Comparison((base, free, again), (verdict(base, free), verdict(base, again))))
    assert both.verdict == "does not hold here"
    assert "2.00 s and 10.0 s" in both.evidence


def _rounds(cpu, calls=4):
    return tuple(Round((cpu,) * calls, cpu * calls * (1 + 0.01 * (number % 3))) for number in range(12))


def _effect(native, held, read):
    return Effect(_rounds(native), {"AVX2": _rounds(held)} if held else {}, _rounds(67.1e6 / read))


@pytest.mark.parametrize(
    ("effect", "word"),
    [
        (_effect(0.010, 0.020, 18e9), "holds"),
        (_effect(0.010, 0.011, 18e9), "does not hold here"),
        (_effect(0.010, 0.020, 5e9), "does not hold here"),
        (_effect(0.010, None, 18e9), "too noisy to say"),
    ],
)
def test_bandwidth_and_vector_instructions(effect, word):
    limits = (Limit("read", "", "cpu", 1, 20e9, 2**28, (1.0, 1.1)), Limit("copy", "", "cpu", 1, 15e9, 2**28, (1.0, 1.1)))
    made = claims.vectors_and_bandwidth(effect, Ceilings(MACHINE, limits, Check("quiet machine", True, "")))
    assert made.verdict == word
    assert "20.0 GB/s" in made.evidence


def _reuse(built, found, ready=(0.2,)):
    return Reuse("text-encoder", (Cost(Plan("openvino"), built, found, ready, "" if ready else "not yet run on a GPU"),))


@pytest.mark.parametrize(
    ("found", "word"),
    [((0.1, 0.19), "holds"), ((0.1, 0.3), "too noisy to say"), ((0.5, 0.6), "does not hold here")],
)
def test_an_engine_found_again_in_two_hundredths_of_its_building_is_free(found, word):
    base = measurement()
    free = measurement(0.01, Plan("openvino", threads=2), build_seconds=20.0, load_seconds=0.5, first_call=0.1)
    compared = Comparison((base, free), (verdict(base, free),))
    made = claims.build_once(compared, _reuse((10.0, 12.0), found))
    assert made.verdict == word
    assert "openvino 12.0 s and" in made.evidence
    slow = measurement(0.01, Plan("openvino", threads=2), build_seconds=2.0, load_seconds=0.5, first_call=0.1)
    assert claims.build_once(Comparison((base, slow), (verdict(base, slow),)), _reuse((10.0,), (0.1,))).verdict == "does not hold here"
    assert "not yet run on a GPU" in claims.build_once(compared, _reuse((10.0,), (0.1,), ())).evidence


def _peaks(kept, freed, unfused, fused):
    ways = (KEPT, FREED, UNFUSED, FUSED)
    megabytes = zip(ways, (kept, freed, unfused, fused), strict=True)
    added = {way: tuple(int(value * 1e6 * (1 + 0.001 * n)) for n in range(6)) for way, value in megabytes}
    lives = [Liveness((Value("a", size, 0, 0), Value("b", size, 1, 1)), 2) for size in (50_000_000, 40_000_000, 30_000_000, 20_000_000)]
    return Peaks("text-encoder", Plan("onnx_runtime", batch=32), {**added, Way("openvino"): (70_000_000,) * 6}, *lives)


@pytest.mark.parametrize(
    ("megabytes", "word"),
    [
        ((900, 300, 200, 100), "holds"),
        ((900, 300, 200, 199), "does not hold here"),  # fusion saves nothing
        ((210, 300, 200, 100), "holds"),
        ((201, 300, 200, 100), "does not hold here"),  # freeing saves nothing
        ((900, 200, 300, 100), "does not hold here"),  # the arena takes more
        ((900, 300, 210, 200), "too noisy to say"),
    ],
)
def test_peak_memory_falls_where_all_three_lower_it(megabytes, word):
    found = _peaks(*megabytes)
    if word == "too noisy to say":
        shaken = tuple(int(one * factor) for one, factor in zip(found.added[UNFUSED], (1, 1.2, 0.9) * 2, strict=True))
        found = dataclasses.replace(found, added={**found.added, UNFUSED: shaken})
    made = claims.memory_falls(found, MACHINE)
    assert (made.id, made.verdict, made.model) == ("C6", word, "text-encoder")
    for said in ("At batch 32", "100 MB of values, of which 50.0 MB", "40.0 MB with it", "30.0 MB and 20.0 MB", "openvino 70.0 MB", "GPU"):
        assert said in made.evidence

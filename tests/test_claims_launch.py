"""What records say of CUDA graphs, TF32 and free lunches: each verdict reached from figures, and its opposite from others."""

import math
from dataclasses import replace

import pytest
from example_records import MACHINE, measurement, verdict

from accel_helpers import charts, claims
from accel_helpers.bench import Comparison
from accel_helpers.compilation.costs import lunches
from accel_helpers.compilation.costs.launch import Chain, Overhead, formats
from accel_helpers.records import Check, Claim, Plan, Round

FORMATS = formats(size=64)


def compared(*found, **changes):
    return Comparison(tuple(found), tuple(verdict(found[0], one, **changes) for one in found[1:]))


def chained(plan, each):
    """Two networks of 8 and 64 operators at ``each`` seconds above a floor of 10 microseconds, eight rounds with a drift."""

    def rounds(length):
        return tuple(Round((seconds,), seconds) for seconds in ((1e-5 + each * length) * (1 + 0.01 * tick) for tick in range(8)))

    return Chain(plan, (8, 64), (rounds(8), rounds(64)))


def overhead(*chains):
    return Overhead("tiny-attention", MACHINE, chains, 30, tuple(Round((1e-3,), 1e-3) for _ in range(8)))


def on_gpu(each):
    return overhead(chained(Plan("pytorch", device="cuda"), 5e-6), chained(Plan("pytorch", device="cuda", mode="cuda_graph"), each))


@pytest.mark.parametrize(("each", "word"), [(1e-6, "holds"), (4e-6, "does not hold here")])
def test_a_graph_removes_overhead_where_an_operator_costs_half(each, word):
    made = claims.graphs_remove_overhead(on_gpu(each))
    assert (made.id, made.verdict, made.model) == ("C9", word, "tiny-attention")
    assert f"{1 - each / 5e-6:.0%}" in made.evidence
    assert "not yet run" not in made.evidence


def test_without_a_gpu_graphs_are_not_tested_here_and_the_figures_of_the_cpu_are_given():
    found = overhead(chained(Plan("pytorch"), 2e-6), chained(Plan("onnx_runtime"), 0.5e-6))
    made = claims.graphs_remove_overhead(found)
    assert made.verdict == "not tested here"
    assert "CUDA graphs need a GPU: not yet run on a GPU." in made.evidence
    assert "pytorch fp32 cpu b1 2.0" in made.evidence
    assert "onnx_runtime fp32 cpu b1 5" in made.evidence
    assert Claim.from_dict(made.to_dict()) == made


def test_tf32_without_a_gpu_shows_the_formats_and_leaves_the_speed_open():
    made = claims.tf32_is_nearly_fp16(FORMATS, MACHINE, compared(measurement(), measurement(0.01, Plan("pytorch", "bf16", threads=2))))
    assert (made.id, made.verdict, made.hardware) == ("C17", "not tested here", MACHINE.hardware)
    assert "at 1e-06 and 1e+06 (largest 65,504)" in made.evidence
    assert "not yet run on a GPU" in made.evidence


@pytest.mark.parametrize(("level", "word"), [(0.0102, "holds"), (0.02, "does not hold here"), (0.0111, "too noisy to say")])
def test_tf32_on_a_gpu_is_judged_against_fp16(level, word):
    plans = [Plan("pytorch", precision, "cuda", threads=2) for precision in ("fp32", "tf32", "fp16")]
    fp32, tf32, fp16 = (measurement(at, plan, seed=seed) for at, plan, seed in zip((0.03, level, 0.01), plans, (0, 1, 2), strict=True))
    made = claims.tf32_is_nearly_fp16(FORMATS, MACHINE, compared(fp32, tf32, fp16))
    assert made.verdict == word
    assert made.records[:2] == (tf32.digest, fp16.digest)


def test_tf32_with_a_range_that_ends_would_not_hold():
    short = tuple(replace(one, errors=((1.0, 3e-4), (1e6, math.inf))) if one.name == "tf32" else one for one in FORMATS)
    plans = [Plan("pytorch", precision, "cuda", threads=2) for precision in ("tf32", "fp16")]
    pair = compared(*(measurement(0.01, plan, seed=seed) for seed, plan in enumerate(plans)))
    assert claims.tf32_is_nearly_fp16(short, MACHINE, pair).verdict == "does not hold here"
    assert claims.tf32_is_nearly_fp16(FORMATS, MACHINE, pair).verdict != "does not hold here"


BASE = measurement(0.03, build_seconds=1.0, load_seconds=0.5, first_call=0.1)


def candidate(engine="compiled", level=0.02, build=1.0, first=10.0, seed=1, **changes):
    plan = changes.pop("plan", Plan(engine, threads=2))
    return measurement(level, plan, seed=seed, **{"build_seconds": build, "load_seconds": 0.5, "first_call": first, **changes})


def test_a_lunch_pays_back_after_the_seconds_spent_over_the_seconds_saved():
    (found,) = lunches.rank(compared(BASE, candidate()), {"compiled": 1})
    assert found.spent == pytest.approx(9.9)
    assert found.calls.value == pytest.approx(9.9 / 0.01, rel=0.1)
    assert found.calls.low < found.calls.value < found.calls.high < math.inf
    assert (found.free, found.edits, found.right) == ("free", 1, True)


@pytest.mark.parametrize(
    ("one", "free", "why"),
    [
        (candidate(), "free", "ready in time"),
        (candidate(level=0.045), "not free", "slower"),
        (candidate(first=200.0), "not free", "more than 2 minutes"),
        (candidate(checks=(Check("outputs", False, "all zero"),)), "not free", "not shown to be right"),
        (candidate(checks=()), "not free", "not shown to be right"),
        (candidate(level=0.03, seed=3), "cannot say", "holds one"),
        (candidate(errors=1), "cannot say", "1 calls failed"),
    ],
)
def test_what_is_free_is_faster_right_and_ready_in_time(one, free, why):
    status = {"status": "INVALID"} if one.errors else {}
    (found,) = lunches.rank(compared(BASE, one, **status))
    assert (found.free, why in found.why) == (free, True), found.why


@pytest.mark.parametrize(("changes", "free"), [((-1,) * 60 + (0,) * 40, "not free"), ((0,) * 2000, "free"), ((-1, 0, 0), "cannot say")])
def test_a_worse_task_metric_is_a_price(changes, free):
    (found,) = lunches.rank(compared(BASE, candidate(), changes=changes))
    assert found.free == free, found.why


def test_the_fewest_calls_until_it_pays_come_first_and_what_never_pays_last():
    cheap, dear, slow = candidate("onnx_runtime", first=1.0), candidate(first=60.0, seed=2), candidate("openvino", level=0.05, seed=3)
    found = lunches.rank(compared(BASE, slow, dear, cheap))
    assert [one.plan.engine for one in found] == ["onnx_runtime", "compiled", "openvino"]
    assert found[-1].calls.value == math.inf
    table = charts.lunches(found)
    assert table[3][4] == "never"
    assert table[1][3] == "not counted"
    assert table[1][-1].startswith("free: ")


@pytest.mark.parametrize(
    ("one", "word"),
    [(candidate(), "holds"), (candidate(level=0.045), "does not hold here"), (candidate(level=0.03, seed=3), "too noisy to say")],
)
def test_the_free_lunch_is_judged_by_torch_compile(one, word):
    made = claims.free_lunch(compared(BASE, one, candidate("onnx_runtime", level=0.01, seed=5)))
    assert (made.id, made.verdict) == ("C19", word)
    assert "Optimum itself was not run: its routes here, ONNX Runtime and OpenVINO, are free in 1 of 1 plans" in made.evidence


def test_a_mode_that_takes_minutes_does_not_stand_for_torch_compile():
    tuned = candidate(first=500.0, plan=Plan("compiled", threads=2, mode="max_autotune"), seed=2)
    assert claims.free_lunch(compared(BASE, candidate(), tuned)).verdict == "holds"
    alone = claims.free_lunch(compared(BASE, tuned))
    assert alone.verdict == "not tested here"
    assert "which was not measured; Optimum itself was not run, nor a route of its." in alone.evidence


def test_an_invalid_plan_spoils_no_other_plans_verdict():
    wrong = candidate("openvino", seed=4, checks=(Check("outputs", False, "all zero"),))
    assert claims.free_lunch(compared(BASE, candidate(), wrong)).verdict == "holds"


def test_what_is_not_tested_stays_so_when_a_measurement_is_invalid():
    from accel_helpers.claims.judging import made

    wrong = measurement(checks=(Check("outputs", False, "all zero"),))
    assert made("C0", "", "not tested here", "", [wrong]).verdict == "not tested here"
    assert made("C0", "", "holds", "", [wrong]).verdict == "too noisy to say"

"""Launch overhead, cold starts, number formats, and how many programs torch.compile makes."""

import dataclasses
import math

import numpy as np
import pytest

from accel_helpers import charts, engines, environment
from accel_helpers.compilation.costs import launch
from accel_helpers.compilation.costs.launch import Chain, ColdStart, Overhead
from accel_helpers.compilation.costs.recompiling import ENGINE, recompilations
from accel_helpers.config import RunConfig
from accel_helpers.errors import ParameterError
from accel_helpers.records import Plan, Round

CONFIG = RunConfig(model="tiny-attention", sequence=16, batch=2, threads=1, rounds=6, seconds=0.6)


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        yield


@pytest.fixture(scope="module")
def found():
    """Five shapes under every policy, with room for three programs each."""
    return recompilations(CONFIG, batches=(1, 2, 3, 4), sequences=(24,), limit=3)


def policy(found, name):
    return next(one for one in found.policies if one.name == name)


def test_k14_without_dynamic_shapes_each_size_has_a_program_until_the_limit_and_then_none(found):
    fixed = policy(found, "dynamic=False")
    assert [call.compiled for call in fixed.calls] == [1, 1, 1, 0, 0]
    assert [call.ran for call in fixed.calls] == [1, 1, 1, 0, 0]
    assert [(call.batch, call.sequence) for call in fixed.eager] == [(4, 16), (4, 24)]
    assert all(not call.refused for call in fixed.calls), "it is no error"
    assert "recompile_limit (3)" in fixed.logged
    assert "dynamic=False: 3 programs, then eager from call 4 on, with no error and a logged line" in found.sentence


def test_each_program_has_the_guard_that_asked_for_it(found):
    fixed = policy(found, "dynamic=False")
    assert fixed.calls[0].reason == ""
    assert "size mismatch at index 0. expected 1, actual 2" in fixed.calls[1].reason
    assert "size mismatch at index 0. expected 2, actual 3" in fixed.calls[2].reason
    usual = policy(found, "as people write it")
    assert "size mismatch at index 1. expected 16, actual 24" in usual.calls[-1].reason


def test_open_sizes_share_programs_and_the_engine_has_its_own_for_the_plan(found):
    assert policy(found, "as people write it").programs == 3  # one item, then any batch, then any length
    assert policy(found, "dynamic=True").programs == 2  # one item, and the rest
    ours = policy(found, ENGINE)
    assert [call.compiled for call in ours.calls] == [1, 1, 1, 0, 0]  # one item, the plan's two, all others
    for name in ("as people write it", "dynamic=True", ENGINE):
        assert not policy(found, name).eager
        assert all(call.ran == 1 for call in policy(found, name).calls)


def test_at_the_limit_the_engine_refuses():
    found = recompilations(CONFIG.replace(model="tiny-cnn", batch=9), batches=(1, 2, 3), limit=1)
    ours = policy(found, ENGINE)
    assert [bool(call.refused) for call in ours.calls] == [False, True, True]
    assert "gave up on tiny-cnn after 1 programs" in ours.calls[1].refused
    assert not ours.eager
    assert f"{ENGINE}: 1 programs, then an error at call 2" in found.sentence
    table = charts.recompilations(found)
    assert [row[4] for row in table[1:] if row[0] == "dynamic=False"] == ["compiled", "EAGER", "EAGER"]
    assert [row[4] for row in table[1:] if row[0] == ENGINE] == ["compiled", "refused", "refused"]


def test_counting_leaves_the_settings_of_torch_as_they_were(found):
    import torch._dynamo.config

    assert torch._dynamo.config.recompile_limit > 3


def test_shapes_that_do_not_exist_are_refused():
    with pytest.raises(ParameterError, match="No shapes"):
        recompilations(CONFIG, batches=())
    with pytest.raises(ParameterError, match="sequences only for a model that reads"):
        recompilations(CONFIG.replace(model="tiny-cnn"), batches=(1,), sequences=(8,))


def rounds(*seconds):
    return tuple(Round((one,) * 3, 3 * one) for one in seconds)


def chained(engine, each, floor, mode="default", device="cpu"):
    """A chain whose operators cost ``each`` seconds above ``floor``, with the machine a little slower every round."""
    plan = Plan(engine, device=device, mode=mode)
    return Chain(plan, (8, 64), tuple(rounds(*((floor + each * length) * (1 + 0.01 * tick) for tick in range(8))) for length in (8, 64)))


def overhead(*chains, operators=30, call=1e-3):
    return Overhead("tiny-attention", environment.describe(), chains, operators, rounds(*[call] * 8))


def test_the_price_of_an_operator_is_the_slope_and_the_floor_is_what_is_left():
    slow, fast = chained("pytorch", 2e-6, 10e-6), chained("compiled", 0.5e-6, 40e-6)
    assert slow.each.value == pytest.approx(2e-6, rel=0.05)
    assert slow.each.low < slow.each.value < slow.each.high
    assert slow.floor.value == pytest.approx(10e-6, rel=0.05)
    assert fast.floor.value == pytest.approx(40e-6, rel=0.05)
    assert fast.against(slow).value == pytest.approx(0.25)
    assert overhead(slow).share.value == pytest.approx(30 * 2e-6 / 1e-3, rel=0.05)


def test_the_chart_reads_the_slopes():
    chart = charts.launch_times(overhead(chained("pytorch", 2e-6, 10e-6), chained("compiled", 0.5e-6, 40e-6)))
    assert [list(trace.x) for trace in chart.figure.data] == [[8, 64], [8, 64]]
    assert "One operator more costs pytorch fp32 cpu b1 2.0" in chart.sentence
    assert "the 30 operators of tiny-attention" in chart.sentence
    assert len(chart.table) == 5
    fused = charts.launch_times(overhead(dataclasses.replace(chained("compiled", 0, 1e-5), rounds=(rounds(*[1e-5] * 8),) * 2)))
    assert "at most 0" in fused.sentence


def test_a_chain_runs_as_many_operators_as_it_says_and_answers_right(tmp_path):
    model = launch.chain(5)
    engines.get("pytorch").build(model, Plan("pytorch"), tmp_path)
    with engines.get("pytorch").load(model, Plan("pytorch"), tmp_path) as session:
        inputs = model.example(1, 1, 0)
        expected = inputs["x"]
        for _ in range(5):
            expected = np.sin(expected)
        assert np.allclose(session(inputs)["y"], expected, atol=1e-6)
        assert session.report["types"] == {"fp32": 5}


def test_overhead_is_measured_in_one_interleaved_run():
    found = launch.overhead(CONFIG, lengths=(64, 4), candidates=[CONFIG.replace(engine="null")])
    assert [one.plan.engine for one in found.chains] == ["pytorch", "null"]
    assert all(one.lengths == (4, 64) and len(one.rounds) == 2 for one in found.chains)
    assert {len(each) for one in found.chains for each in one.rounds} | {len(found.call)} == {6}
    assert found.chains[0].each.value > 2 * found.chains[1].each.value, "sixty operators more take longer, unless nothing computes them"
    assert found.operators > 10
    assert found.seconds.value > 0
    with pytest.raises(ParameterError, match="no slope"):
        launch.overhead(CONFIG, lengths=(8, 8))


def test_a_cold_start_runs_from_the_process_to_the_first_answer():
    (found,) = launch.cold_start([CONFIG.replace(engine="null")], tries=1)
    assert len(found.ready) == len(found.loads) == len(found.first_calls) == 1
    assert all(whole > load + first for whole, load, first in zip(found.ready, found.loads, found.first_calls, strict=True))
    assert found.build_seconds >= 0


def test_the_table_of_cold_starts_has_the_soonest_first():
    slow = ColdStart(Plan("compiled"), 1.0, (9.0, 9.5) * 3, (1.0,) * 6, (7.0, 7.5) * 3)
    fast = ColdStart(Plan("compiled", mode="aot"), 30.0, (3.0, 3.1) * 3, (1.0,) * 6, (0.002,) * 6)
    table = charts.cold_starts([slow, fast])
    assert [row[0] for row in table[1:]] == ["compiled aot fp32 cpu b1", "compiled fp32 cpu b1"]
    assert table[1][1] == "30.0 s"
    assert table[2][4] == "7.00 s to 7.50 s"


def test_rounding_agrees_with_the_types_that_numpy_and_torch_have():
    import torch

    draw = np.random.default_rng(0)
    values = (draw.normal(size=4000) * 10.0 ** draw.integers(-9, 6, 4000)).astype(np.float32).astype(np.float64)
    with np.errstate(over="ignore"):
        assert np.array_equal(launch.rounded(values, "fp16"), values.astype(np.float16).astype(np.float64))
    assert np.array_equal(launch.rounded(values, "bf16"), torch.from_numpy(values).bfloat16().double().numpy())
    assert np.array_equal(launch.rounded(values, "fp32"), values)
    assert launch.rounded(np.array([1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11]), "tf32").tolist() == [1 + 2**-10, 1.0, 1 + 2**-9]


def test_tf32_has_the_digits_of_fp16_and_the_range_of_fp32():
    by_name = {one.name: one for one in launch.formats(size=64)}
    tf32, fp16, bf16, fp32 = (dict(by_name[name].errors) for name in ("tf32", "fp16", "bf16", "fp32"))
    assert tf32[1.0] == pytest.approx(fp16[1.0], rel=0.1)
    assert bf16[1.0] == pytest.approx(8 * tf32[1.0], rel=0.2)
    assert fp32[1.0] < tf32[1.0] / 1000
    assert fp16[1e6] == math.inf
    assert fp16[1e-6] > 10 * fp16[1.0]
    assert max(tf32.values()) < 1.2 * min(tf32.values())
    assert by_name["fp16"].largest == 65504
    assert by_name["fp32"].smallest == np.finfo(np.float32).smallest_normal
    table = charts.formats(tuple(by_name.values()))
    assert table[3][-1] == "overflow"
    assert {row[0] for row in table[1:]} == {"fp32", "tf32", "fp16", "bf16"}

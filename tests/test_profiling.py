"""Profiles, launches and roofs of a tiny model, on this machine."""

import json

import pytest
from example_records import MACHINE, measurement, verdict

from accel_helpers import profiling
from accel_helpers.bench import Comparison
from accel_helpers.config import RunConfig
from accel_helpers.environment import Ceilings, Limit
from accel_helpers.errors import ParameterError, UnsupportedError
from accel_helpers.profiling import Launch, Profile
from accel_helpers.records import Check, Plan

TINY = RunConfig(model="tiny-attention", sequence=32)


@pytest.fixture(scope="module", autouse=True)
def own_store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.mktemp("store")))
        yield


def test_a_profile_names_the_operators_and_writes_a_chrome_trace(tmp_path):
    profile = profiling.profile(TINY, tmp_path / "deep" / "trace.json", calls=3)
    names = [one.name for one in profile.operators]
    assert "aten::addmm" in names
    assert not any(name.startswith("ProfilerStep") for name in names)
    assert sum(one.share for one in profile.operators) == pytest.approx(1.0)
    assert [one.seconds for one in profile.operators] == sorted((one.seconds for one in profile.operators), reverse=True)
    addmm = profile.operators[names.index("aten::addmm")]
    assert addmm.calls % 3 == 0
    assert addmm.flops > 1e6
    assert 0 < profile.arithmetic < 1
    events = json.loads(profile.trace.read_text())["traceEvents"]
    assert sum(event.get("name") == "aten::addmm" for event in events) == addmm.calls


def test_attention_counts_as_arithmetic():
    attention = profiling.Operator("aten::_scaled_dot_product_flash_attention_for_cpu", 1, 1.0, 0.5, 0)
    other = profiling.Operator("aten::gelu", 1, 1.0, 0.5, 0)
    assert Profile((attention, other), 1, None).arithmetic == 0.5


def test_a_call_returns_long_before_its_work_is_done():
    launch = profiling.launch(TINY.replace(batch=32), calls=9)
    assert len(launch.started) == len(launch.finished) == 9
    assert all(began < done for began, done in zip(launch.started, launch.finished, strict=True))
    assert launch.factor > 2
    assert "queue" in launch.how
    assert Launch("", (1.0, 2.0, 4.0), (8.0, 8.0, 9.0)).factor == 4.0


def _ceilings(*limits):
    return Ceilings(MACHINE, limits, Check("quiet machine", True, ""))


def test_roofs_are_work_over_limits():
    gemm = Limit("gemm", "fp32", "cpu", 2, 1e9, 1024, (0.01,))
    memory = [Limit(what, "", "cpu", 2, 1e9, 2**28, (0.1,)) for what in ("copy", "read")]
    arithmetic, bandwidth = profiling.roofs(TINY.replace(threads=2), _ceilings(gemm, *memory))
    assert (arithmetic.limit, bandwidth.limit) == (1e11, 1e10)
    twice = profiling.roofs(TINY.replace(threads=2, batch=2), _ceilings(gemm, *memory))
    assert twice[0].work == pytest.approx(2 * arithmetic.work)
    assert twice[1].work < 1.5 * bandwidth.work
    with pytest.raises(UnsupportedError, match="bf16"):
        profiling.roofs(TINY.replace(precision="bf16"), _ceilings(gemm, *memory))


def _sweep(last):
    levels = {1: 0.01, 16: last}
    found = [measurement(level, Plan("pytorch", batch=batch, threads=2), seed=batch) for batch, level in levels.items()]
    return Comparison(tuple(found), (verdict(*found),))


def test_the_three_patterns_are_told_apart():
    calm = profiling.reading(measurement(), _sweep(0.02))
    assert [sentence.split(": ")[1] for sentence in calm] == [
        "the processor does not wait.",
        "memory is not what limits it.",
        "larger batches still fill idle units.",
    ]
    idle = measurement(plan=Plan("pytorch", threads=8), peak_memory_bytes=int(0.9 * MACHINE.memory_bytes))
    bad = profiling.reading(idle, _sweep(0.15))
    assert "the processor waits" in bad[0]
    assert "memory is full" in bad[1]
    assert "full already" in bad[2]


def test_the_nsight_command_runs_what_parse_reads():
    command = profiling.nsight(TINY)
    assert command.startswith("nsys profile --trace=cuda,nvtx")
    settings = command.partition("accel_helpers.profiling ")[2].split()
    assert RunConfig.parse(settings) == TINY.replace(device="cuda")
    with pytest.raises(ParameterError):
        RunConfig.parse([*settings, "engin=pytorch"])

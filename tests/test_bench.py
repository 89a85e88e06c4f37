"""The road itself: fresh processes, no silent fallback, one measurement at a time, stop, crash, reuse."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from accel_helpers import bench
from accel_helpers.accuracy import Budget
from accel_helpers.bench.process import WorkerProcess
from accel_helpers.config import RunConfig
from accel_helpers.device import measuring
from accel_helpers.errors import BusyError, MeasurementError, StoppedError, UnknownNameError, UnsupportedError
from accel_helpers.records import Compilation, Measurement, Profile, Verdict
from accel_helpers.store import Store

FAST = RunConfig(model="tiny-cnn", engine="null", rounds=6, seconds=0.1)


@pytest.fixture(scope="module", autouse=True)
def own_store(tmp_path_factory):
    """A store of this module's own, for the worker processes too."""
    before = os.environ.get("ACCEL_STORE")
    os.environ["ACCEL_STORE"] = str(tmp_path_factory.mktemp("store"))
    yield
    os.environ.pop("ACCEL_STORE")
    if before is not None:
        os.environ["ACCEL_STORE"] = before


def test_a_measurement_comes_out_whole_and_is_kept():
    seen = []
    measurement = bench.measure(FAST.replace(engine="pytorch"), watch=seen.append)
    assert measurement.status in ("VALID", "INDICATIVE"), measurement.reasons
    assert len(measurement.rounds) == 6
    assert measurement.size_bytes > 1000
    assert measurement.score is not None
    assert measurement.peak_memory_bytes > 50e6
    assert {check.name for check in measurement.checks} >= {"outputs", "steady", "no result cache", "quiet machine", "threads"}
    assert Store().get(Measurement, measurement.digest) == measurement
    stages = [progress.stage for progress in seen]
    assert stages.index("building") < stages.index("measuring") < stages.index("checking")
    assert [len(p.rounds[0]) for p in seen if p.stage == "measuring"] == [1, 2, 3, 4, 5, 6]


def test_null_is_measured_and_never_called_right():
    measurement = bench.measure(FAST)
    assert measurement.status == "INVALID"
    assert any("outputs" in reason for reason in measurement.reasons)


def test_comparing_a_plan_with_itself_is_not_a_difference_to_speak_of():
    result = bench.compare([FAST.replace(engine="pytorch", seconds=0.6), FAST.replace(engine="pytorch")])
    assert len(result.verdicts) == 1
    assert 0.7 < result.verdicts[0].cpu_speedup.value < 1.4
    assert result.verdicts[0].baseline == result.measurements[0].digest


def test_a_second_run_reuses_what_was_built():
    first = bench.measure(FAST.replace(engine="pytorch"))
    again = bench.measure(FAST.replace(engine="pytorch", batch=2))
    assert first.artifact == again.artifact
    assert first.build_seconds == again.build_seconds


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"engine": "pytorhc"}, UnknownNameError, "Did you mean 'pytorch'"),
        ({"model": "text-encodr"}, UnknownNameError, "Did you mean 'text-encoder'"),
        ({"engine": "pytorch", "precision": "tf32"}, UnsupportedError, "cannot run on this machine"),
    ],
)
def test_what_cannot_run_is_refused_before_a_process_starts(changes, error, message, monkeypatch):
    monkeypatch.setattr("accel_helpers.bench.road.WorkerProcess", None)
    with pytest.raises(error, match=message):
        bench.compare([FAST, FAST.replace(**changes)])


def test_two_at_once_is_one_clear_message():
    """A second notebook is another process; it holds the same lock."""
    code = (
        "import time; from accel_helpers.device import measuring\n"
        "with measuring('the other notebook'):\n    print('held', flush=True); time.sleep(20)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match=f"the other notebook in process {other.pid}"), measuring("mine", wait=0.2):
            pass
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    with measuring("mine", wait=5):
        pass


def test_a_score_is_reused_for_the_same_files_in_the_same_precision_only():
    """OpenVINO keeps one set of files for FP32 and BF16: what the one scored says nothing of the other."""
    configs = [FAST.replace(engine="openvino", precision=precision) for precision in ("fp32", "bf16")]
    if not bench.support(configs[1]):
        configs[1] = FAST.replace(engine="openvino", hint="throughput")
    scored = [stages(config).count("scoring") for config in (*configs, *configs)]
    assert scored == [1, int(configs[1].precision == "bf16"), 0, 0]


@pytest.mark.parametrize(("kept", "scorings"), [((1,) * 128, 0), ((), 1)])
def test_a_score_without_outcomes_is_measured_again(kept, scorings, monkeypatch):
    """An older version kept none: the change against such a score would have no interval."""
    past = bench.measure(FAST.replace(engine="pytorch"))
    past = dataclasses.replace(past, score=dataclasses.replace(past.score, outcomes=kept))
    monkeypatch.setattr(Store, "latest", lambda self, kind, **options: [past])
    assert stages(FAST.replace(engine="pytorch")).count("scoring") == scorings


def test_a_verdict_pairs_the_samples_and_says_whether_a_budget_is_kept():
    configs = [FAST.replace(engine="pytorch"), FAST.replace(engine="onnx_runtime")]
    verdict = bench.compare(configs, budget=Budget(0.05, cosine=0.999)).verdicts[0]
    assert verdict.changes == (0,) * 128
    assert (verdict.score_change, verdict.score_word, verdict.allowed_loss) == (0, "no worse", 0.05)
    assert verdict.budget.passed is True
    assert "the least cosine is 1.0" in verdict.budget.detail
    assert Store().get(Verdict, verdict.digest) == verdict
    null = bench.compare([configs[0], FAST], budget=Budget(cosine=0.999)).verdicts[0]
    assert null.budget.passed is False


def stages(config):
    seen = []
    bench.measure(config, watch=seen.append)
    return [progress.stage for progress in seen]


def test_stop_ends_the_wait_for_another_measurement():
    with measuring("first"), pytest.raises(StoppedError), measuring("second", wait=30, stop=lambda: True):
        pass


def test_an_onnx_file_runs_only_where_no_network_is_needed():
    config = RunConfig(model="any.onnx")
    assert "no PyTorch network" in bench.support(config).reason
    assert "no PyTorch network" in bench.support(config.replace(engine="compiled")).reason
    assert bench.support(config.replace(engine="openvino"))


def test_stop_ends_the_run_and_its_process_at_once():
    started = time.monotonic()
    stop = threading.Event()
    pids = []

    def watch(progress):
        if progress.stage == "measuring":
            pids.extend(child.pid for child in psutil.Process().children())
            stop.set()

    with pytest.raises(StoppedError):
        bench.measure(FAST.replace(engine="pytorch", seconds=60.0), watch=watch, stop=stop.is_set)
    assert time.monotonic() - started < 30
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_worker_that_dies_is_one_message():
    with WorkerProcess(1) as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(MeasurementError, match="SIGKILL while it was asked to build") as caught:
            worker.ask("build", model="tiny-cnn", plan=bench.plan_of(FAST).to_dict())
    assert "smaller batch" in caught.value.next_step


def test_a_crash_in_the_engine_keeps_its_traceback():
    with WorkerProcess(1) as worker, pytest.raises(MeasurementError, match="asked to build") as caught:
        worker.ask("build", model=3, plan=bench.plan_of(FAST).to_dict())
    assert "Traceback" in caught.value.next_step


ORPHAN = """
import json, os, signal, time
from accel_helpers.bench.process import WorkerProcess
from accel_helpers.records import Plan
worker, plan = WorkerProcess(1), Plan("null").to_dict()
artifact = worker.ask("build", model="tiny-cnn", plan=plan)["artifact"]
worker.ask("refer", model="tiny-cnn", plan=plan, seed=0)
worker.ask("load", model="tiny-cnn", artifact=artifact, scope="compute", seed=0)
worker.ask("warm_up", seconds=0.1)
worker._process.stdin.write(json.dumps({"call": "round", "calls": 10**9}).encode() + b"\\n")
worker._process.stdin.flush()
print(worker.pid, flush=True)
time.sleep(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_ends_with_its_parent_in_the_middle_of_a_call():
    pid = int(subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True).stdout)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)


def test_more_threads_than_cpus_is_said():
    measurement = bench.measure(FAST.replace(threads=64))
    assert any("64 threads" in reason for reason in measurement.reasons)


def test_an_engine_that_does_not_use_how_it_is_made_ignores_it_and_tensorrt_writes_its_profile_out():
    asked = RunConfig(model="tiny-attention", batch=4, sequence=32, workspace=64, simplifier="onnxslim", refit=True)
    assert bench.plan_of(asked).compilation == Compilation()
    assert bench.plan_of(asked.replace(engine="onnx_runtime")).compilation == Compilation(simplifier="onnxslim")
    plan = bench.plan_of(asked.replace(engine="tensorrt", device="cuda"))
    assert plan.compilation.profiles == (Profile((1, 4, 4), (1, 32, 32)),)
    assert (plan.compilation.workspace_bytes, plan.compilation.refit) == (64 * 2**20, True)
    cnn = bench.plan_of(asked.replace(model="tiny-cnn", engine="tensorrt", profiles="1/2/4+8/8/8"))
    assert cnn.profiles == (Profile((1, 2, 4)), Profile((8, 8, 8)))


def test_a_mode_that_an_engine_lacks_is_refused_with_those_it_has():
    answer = bench.support(RunConfig(model="tiny-cnn", engine="openvino", mode="warp"))
    assert not answer
    assert "has no mode warp; it has default" in answer.reason

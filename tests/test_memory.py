"""What a graph's values take, what calls of it take in fresh processes, and finding a built engine again."""

import json
from pathlib import Path

import numpy as np
import pytest
import small_models

from accel_helpers import models
from accel_helpers.compilation.costs import memory
from accel_helpers.compilation.costs.reusing import reuse
from accel_helpers.compilation.graphs._onnx_session import opened
from accel_helpers.compilation.graphs.liveness import Step, alive, liveness
from accel_helpers.config import RunConfig
from accel_helpers.engines import _onnx_export
from accel_helpers.errors import ModelError, ParameterError


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.mktemp("store")))
        yield


@pytest.fixture(scope="module")
def cnn(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("cnn")
    _onnx_export.export(models.get("tiny-cnn"), out)
    return out / _onnx_export.FILE


STEPS = [
    Step(("x",), {"a": 100}),
    Step(("a",), {"b": 100}, elementwise=True),
    Step(("b",), {"c": 100}, alias=True),
    Step(("c", "w"), {"d": 30}),
    Step(("d",), {"e": 30}, elementwise=True),
]


def test_a_value_lives_from_the_step_that_makes_it_to_the_last_that_reads_it():
    found = alive(STEPS, ["e"])
    assert found.total == 260  # c is b under another shape
    assert found.alive == (100, 200, 100, 130, 60)
    assert found.peak == 200


def test_a_value_that_is_read_again_or_wanted_in_the_end_lives_on():
    assert alive([*STEPS, Step(("a",), {"f": 1})], ["e", "f"]).alive == (100, 200, 200, 230, 160, 131)
    assert alive(STEPS, ["c"]).alive == (100, 200, 100, 130, 160)


def test_an_operator_in_place_takes_no_memory_of_its_own():
    found = alive(STEPS, ["e"], in_place=True)
    assert (found.total, found.peak) == (130, 130)
    assert found.alive == (100, 100, 100, 130, 30)
    assert alive([Step(("x",), {"a": 10}), Step(("a",), {"b": 10})], ["b"], in_place=True).alive == (10, 20)  # a product reads all of it
    read_again = [*STEPS, Step(("a",), {"f": 1})]
    assert alive(read_again, ["f"], in_place=True).alive[1] == 200  # a is needed, so b cannot be written over it


def test_by_hand_on_a_graph_of_three_values(tmp_path):
    nodes = [("Relu", ["x"], ["a"], {}), ("Exp", ["a"], ["b"], {}), ("Add", ["a", "b"], ["y"], {})]
    path = small_models.onnx_file(tmp_path / "small.onnx", nodes)
    found = liveness(path, {"x": np.ones((8, 4), np.float32)})
    assert (found.total, found.peak, found.steps) == (3 * 128, 3 * 128, 3)
    assert liveness(path, {"x": np.ones((16, 4), np.float32)}, in_place=True).peak == 2 * 256  # y over a


@pytest.mark.parametrize("level", ["DISABLE_ALL", "EXTENDED"])
def test_the_peak_in_place_is_what_onnx_runtimes_arena_counts(cnn, tmp_path, level):
    example = models.get("tiny-cnn").example(64, 1, 0)
    settings = {"enable_profiling": True, "profile_file_prefix": str(tmp_path / "p"), "enable_mem_pattern": False}
    session = opened(cnn, level, settings)
    session.run(None, example)
    trace = json.loads(Path(session.end_profiling()).read_text())
    events = [one["args"] for one in trace if one.get("cat") == "Node" and one["name"].endswith("_kernel_time")]
    held = int(events[0]["mem_bytes_requested_in_use"]) - int(events[0]["mem_requested_in_use_delta"])
    counted = max(int(one["mem_bytes_requested_in_use"]) for one in events) - held
    assert liveness(cnn, example, level, in_place=True).peak == counted


def test_fusing_lowers_the_peak_unless_operators_write_in_place(cnn):
    example = models.get("tiny-cnn").example(64, 1, 0)
    unfused, fused = (liveness(cnn, example, level) for level in ("DISABLE_ALL", "ALL"))
    assert unfused.peak > fused.peak
    assert unfused.total > 1.5 * unfused.peak
    assert liveness(cnn, example, in_place=True).peak <= fused.peak


def test_a_graph_that_does_not_load_says_so(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"no graph")
    with pytest.raises(ModelError, match="does not load the graph"):
        liveness(tmp_path / "broken.onnx", {})


@pytest.fixture(scope="module")
def measured(store):
    ways = (memory.KEPT, memory.FREED, memory.UNFUSED, memory.FUSED)
    return memory.peaks(RunConfig(model="tiny-cnn", batch=512, threads=1), tries=1, ways=ways)


def test_each_way_is_measured_in_a_process_of_its_own(measured):
    assert {way: len(found) for way, found in measured.added.items()} == dict.fromkeys(
        (memory.KEPT, memory.FREED, memory.UNFUSED, memory.FUSED), 1
    )
    (kept,), (freed,) = measured.added[memory.KEPT], measured.added[memory.FREED]
    assert kept > 0.9 * measured.unfused.total  # every value has memory of its own
    assert kept > 1.3 * freed
    assert freed > 0.5 * measured.unfused_in_place.peak
    assert measured.times(memory.KEPT, memory.FREED).value == pytest.approx(kept / freed)


def test_other_engines_are_measured_as_they_are(store):
    found = memory.peaks(RunConfig(model="tiny-cnn", batch=256, threads=1), tries=1, ways=(memory.Way("openvino"),))
    assert found.added[memory.Way("openvino")][0] > 100_000


def test_what_cannot_be_compared_is_refused(store, monkeypatch):
    with pytest.raises(ParameterError, match="FP32 on a CPU"):
        memory.peaks(RunConfig(model="tiny-cnn", precision="bf16"))
    monkeypatch.setattr(memory, "usable_memory", lambda: 1000)
    with pytest.raises(ParameterError, match="smaller batch"):
        memory.peaks(RunConfig(model="tiny-cnn", threads=1), tries=1, ways=(memory.KEPT,))


def test_a_built_engine_is_found_again_in_a_fraction_of_its_building(store):
    found = reuse(RunConfig(model="tiny-cnn", threads=1), tries=1, names=("onnx_runtime",))
    (cost,) = found.costs
    assert (len(cost.built), len(cost.found), len(cost.ready)) == (1, 3, 1)
    assert cost.share.low <= cost.share.value <= cost.share.high < 0.02
    with pytest.raises(ParameterError, match="0 tries"):
        reuse(RunConfig(model="tiny-cnn"), tries=0)


def test_an_engine_for_a_gpu_is_built_and_found_and_not_loaded(store):
    (cost,) = reuse(RunConfig(model="tiny-cnn", threads=1), tries=1, names=("tensorrt",)).costs
    assert cost.plan.device == "cuda"
    assert cost.share.high < 0.02
    assert cost.ready == ()
    assert "not yet run on a GPU" in cost.reason

"""The benchmark that holds our sessions against each library's own tool, in its smallest form. Its figures mean nothing here."""

import contextlib
import importlib.util
import json
import math
import sys
from pathlib import Path

import pytest

from accel_helpers.config import RunConfig
from accel_helpers.errors import MeasurementError
from accel_helpers.intervals import Estimate

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "no_overhead.py"


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """The script as a module, with a store of its own."""
    spec = importlib.util.spec_from_file_location("no_overhead", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        patch.setitem(sys.modules, "no_overhead", module)
        spec.loader.exec_module(module)
        yield module


def test_the_smallest_run(benchmark, tmp_path, capsys):
    out = tmp_path / "record.json"
    smallest = "--models tiny-attention --batches 1 --engines openvino --rounds 1 --seconds 0.01 --threads 1"
    assert benchmark.main([*smallest.split(), "--out", str(out)]) == 0
    record = json.loads(out.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert record["environment"]["cpu"]
    (case,) = record["cases"]
    assert case["tool"] == "benchmark_app"
    assert case["fresh_process_each_round"]
    assert set(case["rounds"]) == {"compute", "end to end", "benchmark_app"}
    assert all(wall > 0 for rounds in case["rounds"].values() for one in rounds for wall in one)
    assert [(row["word"], row["ratio"]) for row in case["rows"]] == [("too noisy", None)] * 2  # one round has no interval
    assert "not judged: ours copies, too" in capsys.readouterr().out


def test_a_tool_that_makes_its_own_inputs_is_refused(benchmark, tmp_path):
    case = benchmark.built(RunConfig(model="tiny-attention", engine="openvino", threads=1), tmp_path)
    app = benchmark.BenchmarkApp(case)
    place = app.arguments.index("-i")
    del app.arguments[place : place + 1 + len(case.first)]
    with pytest.raises(MeasurementError, match="did not run as asked"):
        app.round(1)


def test_a_loop_answers_as_many_seconds_as_calls(benchmark, tmp_path):
    case = benchmark.built(RunConfig(model="tiny-attention", engine="onnx_runtime", threads=1), tmp_path)
    with contextlib.ExitStack() as keep:
        for one in (benchmark.Loop(case, None), benchmark.Loop(case, keep)):
            assert [len(one.round(calls).wall) for calls in (1, 3)] == [1, 3]
    (tmp_path / "set_0.npz").write_bytes(b"no arrays")
    with pytest.raises(MeasurementError, match="ended before it answered"):
        benchmark.Loop(case, None).round(1)


@pytest.mark.parametrize(
    ("ratio", "word"),
    [
        (Estimate(1.0, 0.96, 1.04), "PASS"),
        (Estimate(2.0, 1.5, 2.5), "PASS"),  # ours is faster
        (Estimate(1.0, 0.94, 1.06), "too noisy"),
        (Estimate(0.9, 0.85, 0.94), "FAIL"),
        (Estimate(1.0, 0.0, math.inf), "too noisy"),
    ],
)
def test_the_worst_side_of_the_interval_decides(benchmark, ratio, word):
    assert benchmark.word(ratio) == word

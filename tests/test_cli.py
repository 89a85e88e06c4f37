"""The command line as its user meets it: real processes, exit codes, one message for a mistake."""

import json
import os
import subprocess
import sys

import nbformat
import pytest

from accel_helpers import runner
from accel_helpers.errors import ParameterError, UnknownNameError


@pytest.fixture(scope="module")
def accel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    environment = {**os.environ, "ACCEL_STORE": str(folder / "store"), "COLUMNS": "300"}

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "accel_helpers.cli", *arguments], capture_output=True, text=True, env=environment, cwd=folder
        )

    return call


FAST = ["model=tiny-cnn", "rounds=6", "seconds=0.1"]


def test_check_prints_the_machine_in_time(accel):
    done = accel("check")
    assert done.returncode == 0, done.stderr
    assert "torch" in done.stdout


def test_bench_prints_a_table(accel):
    done = accel("bench", *FAST, "engine=pytorch", "batch=1,2")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "tiny-cnn" in line]
    assert len(rows) == 2


def test_compare_gives_a_verdict(accel):
    done = accel("compare", *FAST, "engine=pytorch,null")
    assert done.returncode == 0, done.stderr
    assert any(word in done.stdout for word in ("faster", "slower", "no difference", "too noisy"))
    assert "INVALID" in done.stdout  # null answers zeros, and it is said


def test_compare_says_which_plans_are_within_a_budget_and_fails_where_none_is(accel):
    done = accel("compare", *FAST, "engine=pytorch,onnx_runtime,null", "--budget", "0.01")
    assert done.returncode == 0, done.stderr
    assert "within budget, but too few samples to be sure: onnx_runtime fp32 cpu b1: the task metric changed by +0.0000" in done.stdout
    assert "out of budget: null fp32 cpu b1: INVALID" in done.stdout
    failed = accel("compare", *FAST, "engine=pytorch,null", "--budget", "0.01")
    assert failed.returncode == 1, failed.stderr
    refused = accel("compare", *FAST, "engine=pytorch,null", "--budget", "-1")
    assert refused.returncode == 2
    assert "loss=-1.0 and cosine=None means nothing" in refused.stderr


def test_compare_leaves_out_what_cannot_run_only_when_asked(accel):
    refused = accel("compare", *FAST, "engine=pytorch", "precision=fp32,tf32")
    assert refused.returncode == 2
    assert "tf32" in refused.stderr
    done = accel("compare", *FAST, "engine=pytorch,null", "precision=fp32,tf32", "--skip-unsupported")
    assert done.returncode == 0, done.stderr
    assert "left out: pytorch tf32 cpu" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench", "precison=bf16"), "Did you mean 'precision'"),
        (("bench", "batch=big"), "is not of type int"),
        (("bench", "engine=tensorflow"), "There is no engine 'tensorflow'"),
        (("bench", "model=missing.onnx"), "missing.onnx"),
        (("compare", "batch=1"), "baseline and a candidate"),
        (("bench", "--config", "missing.yaml"), "cannot be read"),
        (("run", "-n", "99"), "There is no notebook '99'"),
        (("run", "-n", "01", "batc=1"), "Did you mean 'batch'"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(accel, arguments, message):
    done = accel(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_a_corrupt_onnx_file_is_one_message(accel, tmp_path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"not a graph")
    done = accel("bench", f"model={path}", "engine=null")
    assert done.returncode == 2
    assert "broken.onnx" in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_fit_the_version_of_tensorrt(accel):
    asked = ("commands", "model=tiny-attention", "precision=fp16", "profiles=1x16/8x32/16x64", "workspace=2048")
    printed = {version: accel(*asked, "--tensorrt", version) for version in ("10", "11")}
    assert all(done.returncode == 0 for done in printed.values()), printed
    texts = {version: done.stdout.partition("How versions differ")[0] for version, done in printed.items()}
    assert "--fp16" in texts["10"]
    assert "--fp16" not in texts["11"]
    assert all("--memPoolSize=workspace:2048" in text for text in texts.values())
    assert "- --workspace=N became" in printed["11"].stdout
    for wrong in (("precision=int4",), ("batch=1,2",), ("--tensorrt", "9")):
        refused = accel("commands", "model=tiny-cnn", *wrong)
        assert refused.returncode == 2, refused.stdout
        assert "Traceback" not in refused.stderr


# the runner, on notebooks of its own


def notebook(folder, *sources, name="07_own"):
    parameters = nbformat.v4.new_code_cell("batch: int = 1\nmodel: str = 'tiny-cnn'", metadata={"tags": ["parameters"]})
    content = nbformat.v4.new_notebook(cells=[parameters, *(nbformat.v4.new_code_cell(source) for source in sources)])
    path = folder / f"{name}.ipynb"
    nbformat.write(content, path)
    return path


def test_parameters_are_checked_before_anything_runs(tmp_path):
    path = notebook(tmp_path)
    assert runner.combinations(path, ["batch=1,8"]) == [{"batch": 1}, {"batch": 8}]
    with pytest.raises(UnknownNameError, match="Did you mean 'batch'"):
        runner.check_settings([path], ["batc=1"])
    with pytest.raises(ParameterError, match="not of type int"):
        runner.check_settings([path], ["batch=x"])
    with pytest.raises(ParameterError, match="No chosen notebook has a parameter 'precision'"):
        runner.check_settings([path], ["precision=bf16"])


def test_an_executed_notebook(tmp_path):
    steps = []
    outcome = runner.run(
        notebook(tmp_path, "print(batch * 21)"), {"batch": 2}, tmp_path / "out" / "x.ipynb", steps.append, tmp_path / "t.json"
    )
    assert outcome.error == ""
    executed = nbformat.read(outcome.output, as_version=4)
    assert "42" in str(executed.cells[-1].outputs)
    assert "reached" not in str(executed.cells)  # the sentinel cell is ours, not the reader's
    assert steps[-1].cell == steps[-1].cells
    assert json.loads((tmp_path / "t.json").read_text())["07_own"] > 0
    again = []
    runner.run(notebook(tmp_path, "print(1)"), {}, tmp_path / "out" / "y.ipynb", again.append, tmp_path / "t.json")
    assert again[0].remaining is not None


def test_a_failing_cell_is_a_failure(tmp_path):
    outcome = runner.run(notebook(tmp_path, "1 / 0", "print('after')"), {}, tmp_path / "x.ipynb")
    assert "ZeroDivisionError" in outcome.error


@pytest.mark.fault
def test_a_dead_kernel_is_a_failure(tmp_path):
    outcome = runner.run(notebook(tmp_path, "import os; os.kill(os.getpid(), 9)", "print('after')"), {}, tmp_path / "x.ipynb")
    assert outcome.error
    assert "after" not in str([cell.get("outputs") for cell in nbformat.read(outcome.output, as_version=4).cells])


def test_a_failed_notebook_is_exit_code_1(accel, tmp_path):
    path = notebook(tmp_path, "1 / 0")
    done = accel("run", "-n", str(path), "--out", str(tmp_path / "out"))
    assert done.returncode == 1, done.stderr
    assert "1 of 1 notebooks failed" in done.stdout
    assert (tmp_path / "out" / "report.html").exists()

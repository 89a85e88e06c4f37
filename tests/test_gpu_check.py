"""The GPU kit's whole flow in a small form, on a machine with few packages: an environment that holds those and no others."""

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

KIT = Path(__file__).parent.parent / "benchmarks" / "gpu_check.py"
CARRIED = ("pydantic", "pydantic-core", "annotated-types", "typing-inspection", "nvidia-ml-py")
"""What the kit's docstring says to carry as wheels."""
THERE = (
    *("torch", "transformers", "onnx", "numpy", "psutil", "filelock", "packaging", "safetensors", "torchmetrics", "lightning-utilities"),
    *("typing-extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "setuptools", "huggingface-hub", "tokenizers"),
    *("pyyaml", "regex", "tqdm", "requests", "protobuf", "ml-dtypes", "httpx", "httpcore", "h11", "anyio", "idna", "certifi", "scipy"),
    *("typer", "click", "rich", "pygments", "markdown-it-py", "mdurl", "shellingham", "hf-xet", "sniffio", "annotated-doc"),
)
"""What a machine with PyTorch and transformers holds: they and what they need."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The Python of an environment with those packages alone."""
    root = tmp_path_factory.mktemp("bare")
    venv.create(root, symlinks=True, with_pip=False)
    python = root / "bin" / "python"
    site = next((root / "lib").glob("python*/site-packages"))
    linked = 0
    for name in (*THERE, *CARRIED):
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a version of another package no longer needs it
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            target, source = site / top, Path(found.locate_file(top))
            if source.exists() and not target.exists():
                target.symlink_to(source.resolve())
                linked += 1
    assert linked > 20
    return python


def run(python, *options, **more):
    env = {**os.environ, "PYTHONPATH": str(KIT.parent.parent), "ACCEL_STORE": str(more.pop("store")), "OMP_WAIT_POLICY": "passive"}
    return subprocess.run([python, KIT, *map(str, options)], capture_output=True, text=True, env=env, check=False, timeout=240)


def test_the_kit_runs_where_packages_are_few_and_says_why_what_did_not(bare, tmp_path):
    options = ("--device", "cpu", "--dry", "--models", "tiny-cnn", "--seconds", "0.2", "--out", tmp_path)
    done = run(bare, *options, store=tmp_path / "store")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = tmp_path.glob("gpu-*.json")
    kept = json.loads(record.read_text())
    assert {"environment", "findings", "loads", "pycuda", "ceilings", "launches of tiny-cnn", "seconds"} <= kept.keys()
    assert kept["loads"]["torch"].startswith("version ")
    for absent in ("openvino", "torchao", "tensorrt_rtx", "onnxruntime"):
        assert "ModuleNotFoundError" in kept["loads"][absent], "the environment holds what it should not"
    plans = {name.partition(": ")[2]: one for name, one in kept.items() if name.startswith("tiny-cnn: ")}
    assert len(plans) == 4
    ran = plans["pytorch fp32 cpu b1"]
    assert ran["error_against_fp64"] < 1e-5
    assert 0 < ran["share_of_ceiling"] < 1.5
    assert len(ran["measurements"]) == 2
    assert "a CPU has none" in plans["pytorch cuda_graph fp32 cpu b8"]["cannot_run"]
    assert "openvino" in plans["openvino fp32 cpu b8"]["cannot_run"]
    assert "TF32" in plans["pytorch tf32 cpu b8"]["cannot_run"]
    assert "1 plans ran, 3 cannot run here, 0 steps failed" in done.stdout


def test_the_time_that_was_given_is_kept_and_the_record_is_whole(tmp_path):
    done = run(sys.executable, "--device", "cpu", "--dry", "--minutes", "0.02", "--out", tmp_path, store=tmp_path / "store")
    assert done.returncode == 1
    (record,) = tmp_path.glob("gpu-*.json")
    assert json.loads(record.read_text())["out of time"].startswith("during ")
    assert "Out of time during" in done.stdout


def test_every_engine_mode_and_precision_is_asked_for_once():
    sys.path.insert(0, str(KIT.parent))
    try:
        import gpu_check
    finally:
        sys.path.remove(str(KIT.parent))
    from accel_helpers import engines
    from accel_helpers.config import PRECISIONS, RunConfig

    base = RunConfig(model="tiny-cnn", device="cuda")
    asked = [(one.engine, one.mode, one.precision) for one in gpu_check.plans(base, dry=False)]
    assert len(asked) == len(set(asked))
    expected = {
        (name, mode, precision)
        for name in engines.names()
        if name != "null"
        for mode in ("default", *engines.get(name).modes)
        for precision in PRECISIONS
    }
    assert set(asked) == expected - {("pytorch", "default", "fp32")}
    assert [mode for _, mode, _ in asked[:7]] == ["default"] * 7, "the telling ones first"
    assert gpu_check.judged({"a": {"failed": "x"}}, [{"seconds": 1}]) == 1
    assert gpu_check.judged({"pycuda": {"failed": "x"}}, [{"seconds": 1}]) == 0
    assert gpu_check.judged({}, [{"cannot_run": "x"}]) == 1


def test_without_a_gpu_it_says_so(tmp_path):
    from accel_helpers import environment

    if environment.describe().gpus:
        pytest.skip("a GPU is here")
    done = run(sys.executable, "--out", tmp_path, store=tmp_path / "store")
    assert done.returncode == 2
    assert "nothing to check" in done.stdout

"""The frame: one list of dependencies, thin imports, and a tree that is what the documents say."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def name_of(requirement):
    return re.match(r"[A-Za-z0-9_.-]+", requirement)[0].lower()


def test_environment_yml_names_nothing_that_pyproject_does_not():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = [entry for entry in dependencies if isinstance(entry, str)]
    pip = next(entry["pip"] for entry in dependencies if isinstance(entry, dict))
    assert {name_of(entry) for entry in conda} == {"python", "pip"}
    version = next(entry for entry in conda if entry.startswith("python=")).removeprefix("python=")
    assert version in PROJECT["requires-python"]
    for entry in pip:
        extras = re.fullmatch(r"-e \.\[([a-z,]+)\]", entry)
        assert extras, f"{entry} is a requirement of its own"
        assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])


def test_every_requirement_has_a_bound():
    requirements = PROJECT["dependencies"] + [r for extra in PROJECT["optional-dependencies"].values() for r in extra]
    assert len(requirements) > 20
    assert all(re.search(r"==|~=|<", requirement.partition(";")[0]) for requirement in requirements)


def test_cpu_and_gpu_never_bring_both_onnx_runtimes():
    extras = PROJECT["optional-dependencies"]
    core = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    assert {name_of(r) for r in extras["cpu"]} & {"onnxruntime", "onnxruntime-gpu"} == {"onnxruntime"}
    assert {name_of(r) for r in extras["gpu"]} & {"onnxruntime", "onnxruntime-gpu"} == {"onnxruntime-gpu"}
    assert not core & {"onnxruntime", "onnxruntime-gpu"}


FRAMEWORKS = ("torch", "transformers", "onnx", "onnxruntime", "openvino", "plotly", "ipywidgets", "pandas", "scipy")


@pytest.mark.parametrize(
    "module", ["accel_helpers", "accel_helpers.bench", "accel_helpers.cli", "accel_helpers.runner", "accel_helpers.engines.pytorch"]
)
def test_importing_loads_no_framework(module):
    code = f"import sys, {module}; print([name for name in {FRAMEWORKS!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_importing_the_package_takes_under_a_fifth_of_a_second():
    code = "import time; t = time.perf_counter(); import accel_helpers; print(time.perf_counter() - t)"
    best = min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(3))
    assert best < 0.2


def test_timing_code_reads_no_wall_clock():
    sources = list((ROOT / "accel_helpers").rglob("*.py"))
    assert len(sources) > 20
    assert not [path.name for path in sources if re.search(r"\btime\.time\(", path.read_text())]


def test_no_pickle():
    sources = list((ROOT / "accel_helpers").rglob("*.py"))
    assert len(sources) > 20
    offenders = [
        path.name
        for path in sources
        if re.search(r"^\s*(import|from) (pickle|dill|joblib|cloudpickle)\b|weights_only=False", path.read_text(), re.M)
    ]
    assert not offenders


def test_public_names():
    import accel_helpers

    for name in accel_helpers.__all__:
        assert getattr(accel_helpers, name) is not None
    assert dir(accel_helpers) == sorted(accel_helpers.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        accel_helpers.nothing  # noqa: B018

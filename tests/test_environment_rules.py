"""Findings and routes for machines that this one is not: what is said, what is not said, and which command mends it."""

import dataclasses
import re
from pathlib import Path
from typing import get_args

import machines
import pytest
from machines import DECLARED, EVERY, machine, with_gpu

from accel_helpers.environment import as_rows, findings, render, route
from accel_helpers.environment.declared import Declared, declared
from accel_helpers.environment.finding import Finding, Level
from accel_helpers.environment.gpu_rules import RTX_CAPABILITIES
from accel_helpers.environment.machine import ISA, PACKAGES
from accel_helpers.environment.route import Step


def packages(base=machines.AMX, without=(), **more):
    """The packages of a machine without some, and with others (underscores stand for hyphens)."""
    kept = {name: version for name, version in base.packages.items() if name not in without}
    return {**kept, **{name.replace("_", "-"): version for name, version in more.items()}}


H200, T4, JETSON = machines.H200, machines.T4, machines.JETSON
CASES = {
    "old python": (machine(python="3.10.12"), "problem", "Python 3.10.12 is outside", "python3.11 -m venv"),
    "new python": (machine(python="3.15.0"), "problem", "Python 3.15.0 is outside", "python3.11 -m venv"),
    "right python": (machine(), "ok", "Python 3.11.7 is within <3.15,>=3.11", ""),
    "old package": (machine(packages=packages(onnx="1.18.0")), "warning", "onnx 1.18.0 is outside ~=1.23", "pip install 'onnx~=1.23'"),
    "local version": (machine(), "ok", "packages that decide speed are installed within", ""),
    "no torch": (machine(packages=packages(without=("torch", "onnx"))), "problem", "Not installed: torch, onnx.", "pip install -e ."),
    "not for this system": (machines.GRAVITON3, "ok", "6 of", ""),  # tensorrt-rtx is asked for on x86-64 only
    "no extra": (machine(packages=packages(without=("xllamacpp",))), "info", "extra llm is not installed: xllamacpp", "'.[llm]'"),
    "no gpu": (machine(), "info", "No NVIDIA GPU", ""),
    "driver trouble": (machine(tools={"nvidia driver": "mismatch"}), "problem", "does not answer: mismatch", "nvidia-smi"),
    "gpu": (H200, "ok", "NVIDIA H200: compute capability 9.0, 141 GiB, driver 580.95.05", ""),
    "driver fits": (H200, "ok", "Driver 580.95.05 fits PyTorch's CUDA 13.0", ""),
    "driver 13": (with_gpu(machines.gpu("A", "8.9", "570.1")), "problem", "570.1 is too old for PyTorch's CUDA 13.0", "nvidia-driver-580"),
    "driver 12": (with_gpu(machines.gpu("A", "8.9", "470.1"), cuda="12.6"), "problem", "470.1 is too old", "nvidia-driver-525"),
    "driver 12 fits": (with_gpu(machines.gpu("A", "8.9", "525.6"), cuda="12.6"), "ok", "525.6 fits", ""),
    "driver 11": (with_gpu(machines.gpu("A", "8.0", "440.1"), cuda="11.8"), "problem", "440.1 is too old", "nvidia-driver-450"),
    "cpu torch": (
        with_gpu(machines.gpu("A", "8.9"), cuda=""),
        "warning",
        "is built for the CPU",
        "pip install --force-reinstall 'torch==2.13.0'",
    ),
    "cuda torch, no gpu": (machine(cuda="13.0"), "info", "is built for CUDA 13.0; without a GPU", ""),
    "gpu too old": (with_gpu(machines.gpu("V100", "7.0")), "problem", "PyTorch holds no code for V100", ""),
    "two runtimes": (
        machine(packages=packages(onnxruntime_gpu="1.31.1")),
        "problem",
        "both installed",
        "pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'onnxruntime~=1.32.0'",
    ),
    "two runtimes, gpu": (
        machine(gpus=H200.gpus, cuda="13.0", packages=packages(H200, onnxruntime="1.32.0")),
        "problem",
        "both installed",
        "pip install 'onnxruntime-gpu[cuda,cudnn]~=1.31.1'",
    ),
    "no runtime": (
        machine(packages=packages(without=("onnxruntime",))),
        "warning",
        "ONNX Runtime is not installed",
        "'onnxruntime~=1.32.0'",
    ),
    "gpu runtime, no gpu": (
        machine(packages=packages(without=("onnxruntime",), onnxruntime_gpu="1.31.1")),
        "warning",
        "onnxruntime-gpu is installed on a machine without a GPU",
        "pip uninstall -y onnxruntime-gpu && pip install 'onnxruntime~=1.32.0'",
    ),
    "cpu runtime, gpu": (
        with_gpu(machines.gpu("A", "8.9"), without=("onnxruntime-gpu",), packages=packages()),
        "info",
        "is the CPU build",
        "onnxruntime-gpu",
    ),
    "no cuda libraries": (
        dataclasses.replace(H200, cuda="12.6", packages=packages(H200, without=("nvidia-cuda-runtime",))),
        "warning",
        "onnxruntime-gpu has no CUDA libraries",
        "'onnxruntime-gpu[cuda,cudnn]~=1.31.1'",
    ),
    "tensorrt of another cuda": (
        dataclasses.replace(H200, packages=packages(H200, without=("tensorrt", "tensorrt-cu13"), tensorrt_cu12="10.13")),
        "problem",
        "TensorRT is built for CUDA 12, PyTorch for CUDA 13",
        "pip uninstall -y tensorrt tensorrt-cu12 && pip install tensorrt-cu13",
    ),
    "no tensorrt": (
        dataclasses.replace(H200, packages=packages(H200, without=("tensorrt", "tensorrt-cu13"))),
        "info",
        "TensorRT is not installed",
        "pip install 'tensorrt~=11.4'",
    ),
    "tensorrt 11 beside onnxruntime-gpu": (H200, "info", "TensorRT provider loads TensorRT 10; 11.4.0 is installed", ""),
    "gpu too old for tensorrt": (machines.V100, "info", "TensorRT 11 has no code for Tesla V100", ""),
    "rtx on hopper": (H200, "info", "TensorRT-RTX has no SM90", ""),
    "rtx on jetson": (JETSON, "info", "TensorRT-RTX has no SM87", ""),
    "no pycuda": (
        dataclasses.replace(H200, packages=packages(H200, without=("pycuda",))),
        "info",
        "pycuda is not installed",
        "pycuda~=2026.1",
    ),
    "pycuda, no gpu": (
        machine(packages=packages(pycuda="2026.1")),
        "warning",
        "pycuda is installed on a machine without",
        "uninstall -y pycuda",
    ),
    "quota": (machine(cpus=2), "info", "may use 2 of 16 CPUs", "export OMP_NUM_THREADS=2"),
    "quota on windows": (machine(cpus=2, os="Windows 11 AMD64"), "info", "may use 2 of 16", "set OMP_NUM_THREADS=2"),
    "little memory": (machine(memory_bytes=4 * 2**30), "warning", "may use 4.0 GiB", ""),
    "no compiler": (machine(tools={"python headers": "3.11.7"}), "warning", ": no C++ compiler.", "apt-get install g++ python3-dev"),
    "no headers": (machine(tools={"c++": "g++ 12"}), "warning", ": no Python headers.", "apt-get install g++ python3-dev"),
    "no compiler on a mac": (dataclasses.replace(machines.APPLE, tools={}), "warning", "torch.compile cannot work", "xcode-select"),
    "compiler": (machine(), "ok", "g++ 12.2.0", ""),
    "amx": (machines.AMX, "ok", "AMX multiplies", ""),
    "zen 4": (machines.ZEN4, "ok", "AVX-512 with BF16 and VNNI", ""),
    "vnni": (machines.ICE_LAKE, "info", "AVX-512 with VNNI, without BF16", ""),
    "avx vnni": (machines.ALDER_LAKE, "info", "AVX2 with VNNI", ""),
    "avx-512 alone": (machines.SKYLAKE_SERVER, "info", "AVX-512 without VNNI", ""),
    "avx2 alone": (machines.OLD_LAPTOP, "info", "AVX2 without AVX-512", ""),
    "nothing": (machines.ANCIENT, "warning", "neither AVX2 nor NEON", ""),
    "arm with matrices": (machines.GRAVITON3, "ok", "ARM with matrix instructions", ""),
    "arm with dot products": (machines.RASPBERRY, "info", "ARM with dot products", ""),
    "plain arm": (machines.RASPBERRY_3, "info", "ARM without dot products", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_finding(case):
    there, level, words, command = CASES[case]
    matching = [one for one in findings(there, DECLARED) if words in one.what]
    assert [one.level for one in matching] == [level], findings(there, DECLARED)
    assert command in matching[0].command
    assert bool(matching[0].command) == bool(command)


SILENT = {
    "no gpu": (machines.AMX, ("CUDA", "TensorRT", "driver", "pycuda is")),
    "extras that other rules speak of": (machines.AMX, ("extra gpu", "extra cpu", "extra dev")),
    "enough": (machines.AMX, ("may use",)),
    "a gpu that rtx knows": (machines.RTX_4060, ("TensorRT-RTX", "No NVIDIA", "too old", "no code")),
    "libraries from torch": (dataclasses.replace(H200, packages=packages(H200, without=("nvidia-cuda-runtime",))), ("no CUDA libraries",)),
    "libraries from packages": (dataclasses.replace(H200, cuda="12.6"), ("no CUDA libraries",)),
    "right tensorrt": (H200, ("TensorRT is",)),
    "memory that cannot be read": (machine(memory_bytes=0), ("may use",)),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_fits_is_not_complained_about(case):
    there, words = SILENT[case]
    said = [one.what for one in findings(there, DECLARED) if any(word in one.what for word in words) and one.level != "ok"]
    assert not said


@pytest.mark.parametrize("name", ["AMX", "ZEN4", "OLD_LAPTOP", "RTX_4060", "T4", "H200"])
def test_a_healthy_machine_has_no_problem(name):
    assert not [one for one in findings(EVERY[name], DECLARED) if one.level in ("problem", "warning")]


def test_problems_come_first():
    there = machine(python="3.10.1", memory_bytes=2**30, cpus=1)
    order = [get_args(Level).index(one.level) for one in findings(there, DECLARED)]
    assert order == sorted(order)
    assert order[0] < order[-1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"python": "three"}, "Python three is outside"),
        ({"os": ""}, "Python 3.11.7 is within"),
        ({"packages": {"torch": "new"}}, "torch new is outside"),
        ({"gpus": (machines.gpu("G", "x", "580.1"),)}, "The rule about tensorrt could not be applied: ValueError"),
        ({"gpus": (machines.gpu("G", "8.9", "y"),), "cuda": "13.0"}, "The rule about driver could not be applied: ValueError"),
    ],
)
def test_what_nobody_foresaw_is_said_and_hides_nothing(changes, said):
    found = [one.what for one in findings(machine(**changes), DECLARED)]
    assert any(what.startswith(said) for what in found)
    assert any("AMX" in what for what in found)


def test_without_the_project_nothing_is_judged_by_its_bounds():
    found = findings(machine(), Declared("", (), ()))
    assert "The project itself is not installed." in [one.what for one in found]
    assert not [one for one in found if "outside" in one.what]


def test_the_own_bounds_are_those_of_pyproject():
    own = declared()
    assert {"cpu", "gpu", "llm", "dev"} <= set(own.extras)
    core = {one.name for one in own.requirements(machine())}
    assert {"torch", "numpy", "openvino", "tensorrt-rtx"} <= core
    assert "onnxruntime" not in core
    assert {one.name for one in own.requirements(machine(), "cpu")} == {"onnxruntime"}
    assert "tensorrt-rtx" not in {one.name for one in own.requirements(machines.APPLE)}
    assert own.pin("onnxruntime").startswith("'onnxruntime~=")


def test_no_line_names_a_registry_host_or_a_folder():
    texts = [text for there in EVERY.values() for one in findings(there, DECLARED) for text in (one.what, one.why, one.command)]
    texts += [step.why for there in EVERY.values() for step in route(there)]
    assert len(texts) > 100
    assert not [text for text in texts if re.search(r"https?:|\.org\b|\.com\b|/\w+/\w+", text)]


ROUTES = {
    "AMX": ("cpu", ["openvino bf16", "compiled bf16", "openvino int8", "onnx_runtime fp32"]),
    "ZEN4": ("cpu", ["openvino bf16", "onnx_runtime int8", "compiled bf16", "openvino fp32"]),
    "ICE_LAKE": ("cpu", ["onnx_runtime int8", "openvino int8", "openvino fp32", "compiled fp32"]),
    "ALDER_LAKE": ("cpu", ["onnx_runtime int8", "openvino int8", "openvino fp32", "compiled fp32"]),
    "SKYLAKE_SERVER": ("cpu", ["openvino fp32", "onnx_runtime fp32", "compiled fp32", "onnx_runtime int8"]),
    "OLD_LAPTOP": ("cpu", ["openvino fp32", "onnx_runtime fp32", "compiled fp32", "onnx_runtime int8"]),
    "ANCIENT": ("cpu", ["onnx_runtime fp32", "openvino fp32", "compiled fp32"]),
    "GRAVITON3": ("cpu", ["compiled bf16", "onnx_runtime int8", "onnx_runtime fp32"]),
    "APPLE": ("cpu", ["compiled bf16", "onnx_runtime int8", "onnx_runtime fp32"]),
    "RASPBERRY": ("cpu", ["onnx_runtime int8", "onnx_runtime fp32", "openvino fp32"]),
    "RASPBERRY_3": ("cpu", ["onnx_runtime fp32", "openvino fp32", "compiled fp32"]),
    "RTX_4060": ("cuda", ["compiled bf16", "tensorrt fp16", "pytorch tf32", "onnx_runtime fp16"]),
    "RTX_5090": ("cuda", ["compiled bf16", "tensorrt fp16", "pytorch tf32", "onnx_runtime fp16"]),
    "A100": ("cuda", ["compiled bf16", "tensorrt fp16", "pytorch tf32", "onnx_runtime fp16"]),
    "H200": ("cuda", ["compiled bf16", "tensorrt bf16", "pytorch tf32", "onnx_runtime fp16"]),
    "T4": ("cuda", ["compiled fp16", "tensorrt fp16", "tensorrt int8", "onnx_runtime fp16"]),
    "V100": ("cuda", ["compiled fp16", "onnx_runtime fp16"]),
    "GTX_1080": ("cuda", ["pytorch fp32", "onnx_runtime fp32"]),
    "THOR": ("cuda", ["tensorrt fp16", "tensorrt int8", "onnx_runtime fp16"]),
    "JETSON": ("cuda", ["tensorrt fp16", "tensorrt int8", "onnx_runtime fp16"]),
}


def test_every_machine_has_a_route_in_the_table():
    assert set(ROUTES) == set(EVERY)


@pytest.mark.parametrize("name", ROUTES)
def test_route(name):
    device, steps = ROUTES[name]
    found = route(EVERY[name])
    assert [f"{one.engine} {one.precision}" for one in found] == steps
    assert {one.device for one in found} == {device}
    assert all(len(one.why) > 20 for one in found)


def test_a_jetson_that_does_not_say_so_is_known_by_its_capability():
    unnamed = dataclasses.replace(JETSON, cpu="ARMv8 Processor rev 1 (v8l)", gpus=(machines.gpu("nvgpu", "8.7"),))
    assert route(unnamed) == route(JETSON)


def test_the_best_gpu_decides():
    two = dataclasses.replace(T4, gpus=(*T4.gpus, *H200.gpus))
    assert route(two) == route(H200)


def test_no_step_asks_for_a_type_that_the_hardware_lacks():
    def knows(there, precision):
        if not there.gpus:
            needs = {"bf16": {"avx512_bf16", "amx_bf16", "bf16"}, "fp32": set(ISA) | {""}, "int8": set(ISA)}[precision]
            return precision == "fp32" or bool(needs & set(there.isa))
        since = {"fp32": 0, "fp16": 7.0, "int8": 7.2, "bf16": 8.0, "tf32": 8.0}[precision]
        return float(there.gpus[0].compute_capability) >= since

    assert not [(name, one) for name, there in EVERY.items() for one in route(there) if not knows(there, one.precision)]


def test_tensorrt_rtx_is_not_advised_where_it_cannot_run():
    for there in EVERY.values():
        advised = any("TensorRT-RTX installs" in one.why for one in route(there))
        assert not advised or there.gpus[0].compute_capability in RTX_CAPABILITIES


def test_rtx_capabilities_are_those_of_the_installed_package():
    trt = pytest.importorskip("tensorrt_rtx", reason="exists for Linux on x86-64 only")
    known = {name.removeprefix("SM") for name in dir(trt.ComputeCapability) if name.startswith("SM")}
    assert known == {one.replace(".", "") for one in RTX_CAPABILITIES}


def test_notebooks_that_a_route_names_exist():
    sources = {path.stem for path in (Path(__file__).parent.parent / "notebooks" / "src").glob("*.py")}
    named = {one.notebook for there in EVERY.values() for one in route(there)} - {""}
    assert named
    assert named <= sources


def test_every_package_that_an_extra_judges_is_read():
    assert {"onnxruntime", "onnxruntime-gpu", "tensorrt", "pycuda", "openvino-genai", "xllamacpp", "ray", "mlflow", "fastapi"} <= set(
        PACKAGES
    )


@pytest.mark.parametrize("name", EVERY)
def test_page(name):
    there = EVERY[name]
    found, steps = findings(there, DECLARED), route(there)
    page = render(there, found, steps)
    assert there.cpu in page
    assert all(len(line) <= 100 or line.lstrip().startswith("$ ") for line in page.splitlines())
    assert all(f"$ {one.command}\n" in page for one in found if one.command)  # whole, on one line
    flat = " ".join(page.split())
    assert all(" ".join(one.what.split()) in flat for one in found)
    assert all(step.why in flat for step in steps)
    assert page.isascii()


def test_package_names_are_not_broken_over_lines():
    what = " ".join(["onnxruntime-gpu"] * 40)
    assert what in " ".join(render(machines.AMX, (Finding("info", what),), ()).split())


def test_rows():
    tables = as_rows(H200, findings(H200, DECLARED), route(H200))
    assert list(tables) == ["This machine", "Does it fit together?", "Route for this hardware"]
    for rows in tables.values():
        assert len(rows) > 1
        assert len({len(row) for row in rows}) == 1
        assert all(isinstance(cell, str) for row in rows for cell in row)
    machine_rows = dict(tables["This machine"])
    assert machine_rows["GPU"] == "NVIDIA H200 (9.0, 141.0 GiB)"
    assert machine_rows["CUDA"] == "driver 580.95.05, CUDA 13.0, cuDNN 9.15.0"
    assert machine_rows["CPUs"] == "16 usable of 16"


def test_findings_and_steps_are_records():
    one = findings(H200, DECLARED)[0]
    assert Finding.from_json(one.to_json()) == one
    step = route(H200)[0]
    assert Step.from_json(step.to_json()) == step

"""What a machine has: read from what many systems say, never raising, and quickly."""

import ctypes
import importlib.metadata
import importlib.util
import json
import platform
import subprocess
import sys
from types import SimpleNamespace

import machines
import pynvml
import pytest

from accel_helpers import environment
from accel_helpers.environment import machine as reader
from accel_helpers.environment.machine import describe
from accel_helpers.records import Environment


@pytest.fixture(autouse=True)
def fresh():
    """Each test reads its own machine, and leaves none behind."""
    describe.cache_clear()
    yield
    describe.cache_clear()


@pytest.fixture
def linux(tmp_path, monkeypatch):
    """A function that makes this a Linux machine with that /proc/cpuinfo and board."""

    def lay(cpuinfo, board=None):
        monkeypatch.setattr(platform, "system", lambda: "Linux")
        monkeypatch.setattr(reader, "_PROC", tmp_path)
        monkeypatch.setattr(reader, "_BOARD", tmp_path / "model")
        (tmp_path / "cpuinfo").write_bytes(cpuinfo.encode("latin-1"))
        if board:
            (tmp_path / "model").write_text(board)

    return lay


@pytest.mark.parametrize(
    ("cpuinfo", "board", "cpu", "isa"),
    [
        (
            "xeon",
            None,
            "Intel(R) Xeon(R) Platinum 8488C",
            ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"),
        ),
        ("graviton", None, "Arm Neoverse V1", ("neon", "asimdhp", "asimddp", "i8mm", "bf16", "sve")),
        ("graviton", "NVIDIA Jetson\0", "NVIDIA Jetson (Arm Neoverse V1)", ("neon", "asimdhp", "asimddp", "i8mm", "bf16", "sve")),
        ("unknown arm", None, "ARM 0x99 0x123", ("neon",)),
        ("pi 32 bit", "Raspberry Pi 4 Model B\0", "Raspberry Pi 4 Model B (Arm Cortex-A72)", ("neon",)),
        ("big and little", None, "X", ("avx2", "avx_vnni")),  # a thread may run on either core
        ("risc-v", "StarFive VisionFive 2\0", "StarFive VisionFive 2", ()),
        ("power", None, "POWER9, altivec supported", ()),
        ("empty", None, platform.machine(), ()),
        ("noise", None, platform.machine(), ()),
    ],
)
def test_linux_processors(linux, cpuinfo, board, cpu, isa):
    linux(machines.CPUINFO[cpuinfo], board)
    here = describe()
    assert (here.cpu, here.isa) == (cpu, isa)


def test_mac(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(reader.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=machines.SYSCTL, stderr=""))
    here = describe()
    assert here.cpu == "Apple M2"
    assert here.isa == ("neon", "asimdhp", "asimddp", "i8mm", "bf16")  # FEAT_SME: 0 is absent


def test_windows(monkeypatch):
    kernel = SimpleNamespace(IsProcessorFeaturePresent=lambda number: number in (10, 40, 41))
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    monkeypatch.setenv("PROCESSOR_IDENTIFIER", "Intel64 Family 6 Model 140 Stepping 1, GenuineIntel")
    here = describe()
    assert here.cpu == "Intel64 Family 6 Model 140 Stepping 1, GenuineIntel"
    assert here.isa == ("avx2", "avx512f")


def nvml(monkeypatch, **changes):
    """A driver with one H200; a change is an exception to raise or a value to answer."""
    answers = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": "580.95.05",
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=141 * 2**30),
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        **changes,
    }

    def answering(value):
        def answer(*_):
            if isinstance(value, Exception):
                raise value
            return value

        return answer

    for name, value in answers.items():
        monkeypatch.setattr(pynvml, name, answering(value))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_gpus(monkeypatch):
    nvml(monkeypatch)
    assert describe().gpus == (machines.gpu("NVIDIA H200", "9.0", memory=141 * 2**30),)


def test_names_as_bytes_and_shared_memory(monkeypatch):
    refused = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    nvml(monkeypatch, nvmlDeviceGetName=b"Orin (nvgpu)", nvmlSystemGetDriverVersion=b"540.4.0", nvmlDeviceGetMemoryInfo=refused)
    (orin,) = describe().gpus
    assert (orin.name, orin.driver, orin.memory_bytes) == ("Orin (nvgpu)", "540.4.0", reader.usable_memory())


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_are_not_here(monkeypatch, hidden):
    nvml(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert describe().gpus == ()


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetCudaComputeCapability"])
def test_a_driver_that_does_not_answer_is_told(monkeypatch, call):
    nvml(monkeypatch, **{call: pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)})
    here = describe()
    assert here.gpus == ()
    assert "mismatch" in here.tools["nvidia driver"]
    assert "does not answer" in environment.check()


def test_no_driver_is_no_trouble(monkeypatch):
    nvml(monkeypatch, nvmlInit=pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert describe().gpus == ()
    assert "nvidia driver" not in describe().tools


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'\n", "13.0"),
        ("cuda = '12.8'\n", "12.8"),
        ("cuda: Optional[str] = None\n", ""),
        ("", ""),
    ],
)
def test_cuda_is_read_out_of_torch_without_importing_it(tmp_path, monkeypatch, text, cuda):
    (tmp_path / "version.py").write_text(f"__version__ = '2.13.0'\n{text}hip: Optional[str] = None\n")
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "torch" else None)
    assert describe().cuda == cuda


def test_this_machine():
    here = describe()
    assert here.packages["numpy"] == importlib.metadata.version("numpy")
    assert here.packages["torch"] == importlib.metadata.version("torch")
    assert here.python == platform.python_version()
    assert 1 <= here.cpus <= here.cpus_online
    assert here.os.startswith(platform.system())
    assert Environment.from_json(here.to_json()) == here
    assert describe() is here  # read once


def broken(*_, **__):
    raise RuntimeError("broken on purpose")


BREAKAGES = {
    "no /proc": [(reader, "_PROC", reader.Path("/nowhere"))],
    "pynvml": [(pynvml, "nvmlInit", broken)],
    "metadata": [(importlib.metadata, "version", broken), (importlib.metadata, "metadata", broken)],
    "metadata without versions": [(importlib.metadata, "version", lambda name: None)],
    "no project": [(importlib.metadata, "metadata", lambda name: (_ for _ in ()).throw(importlib.metadata.PackageNotFoundError(name)))],
    "finding torch": [(importlib.util, "find_spec", broken)],
    "programs": [(subprocess, "run", broken)],
    "psutil": [(reader.psutil, "cpu_count", broken)],
    "memory": [(reader, "usable_memory", broken)],
    "cpus": [(reader, "usable_cpus", broken)],
    "an unknown system": [(platform, "system", lambda: "Plan9")],
}
BREAKAGES["everything"] = [one for parts in BREAKAGES.values() for one in parts]


@pytest.mark.parametrize("which", BREAKAGES)
def test_check_never_raises(monkeypatch, which):
    environment.declared.declared.cache_clear()
    for owner, name, value in BREAKAGES[which]:
        monkeypatch.setattr(owner, name, value)
    page = environment.check()
    environment.declared.declared.cache_clear()
    for title in ("This machine", "Does it fit together?", "Route for this hardware"):
        assert title in page
    assert "could not be applied" not in page
    assert describe().cpus >= 1
    assert "None" not in describe().packages.values()


QUICK = """
import json, sys, time
wall = time.perf_counter()
from accel_helpers import environment
page = environment.check()
took = min(time.perf_counter() - wall, time.process_time())
print(json.dumps({"modules": list(sys.modules), "took": took, "page": page}))
"""
HEAVY = {"torch", "transformers", "onnx", "onnxruntime", "openvino", "tensorrt_rtx", "numpy", "plotly", "scipy"}


def test_a_check_imports_no_framework_and_takes_under_a_second():
    answer = json.loads(subprocess.run([sys.executable, "-c", QUICK], capture_output=True, text=True, check=True).stdout)
    assert not HEAVY & set(answer["modules"])
    assert answer["took"] < 1.0
    assert platform.python_version() in answer["page"]

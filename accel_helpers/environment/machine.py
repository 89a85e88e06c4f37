"""What this machine has, read without importing any framework. Whatever is missing or broken is an answer, never an exception."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import psutil

from accel_helpers.device import usable_cpus, usable_memory
from accel_helpers.records import Environment, Gpu

T = TypeVar("T")

ISA = (
    *("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("neon", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"),
)
"""The instruction sets that decide inference speed, as Linux spells them; 64-bit ARM's "asimd" is called "neon" here."""

PACKAGES = (
    *("torch", "torchao", "transformers", "numpy", "onnx", "onnxscript", "safetensors"),
    *("onnxruntime", "onnxruntime-gpu", "openvino", "nncf", "onnxsim", "onnxslim"),
    *("tensorrt", "tensorrt-cu12", "tensorrt-cu13", "tensorrt-rtx", "pycuda", "nvidia-ml-py"),
    *("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    *("vllm", "openvino-genai", "xllamacpp", "fastapi", "uvicorn", "ray", "mlflow", "optimum"),
)
"""The distributions whose versions a figure depends on."""

_PROC = Path("/proc")
_BOARD = Path("/proc/device-tree/model")
_ARM_PARTS = {  # Main ID Register: implementer 0x41 is Arm Limited, the part numbers are in each core's reference manual
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0b"): "Arm Cortex-A76",
    ("0x41", "0xd0c"): "Arm Neoverse N1",
    ("0x41", "0xd40"): "Arm Neoverse V1",
    ("0x41", "0xd42"): "Arm Cortex-A78AE",
    ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2",
}
_MAC_FLAGS = {
    **{"hw.optional.avx2_0": "avx2", "hw.optional.avx512f": "avx512f", "hw.optional.avx512vnni": "avx512_vnni"},
    **{"hw.optional.neon": "neon", "hw.optional.AdvSIMD": "neon", "hw.optional.arm.FEAT_FP16": "asimdhp"},
    **{"hw.optional.arm.FEAT_DotProd": "asimddp", "hw.optional.arm.FEAT_I8MM": "i8mm"},
    **{"hw.optional.arm.FEAT_BF16": "bf16", "hw.optional.arm.FEAT_SME": "sme"},
}
_WINDOWS_FLAGS = {40: "avx2", 41: "avx512f", 19: "neon", 43: "asimddp"}  # PF_… in winnt.h, for IsProcessorFeaturePresent


@cache
def describe() -> Environment:
    """This machine and its software, read once per process in well under half a second. Never raises."""
    name, flags = _answer(_processor, ("", frozenset[str]()))
    gpus, trouble = _answer(_gpus, (tuple[Gpu, ...](), ""))
    packages = {package: version for package in PACKAGES if (version := _version(package))}
    tools = {**_answer(_tools, dict[str, str]()), **({"nvidia driver": trouble} if trouble else {})}
    return Environment(
        cpu=name or platform.machine() or "unknown processor",
        isa=tuple(one for one in ISA if one in flags),
        cpus=_answer(usable_cpus, os.cpu_count() or 1),
        cpus_online=_answer(psutil.cpu_count, None) or os.cpu_count() or 1,
        memory_bytes=_answer(usable_memory, 0),
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        gpus=gpus,
        cuda=_answer(_torch_cuda, ""),
        cudnn=packages.get("nvidia-cudnn-cu13") or packages.get("nvidia-cudnn-cu12") or "",
        packages=packages,
        tools=tools,
    )


def _answer(read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except Exception:  # a broken driver, package or system file: what cannot be read is reported as absent
        return otherwise


def _processor() -> tuple[str, frozenset[str]]:
    """The processor's name and all of its flags."""
    readers = {"Linux": _linux, "Darwin": _mac, "Windows": _windows}
    return readers.get(platform.system(), lambda: (platform.processor(), frozenset[str]()))()


def _linux() -> tuple[str, frozenset[str]]:
    fields: dict[str, list[str]] = {}
    for line in (_PROC / "cpuinfo").read_text(errors="replace").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), []).append(value.strip())
    flags = [frozenset(value.split()) for value in fields.get("flags", []) + fields.get("Features", [])]
    shared = frozenset.intersection(*flags) if flags else frozenset()  # big and little cores: a thread may run on any
    name = next((fields[key][0] for key in ("model name", "cpu model", "cpu") if key in fields), "")
    if not name or "CPU implementer" in fields:
        part = (fields.get("CPU implementer", [""])[0], fields.get("CPU part", [""])[0])
        board = _answer(lambda: _BOARD.read_text(errors="replace").strip("\0 \n"), "")
        core = _ARM_PARTS.get(part, name or " ".join(["ARM", *part]) if any(part) else name)
        name = f"{board} ({core})" if board and core else board or core
    return name, shared | ({"neon"} if "asimd" in shared else set())


def _mac() -> tuple[str, frozenset[str]]:
    listed = subprocess.run(["sysctl", "machdep.cpu", "hw.optional"], capture_output=True, text=True, timeout=5, check=False).stdout
    values = dict(line.split(": ", 1) for line in listed.splitlines() if ": " in line)
    flags = {flag for key, flag in _MAC_FLAGS.items() if values.get(key) == "1"}
    return values.get("machdep.cpu.brand_string", ""), frozenset(flags)


def _windows() -> tuple[str, frozenset[str]]:
    windll: Any = getattr(ctypes, "windll")  # noqa: B009 - exists on Windows only
    flags = {flag for number, flag in _WINDOWS_FLAGS.items() if windll.kernel32.IsProcessorFeaturePresent(number)}
    return os.environ.get("PROCESSOR_IDENTIFIER", ""), frozenset(flags)


def _gpus() -> tuple[tuple[Gpu, ...], str]:
    """The NVIDIA GPUs, and what is wrong where a driver is there but does not answer."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return (), ""  # hidden from every framework
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        return (), "" if error.value in absent else str(error)
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(_gpu(pynvml, handle, driver) for handle in handles), ""
    except pynvml.NVMLError as error:
        return (), str(error)
    finally:
        pynvml.nvmlShutdown()


def _gpu(pynvml: Any, handle: Any, driver: str) -> Gpu:
    try:
        memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:  # boards whose GPU shares the processor's memory do not tell
        memory = usable_memory()
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(_text(pynvml.nvmlDeviceGetName(handle)), memory, f"{major}.{minor}", driver)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _version(name: str) -> str:
    return _answer(lambda: str(importlib.metadata.version(name) or ""), "")  # metadata without a version gives None


def _torch_cuda() -> str:
    """The CUDA version that torch was built for, out of torch/version.py; empty for a CPU build or without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    text = (Path(spec.origin).parent / "version.py").read_text()
    found = re.search(r"^cuda\b[^=]*=\s*'([^']+)'", text, re.MULTILINE)
    return found.group(1) if found else ""


def _tools() -> dict[str, str]:
    """What torch.compile and pycuda need beside Python: each tool's version line."""
    compiler = os.environ.get("CXX") or {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")  # as torch.compile looks for it
    found = {"c++": _first_line(shlex.split(compiler)[0]), "nvcc": _first_line("nvcc")}
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if header.is_file():
        found["python headers"] = platform.python_version()
    return {name: version for name, version in found.items() if version}


def _first_line(program: str) -> str:
    """The line of ``program --version`` that holds a version; "found" where it tells none; empty where there is no such program."""
    if shutil.which(program) is None:
        return ""
    try:
        run = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "found"
    lines = [line.strip() for line in (run.stdout + run.stderr).splitlines() if re.search(r"\d+\.\d+", line)]
    return lines[0] if lines else "found"

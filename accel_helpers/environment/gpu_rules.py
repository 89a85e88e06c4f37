"""Rules about GPUs, their driver, and the packages that need both."""

from __future__ import annotations

from collections.abc import Iterator

from accel_helpers.environment.declared import Declared
from accel_helpers.environment.finding import Finding, Rule, capability, is_linux_x86, system
from accel_helpers.records import Environment

MINIMUM_DRIVER = {11: 450, 12: 525, 13: 580}
"""CUDA major version -> oldest driver branch. NVIDIA, CUDA Compatibility, "Minor Version Compatibility", table 1."""
MINIMUM_CAPABILITY = {11: (3, 5), 12: (5, 0), 13: (7, 5)}
"""CUDA major version -> oldest GPU it compiles for. NVIDIA, CUDA Toolkit release notes, "Deprecated and dropped features"."""
TENSORRT_CAPABILITY = (7, 5)
"""Oldest GPU of TensorRT 11. NVIDIA, TensorRT support matrix."""
RTX_CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""What TensorRT-RTX 1.7 compiles for: the members of its ``ComputeCapability``."""
ORT_CUDA = 13
"""CUDA major version that onnxruntime-gpu 1.31 loads, with cuDNN 9: its extras "cuda" and "cudnn"."""
ORT_TENSORRT = 10
"""TensorRT major version that its TensorRT provider is linked against: libnvinfer.so.10."""


def _gpu(environment: Environment, _: Declared) -> Iterator[Finding]:
    for gpu in environment.gpus:
        size = f"{gpu.memory_bytes / 2**30:.0f} GiB"
        yield Finding("ok", f"{gpu.name}: compute capability {gpu.compute_capability}, {size}, driver {gpu.driver}.")
    if trouble := environment.tools.get("nvidia driver"):
        why = "Until it answers, everything runs on the CPU. After an update, its library and its kernel module differ until a restart."
        yield Finding("problem", f"An NVIDIA driver is installed and does not answer: {trouble}.", why, "nvidia-smi")
    elif not environment.gpus:
        builds = "TensorRT-RTX still builds engines here; running them takes a GPU. " if "tensorrt-rtx" in environment.packages else ""
        why = (
            f"That is a normal machine for this workbook: everything runs on the CPU, and lessons say what they leave out. {builds}"
            "The extra gpu is not for this machine: pycuda builds only with a full CUDA toolkit (it needs curand.h), and pycuda.driver "
            "does not import without the driver's libcuda."
        )
        yield Finding("info", "No NVIDIA GPU can be used here.", why)


def _driver(environment: Environment, _: Declared) -> Iterator[Finding]:
    if not environment.gpus or not environment.cuda:
        return
    major, driver = int(environment.cuda.split(".")[0]), environment.gpus[0].driver
    needed = MINIMUM_DRIVER.get(major, max(MINIMUM_DRIVER.values()))
    if int(driver.split(".")[0]) >= needed:
        yield Finding("ok", f"Driver {driver} fits PyTorch's CUDA {environment.cuda}.")
        return
    why = f"CUDA {major} needs driver {needed} or newer; or install a PyTorch that is built for an older CUDA."
    command = f"sudo apt-get install nvidia-driver-{needed}" if is_linux_x86(environment) else ""
    yield Finding("problem", f"Driver {driver} is too old for PyTorch's CUDA {environment.cuda}.", why, command)


def _torch_build(environment: Environment, declared: Declared) -> Iterator[Finding]:
    torch = environment.packages.get("torch")
    if not torch:
        return  # the bounds say so
    if environment.gpus and not environment.cuda:
        linux = is_linux_x86(environment)
        why = "PyTorch cannot use the GPU. " + (
            "The wheel on PyPI is built for CUDA."
            if linux
            else "Its wheel on PyPI is for the CPU here: take the command for this system from PyTorch's page Get Started."
        )
        command = f"pip install --force-reinstall {declared.pin('torch')}" if linux else ""
        yield Finding("warning", f"There is a GPU, but torch {torch} is built for the CPU.", why, command)
    if not environment.gpus and environment.cuda:
        yield Finding("info", f"torch {torch} is built for CUDA {environment.cuda}; without a GPU it runs on the CPU.")
    if environment.cuda:
        least = MINIMUM_CAPABILITY.get(int(environment.cuda.split(".")[0]), (7, 5))
        for gpu in environment.gpus:
            if capability(gpu.compute_capability) < least:
                why = f"CUDA {environment.cuda} compiles for {least[0]}.{least[1]} and newer. Install a PyTorch built for an older CUDA."
                yield Finding("problem", f"PyTorch holds no code for {gpu.name} (compute capability {gpu.compute_capability}).", why)


def _onnxruntime(environment: Environment, declared: Declared) -> Iterator[Finding]:
    cpu, gpu = "onnxruntime" in environment.packages, "onnxruntime-gpu" in environment.packages
    with_cuda = declared.pin("onnxruntime-gpu", "[cuda,cudnn]")
    wanted = with_cuda if environment.gpus else declared.pin("onnxruntime")
    if cpu and gpu:
        why = "Both bring the module onnxruntime: whichever was installed last overwrote files of the other."
        command = f"pip uninstall -y onnxruntime onnxruntime-gpu && pip install {wanted}"
        yield Finding("problem", "onnxruntime and onnxruntime-gpu are both installed.", why, command)
    elif not cpu and not gpu:
        yield Finding("warning", "ONNX Runtime is not installed.", "One of the main engines is missing.", f"pip install {wanted}")
    elif gpu and not environment.gpus:
        why = "It names the CUDA provider as available and then runs on the CPU without a word."
        command = f"pip uninstall -y onnxruntime-gpu && pip install {wanted}"
        yield Finding("warning", "onnxruntime-gpu is installed on a machine without a GPU.", why, command)
    elif cpu and environment.gpus:
        command = f"pip uninstall -y onnxruntime && pip install {wanted}"
        yield Finding("info", "ONNX Runtime is the CPU build; its CUDA provider needs onnxruntime-gpu.", "", command)
    elif gpu and not _cuda_libraries(environment):
        why = (
            f"It loads CUDA {ORT_CUDA} and cuDNN 9; without them its CUDA provider falls back to the CPU. They come with a PyTorch "
            f"for CUDA {ORT_CUDA}, or as packages. (A system-wide CUDA {ORT_CUDA} with cuDNN 9 would do; it cannot be seen from here.)"
        )
        yield Finding("warning", "onnxruntime-gpu has no CUDA libraries.", why, f"pip install {with_cuda}")


def _cuda_libraries(environment: Environment) -> bool:
    packages = environment.packages
    runtime = packages.get("nvidia-cuda-runtime", "").startswith(f"{ORT_CUDA}.")
    return environment.cuda.startswith(f"{ORT_CUDA}.") or (runtime and f"nvidia-cudnn-cu{ORT_CUDA}" in packages)


def _tensorrt(environment: Environment, declared: Declared) -> Iterator[Finding]:
    if not environment.gpus:
        return
    torch_cuda = environment.cuda.split(".")[0]
    built = {major for major in ("12", "13") if f"tensorrt-cu{major}" in environment.packages}
    if built and torch_cuda and torch_cuda not in built:
        wrong, right = " and ".join(sorted(built)), f"tensorrt-cu{torch_cuda}"
        why = "Two CUDA runtimes in one process: twice the memory, and tensors that one made fail in the other."
        command = f"pip uninstall -y tensorrt {' '.join(f'tensorrt-cu{one}' for one in sorted(built))} && pip install {right}"
        yield Finding("problem", f"TensorRT is built for CUDA {wrong}, PyTorch for CUDA {torch_cuda}.", why, command)
    if "tensorrt" not in environment.packages and not built:
        fits = any(capability(gpu.compute_capability) >= TENSORRT_CAPABILITY for gpu in environment.gpus)
        why = "Its wheel fetches the libraries from NVIDIA's own package index, so that must be reachable."
        if fits and system(environment) == "Linux":
            yield Finding("info", "TensorRT is not installed.", why, f"pip install {declared.pin('tensorrt')}")
    found = next((environment.packages[name] for name in ("tensorrt", "tensorrt-cu13") if name in environment.packages), "")
    if found and not found.startswith(f"{ORT_TENSORRT}.") and "onnxruntime-gpu" in environment.packages:
        why = "Engine onnx_runtime's mode tensorrt needs that one; engine tensorrt runs the one that is here."
        yield Finding("info", f"ONNX Runtime's TensorRT provider loads TensorRT {ORT_TENSORRT}; {found} is installed.", why)
    for gpu in environment.gpus:
        if capability(gpu.compute_capability) < TENSORRT_CAPABILITY:
            yield Finding("info", f"TensorRT 11 has no code for {gpu.name}: it needs compute capability 7.5 or newer.")


def _tensorrt_rtx(environment: Environment, _: Declared) -> Iterator[Finding]:
    for gpu in environment.gpus:
        if gpu.compute_capability not in RTX_CAPABILITIES:
            sm = gpu.compute_capability.replace(".", "")
            why = f"It compiles for {', '.join('SM' + one.replace('.', '') for one in RTX_CAPABILITIES)}. Full TensorRT is for this GPU."
            yield Finding("info", f"TensorRT-RTX has no SM{sm}: it builds engines here, but {gpu.name} cannot run them.", why)


def _pycuda(environment: Environment, declared: Declared) -> Iterator[Finding]:
    installed = "pycuda" in environment.packages
    if installed and not environment.gpus:
        why = "`import pycuda.driver` fails without the driver's libcuda."
        yield Finding("warning", "pycuda is installed on a machine without a GPU.", why, "pip uninstall -y pycuda")
    if not installed and environment.gpus:
        toolkit = environment.tools.get("nvcc")
        why = "It builds from source and needs a full CUDA toolkit (curand.h). " + (
            f"nvcc is here: {toolkit}." if toolkit else "There is no nvcc on the path: install the toolkit first."
        )
        yield Finding(
            "info", "pycuda is not installed: TensorRT engines are built here, and not run.", why, f"pip install {declared.pin('pycuda')}"
        )


GPU_RULES: tuple[Rule, ...] = (_gpu, _driver, _torch_build, _onnxruntime, _tensorrt, _tensorrt_rtx, _pycuda)

"""The recommended route: which engines and precisions to try on this hardware, in which order, and why. A table, read from the top.

The order follows the evidence where there is some. A figure names the processor it was measured on and is a speed-up over PyTorch eager
FP32: batch 1, best CPU time of one thread, text encoder of 22.7 M parameters at sequence 128 ("text") and EfficientNet-Lite0 ("vision"),
with PyTorch 2.13, OpenVINO 2026.4 and ONNX Runtime 1.32. Where nothing was measured, the reason is what the instructions can do, and the
step says no figure. A route says what to try, not what comes out: measure it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from accel_helpers.config import QUANTIZED
from accel_helpers.environment.finding import capability
from accel_helpers.environment.gpu_rules import RTX_CAPABILITIES
from accel_helpers.records import Environment, Gpu, Record

_EDGE_NAMES = ("orin", "xavier", "tegra", "jetson", "thor")
_EDGE_CAPABILITIES = ("5.3", "6.2", "7.2", "8.7")
"""Compute capabilities that only Jetson boards have. NVIDIA, "CUDA GPU compute capability"."""


@dataclass(frozen=True)
class Step(Record):
    """One thing to try. ``notebook`` treats it; empty where none does yet."""

    engine: str
    precision: str
    device: str
    why: str
    notebook: str = ""


@dataclass(frozen=True)
class _Route:
    fits: Callable[[Environment, Gpu | None], bool]
    device: str
    steps: tuple[tuple[str, str, str], ...]  # engine, precision, why


def route(environment: Environment) -> tuple[Step, ...]:
    """What to try on that machine, the most promising first."""
    gpu = max(environment.gpus, key=lambda one: capability(one.compute_capability), default=None)
    for entry in _ROUTES:
        if entry.fits(environment, gpu):
            return tuple(Step(engine, precision, entry.device, why, _notebook(engine, precision)) for engine, precision, why in entry.steps)
    raise AssertionError("the last route fits every machine")


def _notebook(engine: str, precision: str) -> str:
    if precision in QUANTIZED:
        return "02_quantization"
    return "03_tensorrt" if engine == "tensorrt" else "01_baseline"


def _isa(*needed: str) -> Callable[[Environment, Gpu | None], bool]:
    return lambda environment, gpu: set(needed) <= set(environment.isa)


def _generation(low: tuple[int, int], rtx: bool | None = None) -> Callable[[Environment, Gpu | None], bool]:
    """GPUs of at least that capability; ``rtx`` asks whether TensorRT-RTX knows them."""
    return lambda _, gpu: (
        gpu is not None
        and capability(gpu.compute_capability) >= low
        and (rtx is None or rtx == (gpu.compute_capability in RTX_CAPABILITIES))
    )


def _edge(environment: Environment, gpu: Gpu | None) -> bool:
    words = f"{environment.cpu} {gpu.name if gpu else ''}".lower()
    return gpu is not None and (gpu.compute_capability in _EDGE_CAPABILITIES or any(name in words for name in _EDGE_NAMES))


_XEON, _EPYC = "Against eager FP32 on a Xeon with AMX", "Against eager FP32 on a Zen 4 EPYC"
_COMPILED_GPU = "One line, no export; it fuses kernels and replays them as a CUDA graph, so a small model waits no longer for launches."
_TF32 = "One switch and no other change: FP32's range at a 10-bit mantissa, on the tensor cores."
_CUDA_PROVIDER = "The same ONNX file through the CUDA provider: little to install where PyTorch is not wanted in production."
_PORTABLE = "No special instructions needed: it gains by a fused graph alone, and its file runs on any machine."
_ROUTES = (
    _Route(
        _edge,
        "cuda",
        (
            ("tensorrt", "fp16", "Memory is shared and small: FP16 halves it, and an engine built on the board runs without a framework."),
            ("tensorrt", "int8", "Halves the memory again; calibrate on real inputs and watch the task metric."),
            ("onnx_runtime", "fp16", "The same ONNX file without a build step, where building on the board takes too long."),
        ),
    ),
    _Route(
        _generation((8, 0), rtx=False),  # Hopper and the Blackwell of datacentres
        "cuda",
        (
            ("compiled", "bf16", _COMPILED_GPU),
            ("tensorrt", "bf16", "Fuses further and picks kernels by timing them. Full TensorRT: TensorRT-RTX is not made for this GPU."),
            ("pytorch", "tf32", _TF32),
            ("onnx_runtime", "fp16", _CUDA_PROVIDER),
        ),
    ),
    _Route(
        _generation((8, 0), rtx=True),
        "cuda",
        (
            ("compiled", "bf16", _COMPILED_GPU),
            ("tensorrt", "fp16", "Fuses further and picks kernels for this GPU; TensorRT-RTX installs from PyPI and builds in seconds."),
            ("pytorch", "tf32", _TF32),
            ("onnx_runtime", "fp16", _CUDA_PROVIDER),
        ),
    ),
    _Route(
        _generation((7, 5)),
        "cuda",
        (
            ("compiled", "fp16", _COMPILED_GPU + " FP16, because Turing's tensor cores know neither BF16 nor TF32."),
            ("tensorrt", "fp16", "Fuses further; keep the layers whose range FP16 cannot hold in FP32."),
            ("tensorrt", "int8", "Turing multiplies INT8 on its tensor cores, twice FP16's rate; calibrate and watch the task metric."),
            ("onnx_runtime", "fp16", "The same ONNX file through the CUDA provider, without a build step."),
        ),
    ),
    _Route(
        _generation((7, 0)),
        "cuda",
        (
            ("compiled", "fp16", _COMPILED_GPU + " FP16 is the only type on Volta's tensor cores; PyTorch for CUDA 12 still knows them."),
            ("onnx_runtime", "fp16", "Its CUDA 12 builds still know Volta; TensorRT 11 does not."),
        ),
    ),
    _Route(
        _generation((0, 0)),
        "cuda",
        (
            ("pytorch", "fp32", "There are no tensor cores: half types save memory, not time."),
            ("onnx_runtime", "fp32", "A fused graph in FP32 is what this GPU can gain."),
        ),
    ),
    _Route(
        _isa("amx_bf16"),
        "cpu",
        (
            ("openvino", "bf16", f"AMX multiplies BF16 in tiles, and accuracy is kept. {_XEON}: 3.8 times (text), 6.8 times (vision)."),
            ("compiled", "bf16", f"The same tiles without leaving PyTorch. {_XEON}: 3.2 and 2.8 times."),
            ("openvino", "int8", f"AMX multiplies INT8 too. {_XEON}: 3.6 and 5.7 times, no more than BF16: it must earn its loss."),
            ("onnx_runtime", "fp32", f"The portable file; it uses no AMX in FP32. {_XEON}: 1.1 and 3.2 times."),
        ),
    ),
    _Route(
        _isa("avx512_bf16"),
        "cpu",
        (
            ("openvino", "bf16", f"AVX512_BF16 multiplies two numbers where FP32 multiplies one. {_EPYC}: 2.5 times (text)."),
            ("onnx_runtime", "int8", f"VNNI multiplies four. {_EPYC}: 2.6 times (text), dynamic, per channel; watch the task metric."),
            ("compiled", "bf16", f"The same instructions without leaving PyTorch. {_EPYC}: 1.8 times (text)."),
            ("openvino", "fp32", f"Where no digit may change. {_EPYC}: 1.4 times (text)."),
        ),
    ),
    *(
        _Route(
            _isa(flag),
            "cpu",
            (
                (
                    "onnx_runtime",
                    "int8",
                    "VNNI multiplies four INT8 numbers where FP32 multiplies one; calibrate and watch the task metric.",
                ),
                ("openvino", "int8", "The same instructions, with a quantizer that takes back layers that hurt the metric."),
                ("openvino", "fp32", "Where no digit may change: a fused graph. BF16 has no instructions here."),
                ("compiled", "fp32", "Fused kernels without an export."),
            ),
        )
        for flag in ("avx512_vnni", "avx_vnni")
    ),
    _Route(
        _isa("avx2"),
        "cpu",
        (
            ("openvino", "fp32", "No instructions for BF16 or INT8: the graph is what can be optimised, and FP32 keeps every digit."),
            ("onnx_runtime", "fp32", _PORTABLE),
            ("compiled", "fp32", "Fused kernels without an export."),
            (
                "onnx_runtime",
                "int8",
                "A quarter of the memory; speed gains little without VNNI. Seven-bit weights (reduce_range) avoid saturation.",
            ),
        ),
    ),
    _Route(
        _isa("neon", "bf16"),
        "cpu",
        (
            ("compiled", "bf16", "BFMMLA multiplies BF16 in small matrices, in PyTorch by oneDNN and the Arm Compute Library."),
            ("onnx_runtime", "int8", "SMMLA or dot products multiply INT8; calibrate and watch the task metric."),
            ("onnx_runtime", "fp32", _PORTABLE),
        ),
    ),
    _Route(
        _isa("neon", "asimddp"),
        "cpu",
        (
            (
                "onnx_runtime",
                "int8",
                "Dot products multiply four INT8 numbers where FP32 multiplies one; calibrate and watch the task metric.",
            ),
            ("onnx_runtime", "fp32", _PORTABLE),
            ("openvino", "fp32", "Another fused graph; which one wins depends on the model."),
        ),
    ),
    _Route(
        lambda environment, gpu: True,
        "cpu",
        (
            ("onnx_runtime", "fp32", _PORTABLE),
            ("openvino", "fp32", "Another fused graph; which one wins depends on the model."),
            ("compiled", "fp32", "Fused kernels without an export."),
        ),
    ),
)

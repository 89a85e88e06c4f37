"""Which types and devices this machine has, whatever the engine."""

from __future__ import annotations

from accel_helpers.config import QUANTIZED
from accel_helpers.engine import YES, Engine, Support
from accel_helpers.records import Environment, Plan

_CPU_NEEDS = {
    "bf16": ("avx512_bf16", "amx_bf16", "bf16"),
    "fp16": ("avx512_fp16", "amx_fp16", "asimdhp"),
}
"""Instruction sets of which a CPU needs one for a type; without, a library emulates it in FP32 or quietly runs FP32."""
_GPU_SINCE = {"fp16": (5, 3), "bf16": (8, 0), "tf32": (8, 0), "int8": (6, 1), "int4": (7, 5), "fp8": (8, 9)}
"""Compute capability that brought each type. NVIDIA, CUDA C++ Programming Guide, "Arithmetic Instructions" and "Compute Capabilities"."""


def cpu(plan: Plan, environment: Environment) -> Support:
    """Whether the processor computes in the plan's precision."""
    if plan.precision == "tf32":
        return Support(False, "TF32 is a mode of NVIDIA's tensor cores, which a CPU has not")
    if plan.precision == "fp8":
        return Support(False, "FP8 products need an NVIDIA GPU of compute capability 8.9; CPUs only store it")
    for precision in [plan.precision, *([plan.quantization.rest] if plan.quantization else [])]:
        needs = _CPU_NEEDS.get(precision, ())
        if needs and not set(needs) & set(environment.isa):
            return Support(False, f"{precision.upper()} needs a processor with {' or '.join(needs)}; {environment.cpu} has none of them")
    return YES


def known(engine: Engine, plan: Plan) -> Support:
    """Whether the engine has the plan's mode, and reaches its precision by its scheme; every engine asks this first."""
    if plan.mode != "default" and plan.mode not in engine.modes:
        modes = ", ".join(["default", *engine.modes])
        return Support(False, f"{engine.name} has no mode {plan.mode}; it has {modes}")
    if plan.precision not in QUANTIZED:
        return YES
    known, asked = engine.schemes.get(plan.precision, ()), plan.precision.upper()
    if not known:
        return Support(False, f"{engine.name} quantizes nothing to {asked}; onnx_runtime, openvino and compiled do")
    if plan.quantization is None:
        return Support(False, f"an {asked} plan must say how it is quantized (Plan.quantization); RunConfig does")
    if plan.quantization.scheme not in known:
        return Support(False, f"{engine.name} reaches {asked} by scheme {' or '.join(known)}, not by {plan.quantization.scheme}")
    return YES


def overflows(environment: Environment) -> bool:
    """Whether products of unsigned and signed bytes overflow here: x86 without VNNI adds two of them in sixteen bits (VPMADDUBSW).

    Intel, "64 and IA-32 Architectures Software Developer's Manual", volume 2: PMADDUBSW saturates; VPDPBUSD, of VNNI, does not.
    """
    isa = set(environment.isa)
    return "avx2" in isa and not isa & {"avx512_vnni", "avx_vnni", "amx_int8"}


def gpu(plan: Plan, environment: Environment) -> Support:
    """Whether there is a CUDA GPU that computes in the plan's precision."""
    if not environment.gpus:
        return Support(False, "no CUDA GPU was found (nvidia-smi lists those that the driver sees)")
    first = environment.gpus[0]
    since = _GPU_SINCE.get(plan.precision, (0, 0))
    if tuple(int(part) for part in first.compute_capability.split(".")) < since:
        asked = plan.precision.upper()
        return Support(False, f"{asked} needs compute capability {since[0]}.{since[1]}; {first.name} has {first.compute_capability}")
    return YES

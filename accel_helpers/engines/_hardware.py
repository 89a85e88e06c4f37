"""Which types and devices this machine has, whatever the engine."""

from __future__ import annotations

from accel_helpers.engine import YES, Support
from accel_helpers.records import Environment, Plan

_CPU_NEEDS = {
    "bf16": ("avx512_bf16", "amx_bf16", "bf16"),
    "fp16": ("avx512_fp16", "amx_fp16", "asimdhp"),
}
"""Instruction sets of which a CPU needs one for a type; without, a library emulates it in FP32 or quietly runs FP32."""
_GPU_SINCE = {"fp16": (5, 3), "bf16": (8, 0), "tf32": (8, 0)}
"""Compute capability that brought each type. NVIDIA, CUDA C++ Programming Guide, "Arithmetic Instructions" and "Compute Capabilities"."""


def cpu(plan: Plan, environment: Environment) -> Support:
    """Whether the processor computes in the plan's precision."""
    if plan.precision == "tf32":
        return Support(False, "TF32 is a mode of NVIDIA's tensor cores, which a CPU has not")
    needs = _CPU_NEEDS.get(plan.precision, ())
    if needs and not set(needs) & set(environment.isa):
        return Support(False, f"{plan.precision.upper()} needs a processor with {' or '.join(needs)}; {environment.cpu} has none of them")
    return YES


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

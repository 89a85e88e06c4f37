"""What this machine can reach, measured: memory bandwidth, matrix products per type, the cost of one tiny operator.

A roofline's roof (Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures",
Communications of the ACM 52(4), 2009): a program that does ``flops`` operations on ``bytes`` that come from memory takes at least
max(flops / peak rate, bytes / bandwidth).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from accel_helpers.device import Conditions, measuring, quiet, usable_cpus
from accel_helpers.environment.finding import capability
from accel_helpers.environment.machine import describe
from accel_helpers.errors import UnsupportedError
from accel_helpers.intervals import median
from accel_helpers.records import Check, Environment, Record

Kind = Literal["copy", "read", "gemm", "dispatch"]

_CPU_NEEDS = {
    "fp32": ((),),
    "bf16": (("avx512_bf16",), ("amx_bf16",), ("bf16",)),
    "int8": (("avx512_vnni",), ("avx_vnni",), ("amx_int8",), ("asimddp",)),
}
"""Instruction sets of which one is needed for a type to be more than emulated."""
_GPU_SINCE = {"fp32": (0, 0), "fp16": (7, 0), "int8": (7, 5), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
"""Compute capability from which tensor cores (for FP32: plain cores) know a type. NVIDIA, CUDA C++ Programming Guide."""


@dataclass(frozen=True)
class Limit(Record):
    """One thing measured again and again; ``samples`` are seconds of one call, empty where ``reason`` says why there is no figure."""

    what: Kind
    precision: str  # of a matrix product; otherwise empty
    device: str
    threads: int
    work: float  # of one call: bytes moved (copy: read and written), operations (2 n^3), or 1 operator
    size: int  # bytes of a buffer, n of an n x n product
    samples: tuple[float, ...] = ()
    reason: str = ""

    @property
    def best(self) -> float:
        """Work per second of the fastest call: what the machine can do when nobody disturbs it. 0 without samples."""
        return self.work / min(self.samples) if self.samples else 0.0

    @property
    def median(self) -> float:
        """Work per second of the median call: what it did while its neighbours were there. 0 without samples."""
        return self.work / median(self.samples) if self.samples else 0.0


@dataclass(frozen=True)
class Ceilings(Record):
    """The measured limits of one machine at one time."""

    environment: Environment
    limits: tuple[Limit, ...]
    quiet: Check

    def limit(self, what: Kind, precision: str = "", device: str = "cpu", threads: int = 0) -> Limit:
        """The fastest limit of that kind over all sizes and over thread counts up to ``threads``; 0 takes all that were measured.

        Where ``threads`` lies between two measured counts, the larger one counts, so that the limit stays a limit.

        Raises:
            UnsupportedError: there is no figure; the message says why.
        """
        found = [one for one in self.limits if (one.what, one.precision, one.device) == (what, precision, device)]
        counts = {one.threads for one in found}
        most = min((count for count in counts if count >= threads > 0), default=max(counts, default=0))
        measured = [one for one in found if one.samples and one.threads <= most]
        if not measured:
            reason = next((one.reason for one in found if one.reason), "it was not measured")
            raise UnsupportedError(
                f"There is no ceiling for {precision or what} on {device}: {reason}.", "Choose a type that this machine has."
            )
        return max(measured, key=lambda one: one.best)

    def rate(self, what: Kind, precision: str = "", device: str = "cpu", threads: int = 0) -> float:
        """:meth:`limit` per second: bytes, operations or operators. For "dispatch", ``1 / rate`` is the seconds of one tiny operator."""
        return self.limit(what, precision, device, threads).best

    def bandwidth(self, device: str = "cpu", threads: int = 0) -> float:
        """Bytes per second that memory gives at most: the faster of copying and reading."""
        return max(self.rate("copy", "", device, threads), self.rate("read", "", device, threads))


def ceilings(seconds: float = 6.0) -> Ceilings:
    """Measure them in a process of its own, which takes PyTorch and its buffers with it when it ends.

    Args:
        seconds: to spend on the CPU, and again on a GPU; starting PyTorch comes on top.

    Returns:
        Ceilings: matrix products in fp32, bf16 and int8 on one thread and on all usable CPUs, on a GPU also fp16, tf32 and fp8. What the
        hardware or PyTorch lacks has a reason in place of samples, and so has everything where the process died.

    Raises:
        BusyError: another measurement is running and does not end.
    """
    here = describe()
    wanted, refused = _wanted(here)
    task = {"seconds": seconds, "bytes": _buffer(here), "limits": [one.to_dict() for one in wanted]}
    with measuring("the machine's ceilings"):
        before = Conditions.now()
        measured = _in_own_process(task, wanted, timeout=120 + 10 * seconds)
        noise = quiet(before, Conditions.now())
    return Ceilings(here, (*measured, *refused), noise)


def _buffer(here: Environment) -> int:
    """Bytes of each of the two copy buffers: more than any cache holds, and a small part of the memory."""
    return max(2**20, min(256 * 2**20, here.memory_bytes // 16))


def _wanted(here: Environment) -> tuple[list[Limit], list[Limit]]:
    """What to measure, and what this hardware has no instructions for."""
    wanted, refused = [], []
    for threads in sorted({1, usable_cpus()}):
        wanted += [Limit("copy", "", "cpu", threads, 0, 0), Limit("read", "", "cpu", threads, 0, 0)]
        for precision, needs in _CPU_NEEDS.items():
            if any(set(one) <= set(here.isa) for one in needs):
                wanted.append(Limit("gemm", precision, "cpu", threads, 0, 0))
            else:
                reason = f"this processor has no {precision.upper()} instructions and would emulate them"
                refused.append(Limit("gemm", precision, "cpu", threads, 0, 0, reason=reason))
    wanted.append(Limit("dispatch", "", "cpu", 1, 0, 0))
    for gpu in here.gpus[:1]:
        wanted += [Limit("copy", "", "cuda", 1, 0, 0), Limit("read", "", "cuda", 1, 0, 0), Limit("dispatch", "", "cuda", 1, 0, 0)]
        for precision, since in _GPU_SINCE.items():
            if capability(gpu.compute_capability) >= since:
                wanted.append(Limit("gemm", precision, "cuda", 1, 0, 0))
            else:
                reason = f"{gpu.name} (compute capability {gpu.compute_capability}) has no {precision.upper()}"
                refused.append(Limit("gemm", precision, "cuda", 1, 0, 0, reason=reason))
    return wanted, refused


def _in_own_process(task: dict[str, object], wanted: Iterable[Limit], timeout: float) -> list[Limit]:
    command = [sys.executable, "-m", "accel_helpers.environment.probe"]
    try:
        run = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, timeout=timeout, check=False)
        if run.returncode == 0:
            return [Limit.from_dict(one) for one in json.loads(run.stdout.splitlines()[-1])]
        last = (run.stderr.strip().splitlines() or [f"it ended with code {run.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        last = f"it did not end within {timeout:.0f} s"
    return [replace(one, reason=f"the process that measures failed: {last}") for one in wanted]


def bound(measured: Ceilings, flops: float, bytes_moved: float, precision: str, device: str = "cpu", threads: int = 0) -> float:
    """The least seconds in which this machine does ``flops`` operations of that type on ``bytes_moved`` bytes from memory.

    max(flops / peak rate, bytes / bandwidth): Williams, Waterman and Patterson 2009, see this module. Bytes that stay in a cache from call
    to call do not come from memory: a small model can beat the second part, never the first.

    Raises:
        UnsupportedError: there is no ceiling for that type.
    """
    rate = measured.rate("gemm", precision, device, threads)
    return max(flops / rate, bytes_moved / measured.bandwidth(device, threads))


def share(
    measured: Ceilings, flops: float, bytes_moved: float, precision: str, seconds: float, device: str = "cpu", threads: int = 0
) -> float:
    """Which part of the ceiling a call of ``seconds`` reaches: 1 is all of it; 1 / share bounds any further speed-up in that type.

    Raises:
        UnsupportedError: there is no ceiling for that type.
    """
    return bound(measured, flops, bytes_moved, precision, device, threads) / seconds

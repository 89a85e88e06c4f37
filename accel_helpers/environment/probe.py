"""The process that measures the ceilings: a task as JSON on standard input, the limits as JSON on the last line of standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from accel_helpers.environment.ceilings import Limit

SMALLEST, USUAL, LARGEST = 512, 1024, 8192
"""n of the n x n products: the first two on every machine (one fits into a core's cache, one does not), the last where even it is short."""
TOO_SHORT = 2e-3
"""Seconds; while a product takes less, one of twice the n is asked for as well, to fill many cores or a GPU."""
ROUNDS = 3
"""Samples of each at least, whatever the time allowed."""
OPERATORS = 1000
"""Tiny operators in a row, so that reading the clock costs nothing beside them."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Probe:
    """A limit, and what to call to get one more sample of it."""

    limit: Limit
    call: Callable[[], object]
    synchronise: Callable[[], object]
    calls: int = 1


def sample(probe: Probe, clock: Clock = time.perf_counter) -> float:
    """Seconds of one call."""
    probe.synchronise()
    begin = clock()
    for _ in range(probe.calls):
        probe.call()
    probe.synchronise()
    return (clock() - begin) / probe.calls


def measure(probes: list[Probe], seconds: float, clock: Clock = time.perf_counter) -> list[Limit]:
    """Sample all probes in turn until the time is over, so that a neighbour disturbs all of them alike."""
    samples: list[list[float]] = [[] for _ in probes]
    begin = clock()
    while probes and (len(samples[0]) < ROUNDS or clock() - begin < seconds):
        for index, probe in enumerate(probes):
            samples[index].append(sample(probe, clock))
    return [replace(probe.limit, samples=tuple(found)) for probe, found in zip(probes, samples, strict=True)]


def probes_of(limit: Limit, size: int) -> Iterator[Probe]:
    """What measures that limit, warmed up by a first call.

    Args:
        limit: what is asked for.
        size: bytes of a copy buffer.

    Raises:
        RuntimeError, AttributeError, NotImplementedError: this PyTorch cannot do it.
    """
    import torch

    wait = torch.cuda.synchronize if limit.device == "cuda" else lambda: None
    if limit.what == "dispatch":
        one = torch.zeros(1, device=limit.device)
        probes = iter([Probe(replace(limit, work=1, size=1), lambda: torch.add(one, one, out=one), wait, OPERATORS)])
    elif limit.what == "gemm":
        probes = _products(torch, limit, wait)
    else:
        source = torch.ones(size // 4, device=limit.device)
        if limit.what == "copy":
            target = torch.empty_like(source)
            probes = iter([Probe(replace(limit, work=2 * size, size=size), lambda: target.copy_(source), wait)])
        else:
            probes = iter([Probe(replace(limit, work=size, size=size), source.sum, wait)])
    for probe in probes:
        sample(probe)
        yield probe


def _products(torch: Any, limit: Limit, wait: Callable[[], object]) -> Iterator[Probe]:
    n, took = SMALLEST, 0.0
    while n <= USUAL or (took < TOO_SHORT and n <= LARGEST):
        probe = Probe(replace(limit, work=2 * n**3, size=n), _product(torch, limit, n), wait)
        yield probe  # whoever takes it warms it up
        took = sample(probe)
        n *= 2


def _product(torch: Any, limit: Limit, n: int) -> Callable[[], object]:
    """An n x n matrix product in that type. INT8 sums in INT32, the shorter floats in FP32 inside the library."""
    if limit.precision == "int8":
        whole = [torch.randint(-127, 128, (n, n), dtype=torch.int8, device=limit.device) for _ in range(2)]
        product: Callable[..., object] = torch._int_mm
        return lambda: product(*whole)
    if limit.precision == "fp8":
        one = torch.ones((), device=limit.device)
        first, second = (torch.randn(n, n, device=limit.device).to(torch.float8_e4m3fn) for _ in range(2))
        return lambda: torch._scaled_mm(first, second.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(limit.precision, torch.float32)
    left, right = (torch.randn(n, n, device=limit.device).to(dtype) for _ in range(2))
    out = torch.empty(n, n, dtype=dtype, device=limit.device)
    mode = "high" if limit.precision == "tf32" else "highest"

    def multiply() -> object:
        torch.set_float32_matmul_precision(mode)
        return torch.mm(left, right, out=out)

    return multiply


def judged(limits: list[Limit]) -> list[Limit]:
    """Refuse the figure of a type that is far slower than FP32 on the same threads: the library lacks a kernel, the hardware does not."""
    answer = []
    for one in limits:
        same = [other for other in limits if (other.what, other.device, other.threads) == ("gemm", one.device, one.threads)]
        plain = max((other.best for other in same if other.precision == "fp32"), default=0.0)
        fastest = max((other.best for other in same if other.precision == one.precision), default=0.0)
        if one.what == "gemm" and fastest < plain / 2:
            reason = f"this PyTorch has no fast {one.precision.upper()} product here: it runs at {fastest / plain:.0%} of FP32's rate"
            one = replace(one, samples=(), reason=reason)
        answer.append(one)
    return answer


def run(limits: list[Limit], seconds: float, size: int) -> list[Limit]:
    """Measure what was asked for, one device and thread count after the other; each device gets ``seconds``."""
    import torch

    groups: dict[tuple[str, int], list[Limit]] = {}
    for limit in limits:
        groups.setdefault((limit.device, limit.threads), []).append(limit)
    done: list[Limit] = []
    with torch.inference_mode():
        for (device, threads), wanted in groups.items():
            torch.set_num_threads(threads)
            probes: list[Probe] = []
            for limit in wanted:
                try:
                    probes += probes_of(limit, size)
                except Exception as error:  # what this PyTorch cannot do is an answer
                    done.append(replace(limit, reason=str(error).partition("\n")[0] or type(error).__name__))
            done += measure(probes, seconds / sum(one == device for one, _ in groups))
    return judged(done)


def main() -> None:
    """Read the task, answer the limits."""
    task = json.load(sys.stdin)
    limits = run([Limit.from_dict(one) for one in task["limits"]], task["seconds"], task["bytes"])
    sys.stdout.write("\n" + json.dumps([one.to_dict() for one in limits]) + "\n")


if __name__ == "__main__":
    main()

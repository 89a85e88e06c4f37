"""Where the time of a call goes: PyTorch's profiler on a loaded session, and how long a call takes to start and to finish.

Nothing here is a measurement: a profiler slows what it watches. It says where to look; ``bench`` says how long it takes.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_helpers import environment, models
from accel_helpers.bench import Comparison, loaded, plan_of
from accel_helpers.charts import Ceiling
from accel_helpers.claims import utilisation
from accel_helpers.config import RunConfig
from accel_helpers.device import measuring
from accel_helpers.engine import Session
from accel_helpers.environment import Ceilings
from accel_helpers.intervals import median
from accel_helpers.records import Measurement


@dataclass(frozen=True)
class Operator:
    """What the profiler saw of one operator, over all profiled calls, its children apart."""

    name: str
    calls: int
    seconds: float  # on the device where there is one, else on the CPU
    share: float  # of all operators' seconds
    flops: int  # floating-point operations, for the operators that PyTorch can count (matrix products and convolutions); else 0


@dataclass(frozen=True)
class Profile:
    """One profiled run: ``operators`` by seconds, most first; ``trace`` is a Chrome trace (chrome://tracing, Perfetto)."""

    operators: tuple[Operator, ...]
    calls: int
    trace: Path

    @property
    def arithmetic(self) -> float:
        """The share of the time in matrix products, convolutions and attention, where faster arithmetic helps."""
        return sum(one.share for one in self.operators if one.flops or "scaled_dot_product" in one.name)


@dataclass(frozen=True)
class Launch:
    """The same calls read from two clocks: ``started`` stops when the call returns, ``finished`` when its work is done. Seconds."""

    how: str
    started: tuple[float, ...]
    finished: tuple[float, ...]

    @property
    def started_median(self) -> float:
        """Median seconds until a call returned."""
        return median(self.started)

    @property
    def finished_median(self) -> float:
        """Median seconds until its work was done."""
        return median(self.finished)

    @property
    def factor(self) -> float:
        """How many times too fast the first reading looks."""
        return self.finished_median / self.started_median


@contextlib.contextmanager
def opened(config: RunConfig) -> Iterator[tuple[Session, Any]]:
    """A session in this process, with placed inputs; built first where it is not.

    Raises:
        UnsupportedError: the plan cannot run here.
    """
    plan, model = plan_of(config), models.get(config.model)
    with loaded(config) as session:
        yield session, session.place(model.example(plan.batch, plan.sequence, config.seed))


def profile(config: RunConfig, trace: Path, calls: int = 5) -> Profile:
    """Profile PyTorch eager on ``config``'s model, device, precision and batch, and write a Chrome trace.

    Args:
        config: its engine is not used: only PyTorch's own operators tell PyTorch's profiler their names.
        trace: a file to write; its folder is created.
        calls: how many calls to watch, after two that are not.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its messages would land in the notebook
    from torch.profiler import ProfilerActivity, schedule
    from torch.profiler import profile as profiler

    on_gpu = config.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    steps = schedule(wait=0, warmup=2, active=calls, repeat=1)
    watcher = profiler(activities=activities, schedule=steps, with_flops=True, record_shapes=True, acc_events=True)
    with measuring(f"profile of {config.model}"), opened(config.replace(engine="pytorch")) as (session, placed), watcher as seen:
        for number in range(2 + calls):
            with _nvtx(f"call {number}", on_gpu):
                session.run(placed)
                session.synchronise()
            seen.step()
    trace.parent.mkdir(parents=True, exist_ok=True)
    seen.export_chrome_trace(str(trace))
    return Profile(_operators(seen.key_averages(), on_gpu), calls, trace.resolve())


def _operators(events: Iterable[Any], on_gpu: bool) -> tuple[Operator, ...]:
    rows = [
        (one, (one.self_device_time_total if on_gpu else one.self_cpu_time_total) / 1e6)
        for one in events
        if not one.key.startswith("ProfilerStep")  # the profiler's own marks around each call
    ]
    total = sum(seconds for _, seconds in rows)
    found = [Operator(one.key, one.count, seconds, seconds / total, int(one.flops or 0)) for one, seconds in rows if seconds > 0]
    return tuple(sorted(found, key=lambda one: -one.seconds))


def _nvtx(name: str, on_gpu: bool) -> contextlib.AbstractContextManager[Any]:
    """A named range for Nsight Systems."""
    if not on_gpu:
        return contextlib.nullcontext()
    import torch

    named: contextlib.AbstractContextManager[Any] = torch.cuda.nvtx.range(name)
    return named


def launch(config: RunConfig, calls: int = 20) -> Launch:
    """Time the same calls twice over: until they return, and until their work is done.

    On a GPU a call returns when its kernels are queued. On a CPU the session runs behind a queue of one worker, as it does in a server:
    handing in the work returns at once.
    """
    started, finished = [], []
    with measuring(f"launches of {config.model}"), opened(config) as (session, placed), ThreadPoolExecutor(1) as queue:
        on_gpu = config.device == "cuda"
        session.run(placed)
        session.synchronise()
        for _ in range(calls):
            begin = time.perf_counter()
            future = None if on_gpu else queue.submit(session.run, placed)
            if on_gpu:
                session.run(placed)
            started.append(time.perf_counter() - begin)
            if future:
                future.result()
            session.synchronise()
            finished.append(time.perf_counter() - begin)
    how = "kernels queued on the GPU" if on_gpu else "work handed to a queue on the CPU"
    return Launch(how, tuple(started), tuple(finished))


def roofs(config: RunConfig, measured: Ceilings) -> list[Ceiling]:
    """The two ceilings over one call of a configuration: arithmetic in its type, and memory.

    Raises:
        ModelError: the model is an ONNX file, whose operators PyTorch cannot count.
        UnsupportedError: this machine has no ceiling for that type.
    """
    plan, needed = plan_of(config), environment.cost(models.get(config.model), config.batch, config.sequence, config.seed)
    arithmetic = measured.rate("gemm", plan.precision, plan.device, plan.threads)
    memory = measured.bandwidth(plan.device, plan.threads)
    return [
        Ceiling(f"GEMM {plan.precision}", needed.flops, arithmetic, "FLOP"),
        Ceiling("memory bandwidth", needed.least_bytes(plan.precision), memory, "B"),
    ]


IDLE = 0.5
"""Below this utilisation a processor is said to wait."""
FULL = 0.8
"""Above this share of the memory that the process may use, it is said to be full."""
SLOW_GROWTH = 1.2
"""Throughput that grows less than this with each doubling of the batch grows slowly."""


def reading(single: Measurement, sweep: Comparison) -> list[str]:
    """The three patterns of a profile, looked for in a measurement and a sweep over the batch size: one sentence each."""
    busy, full = utilisation(single).value, single.peak_memory_bytes / single.environment.memory_bytes
    first, last = sweep.measurements[0].plan.batch, sweep.measurements[-1].plan.batch
    growth = sweep.verdicts[-1].speedup.value ** (1 / math.log2(last / first))
    waits = "the processor waits: look at preprocessing, copies and launches" if busy < IDLE else "the processor does not wait"
    filled = "memory is full of what is little used" if full > FULL and busy < IDLE else "memory is not what limits it"
    grows = "the arithmetic units are full already" if growth < SLOW_GROWTH else "larger batches still fill idle units"
    return [
        f"Utilisation {busy:.0%} of {single.plan.threads} threads: {waits}.",
        f"Peak memory {full:.0%} of what this process may use: {filled}.",
        f"Each doubling of the batch gives {growth:.2f} times the items a second: {grows}.",
    ]


def nsight(config: RunConfig) -> str:
    """The command that records the same calls with Nsight Systems, one named range a call, on a machine that has it."""
    settings = " ".join(f"{name}={value}" for name, value in config.replace(device="cuda").model_dump().items() if name != "engine")
    return f"nsys profile --trace=cuda,nvtx,osrt --output=out/baseline python -m accel_helpers.profiling {settings}"


if __name__ == "__main__":
    profile(RunConfig.parse(sys.argv[1:]), Path("out/baseline.trace.json"))

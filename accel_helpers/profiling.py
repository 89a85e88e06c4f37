"""Where the time of a call goes: PyTorch's profiler on a loaded session, and how long a call takes to start and to finish.

Nothing here is a measurement: a profiler slows what it watches. It says where to look; ``bench`` says how long it takes.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_helpers import engines, environment, models
from accel_helpers.bench import plan_of
from accel_helpers.config import RunConfig
from accel_helpers.device import measuring
from accel_helpers.engine import Session
from accel_helpers.intervals import median
from accel_helpers.store import Store


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
    def counted(self) -> float:
        """The share of the time in operators whose arithmetic is counted: matrix products and convolutions."""
        return sum(one.share for one in self.operators if one.flops)


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
    plan, here, model = plan_of(config), environment.describe(), models.get(config.model)
    engine = engines.get(config.engine)
    engine.require(plan, here)
    versions = {name: here.packages[name] for name in engine.packages if name in here.packages}
    artifact, folder, _ = Store().artifact(model, plan, here, versions, lambda out: engine.build(model, plan, out))
    with engine.load(model, artifact.with_plan(plan).plan, folder) as session:
        yield session, session.place(model.example(plan.batch, plan.sequence, config.seed))


def profile(config: RunConfig, trace: Path, calls: int = 5) -> Profile:
    """Profile PyTorch eager on ``config``'s model, device, precision and batch, and write a Chrome trace.

    Args:
        config: its engine is not used: only PyTorch's own operators tell PyTorch's profiler their names.
        trace: a file to write; its folder is created.
        calls: how many calls to watch, after two that are not.
    """
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as profiler

    on_gpu = config.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with measuring(f"profile of {config.model}"), opened(config.replace(engine="pytorch")) as (session, placed):
        for _ in range(2):
            session.run(placed)
        session.synchronise()
        with profiler(activities=activities, with_flops=True, record_shapes=True, acc_events=True) as seen:
            for number in range(calls):
                with record_function(f"call {number}"), _nvtx(f"call {number}", on_gpu):
                    session.run(placed)
                    session.synchronise()
    trace.parent.mkdir(parents=True, exist_ok=True)
    seen.export_chrome_trace(str(trace))
    rows = [(one, (one.self_device_time_total if on_gpu else one.self_cpu_time_total) / 1e6) for one in seen.key_averages()]
    rows = [(one, seconds) for one, seconds in rows if not one.key.startswith("call ")]
    total = sum(seconds for _, seconds in rows) or 1.0
    operators = [Operator(one.key, one.count, seconds, seconds / total, int(one.flops or 0)) for one, seconds in rows if seconds > 0]
    return Profile(tuple(sorted(operators, key=lambda one: -one.seconds)), calls, trace.resolve())


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


def nsight(config: RunConfig) -> str:
    """The command that records the same calls with Nsight Systems, one named range a call, on a machine that has it."""
    settings = " ".join(f"{name}={value}" for name, value in config.replace(device="cuda").model_dump().items() if name != "engine")
    return f"nsys profile --trace=cuda,nvtx,osrt --output=out/baseline python -m accel_helpers.profiling {settings}"


if __name__ == "__main__":
    profile(RunConfig.parse(sys.argv[1:]), Path("out/baseline.trace.json"))

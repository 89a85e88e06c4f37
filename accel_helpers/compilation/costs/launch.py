"""What a call costs before any arithmetic: the price of each dispatched operator, and of a cold start."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from accel_helpers import bench, engines, environment, models
from accel_helpers.bench.process import Stop, WorkerProcess
from accel_helpers.compilation.costs._formats import Format, formats, rounded
from accel_helpers.config import RunConfig
from accel_helpers.device import measuring, usable_cpus
from accel_helpers.errors import ParameterError
from accel_helpers.intervals import Estimate, centre, log_centre
from accel_helpers.measure import Subject, calls_per_round, interleave
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan, Round

__all__ = ["Chain", "ColdStart", "Format", "Overhead", "chain", "cold_start", "formats", "overhead", "rounded"]

WIDTH = 16
"""Numbers in the tensor that a chain of operators passes on: so few that an operator's arithmetic takes nanoseconds."""


@dataclass(frozen=True)
class Chain:
    """One plan's calls of networks that are nothing but 8, 64 or 256 tiny operators in a row."""

    plan: Plan
    lengths: tuple[int, ...]  # operators of each network, fewest first
    rounds: tuple[tuple[Round, ...], ...]  # of each network, all from one interleaved run

    @property
    def times(self) -> tuple[Estimate, ...]:
        """Median seconds of a call of each network."""
        return tuple(log_centre([one.wall_median for one in rounds]) for rounds in self.rounds)

    @property
    def each(self) -> Estimate:
        """Seconds that one operator more costs: the slope from the shortest network to the longest, round by round."""
        return centre(self._slopes)

    @property
    def floor(self) -> Estimate:
        """Seconds of a call that would hold no operator."""
        return centre([one.wall_median - self.lengths[0] * slope for one, slope in zip(self.rounds[0], self._slopes, strict=True)])

    @property
    def _slopes(self) -> list[float]:
        more = self.lengths[-1] - self.lengths[0]
        return [(long.wall_median - short.wall_median) / more for short, long in zip(self.rounds[0], self.rounds[-1], strict=True)]

    def against(self, other: Chain) -> Estimate:
        """The seconds of an operator here as a share of those in another chain of the same run."""
        shares = [mine / theirs for mine, theirs in zip(self._slopes, other._slopes, strict=True)]
        return centre(shares)


@dataclass(frozen=True)
class Overhead:
    """What dispatching operators costs on this machine, and what that is of one call of a model."""

    model: str
    environment: Environment
    chains: tuple[Chain, ...]  # PyTorch eager first
    operators: int  # that compute something in one eager call of the model
    call: tuple[Round, ...]  # of the model, eager, in the same run

    @property
    def seconds(self) -> Estimate:
        """Median seconds of the model's call."""
        return log_centre([one.wall_median for one in self.call])

    @property
    def share(self) -> Estimate:
        """The part of the model's call that dispatching its operators takes, if each costs what one of the chain does."""
        shares = [self.operators * slope / one.wall_median for slope, one in zip(self.chains[0]._slopes, self.call, strict=True)]
        return centre(shares)


@dataclass(frozen=True)
class ColdStart:
    """Fresh processes that load a built plan and answer once: seconds of each try, in order."""

    plan: Plan
    build_seconds: float  # spent once, before
    ready: tuple[float, ...]  # from starting the process to its first answer
    loads: tuple[float, ...]  # of these, loading the files
    first_calls: tuple[float, ...]  # and the first call

    @property
    def first_answer(self) -> Estimate:
        """From starting the process to its first answer; no interval below six tries."""
        return log_centre(self.ready)


def overhead(config: RunConfig, lengths: Sequence[int] = (8, 64, 256), candidates: Sequence[RunConfig] = ()) -> Overhead:
    """Measure what each operator of a call costs, in PyTorch eager and in what is said to make it cheaper.

    Everything runs in this process, rounds interleaved: networks of ``lengths`` operators under each plan, and the model itself, eager.

    Args:
        config: its model, device, batch, threads, rounds, seconds (for all together) and seed.
        lengths: operators in a row, two networks or more.
        candidates: beside PyTorch eager; on a GPU CUDA graphs, on a CPU those of torch.compile and ONNX Runtime that can run.

    Raises:
        ParameterError: fewer than two lengths.
        UnsupportedError: a candidate cannot run here.
    """
    lengths = tuple(sorted(set(lengths)))
    if len(lengths) < 2 or lengths[0] < 1:
        raise ParameterError(f"Lengths {lengths} give no slope.", "Name two different numbers of operators, at least.")
    eager = config.replace(engine="pytorch", precision="fp32", mode="default")
    configs = [eager, *(candidates or _candidates(eager))]
    here = environment.describe()
    plans = [bench.plan_of(one.replace(batch=1)) for one in configs]
    for plan in plans:
        engines.get(plan.engine).require(plan, here)
    jobs = [(chain(length), plan) for plan in plans for length in lengths] + [(models.get(config.model), bench.plan_of(eager))]
    with ExitStack() as stack, measuring(f"overhead of {config.model}"):
        subjects = [stack.enter_context(_Opened(model, plan, config.seed)) for model, plan in jobs]
        share = config.seconds / len(subjects)
        calls = [calls_per_round(one.warm_up(min(share, 1.0)), share, config.rounds) for one in subjects]
        rounds = [tuple(one) for one in interleave(subjects, calls, config.rounds, config.seed)]
        operators = sum(subjects[-1].session.report["types"].values())
    step = len(lengths)
    chains = [Chain(plan, lengths, tuple(rounds[step * index : step * (index + 1)])) for index, plan in enumerate(plans)]
    return Overhead(config.model, here, tuple(chains), operators, rounds[-1])


def _candidates(eager: RunConfig) -> list[RunConfig]:
    if eager.device == "cuda":
        return [eager.replace(mode="cuda_graph")]
    return [one for one in (eager.replace(engine="compiled"), eager.replace(engine="onnx_runtime")) if bench.support(one)]


class _Opened(Subject):
    """A model under a plan, built and loaded in this process for as long as the context lasts."""

    def __init__(self, model: Model, plan: Plan, seed: int) -> None:
        engine, self._folder = engines.get(plan.engine), TemporaryDirectory()
        engine.build(model, plan, Path(self._folder.name))
        session = engine.load(model, plan, Path(self._folder.name))
        super().__init__(session, [model.example(plan.batch, plan.sequence, seed)], scope="compute")

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()
        self._folder.cleanup()


def chain(length: int) -> Model:
    """A network of ``length`` sines in a row, x (batch, 16) float32 -> y of the same shape."""

    def build() -> Any:
        import torch

        class Chain(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                for _ in range(length):
                    x = x.sin()
                return x

        module = Chain()
        module.register_buffer("weight", torch.zeros(1))  # a file of weights holds at least one
        return module

    name = f"chain-{length}"
    return Model(
        name=name,
        example=lambda batch, _, seed: {"x": np.random.default_rng(seed).normal(size=(batch, WIDTH)).astype(np.float32)},
        axes={"x": {0: "batch"}, "y": {0: "batch"}},
        outputs=("y",),
        fingerprint=hashlib.sha256(f"{name} of sines, width {WIDTH}".encode()).hexdigest(),
        build=build,
    )


def cold_start(configs: Sequence[RunConfig], tries: int = 6, stop: Stop | None = None) -> tuple[ColdStart, ...]:
    """From starting a process to its first answer, for each plan in turn, in an order drawn anew for each try.

    What is built once is built before. The first try of torch.compile may find no generated code in the store; the later ones do,
    and still have to make the program again.

    Raises:
        UnsupportedError: a plan cannot run here.
        StoppedError: ``stop`` said so.
    """
    for config in configs:
        bench.require(config)
    plans, draw = [bench.plan_of(config) for config in configs], random.Random(configs[0].seed)  # noqa: S311 - an order, not a secret
    found: list[list[tuple[float, float, float]]] = [[] for _ in configs]
    with measuring("cold starts", stop=stop or (lambda: False)):
        built = [_built(config, plan, stop) for config, plan in zip(configs, plans, strict=True)]
        for _ in range(tries):
            for index in draw.sample(range(len(configs)), len(configs)):
                found[index].append(_start(configs[index], plans[index], built[index], stop))
    return tuple(
        ColdStart(plan, float(artifact["build_seconds"]), *(tuple(column) for column in zip(*one, strict=True)))
        for plan, artifact, one in zip(plans, built, found, strict=True)
    )


def _built(config: RunConfig, plan: Plan, stop: Stop | None) -> dict[str, Any]:
    with WorkerProcess(usable_cpus(), stop) as worker:
        artifact: dict[str, Any] = worker.ask("build", model=config.model, plan=plan.to_dict())["artifact"]
        worker.ask("refer", model=config.model, plan=plan.to_dict(), seed=config.seed)
    return artifact


def _start(config: RunConfig, plan: Plan, artifact: dict[str, Any], stop: Stop | None) -> tuple[float, float, float]:
    begin = time.perf_counter()
    with WorkerProcess(plan.threads, stop) as worker:
        load = worker.ask("load", model=config.model, artifact=artifact, scope="end to end", seed=config.seed)["load_seconds"]
        first = worker.ask("warm_up", seconds=0.0)["first_call"]
        return time.perf_counter() - begin, load, first

"""Build, load, measure and compare plans, each in a fresh process, rounds interleaved."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from accel_helpers import engines, environment, models
from accel_helpers.accuracy import Budget, Difference, within
from accel_helpers.bench.judging import judge
from accel_helpers.bench.process import Stop, WorkerProcess
from accel_helpers.config import QUANTIZED, RunConfig
from accel_helpers.device import Conditions, measuring, quiet, usable_cpus
from accel_helpers.engine import Support
from accel_helpers.errors import UnsupportedError
from accel_helpers.measure import WARMUP_SECONDS, calls_per_round, interleave
from accel_helpers.records import (
    Artifact,
    Check,
    Compilation,
    Environment,
    Measurement,
    Plan,
    Profile,
    Quantization,
    Round,
    Scope,
    Score,
    Verdict,
)
from accel_helpers.store import Store


@dataclass(frozen=True)
class Progress:
    """Where a measurement stands.

    ``rounds`` holds the finished rounds of each plan while the stage is "measuring", ``finished`` the plans that are whole while it is
    "judging".
    """

    stage: str
    plans: tuple[Plan, ...]
    done: int
    total: int
    rounds: tuple[tuple[Round, ...], ...] = ()
    finished: Comparison | None = None


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Comparison:
    """Measurements from one interleaved run; the first is the baseline, and each other one has a verdict against it."""

    measurements: tuple[Measurement, ...]
    verdicts: tuple[Verdict, ...]


def plan_of(config: RunConfig) -> Plan:
    """The plan of a configuration, with its threads resolved: 0 becomes every CPU that this process may use."""
    return Plan(
        engine=config.engine,
        precision=config.precision,
        device=config.device,
        batch=config.batch,
        sequence=config.sequence,
        threads=config.threads or usable_cpus(),
        hint=config.hint,
        quantization=_quantization(config),
        mode=config.mode,
        compilation=_compilation(config),
    )


def _compilation(config: RunConfig) -> Compilation:
    """How the engine is made, with what it does not use left at the defaults and a profile written out where it needs one."""
    used = engines.get(config.engine).compiles
    if not used:
        return Compilation()
    asked: dict[str, Any] = {name: getattr(config, name) for name in ("simplifier", "optimization_level", "refit", "weight_streaming")}
    asked["workspace_bytes"] = config.workspace * 2**20
    if "profiles" in used:
        reads = models.get(config.model).has_sequence
        sizes = config.sizes or (((1, 1), (config.batch, config.sequence), (config.batch, config.sequence)),)
        asked["profiles"] = tuple(_profile(one, reads, config.sequence) for one in sizes)
    return Compilation(**{name: value for name, value in asked.items() if name in used})


def _profile(sizes: Sequence[tuple[int, int | None]], reads: bool, sequence: int) -> Profile:
    least, usual, greatest = sizes
    lengths = (least[1] or sequence, usual[1] or sequence, greatest[1] or sequence)
    return Profile((least[0], usual[0], greatest[0]), lengths if reads else None)


def _quantization(config: RunConfig) -> Quantization | None:
    """How a configuration is quantized, with ``auto`` resolved and what its scheme does not use left at the defaults."""
    if config.precision not in QUANTIZED:
        return None
    scheme: str = config.scheme
    if scheme == "auto":
        scheme = engines.get(config.engine).scheme(config.precision, models.get(config.model).has_sequence)
    chosen: dict[str, Any] = {"rest": config.rest, "keep": config.kept}
    if scheme != "qat":
        chosen["per_channel"] = config.per_channel
    if scheme in ("dynamic", "static", "accuracy_control", "qat"):
        short = config.reduce_range == "on"
        if config.reduce_range == "auto" and config.device == "cpu":
            short = engines.overflows(environment.describe())
        symmetric = config.symmetric or scheme in engines.get(config.engine).signed
        chosen |= {"reduce_range": config.precision == "int8" and short, "symmetric": symmetric}
    if scheme in ("static", "accuracy_control", "qat"):
        chosen |= {"calibration": config.calibration, "calibrator": config.calibrator}
        chosen |= {"calibration_data": config.calibration_data, "seed": config.seed}
    return Quantization(scheme, **chosen)


def support(config: RunConfig) -> Support:
    """Whether a configuration can run on this machine, and what stands in the way. Builds nothing."""
    engine = engines.get(config.engine)
    if missing := engine.missing():
        return Support(False, f"needs {', '.join(missing)}: {engine.install}")
    if engine.needs_network and config.model.endswith(".onnx"):
        return Support(False, "an ONNX file holds no PyTorch network; onnx_runtime and openvino read it")
    plan = plan_of(config)
    if plan.quantization and plan.quantization.calibration and models.get(config.model).dataset is None:
        return Support(False, f"{config.model} has no data to calibrate with (Model.dataset); scheme=dynamic and weight_only need none")
    return engine.supports(plan, environment.describe())


def require(config: RunConfig) -> None:
    """Raise unless a configuration can run on this machine. Builds nothing.

    Raises:
        UnknownNameError: no such model or engine.
        MissingPackageError: a package is missing; the message holds the command that installs it.
        UnsupportedError: what :func:`support` says.
    """
    plan = plan_of(config)
    engines.get(config.engine).require(plan, environment.describe())
    models.get(config.model)
    if not (answer := support(config)):
        raise UnsupportedError(f"{plan.label} cannot run {config.model}: {answer.reason}.", "Choose another scheme or engine.")


def measure(config: RunConfig, *, scope: Scope = "end to end", watch: Watch | None = None, stop: Stop | None = None) -> Measurement:
    """Measure one configuration; see :func:`compare`."""
    return compare([config], scope=scope, watch=watch, stop=stop).measurements[0]


def compare(
    configs: Sequence[RunConfig],
    *,
    scope: Scope = "end to end",
    watch: Watch | None = None,
    stop: Stop | None = None,
    budget: Budget | None = None,
) -> Comparison:
    """Measure configurations in one interleaved run and judge each against the first.

    Every plan is built (or found built), loaded and measured in a process of its own. Records go to the store as soon as they are whole.

    Args:
        configs: the first is the baseline; its ``rounds``, ``seconds`` and ``seed`` hold for all.
        scope: what is timed: "compute", or "end to end" from NumPy to NumPy.
        watch: told about every stage and finished round; runs on the calling thread.
        stop: asked ten times a second; true ends the run and its processes.
        budget: what a candidate may lose; each verdict then says whether it stays within.

    Raises:
        UnknownNameError: no such model or engine.
        UnsupportedError: a plan that cannot run here, before anything is measured.
        BusyError: another measurement does not end.
        StoppedError: ``stop`` said so.
        MeasurementError: a process died or every call failed.
    """
    run = _Run(tuple(configs), scope, watch or (lambda progress: None), stop or (lambda: False), budget)
    for config in configs:  # every refusal comes before the first process starts
        require(config)
    with measuring(", ".join(f"{config.model} {plan.label}" for config, plan in zip(configs, run.plans, strict=True)), stop=run.stop):
        return run.go()


@dataclass
class _Run:
    configs: tuple[RunConfig, ...]
    scope: Scope
    watch: Watch
    stop: Stop
    budget: Budget | None
    environment: Environment = field(default_factory=environment.describe)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def plans(self) -> tuple[Plan, ...]:
        return tuple(plan_of(config) for config in self.configs)

    def tell(self, stage: str, done: int = 0, total: int = 0) -> None:
        self.watch(Progress(stage, self.plans, done, total or len(self.configs)))

    def go(self) -> Comparison:
        first = self.configs[0]
        artifacts = self.build()
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(WorkerProcess(plan.threads, self.stop)) for plan in self.plans]
            loads, warm = self.load(workers, artifacts)
            calls = [calls_per_round(one["typical"], first.seconds, first.rounds) for one in warm]
            before = Conditions.now(tuple(worker.pid for worker in workers))
            rounds = interleave(workers, calls, first.rounds, first.seed, self.on_round, self.stop)
            noise = quiet(before, Conditions.now(tuple(worker.pid for worker in workers)))
            self.tell("checking")
            ends = [worker.ask("finish") for worker in workers]
            cosines = self.budget is not None and self.budget.cosine is not None
            differences = [worker.ask("differ") if cosines else {} for worker in workers]
            measurements: list[Measurement] = []
            for index, worker in enumerate(workers):
                score = self.score(index, worker, artifacts[index])
                parts = (artifacts[index], loads[index], warm[index], rounds[index], ends[index], noise, score)
                measurements.append(self.record(index, *parts))
                comparison = self.judged(measurements, differences)
                self.watch(Progress("judging", self.plans, index + 1, len(self.configs), finished=comparison))
        store = Store()
        for record in (*comparison.measurements, *comparison.verdicts):
            store.add(record)
        return comparison

    def judged(self, measurements: Sequence[Measurement], differences: Sequence[dict[str, Any]]) -> Comparison:
        """The plans measured so far, each but the first judged against it."""
        pairs = zip(measurements[1:], differences[1:], strict=False)
        return Comparison(tuple(measurements), tuple(self.verdict(measurements[0], candidate, found) for candidate, found in pairs))

    def build(self) -> list[Artifact]:
        """Build in processes that measure nothing, one for all plans of the same files: what a compiler leaves behind goes with it."""
        artifacts = []
        with contextlib.ExitStack() as stack:
            builders: dict[tuple[str, ...], WorkerProcess] = {}
            for index, (config, plan) in enumerate(zip(self.configs, self.plans, strict=True)):
                self.tell("building", index)
                key = (config.model, *plan.build_fields.values())
                if key not in builders:
                    builders[key] = stack.enter_context(WorkerProcess(usable_cpus(), self.stop))
                built = builders[key].ask("build", model=config.model, plan=plan.to_dict())["artifact"]
                builders[key].ask("refer", model=config.model, plan=plan.to_dict(), seed=self.configs[0].seed)
                artifacts.append(Artifact.from_dict(built).with_plan(plan))
        return artifacts

    def load(self, workers: list[WorkerProcess], artifacts: list[Artifact]) -> tuple[list[float], list[dict[str, Any]]]:
        loads, warm = [], []
        for index, worker in enumerate(workers):
            self.tell("loading and warming up", index)
            config = self.configs[index]
            seed = self.configs[0].seed
            loads.append(
                worker.ask("load", model=config.model, artifact=artifacts[index].to_dict(), scope=self.scope, seed=seed)["load_seconds"]
            )
            warm.append(worker.ask("warm_up", seconds=min(WARMUP_SECONDS, 2 * self.configs[0].seconds)))
        return loads, warm

    def on_round(self, done: int, rounds: list[list[Round]]) -> None:
        self.watch(Progress("measuring", self.plans, done, self.configs[0].rounds, tuple(tuple(one) for one in rounds)))

    def score(self, index: int, worker: WorkerProcess, artifact: Artifact) -> Score | None:
        """The task metric, or the one already measured on these very files in this precision (two precisions may share their files)."""
        model = models.get(self.configs[index].model)
        if model.metric is None or self.plans[index].engine == "null":
            return None
        for past in Store().latest(Measurement, model=model.name):
            same = (past.artifact, past.plan.build_fields) == (artifact.content, artifact.plan.build_fields)
            if past.score and same and bool(past.score.outcomes) == bool(model.metric.outcomes):
                return past.score
        self.tell("scoring", index)
        return Score.from_dict(worker.ask("score"))

    def record(
        self,
        index: int,
        artifact: Artifact,
        load_seconds: float,
        warm: dict[str, Any],
        rounds: list[Round],
        end: dict[str, Any],
        noise: Check,
        score: Score | None,
    ) -> Measurement:
        plan = self.plans[index]
        fits = Check("threads", plan.threads <= usable_cpus(), f"{plan.threads} threads on {usable_cpus()} usable CPUs", fatal=False)
        checks = (*(Check.from_dict(check) for check in end["checks"]), noise, fits)
        return Measurement(
            model=self.configs[index].model,
            plan=plan,
            environment=self.environment,
            scope=self.scope,
            first_call=warm["first_call"],
            warmup=tuple(warm["warmup"]),
            rounds=tuple(rounds),
            errors=len(end["errors"]),
            checks=checks,
            peak_memory_bytes=end["peaks"]["memory"],
            peak_device_bytes=end["peaks"]["device"],
            artifact=artifact.content,
            size_bytes=artifact.size_bytes,
            build_seconds=artifact.build_seconds,
            load_seconds=load_seconds,
            seed=self.configs[0].seed,
            started=self.started,
            score=score,
            report={**artifact.report, **end["report"]},
        )

    def verdict(self, baseline: Measurement, candidate: Measurement, differences: dict[str, Any]) -> Verdict:
        """The candidate judged, and held against the budget where there is one."""
        verdict = judge(baseline, candidate)
        if self.budget:
            found = {name: Difference(**values) for name, values in differences.items()}
            verdict = replace(verdict, allowed_loss=self.budget.loss, budget=within(verdict, self.budget, found))
        return verdict

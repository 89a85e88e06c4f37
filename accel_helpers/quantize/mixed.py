"""Greedy mixed precision: keep the most sensitive layers in float, as few as a budget allows, and build the result for real."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from accel_helpers import accuracy, engines, environment
from accel_helpers.accuracy import Budget
from accel_helpers.bench import plan_of
from accel_helpers.config import KEEP, RunConfig
from accel_helpers.engine import Array
from accel_helpers.errors import ModelError, ParameterError, UnsupportedError
from accel_helpers.models import Metric, Model, Split
from accel_helpers.quantize import _observed
from accel_helpers.quantize._graph import Node
from accel_helpers.quantize._noise import decibels, noises
from accel_helpers.quantize._simulated import Places, Simulated, batches, places
from accel_helpers.quantize.sensitivity import SAMPLES, labelled
from accel_helpers.records import Census, Check, Plan, Quantization, Record, Score, Verdict


@dataclass(frozen=True)
class Step(Record):
    """One mix that was tried."""

    keep: tuple[str, ...]  # layers in float, the most sensitive first, after those that the configuration names
    layer: str  # the last of them; empty for the first step
    alone_snr: float | None  # dB that this layer alone leaves of the model's outputs
    snr: float | None  # dB of the worst output against FP32; None where the engine refused the mix
    cosine: float | None  # of the worst output with FP32
    share: float  # of the multiplications that are INT8
    score: Score | None  # None where there is no labelled data
    check: Check  # against the budget; or why the engine refused
    built: bool  # by the engine, from the files that would be deployed; or simulated


@dataclass(frozen=True)
class Mixed(Record):
    """What :func:`greedy` found. ``path`` holds every mix in the order tried; the last one that was built is the one in ``config``."""

    config: RunConfig  # with ``keep``
    reached: bool
    path: tuple[Step, ...]
    order: tuple[str, ...]  # the quantized layers, the most sensitive first

    @property
    def final(self) -> Step:
        """The mix in ``config``, as the engine built it."""
        keep = set(self.config.kept)
        return next(step for step in reversed(self.path) if step.built and set(step.keep) == keep)


def greedy(
    model: Model, config: RunConfig, budget: Budget | None = None, *, samples: int = 200, watch: Callable[[Step], None] | None = None
) -> Mixed:
    """The fewest layers in float with which a static INT8 plan stays within a budget.

    Layers are ordered by the noise that each alone puts into the model's outputs, on calibration samples that no range was taken from.
    The engine builds the plan without any of them kept. Where that is over the budget, bisection on the simulated model finds how many to
    keep; the engine builds that mix, and more if it must: only a built mix that was within the budget counts as reached. Bisection takes
    for granted that another layer in float never harms; where noise says otherwise, a longer list than the shortest can result.

    Args:
        model: with data to calibrate on; with labels and a metric, the budget's loss is judged, without them its cosine.
        config: of engine onnx_runtime, precision int8, scheme static; layers in its ``keep`` stay there.
        budget: one point of the metric where none is given.
        samples: labelled samples of the validation part to judge by.
        watch: told of every step.

    Raises:
        ParameterError: another engine, precision or scheme, or nothing to judge the budget by.
        ModelError: no data, no layer to quantize, or a tensor without a finite range.
        UnsupportedError: the plan cannot run here.
    """
    budget, plan = budget or Budget(), plan_of(config)
    quantization = _static(plan)
    engines.get(plan.engine).require(plan, environment.describe())
    seen, judged = _observed.samples(model, quantization, SAMPLES)
    jury = _Jury.of(model, judged, budget, samples)
    with Simulated(model) as simulated:
        simulated.calibrate(_observed.scales(simulated, quantization, seen), quantization)
        search = _Search(model, plan, quantization, simulated, jury, watch or (lambda step: None))
        reached, keep = search.go(judged)
    return Mixed(config.replace(keep=KEEP.join(keep)), reached, tuple(search.path), tuple(search.order))


Judged = tuple[float | None, float | None, Score | None, Check]


def _static(plan: Plan) -> Quantization:
    if (plan.engine, plan.precision) != ("onnx_runtime", "int8") or plan.quantization is None or plan.quantization.scheme != "static":
        raise ParameterError(
            f"{plan.label} cannot be mixed layer by layer here.", "Choose engine=onnx_runtime, precision=int8 and scheme=static."
        )
    return plan.quantization


@dataclass
class _Jury:
    """Judges outputs for some samples against those of FP32."""

    split: Split
    budget: Budget
    metric: Metric | None = None
    labels: Array | None = None
    reference: dict[str, Array] = field(default_factory=dict)
    baseline: Score | None = None

    @classmethod
    def of(cls, model: Model, judged: Split, budget: Budget, samples: int) -> _Jury:
        try:
            metric, split, labels = labelled(model, samples)
        except ModelError as error:
            if budget.cosine is None:
                raise ParameterError(error.what, "Judge by the outputs: give a Budget with a least cosine, 0.99 for example.") from error
            return cls(judged, budget)
        return cls(split, budget, metric, labels)

    def refer(self, outputs: dict[str, Array]) -> None:
        self.reference, self.baseline = outputs, self.score(outputs)

    def score(self, outputs: dict[str, Array]) -> Score | None:
        return None if self.metric is None or self.labels is None else accuracy.score(self.metric, outputs, self.labels)

    def judge(self, outputs: dict[str, Array]) -> Judged:
        """SNR in dB and cosine of the worst output, the score, and whether they are within the budget."""
        found, score = accuracy.compare_outputs(outputs, self.reference), self.score(outputs)
        verdict = Verdict(baseline="", candidate="", wall=(), cpu=())
        if score and self.baseline:
            verdict = accuracy.compare_scores(self.baseline, score, self.budget.loss)
        check = accuracy.within(verdict, self.budget, found)
        return min(one.snr_db for one in found.values()), min(one.cosine for one in found.values()), score, check


class _Search:
    """Walks along the order, simulated or built, and keeps the path."""

    def __init__(
        self, model: Model, plan: Plan, quantization: Quantization, simulated: Simulated, jury: _Jury, watch: Callable[[Step], None]
    ) -> None:
        self.model, self.plan, self.quantization = model, plan, quantization
        self.simulated, self.jury, self.watch = simulated, jury, watch
        self.path: list[Step] = []
        self.order: list[str] = []
        self.noise: dict[str, float] = {}  # layer -> SNR in dB that it leaves alone
        self.operations: Mapping[str, int] = {}

    def go(self, judged: Split) -> tuple[bool, tuple[str, ...]]:
        """Whether the budget was reached, and the layers to keep."""
        self.jury.refer(self._simulate(frozenset()))
        first, census = self._built(())
        self.operations = {layer.name: layer.operations for layer in census.layers}
        if first.check.passed is not False:
            return True, first.keep
        integers = {layer.name for layer in census.layers if layer.precision == "int8"}
        self._rank([layer for layer in self.simulated.layers if layer.name in integers], judged)
        most = len(self.order) - 1  # one layer must remain, for nothing quantized is no plan
        count = self._bisect(0, most, self._passes_simulated) if most else 0
        below = 0
        while count and not self._passes_built(count):
            if count == most:
                return False, self._keep(count)
            below, count = count, min(2 * count, most)
        if not count:
            return False, first.keep
        if below:  # the simulation was too hopeful, and doubling may have overshot
            count = self._bisect(below, count, self._passes_built)
        return True, self._keep(count)

    def _bisect(self, over: int, within: int, passes: Callable[[int], bool]) -> int:
        """The smallest count that passes, above one that does not and up to one that is taken to."""
        while within - over > 1:
            middle = (over + within) // 2
            over, within = (over, middle) if passes(middle) else (middle, within)
        return within

    def _rank(self, layers: list[Node], judged: Split) -> None:
        found = noises(self.simulated, judged, [places([layer]) for layer in layers])
        self.noise = {layer.name: decibels(noise) for layer, noise in zip(layers, found, strict=True)}
        self.order = sorted(self.noise, key=self.noise.__getitem__)

    def _keep(self, count: int) -> tuple[str, ...]:
        return (*self.quantization.keep, *self.order[:count])

    def _passes_built(self, count: int) -> bool:
        kept = self.order[:count]
        try:
            return self._built(kept)[0].check.passed is not False
        except UnsupportedError as error:  # too little is left that the engine could run in integers
            self._tell(self._step(kept, 0.0, (None, None, None, Check("engine", False, error.what)), built=True))
            return False

    def _passes_simulated(self, count: int) -> bool:
        chosen = places(layer for layer in self.simulated.layers if layer.name in set(self.order[count:]))
        integers = sum(self.operations[name] for name in self.order[count:])
        share = integers / (sum(self.operations.values()) or 1)
        step = self._step(self.order[:count], share, self.jury.judge(self._simulate(chosen)), built=False)
        return self._tell(step).check.passed is not False

    def _simulate(self, chosen: Places) -> dict[str, Array]:
        found = [self.simulated.run(inputs, chosen) for inputs, _ in batches(self.jury.split, 16)]
        return {name: np.concatenate([one[name] for one in found]) for name in self.model.outputs}

    def _built(self, kept: Iterable[str]) -> tuple[Step, Census]:
        names = tuple(kept)
        asked = tuple(sorted((*self.quantization.keep, *names)))
        plan = replace(self.plan, quantization=replace(self.quantization, keep=asked))
        engine = engines.get(plan.engine)
        with tempfile.TemporaryDirectory() as folder:
            census = Census.from_dict(engine.build(self.model, plan, Path(folder)).report["census"])
            with engine.load(self.model, plan, Path(folder)) as session:
                outputs = accuracy.answers(session, self.model, self.jury.split)
        return self._tell(self._step(names, census.share(), self.jury.judge(outputs), built=True)), census

    def _step(self, kept: Iterable[str], share: float, judged: Judged, *, built: bool) -> Step:
        names = tuple(kept)
        layer = names[-1] if names else ""
        return Step((*self.quantization.keep, *names), layer, self.noise.get(layer), judged[0], judged[1], share, *judged[2:], built)

    def _tell(self, step: Step) -> Step:
        self.path.append(step)
        self.watch(step)
        return step

"""How much the calibration samples decide: other subsets of the same data, and data that is not the model's own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from accel_helpers import bench, calibration, engines, environment, models
from accel_helpers.accuracy import answers, compare_outputs, compare_scores, score, validation_of
from accel_helpers.bench import reference
from accel_helpers.calibration import Symptom
from accel_helpers.config import RunConfig
from accel_helpers.engine import Array
from accel_helpers.errors import ParameterError
from accel_helpers.intervals import Estimate, centre
from accel_helpers.models import Metric, Model, Split
from accel_helpers.records import Plan, Quantization, Record, Score, Verdict


@dataclass(frozen=True)
class Trial(Record):
    """One plan, calibrated once and judged on labelled samples."""

    data: str  # Quantization.calibration_data
    seed: int  # of the draw
    samples: int  # that it was calibrated with: fewer than asked for where there are no more
    score: Score
    snr_db: float  # of the outputs against FP32, over all samples judged; of the output with the least
    symptoms: tuple[Symptom, ...]  # what the detector says of the samples, without having seen a label of the validation part


@dataclass(frozen=True)
class Trials(Record):
    """One plan under several sets of calibration samples, all judged on the same labelled samples against FP32."""

    model: str
    plan: Plan
    baseline: Score  # of FP32
    trials: tuple[Trial, ...]

    @property
    def score(self) -> Estimate:
        """The task metric over the trials: centre with its 95 % interval, unbounded below six trials."""
        return centre([one.score.value for one in self.trials])

    @property
    def snr_db(self) -> Estimate:
        """The same for the signal-to-noise ratio of the outputs in decibels."""
        return centre([one.snr_db for one in self.trials])

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest task metric that another draw of the calibration samples gave."""
        values = [one.score.value for one in self.trials]
        return min(values), max(values)

    @property
    def worst(self) -> Trial:
        """The trial whose metric lost the most, the model's own data aside; of several, the one with the most noise."""
        sign = 1 if self.baseline.higher_is_better else -1
        wrong = [one for one in self.trials if one.data != "representative"] or self.trials
        return min(wrong, key=lambda one: (sign * one.score.value, one.snr_db))

    def verdict(self, trial: Trial, allowed_loss: float = 0.01) -> Verdict:
        """How the task metric of a trial changed against FP32, sample by sample."""
        return compare_scores(self.baseline, trial.score, allowed_loss)


Watch = Callable[[Trial], None]


def spread(config: RunConfig, subsets: int = 8, judged: int | None = None, watch: Watch | None = None) -> Trials:
    """Build one plan with other draws of its calibration samples, seeds ``config.seed`` onwards, and judge each.

    Without replacement from the calibration part, so the draws of a large share of it are alike: what remains is the luck of the draw
    that a reader of the same data would have. In this process, in folders that are gone afterwards; nothing is timed.

    Args:
        config: a plan whose scheme calibrates.
        subsets: how many draws; six and more give an interval.
        judged: labelled samples to judge on, evenly spaced over the validation part; all of them where None.
        watch: told about each trial as it is finished.

    Raises:
        ParameterError: a scheme that calibrates nothing, or fewer than two subsets.
        ModelError: the model has no labelled data.
        UnsupportedError: a plan that cannot run here.
    """
    if subsets < 2:
        raise ParameterError(f"subsets={subsets} shows no spread.", "Take at least 2; 6 and more give an interval.")
    settings = [(config.calibration_data, seed) for seed in range(config.seed, config.seed + subsets)]
    return _trials(config, settings, judged, watch)


def experiment(config: RunConfig, kinds: Iterable[str] = (), judged: int | None = None, watch: Watch | None = None) -> Trials:
    """Build one plan with each kind of calibration data, and judge each; see :func:`spread`.

    Args:
        config: a plan whose scheme calibrates.
        kinds: values of ``calibration_data``; all that the model's inputs allow where left out.
        judged: labelled samples to judge on; all where None.
        watch: told about each trial as it is finished.

    Raises:
        ParameterError: a scheme that calibrates nothing, or a kind that the model's inputs do not allow.
        ModelError: the model has no labelled data.
        UnsupportedError: a plan that cannot run here.
    """
    chosen = tuple(kinds) or calibration.kinds(models.get(config.model))
    return _trials(config, [(config.replace(calibration_data=kind).calibration_data, config.seed) for kind in chosen], judged, watch)


def _trials(config: RunConfig, settings: Sequence[tuple[str, int]], judged: int | None, watch: Watch | None) -> Trials:
    model, plan = models.get(config.model), bench.plan_of(config)
    quantization = plan.quantization
    if quantization is None or not quantization.calibration:
        raise ParameterError(f"{plan.label} calibrates nothing.", "Choose precision=int8 and scheme=static.")
    engines.get(plan.engine).require(plan, environment.describe())
    validation, metric = validation_of(model)
    judges = _judges(validation, judged)
    drawn = [(replace(quantization, calibration_data=kind, seed=seed)) for kind, seed in settings]
    given = [calibration.samples(model, one) for one in drawn]  # what is refused is refused before anything is built
    right = replace(plan, engine=reference.engine_of(model), precision="fp32", device="cpu", quantization=None)
    expected = _run(model, right, judges)
    found = []
    for one, split in zip(drawn, given, strict=True):
        outputs = _run(model, replace(plan, quantization=one), judges)
        found.append(_trial(model, metric, one, split, judges, outputs, expected))
        if watch:
            watch(found[-1])
    return Trials(config.model, plan, score(metric, expected, _labels(judges)), tuple(found))


def _judges(validation: Split, judged: int | None) -> Split:
    chosen = np.unique(np.linspace(0, len(validation) - 1, min(judged or len(validation), len(validation))).round().astype(int))
    return Split({name: values[chosen] for name, values in validation.inputs.items()}, _labels(validation)[chosen], validation.mask)


def _labels(split: Split) -> Array:
    assert split.labels is not None  # validation_of has looked
    return split.labels


def _run(model: Model, plan: Plan, split: Split) -> dict[str, Array]:
    engine = engines.get(plan.engine)
    with tempfile.TemporaryDirectory(prefix="accel-calibrating-") as folder:
        engine.build(model, plan, Path(folder))
        with engine.load(model, plan, Path(folder)) as session:
            return answers(session, model, split)


def _trial(
    model: Model, metric: Metric, drawn: Quantization, given: Split, judges: Split, outputs: dict[str, Array], expected: dict[str, Array]
) -> Trial:
    return Trial(
        data=drawn.calibration_data,
        seed=drawn.seed,
        samples=len(given),
        score=score(metric, outputs, _labels(judges)),
        snr_db=min(one.snr_db for one in compare_outputs(outputs, expected).values()),
        symptoms=calibration.representative(model, given),
    )

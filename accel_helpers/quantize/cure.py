"""Apply a cure and measure whether it cures."""

from __future__ import annotations

from dataclasses import dataclass

from accel_helpers import models
from accel_helpers.bench import compare, plan_of
from accel_helpers.config import RunConfig
from accel_helpers.errors import ParameterError
from accel_helpers.intervals import Estimate, log_centre, median
from accel_helpers.quantize import probes, wrong
from accel_helpers.quantize.cause import Cause
from accel_helpers.quantize.evidence import WRONG
from accel_helpers.quantize.gather import EXTRA, SAMPLES, artifacts, errors, reference_of
from accel_helpers.records import Record

_EXACT = 1e-9
"""An error of zero counts as this, so that ratios exist."""


@dataclass(frozen=True)
class Cure(Record):
    """Whether a cure cured, measured."""

    cause: str
    cured: bool | None  # None: too noisy to say
    gain: Estimate  # times faster, or times less error: measured, beside ``Cause.predicted``
    evidence: str  # a sentence with the figures


def verify(config: RunConfig, cause: Cause, cured: RunConfig | None = None) -> Cure:
    """Apply a cause's cure and measure whether it cures.

    Slowness is measured by :func:`~accel_helpers.bench.compare` with the cured plan, wrongness by the outputs' error against FP32 on
    validation samples.

    Args:
        config: the plan that is slow or wrong.
        cause: one that :func:`explain` named for it.
        cured: the cured configuration, where the cure lies outside of it (a model exported again, say).

    Raises:
        ParameterError: no setting applies this cure, and ``cured`` is not given.
    """
    if cured is None:
        if not cause.changes:
            raise ParameterError(f"No setting applies this cure: {cause.cure}", "Do so, and give the configuration of the result as cured.")
        cured = config.replace(**cause.changes)
    return _faster(config, cured, cause) if cause.symptom == "slow" else _righter(config, cured, cause)


def _faster(config: RunConfig, cured: RunConfig, cause: Cause) -> Cure:
    verdict = compare([config, cured]).verdicts[0]
    gain = verdict.speedup
    word = True if gain.low > 1 else False if gain.high < 1 else None
    return Cure(cause.name, word, gain, _said(word, gain, "times faster", cause))


def _righter(config: RunConfig, cured: RunConfig, cause: Cause) -> Cure:
    measure = _own_errors if cause.name in wrong.OF_THE_MODEL else _errors
    before, after = ([max(error, _EXACT) for error in each] for each in measure(config, cured))
    gain = log_centre([old / new for old, new in zip(before, after, strict=True)])
    word = None if gain.low <= 1 <= gain.high else gain.low > 1 and median(after) <= max(WRONG, median(before) / 2)
    text = f"The error of the outputs goes from {median(before):.2g} to {median(after):.2g}. {_said(word, gain, 'times less error', cause)}"
    return Cure(cause.name, word, gain, text)


def _errors(*configs: RunConfig) -> list[list[float]]:
    """The relative error of each plan's outputs against FP32, item by item. The plans run the same model."""
    model = models.get(configs[0].model)
    items = probes.open_samples(model, SAMPLES)
    with reference_of(model) as reference:
        return [errors(model, artifact, reference, items) for artifact in artifacts(model, *map(plan_of, configs))]


def _own_errors(*configs: RunConfig) -> list[list[float]]:
    """How far each model in FP32 is from answering the same thing twice, in a batch and alone, padded and bare; item by item."""
    found = []
    for model in (models.get(config.model) for config in configs):
        mask = model.dataset().validation.mask if model.dataset else None
        with reference_of(model) as reference:
            answer = probes.answer_of(reference)
            found.append(
                [
                    max(
                        probes.repeats(answer, item),
                        probes.batches(answer, model.example(4, 32, seed)),
                        probes.padded(answer, item, mask, EXTRA) if mask else 0.0,
                    )
                    for seed, item in enumerate(probes.open_samples(model, SAMPLES))
                ]
            )
    return found


def _said(word: bool | None, gain: Estimate, unit: str, cause: Cause) -> str:
    figures = f"{gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}] {unit}; predicted {cause.predicted.value:.2f}"
    if word is None:
        return f"Too noisy to say: {figures}."
    return f"{'Cured' if word else 'Better, but not cured' if gain.low > 1 else 'Not cured'}: {figures}."

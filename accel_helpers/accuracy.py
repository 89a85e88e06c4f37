"""Is it still right? Outputs against a reference, the task metric on the validation part, and a budget for what both may lose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from accel_helpers.engine import Session
from accel_helpers.errors import BudgetError, ModelError, ParameterError
from accel_helpers.models import Array, Metric, Model, Split
from accel_helpers.records import Check, Score, Verdict

_QUANTIZED = 0.5
TOLERANCE: Mapping[str, float] = {
    "fp32": 1e-3,
    "tf32": 64 * 2**-11,
    "fp16": 64 * 2**-11,
    "bf16": 64 * 2**-8,
    "int8": _QUANTIZED,
    "int4": _QUANTIZED,
    "fp8": _QUANTIZED,
}
"""Largest relative error of an output that rounding in the type explains.

Sixty-four unit roundoffs, 2^-8 for bf16 (7 stored bits) and 2^-11 for fp16 and tf32 (10 stored bits): they add up over some tens of layers
(Higham, Accuracy and Stability of Numerical Algorithms, chapters 2 and 3). FP32, at 2^-24, has room for another order of summation. An
output outside is wrong, not rounded: one without its mask or of zeros is off by 0.6 and more. Eight bits and fewer have no such bound,
because their error depends on the ranges: half the output's norm (6 dB) is where noise begins to drown the signal. Whether the rounding
is acceptable is for the task metric to say.
"""


@dataclass(frozen=True)
class Difference:
    """One output against its reference, both as float64 vectors over everything they hold."""

    cosine: float  # of the angle between them; 1 where both are zero, 0 where there is nothing to compare
    max_absolute: float  # in the output's unit
    relative: float  # ‖output - reference‖₂ / ‖reference‖₂; absolute where the reference is zero
    snr_db: float  # -20 log10 of the relative error: the reference's power over that of the error


_NOTHING = Difference(0.0, math.inf, math.inf, -math.inf)


def compare_outputs(outputs: Mapping[str, Array], reference: Mapping[str, Array]) -> dict[str, Difference]:
    """Each of the reference's outputs against what came out; infinitely wrong where it is missing, misshapen or not finite."""
    return {name: _difference(outputs.get(name), expected) for name, expected in reference.items()}


def _difference(output: Array | None, reference: Array) -> Difference:
    if output is None or output.shape != reference.shape or not np.isfinite(output).all():
        return _NOTHING
    actual, expected = output.astype(np.float64).ravel(), reference.astype(np.float64).ravel()
    scale, error = float(np.linalg.norm(expected)), float(np.linalg.norm(actual - expected))
    relative = error / scale if scale else error
    both = scale * float(np.linalg.norm(actual))
    return Difference(
        cosine=float(np.clip(actual @ expected / both, -1, 1)) if both else float(not error),
        max_absolute=float(np.abs(actual - expected).max(initial=0.0)),
        relative=relative,
        snr_db=-20 * math.log10(relative) if relative else math.inf,
    )


def relative_error(outputs: Mapping[str, Array], reference: Mapping[str, Array]) -> float:
    """The largest relative error over the reference's outputs; see :class:`Difference`."""
    return max((one.relative for one in compare_outputs(outputs, reference).values()), default=0.0)


def answers(session: Session, model: Model, split: Split, batch: int = 32) -> dict[str, Array]:
    """The outputs of a loaded session for every sample of a split, in order."""
    collected: dict[str, list[Array]] = {name: [] for name in model.outputs}
    for inputs, _ in split.batches(batch):
        outputs = session(inputs)
        for name in model.outputs:
            collected[name].append(outputs[name])
    return {name: np.concatenate(parts) for name, parts in collected.items()}


def validation_of(model: Model) -> tuple[Split, Metric]:
    """The labelled validation part of a model, and the metric to judge by.

    Raises:
        ModelError: the model has no labelled data or no metric.
    """
    if model.dataset is None or model.metric is None:
        raise ModelError(
            f"{model.name} has no labelled data, so no task metric.", "Give Model.dataset and Model.metric; outputs are still compared."
        )
    validation = model.dataset().validation
    if validation.labels is None:
        raise ModelError(f"The validation part of {model.name} has no labels.", "Give Split.labels.")
    return validation, model.metric


def score(metric: Metric, outputs: dict[str, Array], labels: Array) -> Score:
    """A metric of the outputs for labelled samples, with each sample's outcome and the metrics beside it.

    Outcomes keep six digits, so that a record stays small.

    Raises:
        ModelError: the metric is not the mean of its outcomes.
    """
    value = float(metric.function(outputs, labels))
    others = metric.others(outputs, labels) if metric.others else {}
    outcomes: tuple[int | float, ...] = ()
    if metric.outcomes:
        each = metric.outcomes(outputs, labels)
        if each.shape != (len(labels),) or not math.isclose(float(each.mean()), value, rel_tol=1e-5, abs_tol=1e-9):
            raise ModelError(
                f"The metric {metric.name} is {value:.6g}, and not the mean of one outcome for each of the {len(labels)} samples.",
                "Let Metric.outcomes give the figures that Metric.function averages, or leave it out.",
            )
        outcomes = tuple(int(one) if each.dtype == bool else float(f"{one:.6g}") for one in each)
    return Score(metric.name, value, len(labels), outcomes, others, metric.higher_is_better)


def evaluate(session: Session, model: Model, batch: int = 32) -> Score:
    """The model's task metric over its whole validation part, through a loaded session.

    Raises:
        ModelError: the model has no labelled data or no metric, or its metric is not the mean of its outcomes.
    """
    validation, metric = validation_of(model)
    assert validation.labels is not None
    return score(metric, answers(session, model, validation, batch), validation.labels)


def compare_scores(baseline: Score, candidate: Score, allowed_loss: float = 0.01) -> Verdict:
    """A verdict on the task metric alone: its change, sample by sample, without any time."""
    return Verdict(
        baseline="",
        candidate="",
        wall=(),
        cpu=(),
        score_change=candidate.value - baseline.value,
        changes=candidate.changes(baseline),
        higher_is_better=candidate.higher_is_better,
        allowed_loss=allowed_loss,
    )


@dataclass(frozen=True)
class Budget:
    """What a candidate may lose against its baseline.

    Raises:
        ParameterError: a negative loss, or a cosine that none can be.
    """

    loss: float = 0.01  # of the task metric, in its unit: 0.01 is one point of an accuracy
    cosine: float | None = None  # the least that each output may have with its FP32 reference
    sure: bool = False  # the loss's whole 95 % interval must lie within, or only the loss that was seen

    def __post_init__(self) -> None:
        if not (0 <= self.loss < math.inf and -1 <= (self.cosine or 0) <= 1):
            raise ParameterError(
                f"A budget of loss={self.loss} and cosine={self.cosine} means nothing.",
                "Give the loss as a share, 0.01 for one point, and a cosine between -1 and 1.",
            )


def within(verdict: Verdict, budget: Budget, outputs: Mapping[str, Difference] | None = None) -> Check:
    """Whether a verdict stays within a budget, with the figures: passed, not passed, or None where too few samples were seen to be sure.

    Where there is nothing to judge by, no metric and no outputs with a least cosine, it is not passed.

    Args:
        verdict: how the task metric changed.
        budget: what it may lose.
        outputs: :func:`compare_outputs` of the candidate against its FP32 reference, for ``budget.cosine``.
    """
    metric, said = _metric_within(verdict, budget)
    cosines = {name: one.cosine for name, one in (outputs or {}).items()} if budget.cosine is not None else {}
    if budget.cosine is not None and cosines:
        name = min(cosines, key=cosines.__getitem__)
        said += [f"the least cosine is {cosines[name]:.6f}, of {name}; the budget asks for {budget.cosine:.6g}"]
    passed = [*metric, *(cosine >= (budget.cosine or 0) for cosine in cosines.values())]
    if not passed:
        return Check("budget", False, "there is no task metric and no output to judge by")
    return Check("budget", False if False in passed else None if None in passed else True, "; ".join(said))


def _metric_within(verdict: Verdict, budget: Budget) -> tuple[list[bool | None], list[str]]:
    """Whether the task metric stays within, nothing where there is none, and what to say of it."""
    if verdict.score_change is None:
        return [], []
    said = f"the task metric changed by {verdict.score_change:+.4f}"
    if interval := verdict.score_interval:
        said += f" [{interval.low:+.4f}, {interval.high:+.4f}] on {len(verdict.changes)} samples"
    said += f"; the budget allows a loss of {budget.loss:g}"
    lost = -verdict.score_change if verdict.higher_is_better else verdict.score_change
    if lost > budget.loss + 1e-9:
        return [False], [said]
    if replace(verdict, allowed_loss=budget.loss).score_word in ("better", "no worse"):
        return [True], [said]
    return [False if budget.sure else None], [f"{said}, and {_more_samples(verdict, budget.loss - lost)}"]


def _more_samples(verdict: Verdict, room: float) -> str:
    """How many samples would tell that a loss lies within its budget, when its estimate stays where it is, ``room`` away from the edge."""
    if not verdict.changes or room < 1e-6:
        return "no number of samples has shown that it lies within"
    needed = _CRITICAL**2 * (float(np.var(verdict.changes)) / room**2 + 1 / room)
    return f"it would take about {math.ceil(needed / 100) * 100:,} samples to be sure"


_CRITICAL = 1.96  # standard errors to either side of a 95 % interval


def gate(verdict: Verdict, budget: Budget, outputs: Mapping[str, Difference] | None = None) -> Check:
    """Let a candidate pass that stays within its budget: the check of :func:`within`.

    Raises:
        BudgetError: it loses more, or there is nothing to judge it by.
    """
    check = within(verdict, budget, outputs)
    if check.passed is False:
        raise BudgetError(
            f"Over budget: {check.detail}.",
            "Leave the most sensitive layers in float (keep=…), take per-channel weights, another scheme or more bits, or allow more.",
        )
    return check

"""Outputs against a reference, and the task metric over a validation part."""

import dataclasses

import numpy as np
import pytest

from accel_helpers import models
from accel_helpers.accuracy import TOLERANCE, Budget, compare_outputs, compare_scores, evaluate, gate, relative_error, score, within
from accel_helpers.engine import Session
from accel_helpers.errors import BudgetError, ModelError, ParameterError
from accel_helpers.models import Metric
from accel_helpers.models.metrics import classification, regression
from accel_helpers.records import Score

RIGHT = {"logits": np.array([[3.0, 4.0]], np.float32), "other": np.array([[1.0]], np.float32)}


def test_relative_error_is_the_worst_output():
    off = {"logits": RIGHT["logits"] * 1.01, "other": RIGHT["other"] * 1.02}
    assert relative_error(RIGHT, RIGHT) == 0
    assert relative_error(off, RIGHT) == pytest.approx(0.02, rel=1e-3)
    assert relative_error({name: np.zeros_like(value) for name, value in RIGHT.items()}, RIGHT) == 1


@pytest.mark.parametrize("broken", [{}, {"logits": RIGHT["logits"][:, :1]}, {"logits": np.array([[np.nan, 4.0]], np.float32)}])
def test_missing_misshapen_or_not_finite_is_infinitely_wrong(broken):
    assert relative_error({**{"other": RIGHT["other"]}, **broken}, RIGHT) == float("inf")


def test_a_reference_of_zeros_is_compared_absolutely():
    zero = {"logits": np.zeros((1, 2), np.float32)}
    assert relative_error({"logits": np.full((1, 2), 1e-4, np.float32)}, zero) == pytest.approx(1.414e-4, rel=1e-3)


def test_every_precision_has_a_tolerance_below_what_a_wrong_answer_gives():
    from accel_helpers.config import PRECISIONS

    assert set(PRECISIONS) <= set(TOLERANCE)
    assert max(TOLERANCE.values()) < 0.6


class Knows(Session):
    """Answers the label of every validation sample but some."""

    def __init__(self, split, wrong):
        self.split, self.wrong, self.at = split, wrong, 0

    def run(self, placed):
        return len(next(iter(placed.values())))

    def fetch(self, result):
        labels = self.split.labels[self.at : self.at + result].astype(int)
        logits = np.eye(max(self.split.labels.astype(int)) + 1, dtype=np.float32)[labels]
        logits[[i for i in range(result) if self.at + i < self.wrong]] *= -1
        self.at += result
        return {"logits": logits}


def test_the_task_metric_covers_every_sample_once():
    model = models.get("tiny-cnn")
    validation = model.dataset().validation
    score = evaluate(Knows(validation, 0), model, batch=7)
    assert (score.name, score.value, score.samples) == (model.metric.name, 1.0, len(validation))
    assert evaluate(Knows(validation, 5), model, batch=7).value == pytest.approx(1 - 5 / len(validation))
    assert evaluate(Knows(validation, 5), model, batch=7).outcomes == (0,) * 5 + (1,) * (len(validation) - 5)


def test_a_model_without_labels_says_what_is_missing():
    with pytest.raises(ModelError, match="no labelled data"):
        evaluate(Knows(None, 0), dataclasses.replace(models.get("tiny-cnn"), dataset=None))


# metrics, against scikit-learn and torchmetrics


def classes(count, samples=200, seed=0):
    draw = np.random.default_rng(seed)
    labels = draw.integers(count, size=samples)
    logits = draw.normal(size=(samples, count)).astype(np.float32)
    logits[np.arange(samples), labels] += 1.5
    return {"logits": logits}, labels


@pytest.mark.parametrize("count", [2, 5])
def test_classification_agrees_with_scikit_learn(count):
    import torch
    from sklearn.metrics import precision_recall_fscore_support
    from torchmetrics.functional.classification import multiclass_accuracy

    outputs, labels = classes(count)
    found, answers = score(classification(), outputs, labels), outputs["logits"].argmax(axis=1)
    accuracy = multiclass_accuracy(torch.tensor(answers), torch.tensor(labels), num_classes=count, average="micro")
    assert found.value == pytest.approx(float(accuracy), abs=1e-6)
    assert found.value == sum(found.outcomes) / 200
    macro = precision_recall_fscore_support(labels, answers, average="macro")[:3]
    assert [found.others[f"{name}, macro"] for name in ("precision", "recall", "F1")] == pytest.approx(macro, abs=1e-6)
    if count == 2:
        positive = precision_recall_fscore_support(labels, answers, average="binary", pos_label=1)[:3]
        assert [found.others[f"{name}, class 1"] for name in ("precision", "recall", "F1")] == pytest.approx(positive, abs=1e-6)
        assert positive != pytest.approx(macro, abs=1e-3)
    else:
        assert len(found.others) == 3


def test_regression_agrees_with_torchmetrics_and_less_is_better():
    import torch
    from torchmetrics.functional import mean_squared_error

    labels = np.random.default_rng(0).normal(size=(50, 3))
    outputs = {"y": (labels + np.random.default_rng(1).normal(size=(50, 3))).astype(np.float32)}
    found = score(regression(), outputs, labels)
    assert found.value == pytest.approx(float(mean_squared_error(torch.tensor(outputs["y"]).double(), torch.tensor(labels))))
    assert not found.higher_is_better
    assert np.mean(found.outcomes) == pytest.approx(found.value, rel=1e-5)
    assert found.others["MAE"] == pytest.approx(np.abs(outputs["y"] - labels).mean())
    assert found.others["R²"] < 1
    better = score(regression(), {"y": labels.astype(np.float32)}, labels)
    assert compare_scores(found, better).score_word == "better"
    assert compare_scores(better, found).score_word == "worse"


def test_outcomes_that_are_not_the_metric_are_refused():
    outputs, labels = classes(2)
    wrong = dataclasses.replace(classification(), outcomes=lambda outputs, labels: outputs["logits"][:, 0])
    with pytest.raises(ModelError, match="not the mean of one outcome"):
        score(wrong, outputs, labels)
    assert score(Metric("share", lambda outputs, labels: 0.5), outputs, labels) == Score("share", 0.5, 200)


# outputs


def test_outputs_are_compared_one_by_one():
    right = {"a": np.array([[3.0, 4.0]], np.float32), "b": np.array([[1.0, 0.0]], np.float32), "c": np.zeros((1, 2), np.float32)}
    found = compare_outputs({"a": right["a"] * np.float32(1.1), "b": np.array([[0.0, 1.0]], np.float32), "c": right["c"]}, right)
    assert (found["a"].cosine, found["a"].relative, found["a"].snr_db) == pytest.approx((1, 0.1, 20), rel=1e-5)
    assert found["a"].max_absolute == pytest.approx(0.4, rel=1e-5)
    assert (found["b"].cosine, found["b"].relative) == pytest.approx((0, 2**0.5))
    assert (found["c"].cosine, found["c"].relative, found["c"].snr_db) == (1, 0, float("inf"))
    assert compare_outputs({}, right)["a"] == compare_outputs({"a": right["a"] * np.nan}, right)["a"]
    assert compare_outputs({}, right)["a"].snr_db == -float("inf")


# the change of the metric, and what may be lost


def changed(samples, gained, lost, right=0.9):
    """A baseline that answers most samples right, and a candidate that gains some of the wrong ones and loses some of the right."""
    before = np.arange(samples) < right * samples
    after = before.copy()
    after[:lost] = False
    after[samples - gained :] = True
    return [Score("accuracy", float(each.mean()), samples, tuple(map(int, each))) for each in (before, after)]


@pytest.mark.parametrize(("samples", "gained", "lost"), [(300, 1, 2), (300, 5, 7), (300, 14, 16), (200, 0, 1), (400, 3, 5)])
def test_half_a_point_on_some_hundred_samples_is_noise(samples, gained, lost):
    verdict = compare_scores(*changed(samples, gained, lost))
    assert 0.003 < -verdict.score_change < 0.007
    assert verdict.score_word == "not enough samples"
    assert verdict.score_interval.low < verdict.score_change < 0 < verdict.score_interval.high


@pytest.mark.parametrize(
    ("samples", "gained", "lost", "word"),
    [
        (20, 0, 0, "not enough samples"),
        (858, 0, 0, "no worse"),
        (858, 1, 2, "no worse"),
        (858, 3, 12, "not enough samples"),
        (858, 5, 50, "worse"),
        (858, 20, 2, "better"),
        (20_000, 40, 140, "no worse"),
    ],
)
def test_a_word_for_a_change(samples, gained, lost, word):
    assert compare_scores(*changed(samples, gained, lost)).score_word == word


def test_a_change_without_outcomes_has_no_interval():
    verdict = compare_scores(Score("accuracy", 0.9, 100), Score("accuracy", 0.8, 100))
    assert (verdict.score_change, verdict.score_interval, verdict.score_word) == (pytest.approx(-0.1), None, None)
    assert within(verdict, Budget(0.01)).passed is False
    unsure = within(compare_scores(Score("accuracy", 0.9, 100), Score("accuracy", 0.9, 100)), Budget(0.01))
    assert unsure.passed is None
    assert "no number of samples" in unsure.detail


@pytest.mark.parametrize(
    ("lost", "budget", "passed"),
    [
        (0, Budget(0.01), True),
        (8, Budget(0.01), None),
        (8, Budget(0.01, sure=True), False),
        (9, Budget(0.01), False),
        (9, Budget(0.05), True),
        (9, Budget(0.05, sure=True), True),
    ],
)
def test_a_budget_speaks_of_the_loss_seen_and_where_asked_of_its_interval(lost, budget, passed):
    verdict = compare_scores(*changed(858, 0, lost))
    check = within(verdict, budget)
    assert check.passed is passed
    assert ("samples to be sure" in check.detail) == (lost == 8)
    if passed is False:
        with pytest.raises(BudgetError, match=r"changed by -0.0\d+ \[-0.0\d+, .*\] on 858 samples; the budget allows a loss of 0.01"):
            gate(verdict, budget)
    else:
        assert gate(verdict, budget) == check


def test_the_samples_said_to_be_needed_are_enough():
    """Eight in 858 lost, of 0.01 allowed: with as many samples as it says and the same shares, it is sure; with a third, it is not."""
    detail = within(compare_scores(*changed(858, 0, 8)), Budget(0.011)).detail
    needed = int(detail.split("about ")[1].split(" samples")[0].replace(",", ""))
    assert compare_scores(*changed(needed, 0, needed * 8 // 858), 0.011).score_word == "no worse"
    assert compare_scores(*changed(needed // 3, 0, needed * 8 // 858 // 3), 0.011).score_word == "not enough samples"


def test_a_loss_of_exactly_the_budget_is_within():
    assert within(compare_scores(*changed(100, 0, 1)), Budget(0.01)).passed is None


def test_a_budget_of_cosines_needs_no_metric():
    nothing = dataclasses.replace(compare_scores(*changed(100, 0, 0)), score_change=None, changes=())
    outputs = compare_outputs({"logits": np.array([[3.0, 4.2]]), "other": RIGHT["other"]}, RIGHT)
    assert gate(nothing, Budget(cosine=0.99), outputs).passed is True
    with pytest.raises(BudgetError, match=r"of logits; the budget asks for 0.99999"):
        gate(nothing, Budget(cosine=0.99999), outputs)
    with pytest.raises(BudgetError, match="no task metric and no output"):
        gate(nothing, Budget())
    fine = compare_scores(*changed(5000, 0, 0))
    assert within(fine, Budget(cosine=0.99999), outputs).passed is False
    assert within(fine, Budget(cosine=0.99), outputs).passed is True


@pytest.mark.parametrize("values", [{"loss": -0.1}, {"loss": float("nan")}, {"cosine": 1.5}])
def test_a_budget_that_means_nothing_is_refused(values):
    with pytest.raises(ParameterError, match="means nothing"):
        Budget(**values)

"""Outputs against a reference, and the task metric over a validation part."""

import dataclasses

import numpy as np
import pytest

from accel_helpers import models
from accel_helpers.accuracy import TOLERANCE, evaluate, relative_error
from accel_helpers.engine import Session
from accel_helpers.errors import ModelError

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
    assert max(TOLERANCE.values()) < 0.5


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


def test_a_model_without_labels_says_what_is_missing():
    with pytest.raises(ModelError, match="no labelled data"):
        evaluate(Knows(None, 0), dataclasses.replace(models.get("tiny-cnn"), dataset=None))

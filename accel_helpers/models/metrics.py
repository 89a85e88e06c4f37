"""Task metrics of classes and of numbers; what stands beside them comes from torchmetrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from accel_helpers.models.model import Array, Metric


def classification(name: str = "accuracy", output: str = "logits", published: float | None = None, *, beside: bool = True) -> Metric:
    """Accuracy: the share of samples whose largest logit is their label.

    ``outputs[output]`` is (samples, classes), labels are (samples,) integers. With ``beside``, precision, recall and F1 stand beside it:
    "macro", the mean over the classes that occur among labels or answers; of two classes those of class 1, the positive one, too. That
    costs some three seconds of CPU time once in a process, to import torchmetrics.
    """

    def outcomes(outputs: dict[str, Array], labels: Array) -> Array:
        return np.asarray(outputs[output].argmax(axis=1) == labels)

    def others(outputs: dict[str, Array], labels: Array) -> Mapping[str, float]:
        from torchmetrics.functional import classification as of

        count = outputs[output].shape[1]
        answers = _tensors(outputs[output].argmax(axis=1), labels, np.int64)
        kinds = {"precision": of.multiclass_precision, "recall": of.multiclass_recall, "F1": of.multiclass_f1_score}
        named = {f"{kind}, macro": float(measure(*answers, num_classes=count, average="macro")) for kind, measure in kinds.items()}
        if count == 2:
            named |= {f"{kind}, class 1": float(measure(*answers, num_classes=2, average="none")[1]) for kind, measure in kinds.items()}
        return named

    return Metric(
        name, lambda outputs, labels: float(outcomes(outputs, labels).mean()), True, published, outcomes, others if beside else None
    )


def regression(name: str = "MSE", output: str = "y", published: float | None = None) -> Metric:
    """Mean squared error, the lower the better. The mean absolute error and the coefficient of determination stand beside it.

    ``outputs[output]`` and the labels have the same shape, samples first; a sample's error is the mean over its numbers.
    """

    def outcomes(outputs: dict[str, Array], labels: Array) -> Array:
        square = (outputs[output].astype(np.float64) - labels.reshape(outputs[output].shape)) ** 2
        return np.asarray(square.reshape(len(square), -1).mean(axis=1))

    def others(outputs: dict[str, Array], labels: Array) -> Mapping[str, float]:
        from torchmetrics.functional import mean_absolute_error, r2_score

        answers = _tensors(outputs[output], labels, np.float64)
        return {"MAE": float(mean_absolute_error(*answers)), "R²": float(r2_score(*answers))}

    return Metric(name, lambda outputs, labels: float(outcomes(outputs, labels).mean()), False, published, outcomes, others)


def _tensors(answers: Array, labels: Array, kind: Any) -> tuple[Any, Any]:
    import torch

    return torch.from_numpy(answers.astype(kind)).flatten(), torch.from_numpy(labels.astype(kind)).flatten()

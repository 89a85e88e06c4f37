"""Named inputs at an engine's door: checked before a framework sees them, so that every engine refuses with the same words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from accel_helpers.engine import Array
from accel_helpers.errors import ArtifactError, ModelError
from accel_helpers.models import Model
from accel_helpers.records import Plan

Shapes = tuple[tuple[int, ...], ...]
_FLUFF = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : |/onnxruntime_src/\S+ ")


class Signature:
    """What a model reads, taken from its example inputs at the plan's sizes.

    ``inputs`` maps each name to its dtype and shape: a number where an axis is fixed, its name where it is open. ``planned`` holds the
    shape of each input at the plan's batch and sequence length.
    """

    def __init__(self, model: Model, plan: Plan) -> None:
        self._model = model
        self._longest = plan.sequence
        self.inputs: dict[str, tuple[np.dtype[Any], tuple[int | str, ...]]] = {}
        planned = []
        for name, array in model.example(1, plan.sequence, 0).items():
            axes = model.axes.get(name, {})
            self.inputs[name] = (array.dtype, tuple(axes.get(axis, size) for axis, size in enumerate(array.shape)))
            planned.append((plan.batch, *array.shape[1:]))
        self.planned: Shapes = tuple(planned)

    def check(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The same arrays in the model's order, C-contiguous.

        Raises:
            ModelError: a name, dtype or shape that the model does not read, or a sequence longer than it can.
        """
        if inputs.keys() != self.inputs.keys():
            raise self._refused(f"inputs named {', '.join(map(str, inputs)) or 'nothing'}")
        sizes: dict[str, int] = {}
        checked: dict[str, Array] = {}
        for name, (dtype, shape) in self.inputs.items():
            array = inputs[name]
            if not isinstance(array, np.ndarray):
                raise self._refused(f"{name} as a {type(array).__name__}")
            if array.dtype != dtype:
                raise self._refused(f"{name} of type {array.dtype}")
            if array.ndim != len(shape):
                raise self._refused(f"{name} of shape {array.shape}")
            for expected, size in zip(shape, array.shape, strict=True):
                wanted = sizes.setdefault(expected, size) if isinstance(expected, str) else expected
                if size != wanted or size == 0:
                    raise self._refused(f"{name} of shape {array.shape}")
            checked[name] = np.ascontiguousarray(array)
        if sizes.get("sequence", 0) > self._longest:
            self._model.example(1, sizes["sequence"], 0)  # raises where the model reads none so long; OpenVINO would answer
            self._longest = sizes["sequence"]
        return checked

    def _refused(self, given: str) -> ModelError:
        expected = "; ".join(f"{name} {dtype} ({', '.join(map(str, shape))})" for name, (dtype, shape) in self.inputs.items())
        return ModelError(
            f"{self._model.name} was given {given}.", f"It reads NumPy arrays: {expected}; an open axis has one size, at least 1."
        )


def closed(model: str) -> ArtifactError:
    """What a session answers after its end."""
    return ArtifactError(f"This session of {model} is closed.", "Load the artifact again.")


def refused(model: str, engine: str, error: Exception) -> ModelError:
    """A framework's own error at a call, in one sentence."""
    return ModelError(
        f"{engine} failed on these inputs of {model}: {first_line(error)}.",
        "Check the values (token ids within the vocabulary, sequences within the model's length) and the free memory.",
    )


def first_line(error: Exception) -> str:
    """The part of a framework's error that a person can read: its type and the first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from ")]
    line = _FLUFF.sub("", lines[0]) if lines else "no message"
    return f"{type(error).__name__}: {line}"[:400].rstrip(".:")

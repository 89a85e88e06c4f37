"""The engine that computes nothing: it shows the harness's own cost, and lets every test and lesson run anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from accel_helpers.engine import YES, Array, Built, Engine, Session, Support
from accel_helpers.engines._inputs import closed
from accel_helpers.errors import ArtifactError
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan


class NullSession(Session):
    """Answers two zeros an item for each output, which is never right: a Measurement of it is labelled so.

    It does not look at its inputs, for that would cost more than the rest.
    """

    def __init__(self, outputs: dict[str, tuple[int, ...]]) -> None:
        self._outputs: dict[str, tuple[int, ...]] | None = outputs
        self._batch = 1

    def place(self, inputs: dict[str, Array]) -> dict[str, Array]:
        self._batch = len(next(iter(inputs.values())))
        return inputs

    def run(self, placed: dict[str, Array]) -> dict[str, Array]:
        if self._outputs is None:
            raise closed("null")
        return placed

    def fetch(self, result: dict[str, Array]) -> dict[str, Array]:
        if self._outputs is None:
            raise closed("null")
        return {name: np.zeros((self._batch, *shape), np.float32) for name, shape in self._outputs.items()}

    def close(self) -> None:
        self._outputs = None


class Null(Engine):
    """Any model, any precision, any device: nothing is computed."""

    name = "null"

    def supports(self, plan: Plan, environment: Environment) -> Support:
        return YES

    def build(self, model: Model, plan: Plan, out: Path) -> Built:
        (out / "outputs.json").write_text(json.dumps({name: [2] for name in model.outputs}))
        return Built(("outputs.json",), {"types": {}})

    def load(self, model: Model, plan: Plan, folder: Path) -> NullSession:
        try:
            shapes = json.loads((folder / "outputs.json").read_text())
        except (OSError, ValueError) as error:
            raise ArtifactError(f"outputs.json of {model.name} cannot be read.", "Build the artifact again.") from error
        return NullSession({name: tuple(shape) for name, shape in shapes.items()})


ENGINE = Null()

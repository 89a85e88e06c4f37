"""What simplifiers make of a model's exported graph, and whether it still means the same."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_helpers import models
from accel_helpers.engines import _onnx_export, _onnx_simplify
from accel_helpers.errors import ModelError
from accel_helpers.models import Model

_LENGTH = 16  # tokens, where the batch is told


@dataclass(frozen=True)
class Simplification:
    """What one simplifier did to one graph."""

    tool: str
    version: str
    before: Mapping[str, int]  # operator -> how many nodes of it
    after: Mapping[str, int]
    seconds: float  # that the rewriting took
    error: float | None  # largest relative error of an output at the sizes checked; None where it is refused
    refused: str = ""  # why its graph is not used; empty where it is

    @property
    def nodes(self) -> tuple[int, int]:
        """How many nodes there were, and are."""
        return sum(self.before.values()), sum(self.after.values())

    @property
    def changes(self) -> dict[str, int]:
        """Operator -> how many more, or fewer, of it there are; those that change most come first."""
        change = {name: self.after.get(name, 0) - self.before.get(name, 0) for name in {**self.before, **self.after}}
        return {name: by for name, by in sorted(change.items(), key=lambda one: (-abs(one[1]), one[0])) if by}


def simplifications(model_name: str, told_batch: int = 0) -> tuple[Simplification, ...]:
    """Every simplifier on the exported graph of a model.

    Args:
        model_name: what :func:`models.get` finds the model by.
        told_batch: the batch to tell the tools that the inputs have, as many pages advise; 0 tells them nothing. A graph whose batch they
            froze is refused.

    Raises:
        ModelError: the model cannot be exported, or a tool fails on its graph.
        MissingPackageError: a tool is not installed.
        UnknownNameError: there is no such model.
    """
    model = models.get(model_name)
    shapes = {name: array.shape for name, array in model.example(told_batch, _LENGTH, 0).items()} if told_batch else {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "exported"
        source.mkdir()
        _onnx_export.export(model, source)
        return tuple(_tried(model, source / _onnx_export.FILE, tool, shapes) for tool in _onnx_simplify.TOOLS)


def _tried(model: Model, source: Path, tool: str, shapes: Mapping[str, tuple[int, ...]]) -> Simplification:
    out = source.parent / f"{tool}.onnx"
    done: dict[str, Any] = _onnx_simplify.rewritten(model, source, tool, out, shapes)
    error: float | None = None
    refused = ""
    try:
        error = _onnx_simplify.check(model, source, tool, out)
    except ModelError as why:
        refused = why.what
    return Simplification(done["tool"], done["version"], done["before"], done["after"], done["seconds"], error, refused)

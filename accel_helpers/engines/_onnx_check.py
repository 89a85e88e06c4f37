"""An ONNX graph run at several sizes and compared: with PyTorch, with itself one sample at a time, or with the graph it was made from."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.device import usable_cpus
from accel_helpers.engine import Array
from accel_helpers.engines import _onnx_fixed
from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import ModelError, UnsupportedError
from accel_helpers.models import Model

CHECKED_BATCHES = (1, 2, 3, 7)
CHECKED_SEQUENCES = (16, 21)
_TOLERANCE = 1e-3  # of accuracy.TOLERANCE["fp32"]: two FP32 runtimes

Answer = Callable[[dict[str, Array]], Mapping[str, Array]]


def sizes(model: Model) -> list[tuple[int, int]]:
    """Every batch of :data:`CHECKED_BATCHES` and, for a model that reads sequences, a second length: (batch, sequence)."""
    checked = [(batch, CHECKED_SEQUENCES[0]) for batch in CHECKED_BATCHES]
    return [*checked, (2, CHECKED_SEQUENCES[1])] if model.has_sequence else checked


def neighbours(model: Model, batch: int, sequence: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs of this size, and of another in the batch, or in the length where it is not the first of :data:`CHECKED_SEQUENCES`."""
    other = (3 if batch == 2 else 2, sequence) if sequence == CHECKED_SEQUENCES[0] else (batch, CHECKED_SEQUENCES[0])
    return model.example(batch, sequence, 0), model.example(*other, 0)


def opset(path: Path) -> int:
    """The version of the standard operators that a graph asks for; 0 where it names none."""
    import onnx

    versions = {one.domain: int(one.version) for one in onnx.load(path, load_external_data=False).opset_import}
    return versions.get("", versions.get("ai.onnx", 0))


def compared(model: Model, path: Path, answer: Answer | None = None, against: str = "PyTorch") -> float:
    """The largest relative error of an output over all :func:`sizes`.

    Args:
        model: whose graph lies at ``path``.
        path: the graph.
        answer: what to compare with, ``against`` in words; None for each sample of a batch with the same sample alone.
        against: what answers, for the message.

    Raises:
        ModelError: the graph does not run at a size, or an output differs; the message names where.
        UnsupportedError: ONNX Runtime lacks an operator.
    """
    run = runner(model, path)

    def singly(sample: dict[str, Array]) -> dict[str, Array]:
        count = len(next(iter(sample.values())))
        each = [run({name: array[row : row + 1] for name, array in sample.items()}) for row in range(count)]
        return {name: np.concatenate([one[name] for one in each]) for name in model.outputs}

    answered = against if answer else "the same samples one at a time"
    return max(_at(model, path, size, run, answer or singly, answered) for size in sizes(model))


def _at(model: Model, path: Path, size: tuple[int, int], run: Answer, answer: Answer, against: str) -> float:
    """The largest relative error of an output at one (batch, sequence)."""
    sample = model.example(*size, size[0])
    try:
        actual = run(sample)
    except ModelError as error:
        if not (node := _onnx_fixed.culprit(path, *neighbours(model, *size), str(error.__cause__))):
            raise
        raise ModelError(
            f"The ONNX graph of {model.name} does not run with {_shapes(sample)}: {node} fixes a size that should be open.",
            "Take the size from the tensor's shape there, and export the model again with that axis open.",
        ) from error
    worst = 0.0
    for name, expected in answer(sample).items():
        if actual[name].shape != expected.shape:
            node = _onnx_fixed.culprit(path, *neighbours(model, *size), name)
            raise ModelError(
                f"Output {name!r} of {model.name} in ONNX has the shape {actual[name].shape} at batch {size[0]}, where {against} "
                f"answered {expected.shape}{f'; {node} fixes it' if node else ''}.",
                "Take the size from the tensor's shape there, and export the model again with that axis open.",
            )
        if not (apart := relative(actual[name], expected)) <= _TOLERANCE:
            raise ModelError(
                f"Output {name!r} of {model.name} in ONNX differs from {against} by {apart:.2g} at batch {size[0]}, "
                f"at most {_TOLERANCE:g} was expected.",
                "Look for an operator that mixes samples, draws random numbers or depends on the batch.",
            )
        worst = max(worst, apart)
    return worst


def runner(model: Model, path: Path) -> Answer:
    """The graph at ``path`` in ONNX Runtime on the CPU: named inputs to named outputs.

    Raises:
        ModelError: it does not load, or later does not run with some sizes.
        UnsupportedError: ONNX Runtime lacks an operator.
    """
    session = _session(model, path)

    def run(sample: dict[str, Array]) -> dict[str, Array]:
        try:
            return dict(zip(model.outputs, session.run(list(model.outputs), sample), strict=True))
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise ModelError(
                f"The ONNX graph of {model.name} does not run with {_shapes(sample)}: {first_line(error)}.",
                "Export it with every axis open that is to change.",
            ) from error

    return run


def _shapes(sample: Mapping[str, Array]) -> str:
    return ", ".join(f"{name} {tuple(array.shape)}" for name, array in sample.items())


def relative(actual: Array, expected: Array) -> float:
    """The norm of the difference over that of what was expected; infinite where the shapes differ."""
    if actual.shape != expected.shape:
        return float("inf")
    scale = float(np.linalg.norm(expected.astype(np.float64)))
    return float(np.linalg.norm(actual.astype(np.float64) - expected)) / (scale or 1.0)


def _session(model: Model, path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cpus()
    options.log_severity_level = 4  # what it would log is raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise lacking(model, error) or ModelError(
            f"The ONNX graph of {model.name} does not load: {first_line(error)}.", "Check it with onnx.checker, and export it again."
        ) from error


def lacking(model: Model, error: Exception) -> UnsupportedError | None:
    """What to raise where ONNX Runtime refused a graph for an operator or a version it lacks; None where the reason is another one."""
    newer = re.search(r"Opset (\d+) is under development.* till opset (\d+)|IR version: (\d+), max supported IR version: (\d+)", str(error))
    if newer:
        asked, known = (number for number in newer.groups() if number)
        version = "opset" if newer[1] else "IR version"
        return UnsupportedError(
            f"{model.name} is written in {version} {asked}; the ONNX Runtime installed here reads up to {known}.",
            f"Export it with a lower {version}, or install a newer onnxruntime.",
        )
    patterns = r"No Op registered for (\S+)|(\S+?)\(-?\d+\) is not a registered|implementation for (\S+?)\(\d+\)"
    found = re.search(patterns, str(error))
    if not found:
        return None
    operator = next(group for group in found.groups() if group)
    return UnsupportedError(
        f"ONNX Runtime has no operator {operator}, which {model.name} holds.", "Export the model with standard operators only."
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Exporters and simplifiers print, log missing optional packages, and warn about their own deprecations and shared axis names."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

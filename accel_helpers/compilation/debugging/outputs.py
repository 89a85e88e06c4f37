"""Engines against one another, output by output at several sizes; and one graph against another, tensor by tensor.

Polygraphy's ``Comparator`` feeds every engine the same inputs and pairs their outputs; :mod:`runners` lets it run any plan of this package
exactly as ``bench`` loads it. What counts as a difference stays :mod:`accuracy`'s: Polygraphy's ``SimpleCompareFunc`` divides each number
by its reference, and one that is zero by chance looks infinitely wrong.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from accel_helpers import models
from accel_helpers.accuracy import TOLERANCE, compare_outputs
from accel_helpers.bench import plan_of, reference
from accel_helpers.compilation.debugging._attempt import marked, values
from accel_helpers.compilation.debugging._numbers import apart
from accel_helpers.compilation.debugging._parts import Parts, read
from accel_helpers.config import RunConfig
from accel_helpers.engine import Array
from accel_helpers.errors import ParameterError, UnknownNameError
from accel_helpers.records import Plan, Record

AGAINST = ("first", "fp32", "fp64")
SIZES = ((1, 16), (7, 16), (2, 21))
"""Batch and sequence length of each comparison: one item, a batch that no kernel's tile divides, and another length."""
JUMP = 10.0
"""How many times the error of what an operator reads its own must be, to be called a jump."""
ROUNDING = 1e-6
"""A relative error below this is FP32 rounding of one operator, and no jump."""


@dataclass(frozen=True)
class OutputDifference(Record):
    """One output of one plan at one size, against the same output of the reference."""

    plan: Plan
    against: str  # the reference's plan, or the type of PyTorch's network
    output: str
    batch: int
    sequence: int | None  # tokens; None where the model reads no sequences
    max_absolute: float  # in the output's unit
    relative: float  # norm of the difference over norm of the reference; see accuracy.Difference
    cosine: float
    rows: int  # vectors along the last axis; 0 where it holds one number
    other_answers: int  # of them: the largest number stands elsewhere
    tolerance: float  # the largest relative error that rounding in the plan's type explains

    def __bool__(self) -> bool:
        """Whether it lies within the tolerance, as Polygraphy asks its results."""
        return self.relative <= self.tolerance


def compare(
    configs: Sequence[RunConfig],
    shapes: Iterable[tuple[int, int]] | None = None,
    seed: int = 0,
    against: str = "first",
) -> tuple[OutputDifference, ...]:
    """Every output of every plan against the same output of one of them, at several sizes.

    Each plan is built once and loaded for each size, as ``bench`` does it, in this process.

    Args:
        configs: of one model; their ``batch`` and ``sequence`` give way to ``shapes``.
        shapes: batch and sequence length of each comparison; :data:`SIZES` where none are given.
        seed: draws the inputs.
        against: the "first" configuration, or PyTorch's network in "fp32" or "fp64" on the CPU (of an ONNX file: ONNX Runtime in FP32).

    Raises:
        UnknownNameError: no such reference.
        ParameterError: no two things to compare, or of two models.
        UnsupportedError: a plan that cannot run here, or no network to run in FP64.
    """
    if against not in AGAINST:
        raise UnknownNameError("reference", against, AGAINST)
    named = {config.model for config in configs}
    if len(named) != 1 or len(configs) < (2 if against == "first" else 1):
        raise ParameterError(
            "A comparison of outputs needs a reference and a candidate of one model.",
            "Give a parameter two values, e.g. engine=pytorch,openvino, or a reference in PyTorch.",
        )
    model = models.get(configs[0].model)
    sizes = dict.fromkeys((batch, length if model.has_sequence else configs[0].sequence) for batch, length in shapes or SIZES)
    return tuple(one for batch, length in sizes for one in _at([c.replace(batch=batch, sequence=length) for c in configs], seed, against))


def size(text: str) -> tuple[int, int]:
    """Batch and sequence length from a text such as ``7x16``.

    Raises:
        ParameterError: it is not written so.
    """
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text.strip())
    if not found:
        raise ParameterError(f"{text!r} is no size.", "Write batch x sequence length, as 7x16.")
    return int(found[1]), int(found[2])


def _at(configs: list[RunConfig], seed: int, against: str) -> list[OutputDifference]:
    """The comparison at the size that the configurations name."""
    from polygraphy.comparator import Comparator
    from polygraphy.logger import G_LOGGER

    from accel_helpers.compilation.debugging.runners import NetworkRunner, SessionRunner

    first, model = configs[0], models.get(configs[0].model)
    runners: list[Any] = [SessionRunner(one, f"{place} {plan_of(one).label}") for place, one in enumerate(configs)]
    plain = first.replace(engine=reference.engine_of(model), precision="fp32", device="cpu", mode="default", simplifier="off")
    if against != "first":
        runners.insert(0, NetworkRunner(first) if against == "fp64" else SessionRunner(plain))
    judged = configs[len(configs) + 1 - len(runners) :]
    said = "PyTorch FP64" if against == "fp64" else plan_of(plain if against == "fp32" else first).label
    size = (first.batch, first.sequence if model.has_sequence else None)
    feeds = [model.example(first.batch, first.sequence, seed)]
    found: list[OutputDifference] = []
    with G_LOGGER.verbosity():
        results = Comparator.run(runners, data_loader=feeds)
        for place, config in enumerate(judged, len(runners) - len(judged)):
            func = _judge(config, said, size, _tolerance(config, first if against == "first" else plain))
            (result,) = Comparator.compare_accuracy(results, comparisons=[(0, place)], compare_func=func)
            ((iteration,),) = result.values()
            found += iteration.values()
    return found


def _tolerance(config: RunConfig, right: RunConfig) -> float:
    return max(TOLERANCE[config.precision], TOLERANCE[right.precision])


def _judge(config: RunConfig, against: str, size: tuple[int, int | None], tolerance: float) -> Any:
    """A comparison function for Polygraphy, by the formulae of :mod:`accuracy`."""

    def judge(right: Mapping[str, Array], other: Mapping[str, Array]) -> OrderedDict[str, OutputDifference]:
        expected, actual = dict(right.items()), dict(other.items())
        found = OrderedDict()
        for name, one in compare_outputs(actual, expected).items():
            rows, elsewhere = _answers(actual.get(name), expected[name])
            found[name] = OutputDifference(
                plan_of(config), against, name, *size, one.max_absolute, one.relative, one.cosine, rows, elsewhere, tolerance
            )
        return found

    return judge


def _answers(actual: Array | None, expected: Array) -> tuple[int, int]:
    """Vectors along the last axis, and how many of them have their largest number elsewhere."""
    if expected.ndim < 2 or expected.shape[-1] < 2:
        return 0, 0
    rows = math.prod(expected.shape[:-1])
    if actual is None or actual.shape != expected.shape:
        return rows, rows
    return rows, int((actual.argmax(axis=-1) != expected.argmax(axis=-1)).sum())


@dataclass(frozen=True)
class TensorError(Record):
    """One tensor inside a graph against the tensor of the same name in another."""

    tensor: str
    node: str
    operator: str
    place: int  # of the operator in the graph's order
    max_absolute: float
    relative: float  # see accuracy.Difference; what is infinite in both alike, as a mask is, counts as equal
    cosine: float
    read: float  # the largest relative error of what the operator reads

    @property
    def jump(self) -> float:
        """How many times the error of what it reads its own is, or the rounding of one FP32 operator where that is more."""
        return self.relative / max(self.read, ROUNDING)


def along(
    graph: Path | Any, other: Path | Any, inputs: Mapping[str, Array], *, by: Literal["onnx_runtime", "onnx"] = "onnx_runtime"
) -> tuple[TensorError, ...]:
    """Every tensor that two graphs share, in the order of the first, which counts as right.

    Both run as they are written: each tensor is an output and nothing is fused, because a runtime that fuses has no such tensor. So compare
    a graph with one that a simplifier, a converter (to FP16, to INT8) or an optimiser wrote, and not a runtime with itself.

    Args:
        graph: an ONNX file or ``ModelProto``, run by ONNX Runtime.
        other: another one with the same names for the same tensors.
        inputs: named arrays.
        by: what runs ``other``: ONNX Runtime, or the reference implementation in the ``onnx`` package, operator by operator in NumPy.

    Raises:
        ModelError: a file is not an ONNX file.
        ParameterError: the graphs share no tensor.
    """
    first, second = read(graph), read(other)
    right = values(marked(first).SerializeToString(), inputs)
    found = _by_reference(second, inputs) if by == "onnx" else values(marked(second).SerializeToString(), inputs)
    errors: dict[str, TensorError] = {}
    nearest: dict[str, float] = {}  # of each tensor, also of those that are not shared: the error of what they were made from
    for node in Parts(first).nodes:
        read_error = max((nearest.get(name, 0.0) for name in node.inputs), default=0.0)
        for name in node.outputs:
            nearest[name] = read_error
            if name in found and name in right and right[name].dtype.kind == "f":
                one = apart(found[name], right[name])
                nearest[name] = one.relative
                errors[name] = TensorError(
                    name, node.name, node.operator, node.place, one.max_absolute, one.relative, one.cosine, read_error
                )
    if not errors:
        raise ParameterError("The two graphs share no tensor.", "Compare a graph with one that was made from it and kept its names.")
    return tuple(errors.values())


def _by_reference(model: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    found: Any = evaluator.run(None, dict(inputs), intermediate=True)
    return {name: np.asarray(value) for name, value in found.items()}


def first_jump(errors: Sequence[TensorError], least: float = TOLERANCE["fp32"]) -> TensorError | None:
    """The first tensor whose error is :data:`JUMP` times that of what its operator reads and more than ``least``; None where none is."""
    return next((one for one in errors if one.relative > least and one.jump >= JUMP), None)

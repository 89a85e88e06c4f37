"""Whether simplifying a graph makes its build succeed: refused graphs and healthy models, before and after onnxsim and onnxslim."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accel_helpers import models
from accel_helpers.accuracy import TOLERANCE
from accel_helpers.compilation.builds import _remedies, _sampled, faulty
from accel_helpers.compilation.builds._trial import Asked, absent, trial
from accel_helpers.compilation.builds.faulty import Case
from accel_helpers.compilation.builds.shape_trials import EXPORTED, sizes
from accel_helpers.engines import _onnx_export
from accel_helpers.engines._inputs import first_line
from accel_helpers.engines._onnx_simplify import TOOLS
from accel_helpers.engines._tensorrt_failures import Failure
from accel_helpers.errors import AccelError
from accel_helpers.models import Model

HEALTHY = ("tiny-cnn", "tiny-attention")


@dataclass(frozen=True)
class After:
    """What became of a graph after one simplifier."""

    tool: str
    ok: bool  # whether it was built
    said: str = ""  # why not, or why its meaning counts as changed
    error: float | None = None  # the largest relative error of an output against the graph before; None where that runs nowhere

    @property
    def helped(self) -> bool:
        """Whether it was built and is known to mean the same."""
        return self.ok and self.error is not None and self.error <= TOLERANCE["fp32"]


@dataclass(frozen=True)
class SimplifyTrial:
    """One graph before and after."""

    title: str
    ok: bool  # whether it was built as it was
    kind: str  # of the refusal; empty where there was none
    operator: str  # to blame
    said: str  # why it was refused
    foldable: bool  # whether the trouble is computed from constants alone, or read by nothing
    after: tuple[After, ...]


@dataclass(frozen=True)
class SimplifyTrials:
    """Every graph that was tried."""

    trials: tuple[SimplifyTrial, ...]
    missing: str = ""  # why nothing was tried; empty where something was

    @property
    def refused(self) -> tuple[SimplifyTrial, ...]:
        """The graphs that TensorRT refuses as they are."""
        return tuple(one for one in self.trials if not one.ok)

    @property
    def healthy(self) -> tuple[SimplifyTrial, ...]:
        """The graphs that it builds as they are."""
        return tuple(one for one in self.trials if one.ok)

    def mended(self, tool: str) -> tuple[SimplifyTrial, ...]:
        """The refused graphs that are built after ``tool``, and mean the same."""
        return tuple(one for one in self.refused if any(after.helped for after in one.after if after.tool == tool))


def _case(kind: str, title: str, graph: str, asked: Asked = faulty.RIGHT) -> Case:
    return Case(kind, title, graph, _remedies.folded, "folded constants (onnxsim)", asked, foldable=True)


_X = "(float[n,4] x) => (float[n,4] y)"
FOLDABLE: tuple[Case, ...] = (
    _case(
        "unsupported_operator",
        "positions of a constant mask (NonZero)",
        "(float[n,4] x) => (float[n,2] y) <float[4] mask = {1,0,1,0}, int64[1] first = {0}> "
        "{ [positions] i = NonZero(mask) j = Squeeze(i, first) y = Gather<axis=1>(x, j) }",
    ),
    _case(
        "unsupported_operator",
        "the spectrum of a constant window (DFT)",
        f"{_X} <float[1,4,1] window = {{1,2,3,4}}, int64 axis = {{1}}, int64[2] all = {{0,2}}> "
        "{ [spectrum] d = DFT(window, , axis) s = ReduceSum<keepdims=0>(d, all) y = Mul(x, s) }",
    ),
    _case(
        "unsupported_operator",
        "a grid of constants (AffineGrid)",
        "(float[1,1,4,4] x) => (float[1,1,2,2] y) <float[1,2,3] theta = {1,0,0, 0,1,0}, int64[4] size = {1,1,2,2}> "
        "{ [grid] g = AffineGrid(theta, size) y = GridSample(x, g) }",
        Asked(),
    ),
    _case(
        "unsupported_operator",
        "a branch that is never taken (If on the rank)",
        "(float[n,4] x) => (float[n,k] y) <int64 two = {2}> { s = Shape(x) r = Size(s) c = Equal(r, two) "
        "y = If(c)<then_branch = usual () => (float[n,4] t) { t = Relu(x) }, else_branch = other () => (float[k] e) { e = Unique(x) }> }",
    ),
    _case("unsupported_operator", "an operator that nothing reads (Unique)", f"{_X} {{ y = Relu(x) [unread] z = Unique(x) }}"),
    _case(
        "not_constant",
        "the mode of a Dropout is computed",
        f"{_X} <bool no = {{0}}, float ratio = {{0.5}}> {{ yes = Not(no) training = Not(yes) [drop] y = Dropout(x, ratio, training) }}",
    ),
)
"""Refused graphs whose trouble is computed from constants alone, or read by nothing."""


def simplifying(
    model_names: Sequence[str] = HEALTHY, cases: Sequence[Case] = (*FOLDABLE, *faulty.GRAPHS, *faulty.QUANTIZED)
) -> SimplifyTrials:
    """Build each graph as it is, after onnxsim and after onnxslim; outputs are compared where the graph runs in ONNX Runtime.

    Args:
        model_names: models whose exported graphs should go on building.
        cases: graphs that TensorRT refuses.
    """
    if missing := absent():
        return SimplifyTrials((), missing)
    return SimplifyTrials((*map(_of_case, cases), *(_of_model(models.get(name)) for name in model_names)))


def _of_case(case: Case) -> SimplifyTrial:
    with tempfile.TemporaryDirectory() as folder:
        path = case.write(Path(folder))
        before = trial(path, case.asked, "the graph")
        after = tuple(_after(path, case.asked, tool) for tool in TOOLS)
    failure = before.error.failure if before.error else Failure("", "", "")
    return SimplifyTrial(case.title, before.ok, failure.kind, failure.operator, failure.cause, case.foldable, after)


def _after(path: Path, asked: Asked, tool: str) -> After:
    """Rewrite a graph with one tool, build it, and compare it with the graph before."""
    import onnx

    out = path.with_name(f"{tool}.onnx")
    try:
        with _onnx_export.quiet():
            onnx.save(TOOLS[tool](onnx.load(path), {}), out)
    except Exception as error:  # each tool raises what its passes raise
        return After(tool, False, f"{tool} failed: {first_line(error)}")
    built = trial(out, asked, "the graph")
    given = _sampled.inputs(path, asked)
    moved = _sampled.moved(_sampled.tried(path, given), _sampled.tried(out, given))
    return After(tool, built.ok, built.error.failure.cause if built.error else "", moved)


def _of_model(model: Model) -> SimplifyTrial:
    """A model's exported graph; the export itself refuses what a simplifier changed the meaning of."""
    asked = Asked(sizes(model, 1, EXPORTED, 8))
    with tempfile.TemporaryDirectory() as folder:
        _onnx_export.export(model, Path(folder))
        before = trial(Path(folder) / _onnx_export.FILE, asked, model.name)
    failure = before.error.failure if before.error else Failure("", "", "")
    after = tuple(_exported(model, asked, tool) for tool in TOOLS)
    return SimplifyTrial(model.name, before.ok, failure.kind, failure.operator, failure.cause, False, after)


def _exported(model: Model, asked: Asked, tool: str) -> After:
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = _onnx_export.export(model, Path(folder), tool)
        except AccelError as error:
            return After(tool, False, error.what)
        built = trial(Path(folder) / _onnx_export.FILE, asked, model.name)
    return After(tool, built.ok, built.error.failure.cause if built.error else "", report["worst_error"])

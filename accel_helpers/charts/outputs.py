"""What two engines answer side by side, the operator to blame, and the error from tensor to tensor of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from accel_helpers.accuracy import TOLERANCE
from accel_helpers.charts.chart import MARKERS, PALETTE, Chart, Table, chart, shown
from accel_helpers.charts.words import counted, plan_labels
from accel_helpers.compilation.debugging.bisect import Culprit
from accel_helpers.compilation.debugging.outputs import OutputDifference, TensorError, first_jump
from accel_helpers.errors import ParameterError
from accel_helpers.records import Plan

_LEAST = 1e-9
"""Where an error of zero is drawn: far below the rounding of FP32, 6e-8."""


def differences_table(differences: Sequence[OutputDifference]) -> Table:
    """A row for each output of each plan at each size."""
    head = ["Plan", "Against", "Output", "Size", "Largest difference", "Relative error", "Cosine", "Other answers", "Within rounding"]
    sizes: dict[tuple[int, int | None], list[Plan]] = {}
    for one in differences:
        sizes.setdefault((one.batch, one.sequence), []).append(one.plan)
    names = {plan: name for plans in sizes.values() for plan, name in _named(plans)}
    return [head, *(_row(names[one.plan], one) for one in differences)]


def _named(plans: Sequence[Plan]) -> Iterable[tuple[Plan, str]]:
    distinct = list(dict.fromkeys(plans))
    return zip(distinct, plan_labels(distinct), strict=True)


def _row(name: str, one: OutputDifference) -> list[str]:
    size = f"{one.batch}" if one.sequence is None else f"{one.batch} x {one.sequence}"
    answers = f"{one.other_answers:,} of {one.rows:,}" if one.rows else "one number each"
    within = f"{'yes' if one else 'NO'}, up to {one.tolerance:.2g}"
    figures = [f"{one.max_absolute:.2g}", f"{one.relative:.2g}", f"{one.cosine:.6f}"]
    return [name, one.against, one.output, size, *figures, answers, within]


def culprit_table(culprits: Sequence[Culprit]) -> Table:
    """A row for each culprit: the operator, the part that still fails, the attempts that it took, and what was said."""
    head = ["Check", "Operator", "Node", "Place", "Part that still fails", "Attempts", "Complaint"]
    return [head, *(_culprit(one) for one in culprits)]


def _culprit(one: Culprit) -> list[str]:
    place = f"{one.place + 1} of {one.operators}"
    return [one.check, one.operator, one.node, place, counted(one.left, "operator"), str(one.tries), one.complaint]


def error_along(errors: Sequence[TensorError], *, title: str = "Error along the graph", tolerance: float = TOLERANCE["fp32"]) -> Chart:
    """The relative error of every tensor, in the graph's order, on a logarithmic axis.

    Args:
        errors: from :func:`accel_helpers.compilation.outputs.along`.
        title: of the chart.
        tolerance: the error that counts as wrong, drawn as a line.

    Raises:
        ParameterError: there is no tensor.
    """
    if not errors:
        raise ParameterError("A chart of no tensors was asked for.", "Give at least one tensor.")
    import plotly.graph_objects as go

    jump = first_jump(errors, tolerance)
    places, drawn = [one.place for one in errors], shown([max(one.relative, _LEAST) for one in errors], 1.0)
    hover = [f"{one.tensor} ({one.operator}): {one.relative:.2g}" for one in errors]
    look = {"mode": "lines+markers", "line": {"color": PALETTE[0], "width": 1}, "marker": {"size": 5, "symbol": MARKERS[0]}}
    traces = [go.Scatter(x=places, y=drawn, name="relative error", hovertext=hover, hoverinfo="text", **look)]
    if jump:
        marker = {"size": 12, "symbol": MARKERS[1], "color": PALETTE[1]}
        traces.append(go.Scatter(x=[jump.place], y=shown([jump.relative], 1.0), mode="markers", name="first jump", marker=marker))
    layout = {
        "title": {"text": title},
        "xaxis": {"title": {"text": "Place of the operator in the graph"}},
        "yaxis": {"title": {"text": "Relative error"}, "type": "log", "exponentformat": "power"},
        "shapes": [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": tolerance, "y1": tolerance, "line": {"dash": "dot"}}],
        "showlegend": True,
    }
    rows = [[one.tensor, one.operator, str(one.place), f"{one.relative:.3g}", f"{one.jump:.3g}"] for one in errors]
    return chart(traces, layout, _words(errors, jump, tolerance), [["Tensor", "Operator", "Place", "Relative error", "Jump"], *rows])


def _words(errors: Sequence[TensorError], jump: TensorError | None, tolerance: float) -> str:
    worst, last = max(errors, key=lambda one: one.relative), errors[-1]
    ends = f"the last of {counted(len(errors), 'tensor')}, {last.tensor}, is off by {last.relative:.2g}"
    if jump:
        return (
            f"The error jumps at {jump.tensor} ({jump.operator}), from {jump.read:.2g} in what it reads to {jump.relative:.2g}; {ends} "
            f"({tolerance:.2g} counts as wrong)."
        )
    grown = "no operator adds much by itself" if worst.relative > tolerance else "none counts as wrong"
    return (
        f"The error jumps nowhere: the largest is {worst.relative:.2g}, at {worst.tensor} ({worst.operator}), and {grown}; {ends} "
        f"({tolerance:.2g} counts as wrong)."
    )

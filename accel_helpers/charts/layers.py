"""A figure for each layer of a model, the layers to look at first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from accel_helpers.charts.chart import Chart, bar_look, chart, shown
from accel_helpers.errors import ParameterError

_LONGEST = 44
"""Letters of a layer's name on an axis; its end tells layers apart, so the beginning is cut."""


def layer_bars(
    names: Sequence[str],
    values: Sequence[float],
    groups: Sequence[str],
    *,
    quantity: str,
    unit: str,
    title: str,
    evidence: str,
    lowest_first: bool = True,
    most: int = 40,
) -> Chart:
    """One bar for each layer, sorted, coloured by group: signal-to-noise ratios in dB, losses in points, shares in %.

    Args:
        names: each layer's name.
        values: each layer's figure, in ``unit``.
        groups: what kind of layer it is: "attention", "softmax", "convolution" …
        quantity: what the figure is, for the axis: "Signal-to-noise ratio".
        unit: of the figure: "dB".
        title: of the chart.
        evidence: what the figures rest on, for the sentence: "n = 64 samples".
        lowest_first: the layers to look at are those with the lowest figures, else those with the highest.
        most: bars to draw; the table holds every layer.

    Raises:
        ParameterError: there is no layer.
    """
    if not names:
        raise ParameterError("A chart of no layers was asked for.", "Give at least one layer.")
    import plotly.graph_objects as go

    order = sorted(zip(values, names, groups, strict=True), key=lambda one: one[0] if lowest_first else -one[0])
    drawn, rest = order[:most], order[most:]
    kinds = list(dict.fromkeys(sorted(groups)))
    traces = []
    for index, kind in enumerate(kinds):
        mine = [(row, value) for row, (value, _, group) in enumerate(drawn) if group == kind]
        rows, lengths = [row for row, _ in mine], shown([value for _, value in mine], 1.0)
        hover = [f"{drawn[row][1]}: {value:.4g} {unit}" for row, value in mine]
        traces.append(
            go.Bar(x=lengths, y=rows, orientation="h", name=kind, marker=bar_look(index), width=0.7, hovertext=hover, hoverinfo="text")
        )
    layout = {
        "title": {"text": title},
        "barmode": "overlay",
        "xaxis": {"title": {"text": f"{quantity} ({unit})"}, "zeroline": True},
        "yaxis": {
            "tickvals": list(range(len(drawn))),
            "ticktext": [_cut(name) for _, name, _ in drawn],
            "range": [len(drawn) - 0.4, -0.6],
            "showgrid": False,
            "tickfont": {"size": 11},
        },
        "height": 170 + 19 * len(drawn),
        "showlegend": True,
    }
    sentence = _layer_words(order, rest, f"{quantity[0].lower()}{quantity[1:]}", unit, "lowest" if lowest_first else "highest", evidence)
    return chart(traces, layout, sentence, [["Layer", "Group", f"{quantity} ({unit})"], *([n, g, f"{v:.4g}"] for v, n, g in order)])


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"


def _layer_words(order: Sequence[tuple[float, str, str]], rest: Sequence[Any], quantity: str, unit: str, end: str, evidence: str) -> str:
    value, name, group = order[0]
    sentence = f"{name} ({group}) has the {end} {quantity}, {value:.3g} {unit}"
    if len(order) > 1:
        middle = sorted(one[0] for one in order)[len(order) // 2]
        sentence += f"; the median of the {len(order)} layers is {middle:.3g} {unit}"
    if len(order) > 9:
        tenth = order[: len(order) // 10]
        kinds = ", ".join(f"{often} {kind}" for kind, often in Counter(one[2] for one in tenth).most_common())
        sentence += f". The {end} tenth are {kinds}"
    if rest:
        low, high = min(one[0] for one in rest), max(one[0] for one in rest)
        sentence += f". Drawn are {len(order) - len(rest)}; the other {len(rest)} lie between {low:.3g} and {high:.3g} {unit}"
    return f"{sentence} ({evidence})."

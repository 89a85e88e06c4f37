"""A model's graph before and after fusion: how many nodes each compiler leaves, and a piece of it as a picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accel_helpers.charts.chart import INK, PALETTE, QUIET, Chart, bar_look, chart
from accel_helpers.charts.layered import Layout, layered
from accel_helpers.charts.units import seconds
from accel_helpers.compilation.graphs.fusion import Fusion
from accel_helpers.compilation.graphs.graph import Graph, Stage
from accel_helpers.errors import ParameterError

_WIDEST = 3
"""Values that may be alive where a piece is cut out of a graph."""
_HALF_WIDTH, _HALF_HEIGHT = 0.46, 0.36  # of a box, in units of the layout
_LINE = 11
"""Letters of an operator's name on one line of a box."""
_CROWDED = 4
"""Boxes beside one another that leave too little room for letters of the usual size."""


def graph_counts(fusion: Fusion) -> Chart:
    """The nodes of each stage: those that compute, and those that hold, move or describe values."""
    import plotly.graph_objects as go

    found = [one for one in fusion.stages if one.graph]
    names = [one.name for one in found]
    computing = [one.graph.computing for one in found if one.graph]
    moving = [one.graph.total - one.graph.computing for one in found if one.graph]
    traces = [
        go.Bar(
            x=values,
            y=names,
            orientation="h",
            name=name,
            width=0.65,
            marker=bar_look(look),
            text=[str(value) for value in values],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": "#FFFFFF"},
            hovertemplate=f"%{{y}}: %{{x}} nodes, {name}<extra></extra>",
        )
        for look, (name, values) in enumerate((("compute", computing), ("hold, move or describe values", moving)))
    ]
    layout = {
        "title": {"text": f"The graph before and after fusion: {fusion.model}"},
        "barmode": "stack",
        "xaxis": {"title": {"text": "Nodes (number)"}},
        "yaxis": {"autorange": "reversed", "showgrid": False, "ticksuffix": " "},
        "legend": {"traceorder": "normal"},
        "height": 180 + 32 * len(found),
        "showlegend": True,
    }
    table = [["Stage", "Nodes", "Compute", "Fused from two or more", "To compile", "Commonest, or why there is none"]]
    table += [_row(fusion, one) for one in fusion.stages]
    return chart(traces, layout, _count_words(fusion), table)


def _row(fusion: Fusion, one: Stage) -> list[str]:
    if one.graph is None:
        return [one.name, "", "", "", "", one.reason]
    commonest = ", ".join(f"{count} {operator}" for operator, count in one.graph.operators.most_common(6))
    fused = str(len(fusion.fused(one.name))) if one.source else ""
    return [one.name, str(one.graph.total), str(one.graph.computing), fused, seconds(one.seconds) if one.seconds else "", commonest]


def _count_words(fusion: Fusion) -> str:
    """Each engine's last stage against the first that it was made from."""
    last = {one.engine: one for one in fusion.stages if one.graph and one.source}
    said = []
    for engine, one in last.items():
        first = next(other for other in fusion.stages if other.engine == engine or other.name == one.source)
        first = first if first.engine == engine and not first.source else fusion.stage(one.source)
        assert first.graph
        assert one.graph
        joined = f"{len(fusion.fused(one.name))} of them the work of several"
        said.append(f"{engine} makes {one.graph.computing} of {first.graph.computing} ({first.name}), {joined}")
    without = [f"{one.name}: {one.reason}" for one in fusion.stages if one.graph is None]
    missing = f" {'; '.join(without)}." if without else ""
    return f"Counting nodes that compute, {'; '.join(said)} (n = 1 graph, exact).{missing}"


@dataclass(frozen=True)
class _Side:
    """One half of the picture."""

    graph: Graph  # the nodes drawn, and those outside that feed them
    outside: frozenset[str]
    groups: Mapping[str, int]  # node -> the number of its fused group


def graph_piece(fusion: Fusion, stage: str = "onnx_runtime, ALL", most: int = 26) -> Chart:
    """A piece of the graph as it was and as a compiler left it; nodes that became one layer bear its number and colour.

    Args:
        fusion: what :func:`~accel_helpers.compilation.fusion.fused` found.
        stage: the name of a compiled stage.
        most: computing nodes in the piece. Of all stretches that begin and end where few values are alive, it is the one with the most
            nodes that were fused.

    Raises:
        ParameterError: there is no such stage, it has no graph, or no stretch is that short.
    """
    one = fusion.stage(stage)
    if one.graph is None or not one.source:
        raise ParameterError(f"{stage} is no graph that was made from another. {one.reason}".strip(), "Choose a compiled stage.")
    source = fusion.stage(one.source).graph
    assert source
    fused = fusion.fused(stage)
    before = source.kept(node.name for node in source.nodes if node.computes)
    names = _stretch(before, [set(group) for group in fused.values()], most)
    after = one.graph.kept(node.name for node in one.graph.nodes if node.computes)
    layers = _layers(after, {layer for layer, group in one.groups.items() if set(group) & names})
    numbers = {layer: number for number, layer in enumerate((n.name for n in after.nodes if n.name in layers and n.name in fused), 1)}
    left = _side(before, names, {name: numbers[layer] for layer in numbers for name in fused[layer]})
    right = _side(after, layers, numbers)
    counts = [(len(names), before.computing), (len(layers), after.computing)]
    was, made = ({node.name: node.operator for node in graph.nodes} for graph in (source, one.graph))
    table = [["Number", "Layer", "Does the work of", "Nodes"]]
    for layer in (node.name for node in after.nodes if node.name in layers):
        work = fused.get(layer, tuple(name for name in one.groups.get(layer, ()) if name in names))
        table.append(
            [
                str(numbers.get(layer, "")),
                made[layer],
                ", ".join(was[name] for name in work) or "part of a node",
                ", ".join(work),
            ]
        )
    kinds = Counter((made[layer], tuple(was[name] for name in fused[layer])) for layer in numbers)
    said = [f"{_times(often)}{kind} does the work of {' + '.join(work)}" for (kind, work), often in kinds.most_common()]
    joined = "; ".join(said) or "none is fused"
    sentence = (
        f"In this piece of {fusion.model} {counts[0][0]} computing nodes become {counts[1][0]} in {stage}: {joined} "
        f"(n = 1 graph, {counts[0][1]} computing nodes before and {counts[1][1]} after in all; values flow downwards)."
    )
    return _drawn(left, right, counts, f"A piece of {fusion.model}, and what {stage} made of it", sentence, table)


def _times(often: int) -> str:
    return f"{often} times " if often > 1 else ""


def _stretch(graph: Graph, groups: Sequence[set[str]], most: int) -> set[str]:
    """The names of the nodes of the best piece: no group torn, then the most nodes of groups, then the fewest nodes, then the first."""
    order = [node.name for node in graph.nodes]
    last = {name: place for place, name in enumerate(order)}
    for place, node in enumerate(graph.nodes):
        last.update(dict.fromkeys(node.inputs, place))
    alive = [sum(last[name] > place for name in order[: place + 1]) for place in range(len(order))]
    cuts = [0, *(place + 1 for place, count in enumerate(alive) if count <= _WIDEST)]
    pieces = [(begin, end) for begin in cuts for end in cuts if 0 < end - begin <= most]
    if not pieces:
        raise ParameterError(f"No piece of this graph has {most} computing nodes or fewer.", "Ask for more.")

    def merit(piece: tuple[int, int]) -> tuple[int, int, int, int]:
        names = set(order[slice(*piece)])
        whole = [group for group in groups if group <= names]
        torn = sum(bool(group & names) for group in groups) - len(whole)
        return -torn, sum(map(len, whole)), piece[0] - piece[1], -piece[0]

    return set(order[slice(*max(pieces, key=merit))])


def _layers(after: Graph, owning: set[str]) -> set[str]:
    """The computing layers that do a piece's work, with those that lie between two of them."""
    reached: set[str] = set()
    for node in after.nodes:
        if node.name in owning or reached & set(node.inputs):
            reached.add(node.name)
    needed: set[str] = set()
    for node in reversed(after.nodes):
        if node.name in owning or node.name in needed:
            needed |= {node.name, *node.inputs}
    return {node.name for node in after.nodes} & (owning | (reached & needed))


def _side(graph: Graph, names: set[str], groups: Mapping[str, int]) -> _Side:
    outside = {source for node in graph.nodes if node.name in names for source in node.inputs} - names
    return _Side(Graph(tuple(node for node in graph.nodes if node.name in names | outside)), frozenset(outside), groups)


def _drawn(left: _Side, right: _Side, counts: Sequence[tuple[int, int]], title: str, sentence: str, table: list[list[str]]) -> Chart:
    traces: list[Any] = []
    shapes: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"title": {"text": title}, "shapes": shapes, "showlegend": False, "hovermode": "closest"}
    deepest = 0.0
    for number, (side, (drawn, whole), word) in enumerate(zip((left, right), counts, ("Before", "After"), strict=True), 1):
        inputs = {node.name: [] if node.name in side.outside else node.inputs for node in side.graph.nodes}
        places = layered(inputs)
        axis = "" if number == 1 else "2"
        traces += _traces(side, places, axis)
        shapes += _boxes(side, places, axis)
        low, high, depth = places.span
        middle, half = (low + high) / 2, max((high - low) / 2, 1.0) + 0.6
        deepest = max(deepest, depth)
        layout[f"xaxis{axis}"] = {
            "domain": [0, 0.48] if number == 1 else [0.52, 1],
            "range": [middle - half, middle + half],
            "anchor": f"y{axis}",
            "title": {"text": f"{word}: {drawn} computing nodes (of {whole})"},
            **_BARE,
        }
    for axis, anchor in (("yaxis", "x"), ("yaxis2", "x2")):
        layout[axis] = {"range": [deepest + 0.6, -0.6], "anchor": anchor, **_BARE}
    layout["height"] = 130 + 46 * (int(deepest) + 1)
    return chart(traces, layout, sentence, table)


_BARE = {"showgrid": False, "showticklabels": False, "ticks": "", "showline": False, "zeroline": False}


def _traces(side: _Side, places: Layout, axis: str) -> list[Any]:
    """The edges, and the names in the boxes."""
    import plotly.graph_objects as go

    xs: list[float | None] = []
    ys: list[float | None] = []
    for path in places.paths:
        (first, top), *between, (last, bottom) = path
        points = [(first, top + _HALF_HEIGHT), *between, (last, bottom - _HALF_HEIGHT)]
        xs += [*(round(x, 3) for x, _ in points), None]
        ys += [*(round(y, 3) for _, y in points), None]
    edges = go.Scatter(x=xs, y=ys, mode="lines", line={"color": QUIET, "width": 1.2}, hoverinfo="skip", xaxis=f"x{axis}", yaxis=f"y{axis}")
    nodes = side.graph.nodes
    low, high, _ = places.span
    said = [f"{node.operator}: {node.name}" for node in nodes]
    names = go.Scatter(
        x=[round(places.places[node.name][0], 3) for node in nodes],
        y=[places.places[node.name][1] for node in nodes],
        mode="text",
        text=[_label(side, node.name, node.operator) for node in nodes],
        textfont={"size": 11 if high - low < _CROWDED else 9, "color": [QUIET if node.name in side.outside else INK for node in nodes]},
        hovertext=said,
        hoverinfo="text",
        xaxis=f"x{axis}",
        yaxis=f"y{axis}",
    )
    return [edges, names]


def _label(side: _Side, name: str, operator: str) -> str:
    """The operator in two lines at most, after the number of its group; in italics where it lies outside the piece."""
    number = f"<b>{side.groups[name]}</b> " if name in side.groups and name not in side.outside else ""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^A-Z_ ]+|_| ", operator)
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > _LINE and lines[-1]:
            lines.append("")
        lines[-1] += word
    text = "<br>".join(lines[:2]) + ("…" if len(lines) > 2 else "")
    return f"<i>{text}</i>" if name in side.outside else f"{number}{text}"


def _boxes(side: _Side, places: Layout, axis: str) -> list[dict[str, Any]]:
    boxes = []
    for node in side.graph.nodes:
        x, y = places.places[node.name]
        number = None if node.name in side.outside else side.groups.get(node.name)
        colour = PALETTE[(number - 1) % len(PALETTE)] if number else QUIET
        boxes.append(
            {
                "type": "rect",
                "layer": "below",
                "xref": f"x{axis}",
                "yref": f"y{axis}",
                "x0": round(x - _HALF_WIDTH, 3),
                "x1": round(x + _HALF_WIDTH, 3),
                "y0": y - _HALF_HEIGHT,
                "y1": y + _HALF_HEIGHT,
                "fillcolor": _tint(colour) if number else "#FFFFFF",
                "line": {"color": colour, "width": 2.5 if number else 1, "dash": "dot" if node.name in side.outside else "solid"},
            }
        )
    return boxes


def _tint(colour: str) -> str:
    """A light shade of a colour, on which dark text reads."""
    parts = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - 0.2 * (255 - part)):02X}" for part in parts)

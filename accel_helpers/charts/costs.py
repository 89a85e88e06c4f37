"""What an engine costs beside its calls: building it, having it again, and the memory of a call at its peak."""

from __future__ import annotations

from accel_helpers.charts.chart import Chart, Table, bar_look, chart, shown
from accel_helpers.charts.units import seconds, size, size_scale
from accel_helpers.charts.versus import bars
from accel_helpers.compilation.costs.memory import Peaks
from accel_helpers.compilation.costs.reusing import Reuse


def reuse(found: Reuse) -> Table:
    """One row for each engine: seconds to build it, to find it built, the share, and to load it and make a first call."""
    rows = [["Engine", "Built the first time", "Found built", "Share", "Loaded and called", "Builds"]]
    for one in found.costs:
        share = f"{one.share.value:.2%} [{one.share.low:.2%}, {one.share.high:.2%}]"
        ready = seconds(max(one.ready)) if one.ready else one.reason
        rows.append([one.plan.engine, seconds(max(one.built)), f"at most {seconds(max(one.found))}", share, ready, str(len(one.built))])
    return rows


def peaks(found: Peaks) -> Chart:
    """The bytes that calls add to a process at its peak, a bar for each way to run the model, beside what the graph says it takes."""
    import plotly.graph_objects as go

    ways = sorted(found.added, key=lambda way: -found.of(way).value)
    names, values = [way.name for way in ways], [found.of(way) for way in ways]
    factor, unit = size_scale(values[0].value)
    lines = {"every value kept": found.unfused.total, "alive at a time, unfused": found.unfused.peak, "fused": found.fused.peak}
    traces = [
        go.Bar(
            x=shown([one.value for one in values], factor),
            y=names,
            orientation="h",
            marker=bar_look(0),
            width=0.6,
            error_x={**bars(values, factor), "color": "#222222"},
            hovertext=[f"{name}: {size(one)}" for name, one in zip(names, values, strict=True)],
            hoverinfo="text",
            showlegend=False,
        )
    ]
    for number, (name, bytes_) in enumerate(lines.items()):
        look = {"line": {"dash": ("dash", "dot", "dashdot")[number], "color": "#444444"}, "mode": "lines", "name": f"by the graph: {name}"}
        traces.append(go.Scatter(x=[bytes_ / factor] * 2, y=[names[0], names[-1]], hoverinfo="skip", **look))
    layout = {
        "title": {"text": f"Memory of a call at its peak: {found.model}, batch {found.plan.batch}"},
        "xaxis": {"title": {"text": f"Added to the loaded process ({unit})"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "showgrid": False, "ticksuffix": " "},
        "height": 200 + 32 * len(ways),
        "showlegend": True,
    }
    tries = f"n = {len(found.added[ways[0]])} fresh processes each"
    exact = ", ".join(f"{name} {size(bytes_)}" for name, bytes_ in lines.items())
    sentence = (
        f"The most memory takes {names[0]}, {size(values[0])}, the least {names[-1]}, {size(values[-1])} (95 % intervals, {tries}). "
        f"By the graph: {exact}."
    )
    return chart(traces, layout, sentence, [["Way", "Peak [95 %]"], *([name, size(one)] for name, one in zip(names, values, strict=True))])

"""Charts that set measurements against one another: over the batch size, and against a baseline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from accel_helpers.charts.chart import DASHES, INK, MARKERS, PALETTE, QUIET, Chart, Table, axis_type, chart, shown
from accel_helpers.charts.summary import word_shown
from accel_helpers.charts.units import bounded, rate, ratio, seconds, time_scale
from accel_helpers.charts.words import compared, counted, labels, sampled
from accel_helpers.errors import ParameterError
from accel_helpers.intervals import Estimate
from accel_helpers.records import Measurement, Verdict

_KNEE = 0.9
"""The knee is the smallest batch with this share of the best throughput: beyond it, latency buys little."""
_COLOURS = {"faster": PALETTE[0], "slower": PALETTE[1], "no difference": QUIET, "too noisy": PALETTE[3]}


def bars(estimates: Sequence[Estimate], factor: float) -> dict[str, Any]:
    """Interval bars around the values; none where no finite interval exists."""
    finite = [math.isfinite(one.low) and math.isfinite(one.high) for one in estimates]
    found = [one if known else Estimate(one.value, one.value, one.value) for one, known in zip(estimates, finite, strict=True)]
    return {
        "type": "data",
        "symmetric": False,
        "array": shown([max(one.high - one.value, 0.0) for one in found], factor),
        "arrayminus": shown([max(one.value - one.low, 0.0) for one in found], factor),
        "thickness": 1.5,
        "width": 5,
    }


def batch_sweep(measurements: Sequence[Measurement]) -> Chart:
    """Throughput above and median call time below, against the batch size, with interval bars: a line for each plan and model.

    Raises:
        ParameterError: there is nothing to draw.
    """
    if not measurements:
        raise ParameterError("A batch sweep of no measurements was asked for.", "Measure a plan at two batch sizes or more.")
    series = _series(measurements)
    factor, unit = time_scale(min(one.p50.value for one in measurements))
    batches = sorted({one.plan.batch for one in measurements})
    traces = [trace for index, (name, found) in enumerate(series.items()) for trace in _sweep_traces(index, name, found, factor)]
    axis = {"type": "log", "tickvals": batches, "ticktext": [str(batch) for batch in batches]}
    rates = [one.throughput.value for one in measurements]
    times = [one.p50.value for one in measurements]
    layout = {
        "title": {"text": "Throughput and call time over the batch size"},
        "xaxis": {**axis, "anchor": "y", "matches": "x2", "showticklabels": False},
        "xaxis2": {**axis, "anchor": "y2", "title": {"text": "Batch size (items per call)"}},
        "yaxis": {"title": {"text": "Throughput (items/s)"}, "domain": [0.54, 1], "type": axis_type(rates), "rangemode": "tozero"},
        "yaxis2": {"title": {"text": f"P50 ({unit})"}, "domain": [0, 0.46], "type": axis_type(times), "rangemode": "tozero"},
        "height": 560,
        "showlegend": True,
    }
    rows = [["Plan", "Batch", "Throughput [95 %]", "P50 [95 %]", "Evidence", "Status"]]
    for name, found in series.items():
        for one in found:
            rows.append([name, str(one.plan.batch), rate(one.throughput), seconds(one.p50), sampled(one), one.status])
    return chart(traces, layout, " ".join(_sweep_words(name, found) for name, found in series.items()), rows)


def _series(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """Measurements that differ in nothing but the batch, by increasing batch, under the name that they share."""
    groups: dict[Any, list[Measurement]] = {}
    for one in sorted(measurements, key=lambda one: one.plan.batch):
        groups.setdefault((one.model, replace(one.plan, batch=1), one.scope), []).append(one)
    names = labels([replace(found[0], plan=replace(found[0].plan, batch=1)) for found in groups.values()])
    return {name.replace(" b1", "", 1): found for name, found in zip(names, groups.values(), strict=True)}


def _sweep_traces(index: int, name: str, found: Sequence[Measurement], factor: float) -> list[Any]:
    import plotly.graph_objects as go

    color = PALETTE[index % len(PALETTE)]
    look = {
        "x": [one.plan.batch for one in found],
        "name": name,
        "legendgroup": name,
        "mode": "lines+markers",
        "line": {"color": color, "dash": DASHES[index % len(DASHES)]},
        "marker": {"symbol": MARKERS[index % len(MARKERS)], "size": 8},
    }
    rates, times = [one.throughput for one in found], [one.p50 for one in found]
    return [
        go.Scatter(**look, y=shown([one.value for one in rates], 1.0), error_y=bars(rates, 1.0)),
        go.Scatter(
            **look, y=shown([one.value for one in times], factor), error_y=bars(times, factor), xaxis="x2", yaxis="y2", showlegend=False
        ),
    ]


def _sweep_words(name: str, found: Sequence[Measurement]) -> str:
    first, last = found[0], found[-1]
    if len(found) == 1:
        return (
            f"{name} at batch {first.plan.batch}: {rate(first.throughput)}, P50 {seconds(first.p50)} (95 % intervals, "
            f"{sampled(first)}, {first.status})."
        )
    best = max(one.throughput.value for one in found)
    knee = next(one for one in found if one.throughput.value >= _KNEE * best)
    return (
        f"{name}: from batch {first.plan.batch} to {last.plan.batch}, throughput goes from {rate(first.throughput)} to "
        f"{rate(last.throughput)} and P50 from {seconds(first.p50)} to {seconds(last.p50)} (95 % intervals, at least "
        f"{counted(min(len(one.samples) for one in found), 'call')} in {counted(min(len(one.rounds) for one in found), 'round')} each, "
        f"{', '.join(sorted({one.status for one in found}))}). "
        f"Batch {knee.plan.batch} is the smallest with {_KNEE:.0%} of the best throughput."
    )


def comparison(measurements: Sequence[Measurement], verdicts: Sequence[Verdict]) -> Chart:
    """Each candidate's speed-up over its baseline with interval bars, by wall time and by CPU time, and the word for it.

    Args:
        measurements: at least all those that the verdicts speak of.
        verdicts: one per candidate.

    Raises:
        ParameterError: a verdict speaks of a measurement that is not given, or there is no verdict.
    """
    if not verdicts:
        raise ParameterError("A comparison without a verdict was asked for.", "Compare two measurements first.")
    import plotly.graph_objects as go

    pairs = [compared(verdict, measurements) for verdict in verdicts]
    baselines = {baseline.digest: baseline for baseline, _ in pairs}
    names = labels([*baselines.values(), *(candidate for _, candidate in pairs)])[len(baselines) :]
    walls, cpus = [verdict.speedup for verdict in verdicts], [verdict.cpu_speedup for verdict in verdicts]
    traces = [
        *_speedup_traces("Wall time", "circle", -0.17, walls, [word_shown(verdict, verdict.word) for verdict in verdicts]),
        *_speedup_traces("CPU time", "diamond-open", 0.17, cpus, [word_shown(verdict, verdict.cpu_word) for verdict in verdicts]),
    ]
    one = {"color": INK, "width": 2, "dash": "dash"}
    rows = len(verdicts)
    traces.append(go.Scatter(x=[1, 1], y=[-0.6, rows - 0.4], mode="lines", line=one, name="As fast as the baseline", hoverinfo="skip"))
    edges = [edge for found in (*walls, *cpus) for edge in ((found.low, found.high) if bounded(found) else (found.value,))]
    low, high = math.log10(min(1.0, *edges)), math.log10(max(1.0, *edges))
    room = max(high - low, 0.05)
    low, high = low - 0.1 * room, high + 0.5 * room  # the words stand to the right of the bars
    marks = ticks(low, high)
    layout = {
        "title": {"text": f"Speed-up over {_baseline_name(list(baselines.values()))}"},
        "xaxis": {
            "title": {"text": "Speed-up (times, logarithmic; right of 1 is faster)"},
            "type": "log",
            "range": [round(low, 4), round(high, 4)],
            "tickvals": marks,
            "ticktext": [f"{tick:g}" for tick in marks],
        },
        "yaxis": {"tickvals": list(range(rows)), "ticktext": names, "range": [rows - 0.4, -0.6], "showgrid": False},
        "height": 200 + 64 * rows,
    }
    return chart(traces, layout, _comparison_words(names, pairs, verdicts), _comparison_table(names, pairs, verdicts))


def _speedup_traces(name: str, symbol: str, shift: float, found: Sequence[Estimate], words: Sequence[str]) -> list[Any]:
    """Points with interval bars, and beyond each bar the word and the figure."""
    import plotly.graph_objects as go

    colors = [INK if word.startswith("INVALID") else _COLOURS[word.rpartition(": ")[2]] for word in words]
    heights = [index + shift for index in range(len(found))]
    points = go.Scatter(
        x=shown([one.value for one in found], 1.0),
        y=heights,
        error_x={**bars(found, 1.0), "color": QUIET},
        name=name,
        mode="markers",
        marker={"symbol": symbol, "size": 10, "color": colors, "line": {"width": 2, "color": colors}},
        hovertext=[f"{name}: {ratio(one)}" for one in found],
        hoverinfo="text",
    )
    said = go.Scatter(
        x=shown([one.high if bounded(one) else one.value for one in found], 1.0),
        y=heights,
        mode="text",
        text=[f"  {word} {ratio(one.value)}" for word, one in zip(words, found, strict=True)],
        textposition="middle right",
        hoverinfo="skip",
        showlegend=False,
    )
    return [points, said]


def ticks(low: float, high: float) -> list[float]:
    """Round factors between two powers of ten, the closer the shorter the axis."""
    near = [0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2]
    middle = [0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1, 1.2, 1.5, 2, 3, 5, 7, 10]
    far = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    chosen = near if high - low < 0.15 else middle if high - low < 1.1 and high < 1.1 else far
    return [tick for tick in chosen if low <= math.log10(tick) <= high]


def _baseline_name(baselines: Sequence[Measurement]) -> str:
    return ", ".join(dict.fromkeys(f"{one.model}, {one.plan.label}" for one in baselines))


def _comparison_words(names: Sequence[str], pairs: Sequence[tuple[Measurement, Measurement]], verdicts: Sequence[Verdict]) -> str:
    """Every candidate where there are few; else how many got which word, and the fastest."""
    baseline = _baseline_name([one for one, _ in pairs])
    said = [
        f"{name} is {verdict.word} by wall time, {ratio(verdict.speedup)}, and {verdict.cpu_word} by CPU time, "
        f"{ratio(verdict.cpu_speedup)} (95 % intervals, n = {counted(len(verdict.wall), 'paired round')}, {verdict.status})."
        + (" An INVALID comparison is no result." if verdict.status == "INVALID" else "")
        for name, verdict in zip(names, verdicts, strict=True)
    ]
    if len(said) <= 3:
        return f"Against {baseline}: {' '.join(said)}"
    tally = ", ".join(f"{count} {word}" for word, count in Counter(word_shown(one, one.word) for one in verdicts).items())
    best = max(range(len(verdicts)), key=lambda index: verdicts[index].speedup.value)
    return f"Of {len(said)} candidates against {baseline}, by wall time: {tally}. Largest speed-up: {said[best]}"


def _comparison_table(names: Sequence[str], pairs: Sequence[tuple[Measurement, Measurement]], verdicts: Sequence[Verdict]) -> Table:
    header = ["Candidate", "Baseline", "Wall time", "Speed-up [95 %]", "CPU time", "CPU-time speed-up [95 %]", "Paired rounds", "Status"]
    rows = []
    for name, (baseline, _), verdict in zip(names, pairs, verdicts, strict=True):
        cells = [baseline.plan.label, verdict.word, ratio(verdict.speedup), verdict.cpu_word, ratio(verdict.cpu_speedup)]
        rows.append([name, *cells, str(len(verdict.wall)), verdict.status])
    return [header, *rows]

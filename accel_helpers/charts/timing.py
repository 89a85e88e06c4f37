"""Charts of call times: one measurement call by call, and a comparison while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accel_helpers.charts.chart import DASHES, INK, MARKERS, PALETTE, QUIET, Chart, Table, axis_type, chart, shown
from accel_helpers.charts.units import bounded, seconds, time_scale
from accel_helpers.charts.words import counted, plan_labels, sampled
from accel_helpers.intervals import Estimate, log_centre, median, samples_needed
from accel_helpers.records import Measurement, Plan, Round

_MOST_POINTS = 2000
"""More calls than this are drawn as the fastest and the slowest of each run of calls: the same outline in a file that stays small."""


def latency(measurement: Measurement) -> Chart:
    """Every call time of one measurement over the call's number.

    First call, warm-up and timed calls stand apart; the median's interval is a band; percentiles are lines where there are enough samples.
    """
    p50 = measurement.p50
    factor, unit = time_scale(p50.value)
    begin = 2 + len(measurement.warmup)
    end = begin + len(measurement.samples) - 1
    numbers, drawn, note = _outline(measurement.samples, begin)
    percentiles = {q: measurement.percentile(q) for q in (0.9, 0.95, 0.99)}
    early = [measurement.first_call, *measurement.warmup]
    timed = {"xaxis": "x2", "yaxis": "y2"}
    traces = [
        _dots("First call", [1], early[:1], factor, PALETTE[1], "diamond", 9),
        _dots("Warm-up", list(range(2, begin)), early[1:], factor, QUIET, "circle-open", 6),
        _dots("Timed calls", numbers, drawn, factor, PALETTE[0], "circle", 6 if len(drawn) <= 300 else 4, opacity=0.6, **timed),
        *(line.update(timed) for line in _lines(p50, percentiles, (begin, end), factor)),
    ]
    title = {"text": f"Call time ({unit})"}
    layout = {
        "title": {"text": f"{measurement.model}, {measurement.plan.label}: time of each call"},
        "xaxis": {"title": {"text": "Call number"}, "domain": [0, 0.2], "range": [0, begin], "nticks": 4, "tickformat": "d"},
        "xaxis2": {"title": {"text": "Call number"}, "domain": [0.3, 1], "anchor": "y2"},
        "yaxis": {"title": title, "type": axis_type(early)},
        "yaxis2": {"title": title, "type": axis_type(measurement.samples), "anchor": "x2"},
        "height": 420,
    }
    sentence = (
        f"{measurement.model} on {measurement.plan.label}: P50 {seconds(p50)} (95 % interval, {sampled(measurement)}, "
        f"{measurement.status}). "
        f"{_percentile_words(measurement, percentiles)} The first call took {seconds(measurement.first_call)}; it and "
        f"{counted(len(measurement.warmup), 'warm-up call')} are shown apart and counted in no figure.{note}"
    )
    return chart(traces, layout, sentence, _latency_table(measurement, percentiles))


def _outline(samples: Sequence[float], begin: int) -> tuple[list[int], list[float], str]:
    """Call numbers and times to draw, and what to say where not every call is drawn."""
    if len(samples) <= _MOST_POINTS:
        return list(range(begin, begin + len(samples))), list(samples), ""
    step = -(-2 * len(samples) // _MOST_POINTS)
    kept: list[int] = []
    for start in range(0, len(samples), step):
        part = range(start, min(start + step, len(samples)))
        kept += sorted({min(part, key=samples.__getitem__), max(part, key=samples.__getitem__)})
    note = f" Drawn are the fastest and the slowest of every {step} timed calls."
    return [begin + index for index in kept], [samples[index] for index in kept], note


def _dots(name: str, x: Sequence[int], y: Sequence[float], factor: float, color: str, symbol: str, width: int, **more: Any) -> Any:
    import plotly.graph_objects as go

    look = {"color": color, "symbol": symbol, "size": width}
    return go.Scatter(x=list(x), y=shown(y, factor), name=name, mode="markers", marker=look, **more)


def _lines(p50: Estimate, percentiles: dict[float, Estimate | None], span: tuple[int, int], factor: float) -> list[Any]:
    """The median's interval as a band, the median and the percentiles as lines across ``span``."""
    import plotly.graph_objects as go

    begin, end = span
    lines = []
    if bounded(p50):
        edge = shown([p50.low, p50.low, p50.high, p50.high], factor)
        band = {"mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": "rgba(34, 34, 34, 0.25)", "hoverinfo": "skip"}
        lines.append(go.Scatter(x=[begin, end, end, begin], y=edge, name="95 % interval of P50", **band))
    for (q, found), color, dash in zip({0.5: p50, **percentiles}.items(), (INK, *[PALETTE[3]] * 3), DASHES, strict=True):
        if found:
            line = {"color": color, "width": 2, "dash": dash}
            lines.append(go.Scatter(x=[begin, end], y=shown([found.value] * 2, factor), name=_name(q, found), mode="lines", line=line))
    return lines


def _name(q: float, found: Estimate | None = None) -> str:
    return f"P{q * 100:.0f} {seconds(found)}" if found else f"P{q * 100:.0f}"


def _percentile_words(measurement: Measurement, percentiles: dict[float, Estimate | None]) -> str:
    given = [_name(q, found) for q, found in percentiles.items() if found]
    missing = [f"{_name(q)} ({samples_needed(q)} needed)" for q, found in percentiles.items() if not found]
    words = f"{', '.join(given)}." if given else ""
    few = f"Not enough samples for {', '.join(missing)}." if missing else ""
    return " ".join(part for part in (words, few) if part)


def _latency_table(measurement: Measurement, percentiles: dict[float, Estimate | None]) -> Table:
    def row(name: str, value: float, low: float, high: float, calls: int) -> list[str]:
        return [name, seconds(value), seconds(low), seconds(high), str(calls)]

    p50, first, warm = measurement.p50, measurement.first_call, measurement.warmup
    rows = [["Part", "Value", "Low", "High", "Calls"], row("First call", first, first, first, 1)]
    if warm:
        rows.append(row("Warm-up: median, fastest, slowest", median(warm), min(warm), max(warm), len(warm)))
    for number, one in enumerate(measurement.rounds, 1):
        rows.append(row(f"Round {number}: median, fastest, slowest", one.wall_median, min(one.wall), max(one.wall), len(one.wall)))
    total = len(measurement.samples)
    rows.append(["P50 with its 95 % interval", *_estimate_cells(p50), str(total)])
    for q, found in percentiles.items():
        cells = _estimate_cells(found) if found else [f"not enough samples: {samples_needed(q)} needed", "", ""]
        rows.append([f"{_name(q)} with its 95 % interval", *cells, str(total)])
    return rows


def _estimate_cells(found: Estimate) -> list[str]:
    """Value, low and high of a time, where an interval exists."""
    if not bounded(found):
        return [seconds(found.value), "none", "none"]
    return [seconds(found.value), seconds(found.low), seconds(found.high)]


def rounds_so_far(plans: Sequence[Plan], rounds: Sequence[Sequence[Round]], total: int) -> Chart:
    """The median call time of each finished round, plan by plan, while a measurement runs.

    Args:
        plans: what is measured.
        rounds: each plan's finished rounds; may be empty, and differ by one in length.
        total: rounds asked for, so that the axis stands still.
    """
    import plotly.graph_objects as go

    names = plan_labels(plans)
    medians = [[one.wall_median for one in done] for done in rounds]
    everything = [value for series in medians for value in series]
    factor, unit = time_scale(min(everything, default=1.0))
    traces = [
        go.Scatter(
            x=list(range(1, len(series) + 1)),
            y=shown(series, factor),
            name=name,
            mode="lines+markers",
            line={"color": PALETTE[index % len(PALETTE)], "dash": DASHES[index % len(DASHES)]},
            marker={"symbol": MARKERS[index % len(MARKERS)], "size": 8},
        )
        for index, (name, series) in enumerate(zip(names, medians, strict=True))
    ]
    layout = {
        "title": {"text": "Rounds so far"},
        "xaxis": {"title": {"text": "Round"}, "range": [0.5, total + 0.5]},
        "yaxis": {
            "title": {"text": f"Median call time ({unit})"},
            "type": axis_type(everything or [1.0]),
            "range": None if everything else [0, 1],
        },
        "showlegend": True,
    }
    estimates = [log_centre(series) if series else None for series in medians]
    sentence = " ".join([f"{min(map(len, medians), default=0)} of {total} rounds are finished.", *map(_so_far, names, estimates, rounds)])
    return chart(traces, layout, sentence, _rounds_table(names, medians))


def _so_far(name: str, found: Estimate | None, rounds: Sequence[Round]) -> str:
    if found is None:
        return f"{name}: nothing yet."
    calls = sum(len(one.wall) for one in rounds)
    return f"{name}: P50 so far {seconds(found)} (n = {counted(calls, 'call')} in {counted(len(rounds), 'round')})."


def _rounds_table(names: Sequence[str], medians: Sequence[Sequence[float]]) -> Table:
    longest = max(map(len, medians), default=0)
    rows = [[str(number + 1), *(seconds(one[number]) if number < len(one) else "" for one in medians)] for number in range(longest)]
    return [["Round", *names], *rows]

"""Charts of what quantizing did to a model: which type its work runs in, and what it takes on disk and in memory."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from accel_helpers.charts.chart import Chart, Table, bar_look, chart, shown
from accel_helpers.charts.units import ratio, size, size_scale
from accel_helpers.charts.words import counted, labels
from accel_helpers.errors import ParameterError
from accel_helpers.records import Census, Layer, Measurement

_TYPES = ("int8", "fp8", "int8 weights", "int4 weights", "bf16", "fp16", "tf32", "fp32")
"""The types of a census, each with a colour and a hatching of its own in every chart."""
_LINE = 34
"""Letters of a plan's name on one line of an axis."""
_EACH = 3
"""Up to so many plans the sentence speaks of each."""


def census(found: Sequence[Measurement] | Sequence[tuple[str, Census]]) -> Chart:
    """The share of the multiplications and of the parameters that run in each type, plan by plan.

    Args:
        found: measurements, of which those whose report holds a census are drawn; or names and censuses.

    Raises:
        ParameterError: there is no census among them.
    """
    named, without = _censuses(found)
    if not named:
        raise ParameterError("A census of no quantized model was asked for.", "Measure a plan in int8, int4 or fp8.")
    types = sorted({layer.precision for _, one in named for layer in one.layers}, key=_rank)
    names = [_broken(name) for name, _ in named]
    traces = []
    for of, axes in (("operations", {}), ("parameters", {"xaxis": "x2", "yaxis": "y2"})):
        for precision in types:
            shares = [_share(one, precision, of) for _, one in named]
            traces.append(_bar(names, shares, precision, legend=of == "operations", **axes))
    rows = {"autorange": "reversed", "showgrid": False, "ticksuffix": " "}
    layout = {
        "title": {"text": "What runs in which type"},
        "barmode": "stack",
        "xaxis": {"title": {"text": "Multiplications (%)"}, "range": [0, 100], "domain": [0, 0.45]},
        "xaxis2": {"title": {"text": "Parameters (%)"}, "range": [0, 100], "domain": [0.55, 1], "anchor": "y2"},
        "yaxis": rows,
        "yaxis2": {**rows, "anchor": "x2", "matches": "y", "showticklabels": False},
        "legend": {"traceorder": "normal"},
        "height": 190 + 48 * len(named),
        "showlegend": True,
    }
    return chart(traces, layout, _census_words(named, without), _census_table(named, types))


def _censuses(found: Sequence[Any]) -> tuple[list[tuple[str, Census]], list[str]]:
    """Names and censuses that hold layers, and the names of the plans without one."""
    if found and isinstance(found[0], Measurement):
        known = [one.report.get("census") for one in found]
        pairs = [(name, Census.from_dict(one) if one else None) for name, one in zip(labels(found), known, strict=True)]
    else:
        pairs = list(found)
    return [(name, one) for name, one in pairs if one and one.layers], [name for name, one in pairs if not (one and one.layers)]


def _rank(precision: str) -> int:
    return _TYPES.index(precision) if precision in _TYPES else len(_TYPES)


def _broken(name: str) -> str:
    """A plan's name in lines that leave room for its bar."""
    return "<br>".join(textwrap.wrap(name, _LINE))


def _short(precision: str) -> bool:
    """Whether a type counts as quantized; the rule of :meth:`Census.share`."""
    return precision.startswith(("int", "fp8"))


def _share(one: Census, precision: str, of: str) -> float:
    total = sum(getattr(layer, of) for layer in one.layers)
    return sum(getattr(layer, of) for layer in one.layers if layer.precision == precision) / total if total else 0.0


def _bar(names: Sequence[str], shares: Sequence[float], precision: str, *, legend: bool, **axes: str) -> Any:
    import plotly.graph_objects as go

    return go.Bar(
        x=shown(shares, 0.01),
        y=list(names),
        orientation="h",
        name=precision,
        legendgroup=precision,
        showlegend=legend,
        width=0.6,
        marker=bar_look(_rank(precision)),
        text=[f"{share:.0%}" if share >= 0.1 else "" for share in shares],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": "#FFFFFF"},
        hovertemplate=f"%{{y}}: %{{x:.1f}} % in {precision}<extra></extra>",
        **axes,
    )


def _census_words(named: Sequence[tuple[str, Census]], without: Sequence[str]) -> str:
    """What each plan left behind and why; of many plans, the one that left the most."""
    least = min(named, key=lambda pair: pair[1].share())
    said = [_census_of(name, one) for name, one in named]
    if len(named) > _EACH:
        shares = [one.share() for _, one in named]
        said = [f"Of the multiplications {min(shares):.0%} to {max(shares):.0%} are quantized. The least: {_census_of(*least)}"]
    said += [f"Without a census: {', '.join(without)}."] if without else []
    return " ".join(said)


def _census_of(name: str, one: Census) -> str:
    left = [layer for layer in one.layers if not _short(layer.precision)]
    done = f"{one.share():.1%} of the multiplications and {one.share('parameters'):.1%} of the parameters are quantized"
    stayed = f"; {_stayed(left)}" if left else "; no layer stayed behind"
    lone = f"{counted(one.unfused, 'quantize or dequantize operator')} run{'s' if one.unfused == 1 else ''} unfused"
    changes = f"a value changes its type in {counted(one.transitions, 'place')}"
    return f"{name}: {done} (n = {counted(len(one.layers), 'layer')}){stayed}; {lone}, and {changes}."


def _stayed(left: Sequence[Layer]) -> str:
    """How many layers stayed behind and the commonest reason."""
    reason, often = Counter(layer.reason or "no reason given" for layer in left).most_common(1)[0]
    example = next(layer.name for layer in left if (layer.reason or "no reason given") == reason)
    how = f"{reason} ({often} of them)" if often < len(left) else reason
    return f"{counted(len(left), 'layer')} stayed behind, {'mostly ' if often < len(left) else ''}because: {how}, such as {example}"


def _census_table(named: Sequence[tuple[str, Census]], types: Sequence[str]) -> Table:
    rows = [["Plan", "Type", "Layers", "Multiplications", "Parameters", "Weights", "Why, and what is between the layers"]]
    for name, one in named:
        for precision in types:
            layers = [layer for layer in one.layers if layer.precision == precision]
            if layers:
                reasons = Counter(layer.reason for layer in layers if layer.reason)
                why = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
                rows.append([name, precision, *_figures(one, layers), why or "as asked"])
        between = f"{one.unfused} unfused, {one.transitions} transitions"
        rows.append([name, "all", *_figures(one, one.layers), between])
    return rows


def _figures(one: Census, layers: Sequence[Layer]) -> list[str]:
    shares = []
    for of in ("operations", "parameters"):
        total, part = (sum(getattr(layer, of) for layer in group) for group in (one.layers, layers))
        shares.append(f"{part:,} ({part / total:.1%})" if total else f"{part:,}")
    return [f"{len(layers):,}", *shares, size(sum(layer.weight_bytes for layer in layers))]


def size_and_memory(measurements: Sequence[Measurement]) -> Chart:
    """The files of each plan on disk and the peak memory of the process that ran it, beside the FP32 plan of the same engine.

    Where an engine has no FP32 plan among them, the first FP32 plan of the same model stands for it.

    Raises:
        ParameterError: there is nothing to draw.
    """
    if not measurements:
        raise ParameterError("The size of no plan was asked for.", "Measure at least one plan.")
    names = labels(measurements)
    plain = [_plain(one, measurements) for one in measurements]
    sizes, peaks = [one.size_bytes for one in measurements], [one.peak_memory_bytes for one in measurements]
    (disk, disk_unit), (memory, memory_unit) = size_scale(max(sizes)), size_scale(max(peaks))
    disks = [_times(one.size_bytes, other.size_bytes if other else 0) for one, other in zip(measurements, plain, strict=True)]
    memories = [
        _times(one.peak_memory_bytes, other.peak_memory_bytes if other else 0) for one, other in zip(measurements, plain, strict=True)
    ]
    traces = [
        _extent("Size on disk", names, sizes, disk, disks, 0),
        _extent("Peak memory", names, peaks, memory, memories, 1, xaxis="x2", yaxis="y2"),
    ]
    rows = {"autorange": "reversed", "showgrid": False, "ticksuffix": " "}
    room = 1.5  # the figures stand right of the bars
    layout = {
        "title": {"text": "Size on disk and peak memory"},
        "xaxis": {"title": {"text": f"Size on disk ({disk_unit})"}, "range": [0, room * max(sizes) / disk or 1], "domain": [0, 0.45]},
        "xaxis2": {
            "title": {"text": f"Peak memory ({memory_unit})"},
            "range": [0, room * max(peaks) / memory or 1],
            "domain": [0.55, 1],
            "anchor": "y2",
        },
        "yaxis": rows,
        "yaxis2": {**rows, "anchor": "x2", "matches": "y", "showticklabels": False},
        "showlegend": False,
        "height": 160 + 48 * len(measurements),
    }
    said = [
        f"{name} takes {size(one.size_bytes) if one.size_bytes else 'no file'} on disk{_beside(disk_times)} and "
        f"{size(one.peak_memory_bytes)} of memory at its peak{_beside(memory_times)}"
        for name, one, disk_times, memory_times in zip(names, measurements, disks, memories, strict=True)
    ]
    shown_all = len(said) <= _EACH + 1
    smallest = min(range(len(said)), key=lambda index: sizes[index] or float("inf"))
    sentence = (
        f"{'; '.join(said) if shown_all else f'The smallest of {len(said)} plans: {said[smallest]}'} (n = 1 process each, no interval)."
    )
    table = [["Plan", "Size on disk", "Of FP32", "Peak memory", "Of FP32", "Device memory"]]
    for name, one, disk_times, memory_times in zip(names, measurements, disks, memories, strict=True):
        device = "none" if one.peak_device_bytes is None else size(one.peak_device_bytes)
        table.append([name, size(one.size_bytes), disk_times or "none", size(one.peak_memory_bytes), memory_times or "none", device])
    return chart(traces, layout, sentence, table)


def _plain(one: Measurement, measurements: Sequence[Measurement]) -> Measurement | None:
    """The FP32 plan that a measurement stands beside."""
    known = [other for other in measurements if other.plan.precision == "fp32" and other.model == one.model]
    return next((other for other in known if other.plan.engine == one.plan.engine), known[0] if known else None)


def _times(value: int, plain: int) -> str:
    return ratio(value / plain) if plain and value else ""


def _beside(times: str) -> str:
    return f", {times} FP32's" if times and times != ratio(1.0) else ""


def _extent(name: str, names: Sequence[str], values: Sequence[int], factor: float, times: Sequence[str], look: int, **axes: str) -> Any:
    """Bars, each with how many times FP32's it is; those of FP32 with their size."""
    import plotly.graph_objects as go

    said = [(one if one and one != ratio(1.0) else size(value)) if value else "no file" for value, one in zip(values, times, strict=True)]
    return go.Bar(
        x=shown(values, factor),
        y=[_broken(one) for one in names],
        orientation="h",
        name=name,
        width=0.6,
        marker=bar_look(look),
        text=said,
        textposition="outside",
        cliponaxis=False,
        hovertext=[size(value) for value in values],
        hoverinfo="text",
        **axes,
    )

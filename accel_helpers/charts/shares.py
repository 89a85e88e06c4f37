"""Charts of where the time goes and how near the machine's ceilings a model comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accel_helpers.charts.chart import INK, PALETTE, QUIET, Chart, chart, shown
from accel_helpers.charts.units import bounded, rate, rate_scale, ratio, seconds, time_scale
from accel_helpers.charts.words import counted, sampled
from accel_helpers.errors import ParameterError
from accel_helpers.intervals import Estimate
from accel_helpers.records import Measurement

_MOST_OPERATORS = 7
"""Operators shown by name: as many as the palette tells apart beside "other"."""


@dataclass(frozen=True)
class Ceiling:
    """A measured limit of the machine, and how much of it one call needs."""

    name: str  # "GEMM fp32", "memory bandwidth"
    work: float  # per call, in ``unit``: floating-point operations, bytes moved
    limit: float  # per second, in ``unit``
    unit: str  # "FLOP", "OP", "B"


def ceiling_share(measurement: Measurement, ceilings: Sequence[Ceiling]) -> Chart:
    """The share of each ceiling that one measurement reaches, as in the roofline model (Williams, Waterman and Patterson, 2009).

    Work over the median call time gives the rate; the ceiling with the largest share bounds every speed-up that does the same work.

    Raises:
        ParameterError: no ceiling is given.
    """
    if not ceilings:
        raise ParameterError("A share of no ceiling was asked for.", "Measure the machine's ceilings first.")
    import plotly.graph_objects as go

    p50 = measurement.p50
    rates = [_inverse(p50, ceiling.work) for ceiling in ceilings]
    shares = [_inverse(p50, ceiling.work / ceiling.limit) for ceiling in ceilings]
    low_high = [(one.value - one.low, one.high - one.value) if bounded(one) else (0.0, 0.0) for one in shares]
    bars = go.Bar(
        x=shown([one.value for one in shares], 0.01),
        y=[ceiling.name for ceiling in ceilings],
        orientation="h",
        marker={"color": PALETTE[0]},
        width=0.5,
        error_x={
            "type": "data",
            "symmetric": False,
            "array": shown([high for _, high in low_high], 0.01),
            "arrayminus": shown([low for low, _ in low_high], 0.01),
            "color": INK,
            "thickness": 1.5,
        },
        name="Share of the ceiling",
    )
    full = {"type": "line", "x0": 100, "x1": 100, "y0": 0, "y1": 1, "yref": "paper", "line": {"color": INK, "width": 2, "dash": "dash"}}
    layout = {
        "title": {"text": f"{measurement.model}, {measurement.plan.label}: share of this machine's ceilings"},
        "xaxis": {"title": {"text": "Share of the measured ceiling (%)"}, "range": [0, max(105.0, *(115 * one.value for one in shares))]},
        "yaxis": {"autorange": "reversed", "showgrid": False},
        "shapes": [full],
        "showlegend": False,
        "height": 170 + 56 * len(ceilings),
    }
    binding = max(range(len(shares)), key=lambda index: shares[index].value)
    bound = _inverse(shares[binding], 1.0)
    sentence = (
        f"{measurement.model} on {measurement.plan.label} reaches {_percent(shares[binding])} of {ceilings[binding].name}: "
        f"{_of(rates[binding], ceilings[binding])} (95 % interval, {sampled(measurement)}, {measurement.status}). "
        f"A plan that does the same work under the same ceilings can be at most {ratio(bound)} as fast."
    )
    header = ["Ceiling", "Reached [95 %]", "Limit", "Share [95 %]"]
    rows = [
        [ceiling.name, rate(reached, ceiling.unit), rate(ceiling.limit, ceiling.unit), _percent(share)]
        for ceiling, reached, share in zip(ceilings, rates, shares, strict=True)
    ]
    return chart([bars], layout, sentence, [header, *rows])


def _inverse(found: Estimate, work: float) -> Estimate:
    """``work`` over an estimate; the bounds change places."""
    high = work / found.low if found.low > 0 else float("inf")
    return Estimate(work / found.value, work / found.high, high)


def _percent(share: Estimate) -> str:
    text = f"{share.value:.1%}"
    return f"{text} [{share.low:.1%}, {share.high:.1%}]" if bounded(share) else text


def _of(reached: Estimate, ceiling: Ceiling) -> str:
    factor, unit = rate_scale(ceiling.limit, ceiling.unit)
    return f"{reached.value / factor:.3g} of {ceiling.limit / factor:.3g} {unit}"


def operator_time(parts: Sequence[tuple[str, float]], calls: int) -> Chart:
    """Where a call's time goes, operator by operator, as one stacked bar.

    Args:
        parts: each operator's name and its own seconds over all profiled calls.
        calls: profiled calls.

    Raises:
        ParameterError: there is no time to divide.
    """
    total = sum(part for _, part in parts)
    if total <= 0:
        raise ParameterError("The profile holds no operator that took time.", "Profile at least one call.")
    import plotly.graph_objects as go

    ranked = sorted(parts, key=lambda part: (-part[1], part[0]))
    kept = ranked[:_MOST_OPERATORS]
    rest = ranked[_MOST_OPERATORS:]
    if rest:
        kept = [*kept, (f"other ({len(rest)})", sum(part for _, part in rest))]
    factor, unit = time_scale(total / calls)
    bars = [
        go.Bar(
            x=shown([part / calls], factor),
            y=[""],
            orientation="h",
            name=name,
            marker={
                "color": QUIET if index == _MOST_OPERATORS else PALETTE[index],
                "line": {"color": "#FFFFFF", "width": 2},
            },
            text=[name if part / total >= 0.12 else ""],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": "#FFFFFF"},
        )
        for index, (name, part) in enumerate(kept)
    ]
    layout = {
        "title": {"text": "Time of a call by operator"},
        "barmode": "stack",
        "xaxis": {"title": {"text": f"Time per call ({unit})"}},
        "yaxis": {"showgrid": False, "ticks": ""},
        "legend": {"traceorder": "normal"},
        "height": 260,
    }
    name, largest = ranked[0]
    sentence = (
        f"{name} takes {largest / total:.0%} of the {seconds(total / calls)} of a call; the three largest operators take "
        f"{sum(part for _, part in ranked[:3]) / total:.0%} (one profile, n = {counted(calls, 'call')}, so no interval; profiling adds "
        f"its own cost)."
    )
    rows = [[name, seconds(part / calls), f"{part / total:.1%}"] for name, part in ranked]
    return chart(bars, layout, sentence, [["Operator", "Time per call", "Share"], *rows])

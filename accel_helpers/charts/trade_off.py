"""Speed against accuracy: what each plan gains over its baseline and what it costs in the task metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accel_helpers.charts.chart import INK, MARKERS, PALETTE, QUIET, Chart, chart, shown
from accel_helpers.charts.units import bounded, ratio
from accel_helpers.charts.versus import bars, ticks
from accel_helpers.charts.words import compared, counted, labels, plan_labels
from accel_helpers.intervals import Estimate, log_centre
from accel_helpers.records import Measurement, Plan, Round, Verdict, score_word, word

_EACH = 3
"""Up to so many plans the sentence names one by one."""
_CLOSE = 0.06
"""Points nearer than this share of the axis would lie on one another's numbers."""
_MARGIN = Verdict.margin
_RUNNING = "still running"
_SHAPES = {"VALID": "", "INDICATIVE": "-open", "INVALID": "-open-dot", _RUNNING: "-open"}
_TITLES = {
    "worse": "Over the budget",
    "not enough samples": "Not enough samples to say",
    "no interval": "Without an interval",
    "not scored": "Not scored",
}
_KEPT = {
    "better": "better than the baseline",
    "no worse": "within the budget",
    "worse": "over the budget",
    "not enough samples": "too few samples to tell it from the budget",
    "no interval": "so nothing can be said of the budget",
}
_HEADER = ["Plan", "Baseline", "Speed-up [95 %]", "Wall time", "Metric change [95 %]", "Budget", "Evidence", "Status"]


@dataclass(frozen=True)
class _Budget:
    """The task metric, and the loss of it that is still accepted. Metrics of which more is better are shares, and people say points."""

    allowed: float
    metric: str = "task metric"
    higher_is_better: bool = True

    @property
    def factor(self) -> float:
        return 0.01 if self.higher_is_better else 1.0

    @property
    def edge(self) -> float:
        """The change at which the budget is spent."""
        return -self.allowed if self.higher_is_better else self.allowed

    @property
    def said(self) -> str:
        if not self.higher_is_better:
            return f"{self.allowed:g}"
        return f"{self.allowed / self.factor:g} point{'' if math.isclose(self.allowed, self.factor) else 's'}"

    def change(self, one: _Point) -> str:
        """The change of the metric with its interval."""
        if one.change is None:
            return "not scored"
        places, unit = ("+.2f", " points") if self.higher_is_better else ("+.3g", "")
        found = [one.bounds.low, one.bounds.high] if one.bounds else []
        value, *edges = (format(edge / self.factor, places) for edge in (one.change, *found))
        return f"{value}{unit} [{', '.join(edges) or 'no interval'}]"

    def word(self, one: _Point) -> str:
        """Whether the loss stays within the budget, as far as the interval can tell."""
        if one.change is None:
            return "not scored"
        return score_word(one.bounds, self.allowed, self.higher_is_better) if one.bounds else "no interval"


@dataclass(frozen=True)
class _Point:
    """One plan beside its baseline."""

    name: str
    baseline: str
    plan: Plan
    speedup: Estimate
    said: str  # the speed-up's word
    rounds: int
    status: str
    change: float | None = None  # of the metric
    interval: Estimate | None = None
    samples: int = 0

    @property
    def bounds(self) -> Estimate | None:
        """The change with its interval where there is a finite one."""
        found = self.interval
        return found if found and math.isfinite(found.low) and math.isfinite(found.high) else None


def trade_off(measurements: Sequence[Measurement], verdicts: Sequence[Verdict], budget: float = 0.01) -> Chart:
    """Each plan's speed-up over its baseline against the change of the task metric, with interval bars, and a line at the budget.

    Engines and precisions differ in shape and colour, an open shape is a figure that is not VALID, and the numbers are those of the legend
    and the table. Plans without a score stand in a strip of their own below.

    Args:
        measurements: at least all those that the verdicts speak of.
        verdicts: one for each plan that is finished; may be empty.
        budget: the loss of the task metric that is still accepted: 0.01 is one point of an accuracy.

    Raises:
        ParameterError: a verdict speaks of a measurement that is not given.
    """
    pairs = [compared(verdict, measurements) for verdict in verdicts]
    baselines = {baseline.digest: baseline for baseline, _ in pairs}
    names = labels([*baselines.values(), *(candidate for _, candidate in pairs)])
    known = dict(zip(baselines, names, strict=False))
    found = zip(names[len(baselines) :], pairs, verdicts, strict=True)
    points = [_finished(name, known[verdict.baseline], candidate, verdict) for name, (_, candidate), verdict in found]
    return _drawn(points, _budget(budget, [candidate for _, candidate in pairs]))


def trade_off_so_far(
    plans: Sequence[Plan],
    rounds: Sequence[Sequence[Round]],
    budget: float = 0.01,
    measurements: Sequence[Measurement] = (),
    verdicts: Sequence[Verdict] = (),
) -> Chart:
    """The same chart while one comparison runs.

    Args:
        plans: what is compared, the baseline first.
        rounds: each plan's finished rounds; a plan without any is not drawn.
        budget: the loss of the task metric that is still accepted.
        measurements: of the first plans, as far as they are scored.
        verdicts: on all but the first of ``measurements``; the plans after them have a speed-up so far and no score.
    """
    baseline, *names = plan_labels(plans)
    whole = zip(names, measurements[1:], verdicts, strict=False)
    points = [_finished(name, baseline, candidate, verdict) for name, candidate, verdict in whole]
    for name, plan, done in list(zip(names, plans[1:], rounds[1:], strict=True))[len(points) :]:
        items = plan.batch / plans[0].batch
        pairs = [items * old.wall_median / new.wall_median for old, new in zip(rounds[0], done, strict=False)]
        if pairs:
            speedup = log_centre(pairs)
            points.append(_Point(name, baseline, plan, speedup, word(speedup, _MARGIN), len(pairs), _RUNNING))
    return _drawn(points, _budget(budget, measurements))


def _finished(name: str, baseline: str, candidate: Measurement, verdict: Verdict) -> _Point:
    return _Point(
        name=name,
        baseline=baseline,
        plan=candidate.plan,
        speedup=verdict.speedup,
        said=verdict.word,
        rounds=len(verdict.wall),
        status=verdict.status,
        change=verdict.score_change,
        interval=verdict.score_interval,
        samples=candidate.score.samples if candidate.score else 0,
    )


def _budget(allowed: float, measurements: Sequence[Measurement]) -> _Budget:
    score = next((one.score for one in measurements if one.score), None)
    return _Budget(allowed, score.name, score.higher_is_better) if score else _Budget(allowed)


def _drawn(points: Sequence[_Point], budget: _Budget) -> Chart:
    scored = [one for one in points if one.change is not None]
    strip = len(points) - len(scored)
    heights = _heights(points, budget)
    floor = 0.06 + 0.04 * min(strip, 8) if strip else 0.0
    layout = {
        "title": {"text": f"Speed-up and change of the {budget.metric}"},
        "xaxis": {**_speed_axis(points), "anchor": "y2" if strip else "y"},
        "yaxis": {
            "title": {"text": f"Change of the {budget.metric} ({'points' if budget.higher_is_better else 'in its unit'})"},
            "domain": [floor + 0.06 if strip else 0, 1],
            "range": [round(edge, 4) for edge in heights],
        },
        "shapes": [_line("y", budget.edge / budget.factor, PALETTE[1], "dash"), _line("y", 0, QUIET, "dot"), _line("x", 1, QUIET, "dot")],
        "annotations": [_budget_words(budget)],
        "height": 460 + 22 * len(points),
        "showlegend": True,
    }
    if strip:
        layout["yaxis2"] = {
            "domain": [0, floor],
            "range": [-0.8, strip - 0.2],
            "tickvals": [(strip - 1) / 2],
            "ticktext": ["not scored"],
            "showgrid": False,
        }
    return chart(_traces(points, budget), layout, _words(points, budget), [_HEADER, *(_row(one, budget) for one in points)])


def _traces(points: Sequence[_Point], budget: _Budget) -> list[Any]:
    """The baseline, and a numbered point with its bars for each plan; one that is not scored goes to the strip below."""
    import plotly.graph_objects as go

    looks = list(dict.fromkeys((one.plan.engine, one.plan.precision) for one in points))
    start = {"symbol": "star", "size": 13, "color": INK}
    traces = [go.Scatter(x=[1], y=[0], name="baseline", mode="markers", marker=start, hoverinfo="name")]
    row = 0
    for number, one in enumerate(points, 1):
        look = looks.index((one.plan.engine, one.plan.precision))
        color, symbol = PALETTE[look % len(PALETTE)], MARKERS[look % len(MARKERS)] + _SHAPES[one.status]
        status = "" if one.status == "VALID" else f", {one.status}"
        where: dict[str, Any] = {"y": [row], "yaxis": "y2"}
        if one.change is None:
            row += 1
        else:
            found = one.bounds or Estimate(one.change, one.change, one.change)
            where = {"y": shown([one.change], budget.factor), "yaxis": "y", "error_y": bars([found], budget.factor)}
        traces.append(
            go.Scatter(
                x=shown([one.speedup.value], 1.0),
                error_x={**bars([one.speedup], 1.0), "color": color},
                **where,
                name=f"{number} {one.name}{status}",
                mode="markers+text",
                text=[str(number)],
                textposition=_side(one, points),
                cliponaxis=False,
                marker={"symbol": symbol, "size": 11, "color": color, "line": {"width": 2, "color": color}},
                hovertext=[f"{one.name}: {ratio(one.speedup)}, {budget.change(one)}"],
                hoverinfo="text",
            )
        )
    return traces


def _side(one: _Point, points: Sequence[_Point]) -> str:
    """Where a point's number stands: away from a neighbour on the right, which may be the baseline."""
    span = _speed_range(points)
    ahead = [math.log10(other / one.speedup.value) for other in (1.0, *(point.speedup.value for point in points))]
    return "top left" if any(0 < step < _CLOSE * (span[1] - span[0]) for step in ahead) else "top right"


def _heights(points: Sequence[_Point], budget: _Budget) -> tuple[float, float]:
    """The range of the upper axis: all bars, nothing lost, and the budget."""
    edges = [0.0, budget.edge]
    for one in points:
        edges += [one.change] if one.change is not None else []
        edges += [one.bounds.low, one.bounds.high] if one.bounds else []
    low, high = min(edges) / budget.factor, max(edges) / budget.factor
    room = 0.18 * (high - low)
    return low - room, high + room


def _speed_range(points: Sequence[_Point]) -> tuple[float, float]:
    """The range of the speed-up's axis, in powers of ten."""
    edges = [edge for one in points for edge in ((one.speedup.low, one.speedup.high) if bounded(one.speedup) else (one.speedup.value,))]
    low, high = math.log10(min(0.9, *edges, 1.0)), math.log10(max(1.1, *edges, 1.0))
    room = 0.08 * (high - low)
    return low - room, high + room


def _speed_axis(points: Sequence[_Point]) -> dict[str, Any]:
    low, high = _speed_range(points)
    marks = ticks(low, high)
    return {
        "title": {"text": "Speed-up (times, logarithmic; right of 1 is faster)"},
        "type": "log",
        "range": [round(low, 4), round(high, 4)],
        "tickvals": marks,
        "ticktext": [f"{mark:g}" for mark in marks],
    }


def _line(axis: str, at: float, color: str, dash: str) -> dict[str, Any]:
    """A line across the upper part."""
    along, across = ("x", "y") if axis == "y" else ("y", "x")
    ends = {f"{along}0": 0, f"{along}1": 1, f"{along}ref": f"{along} domain"}
    return {
        "type": "line",
        "layer": "above" if dash == "dash" else "below",  # the grid would cover the budget
        **ends,
        f"{across}0": at,
        f"{across}1": at,
        f"{across}ref": across,
        "line": {"color": color, "width": 1.5, "dash": dash},
    }


def _budget_words(budget: _Budget) -> dict[str, Any]:
    place = {"x": 0, "xref": "x domain", "xanchor": "left", "y": budget.edge / budget.factor, "yref": "y"}
    side = "top" if budget.higher_is_better else "bottom"
    return {**place, "yanchor": side, "text": f"budget: {budget.said}", "showarrow": False, "font": {"color": PALETTE[1], "size": 12}}


def _evidence(one: _Point) -> str:
    rounds = counted(one.rounds, "paired round")
    return f"n = {rounds}, {counted(one.samples, 'sample')}" if one.change is not None else f"n = {rounds}"


def _row(one: _Point, budget: _Budget) -> list[str]:
    return [one.name, one.baseline, ratio(one.speedup), one.said, budget.change(one), budget.word(one), _evidence(one), one.status]


def _words(points: Sequence[_Point], budget: _Budget) -> str:
    """Every plan where there are few; else how many keep the budget, and the fastest of those that are faster and keep it."""
    if not points:
        return f"No plan is finished yet; the budget is {budget.said} of the {budget.metric}."
    against = ", ".join(dict.fromkeys(one.baseline for one in points))
    head = f"Against {against}, with a budget of {budget.said} of the {budget.metric} (95 % intervals)"
    if len(points) <= _EACH:
        return f"{head}: {'; '.join(_said(one, budget) for one in points)}."
    kept = [one for one in points if one.said == "faster" and budget.word(one) in ("better", "no worse") and one.status != "INVALID"]
    rounds = counted(min(one.rounds for one in points), "paired round")
    said = [f"{head}: {len(kept)} of {len(points)} plans {'is' if len(kept) == 1 else 'are'} faster and within it, n = {rounds} or more"]
    said += [f"The fastest of them: {_said(max(kept, key=lambda one: one.speedup.value), budget)}"] if kept else []
    for kind in ("worse", "not enough samples", "no interval", "not scored"):
        names = [one.name for one in points if budget.word(one) == kind]
        said += [f"{_TITLES[kind]}: {'; '.join(names)}"] if names else []
    rest = [f"{one.name} ({one.said})" for one in points if one.said != "faster"]
    said += [f"Not faster: {'; '.join(rest)}"] if rest else []
    return f"{'. '.join(said)}."


def _said(one: _Point, budget: _Budget) -> str:
    metric = "not scored" if one.change is None else f"{budget.change(one)}, {_KEPT[budget.word(one)]}"
    invalid = ", which is no result" if one.status == "INVALID" else ""
    return f"{one.name} is {one.said}, {ratio(one.speedup)}; {metric} ({_evidence(one)}, {one.status}{invalid})"

"""What calls cost beside their arithmetic: operators, programs, cold starts, number formats, and minutes spent."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accel_helpers.charts.chart import DASHES, MARKERS, PALETTE, Chart, Table, chart, shown
from accel_helpers.charts.units import ratio, seconds, time_scale
from accel_helpers.charts.versus import bars
from accel_helpers.charts.words import counted, plan_labels
from accel_helpers.compilation.costs.launch import Chain, ColdStart, Format, Overhead
from accel_helpers.compilation.costs.lunches import Lunch
from accel_helpers.compilation.costs.recompiling import Recompilations
from accel_helpers.intervals import Estimate


def launch_times(found: Overhead) -> Chart:
    """The call time of networks of tiny operators over their number, a line for each plan: its slope is the price of one operator."""
    import plotly.graph_objects as go

    names = plan_labels([one.plan for one in found.chains])
    factor, unit = time_scale(min(one.times[0].value for one in found.chains))
    traces = []
    for index, (name, one) in enumerate(zip(names, found.chains, strict=True)):
        line = {"color": PALETTE[index % len(PALETTE)], "dash": DASHES[index % len(DASHES)]}
        marker = {"symbol": MARKERS[index % len(MARKERS)], "size": 8}
        values = shown([time.value for time in one.times], factor)
        look = {"name": name, "mode": "lines+markers", "line": line, "marker": marker, "error_y": bars(one.times, factor)}
        traces.append(go.Scatter(x=list(one.lengths), y=values, **look))
    layout = {
        "title": {"text": "Call time over the number of tiny operators"},
        "xaxis": {"title": {"text": "Operators in a row"}, "tickvals": list(found.chains[0].lengths), "rangemode": "tozero"},
        "yaxis": {"title": {"text": f"P50 ({unit})"}, "rangemode": "tozero"},
        "showlegend": True,
    }
    each = ", ".join(f"{name} {operator_price(one)}" for name, one in zip(names, found.chains, strict=True))
    sentence = (
        f"One operator more costs {each} (95 % intervals, {counted(len(found.call), 'round')}); the {found.operators} operators of "
        f"{found.model} at the first of these prices are {_share(found.share)} of its call of {seconds(found.seconds)}."
    )
    rows = [["Plan", "Operators", "P50 [95 %]", "Each operator [95 %]"]]
    for name, one in zip(names, found.chains, strict=True):
        rows += [[name, str(length), seconds(time), operator_price(one)] for length, time in zip(one.lengths, one.times, strict=True)]
    return chart(traces, layout, sentence, rows)


def operator_price(one: Chain) -> str:
    """Seconds of one operator more; a bound where the interval reaches zero, as for operators that are fused into one program."""
    each = one.each
    return seconds(each) if each.low > 0 else f"at most {seconds(max(each.high, 0.0))}"


def _share(share: Estimate) -> str:
    return f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"


def recompilations(found: Recompilations) -> Table:
    """One row for each policy and shape: programs made, how the call ran, and why no program fitted."""
    rows = [["Policy", "Batch", "Tokens", "Programs made", "Ran", "Why"]]
    for policy in found.policies:
        for call in policy.calls:
            ran = "refused" if call.refused else "compiled" if call.ran else "EAGER"
            rows.append([policy.name, str(call.batch), str(call.sequence), str(call.compiled), ran, call.refused or call.reason])
    return rows


def cold_starts(found: Sequence[ColdStart]) -> Table:
    """One row for each plan: what building took once, and from starting a process to its first answer, the soonest ready first."""
    rows = [["Plan", "Built once", "Process to first answer [95 %]", "Of that, loading", "and the first call", "Tries"]]
    names = dict(zip((one.plan for one in found), plan_labels([one.plan for one in found]), strict=True))
    for one in sorted(found, key=lambda one: one.first_answer.value):
        spans = [_span(values) for values in (one.loads, one.first_calls)]
        rows.append([names[one.plan], seconds(one.build_seconds), seconds(one.first_answer), *spans, str(len(one.ready))])
    return rows


def _span(values: Sequence[float]) -> str:
    return f"{seconds(min(values))} to {seconds(max(values))}"


def formats(found: Sequence[Format]) -> Table:
    """One row for each format: its bits, its ends, and the error of a product at each magnitude of the factors."""
    magnitudes = [f"Error at {scale:g}" for scale, _ in found[0].errors]
    rows = [["Format", "Exponent", "Mantissa", "Largest", "Smallest normal", *magnitudes]]
    for one in found:
        errors = [f"{error:.1e}" if math.isfinite(error) else "overflow" for _, error in one.errors]
        rows.append([one.name, f"{one.exponent} bits", f"{one.mantissa} bits", f"{one.largest:.3g}", f"{one.smallest:.3g}", *errors])
    return rows


def lunches(found: Sequence[Lunch]) -> Table:
    """One row for each plan, in the order given: gain, time spent, calls until it pays back, and whether it was free."""
    rows = [["Plan", "Speed-up [95 %]", "Time spent", "Lines changed", "Pays back after", "Task metric", "Free"]]
    for name, one in zip(plan_labels([one.plan for one in found]), found, strict=True):
        edits = "not counted" if one.edits is None else str(one.edits)
        word = f"{one.free}: {one.why}"
        rows.append([name, ratio(one.speedup), seconds(one.spent), edits, _calls(one.calls), one.score or "not measured", word])
    return rows


def _calls(calls: Estimate) -> str:
    if not math.isfinite(calls.value):
        return "never"
    high = f"{math.ceil(calls.high):,}" if math.isfinite(calls.high) else "never"
    return f"{counted(math.ceil(calls.value), 'call')} [{math.ceil(calls.low):,}, {high}]"

"""The records as sections of the page: summary, each measurement, the machines, the raw data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from accel_helpers import charts
from accel_helpers.charts import Table
from accel_helpers.charts.words import counted
from accel_helpers.records import Environment, Measurement, Verdict
from accel_helpers.report.figures import drawn, in_script, scrolling


def summary(measurements: Sequence[Measurement], verdicts: Sequence[Verdict]) -> str:
    """The table of everything, what was compared with what, and how plans behave over the batch size."""
    if not measurements:
        return "<p>No measurement was given.</p>"
    known = {one.digest for one in measurements}
    told = [verdict for verdict in verdicts if {verdict.baseline, verdict.candidate} <= known]
    parts = [_named(charts.table(measurements, told), "Summary of all measurements", tight=True)]
    if lost := len(verdicts) - len(told):
        parts.append(f"<p>{lost} of {len(verdicts)} verdicts speak of measurements that are not in this report; they are left out.</p>")
    for baseline in dict.fromkeys(verdict.baseline for verdict in told):
        mine = [verdict for verdict in told if verdict.baseline == baseline]
        parts.append(drawn(charts.comparison(measurements, mine)))
        parts.append(_full([charts.describe_verdict(verdict, measurements) for verdict in mine]))
    parts += [drawn(charts.batch_sweep(group)) for group in _sweeps(measurements)]
    return "\n".join(parts)


def _full(said: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(one)}</li>" for one in said)
    return f"<details><summary>All that these figures rest on</summary><ul>{items}</ul></details>"


def _sweeps(measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """For each model and scope, the plans that ran at two batch sizes or more; of a plan measured twice, the last given."""
    last = {(one.model, one.scope, one.plan): one for one in measurements}
    batches: dict[tuple[str, str, object], set[int]] = {}
    for model, scope, plan in last:
        batches.setdefault((model, scope, replace(plan, batch=1)), set()).add(plan.batch)
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for (model, scope, plan), one in last.items():
        if len(batches[model, scope, replace(plan, batch=1)]) > 1:
            groups.setdefault((model, scope), []).append(one)
    return list(groups.values())


def details(measurements: Sequence[Measurement]) -> str:
    """Each measurement: its figures with all that they rest on, its checks, and every call."""
    parts = []
    for one, name in zip(measurements, charts.labels(measurements), strict=True):
        mark = "" if one.status == "VALID" else f' <span class="mark">{one.status}</span>'
        marks: Table = [["Check", "Result", "Detail"]]
        marks += [[check.name, {True: "passed", False: "FAILED", None: "not checked"}[check.passed], check.detail] for check in one.checks]
        parts += [
            f"<h3>{escape(name)}{mark}</h3>",
            f"<p>{escape(charts.describe(one))}</p>",
            drawn(charts.latency(one)),
            _named(marks, f"Checks of {name}") if one.checks else "<p>No check was made.</p>",
        ]
    return "\n".join(parts)


def machines(measurements: Sequence[Measurement]) -> str:
    """Every machine and set of software that the measurements belong to."""
    found = list({one.environment.digest: one.environment for one in measurements}.values())
    parts = []
    for number, one in enumerate(found, 1):
        if len(found) > 1:
            count = sum(measurement.environment == one for measurement in measurements)
            parts.append(f"<h3>Machine {number}: {counted(count, 'measurement')}</h3>")
        parts.append(_named(_facts(one), f"Machine {number}"))
        packages = [["Package", "Version"], *([name, version] for name, version in sorted(one.packages.items()))]
        if one.packages:
            table = _named(packages, f"Packages on machine {number}")
            parts.append(f"<details><summary>Packages ({len(one.packages)})</summary>{table}</details>")
    return "\n".join(parts) or "<p>No measurement was given.</p>"


def _facts(one: Environment) -> Table:
    gpus = [
        f"{gpu.name}, {charts.size(gpu.memory_bytes)}, compute capability {gpu.compute_capability}, driver {gpu.driver}" for gpu in one.gpus
    ]
    return [
        ["Property", "Value"],
        ["Processor", one.cpu],
        ["Instruction sets", ", ".join(one.isa) or "none known"],
        ["CPUs", f"{one.cpus} usable of {one.cpus_online}"],
        ["Memory", charts.size(one.memory_bytes)],
        ["GPU", "; ".join(gpus) or "none"],
        ["CUDA", one.cuda or "none"],
        ["cuDNN", one.cudnn or "none"],
        ["Operating system", one.os],
        ["Python", one.python],
    ]


def raw(measurements: Sequence[Measurement], verdicts: Sequence[Verdict]) -> str:
    """The records themselves, for ``accel_helpers.report.records`` to read back."""
    values = {"measurements": [one.to_dict() for one in measurements], "verdicts": [one.to_dict() for one in verdicts]}
    return (
        f"<p>This file holds {counted(len(measurements), 'measurement')} with every sample, and {counted(len(verdicts), 'verdict')}, as "
        f"JSON in the element <code>records</code>. <code>accel_helpers.report.records(path)</code> reads them back.</p>"
        f'<script type="application/json" id="records">{in_script(values)}</script>'
    )


def _named(table: Table, name: str, tight: bool = False) -> str:
    return scrolling(charts.as_html(table, name), name, tight)

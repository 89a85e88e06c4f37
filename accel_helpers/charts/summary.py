"""The summary table: one row per measurement, beside its verdict against the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from accel_helpers.charts.chart import Table
from accel_helpers.charts.units import rate, ratio, seconds, size
from accel_helpers.charts.words import extras
from accel_helpers.records import Measurement, Score, Verdict

HEADER = [
    "Model",
    "Engine",
    "Precision",
    "Batch",
    "P50 [95 %]",
    "Throughput [95 %]",
    "Peak memory",
    "Size",
    "Task metric",
    "Speed-up [95 %]",
    "CPU-time speed-up [95 %]",
    "Status",
]


def table(measurements: Sequence[Measurement], verdicts: Sequence[Verdict]) -> Table:
    """A header and one row of text per measurement, in the order given. A verdict stands in its candidate's row."""
    engines = _engines(measurements)
    return [HEADER, *(_row(one, engine, verdicts) for one, engine in zip(measurements, engines, strict=True))]


def _engines(measurements: Sequence[Measurement]) -> list[str]:
    """Each engine's name, with the device and whatever else the columns do not show where it differs."""
    found = extras([one.plan for one in measurements], ("device", "threads", "sequence", "hint"))
    scopes = len({one.scope for one in measurements}) > 1
    return [", ".join([one.plan.engine, *more] + [one.scope] * scopes) for one, more in zip(measurements, found, strict=True)]


def _row(one: Measurement, engine: str, verdicts: Sequence[Verdict]) -> list[str]:
    wall, cpu = _against(one, verdicts)
    memory = size(one.peak_memory_bytes)
    if one.peak_device_bytes is not None:
        memory += f", device {size(one.peak_device_bytes)}"
    return [
        one.model,
        engine,
        f"{one.plan.precision} {one.plan.quantization.scheme}" if one.plan.quantization else one.plan.precision,
        str(one.plan.batch),
        seconds(one.p50),
        rate(one.throughput),
        memory,
        size(one.size_bytes) if one.size_bytes else "none",
        _metric(one.score),
        wall,
        cpu,
        _status(one),
    ]


def _status(one: Measurement) -> str:
    """The status and the names of what failed; ``describe`` gives the details."""
    failed = [reason.partition(":")[0] for reason in one.reasons]
    return f"{one.status} ({', '.join(failed)})" if failed else one.status


def _metric(score: Score | None) -> str:
    return f"{score.name} {score.value:.4f} (n = {score.samples:,})" if score else "not measured"


def _against(one: Measurement, verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """The verdict's word and speed-up by wall time, and by CPU time."""
    mine = [verdict for verdict in verdicts if verdict.candidate == one.digest]
    if not mine:
        role = "baseline" if any(verdict.baseline == one.digest for verdict in verdicts) else "not compared"
        return role, role
    walls = [f"{word_shown(verdict, verdict.word)} {ratio(verdict.speedup)}" for verdict in mine]
    cpus = [f"{word_shown(verdict, verdict.cpu_word)} {ratio(verdict.cpu_speedup)}" for verdict in mine]
    return "; ".join(walls), "; ".join(cpus)


def word_shown(verdict: Verdict, word: str) -> str:
    """The word, with the status where that takes something from it."""
    return word if verdict.status == "VALID" else f"{verdict.status}: {word}"

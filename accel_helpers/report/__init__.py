"""Executed notebooks and records in, one self-contained HTML file out."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from accel_helpers import charts
from accel_helpers.charts.words import counted
from accel_helpers.errors import StoreError
from accel_helpers.records import Measurement, Verdict
from accel_helpers.report.notebook import Section
from accel_helpers.report.page import Part, page
from accel_helpers.report.results import details, machines, raw, summary
from accel_helpers.store.disk import FULL, free_bytes

__all__ = ["records", "report"]


def report(notebooks: Sequence[Path], measurements: Sequence[Measurement], verdicts: Sequence[Verdict], out: Path) -> Path:
    """Write one HTML file that opens offline, with every chart drawn, each with a sentence and a table. The same input, the same bytes.

    Args:
        notebooks: executed ones; each becomes a section.
        measurements: rows of the summary, in this order.
        verdicts: comparisons between these measurements.
        out: the file to write; it appears whole or not at all.

    Returns:
        ``out``.

    Raises:
        StoreError: a notebook cannot be read, or the file cannot be written.
    """
    sections = [Section(path) for path in notebooks]
    parts: list[Part] = [
        ("summary", "Summary", summary(measurements, verdicts)),
        ("environment", "Environment", machines(measurements)),
        *((f"notebook-{number}", one.title, one.html) for number, one in enumerate(sections, 1)),
        ("measurements", "Every measurement", details(measurements) or "<p>No measurement was given.</p>"),
        ("raw-records", "Raw records", raw(measurements, verdicts)),
    ]
    _write(out, page("Inference acceleration report", _lead(sections, measurements, verdicts), parts))
    return out


def records(path: Path) -> tuple[list[Measurement], list[Verdict]]:
    """The measurements and verdicts that a report was made of, sample by sample.

    Raises:
        StoreError: the file is not a report, or its records are of another version.
    """
    try:
        found = re.search(r'<script type="application/json" id="records">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"The report {path} cannot be read: {error}.", "Check the path.") from None
    if not found:
        raise StoreError(f"{path} holds no records, so this package did not write it.", "Give a report.html.")
    values = json.loads(found[1])
    return [Measurement.from_dict(one) for one in values["measurements"]], [Verdict.from_dict(one) for one in values["verdicts"]]


def _lead(sections: Sequence[Section], measurements: Sequence[Measurement], verdicts: Sequence[Verdict]) -> str:
    """What is in the report, and what failed, in a few sentences."""
    models = sorted({one.model for one in measurements})
    started = sorted(one.started for one in measurements)
    when = f", measured from {_minute(started[0])} to {_minute(started[-1])}" if started else ""
    where = "; ".join(dict.fromkeys(charts.machine(one.environment) for one in measurements))
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(Counter(one.status for one in measurements).items()))
    lines = [
        f"{counted(len(measurements), 'measurement')} of {counted(len(models), 'model')} ({', '.join(models) or 'none'}), "
        f"{counted(len(verdicts), 'comparison')}, {counted(len(sections), 'notebook')}{when}.",
        *([f"Status: {statuses}. Machine: {where}."] if measurements else []),
        *(f"The notebook “{one.title}” stopped with {one.failed}." for one in sections if one.failed),
    ]
    return "\n".join(f"<p>{escape(line)}</p>" for line in lines)


def _minute(moment: str) -> str:
    """An ISO 8601 moment to the minute."""
    return f"{moment[:10]} {moment[11:16]} UTC"


def _write(out: Path, text: str) -> None:
    """Write beside the target, then put it in place in one step."""
    half = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="\n", dir=out.parent, suffix=".part", delete=False) as file:
            half = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        half.chmod(0o644)
        half.replace(out)
    except OSError as error:
        if half:
            half.unlink(missing_ok=True)
        room = (
            f" {free_bytes(out.parent) / 1e6:.1f} MB are free there; it needs {len(text.encode()) / 1e6:.1f} MB."
            if error.errno in FULL
            else ""
        )
        raise StoreError(
            f"The report {out} cannot be written: {(error.strerror or str(error)).lower()}.{room}",
            "Free some space there, or name another file." if room else "Check the path, or name another file.",
        ) from None

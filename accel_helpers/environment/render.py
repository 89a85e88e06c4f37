"""An environment as text for a terminal, or as tables for a page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from accel_helpers.environment.ceilings import Ceilings, Limit
from accel_helpers.environment.finding import Finding
from accel_helpers.environment.route import Step
from accel_helpers.records import Environment

WIDTH, INDENT = 100, 14
Table = Sequence[tuple[str, ...]]


def as_rows(
    environment: Environment, findings: Sequence[Finding], route: Sequence[Step], ceilings: Ceilings | None = None
) -> Mapping[str, Table]:
    """Tables by title. The first row of each holds the columns' names; every cell is text."""
    tables: dict[str, Table] = {
        "This machine": [("What", "Here"), *_machine(environment)],
        "Does it fit together?": [("Level", "What", "Why", "Command"), *((one.level, one.what, one.why, one.command) for one in findings)],
        "Route for this hardware": [
            ("Step", "Engine", "Precision", "Device", "Why", "Notebook"),
            *((str(place), one.engine, one.precision, one.device, one.why, one.notebook) for place, one in enumerate(route, 1)),
        ],
    }
    if ceilings is not None:
        rows = [_limit(one) for one in ceilings.limits]
        tables["Measured ceilings"] = [("What", "Device", "Threads", "Size", "Best", "Median", "Samples"), *rows]
    return tables


def render(environment: Environment, findings: Sequence[Finding], route: Sequence[Step], ceilings: Ceilings | None = None) -> str:
    """The same as plain text 100 columns wide; a command stands on a line of its own, whole, so that it can be copied."""
    tables = as_rows(environment, findings, route, ceilings)
    parts = [_title("This machine"), *(_pair(name, value) for name, value in tables["This machine"][1:])]
    parts.append(_title("Does it fit together?"))
    for one in findings:
        parts.append(_pair(one.level, one.what))
        parts += [_pair("", one.why)] if one.why else []
        parts += [f"{'':{INDENT}}$ {one.command}"] if one.command else []
    parts.append(_title("Route for this hardware"))
    for place, step in enumerate(route, 1):
        where = f" (notebook {step.notebook})" if step.notebook else ""
        parts += [_pair(f"{place}.", f"{step.engine} {step.precision} on {step.device}{where}"), _pair("", step.why)]
    if ceilings is not None:
        parts.append(_title("Measured ceilings"))
        parts += [_columns(tables["Measured ceilings"]), *_footnotes(ceilings)]
    return "\n".join(parts).lstrip("\n")


def _machine(environment: Environment) -> Table:
    packages = ", ".join(f"{name} {version}" for name, version in environment.packages.items())
    gpus = "; ".join(f"{gpu.name} ({gpu.compute_capability}, {_size(gpu.memory_bytes)})" for gpu in environment.gpus)
    driver = environment.gpus[0].driver if environment.gpus else ""
    cuda = ", ".join(
        f"{name} {version}" for name, version in (("driver", driver), ("CUDA", environment.cuda), ("cuDNN", environment.cudnn)) if version
    )
    return [
        ("Processor", environment.cpu),
        ("Instructions", " ".join(environment.isa) or "none that matter"),
        ("CPUs", f"{environment.cpus} usable of {environment.cpus_online}"),
        ("Memory", _size(environment.memory_bytes)),
        ("GPU", gpus or "none"),
        *([("CUDA", cuda)] if cuda else []),
        ("System", f"{environment.os}, Python {environment.python}"),
        ("Packages", packages or "none"),
    ]


def _size(number: float) -> str:
    return f"{number / 2**30:.1f} GiB"


def _limit(limit: Limit) -> tuple[str, ...]:
    name = {"gemm": f"{limit.precision} product", "copy": "memory copy", "read": "memory read", "dispatch": "one tiny operator"}[limit.what]
    size = {"gemm": f"n = {limit.size}", "dispatch": ""}.get(limit.what, f"{limit.size / 2**20:.0f} MiB") if limit.size else ""
    figures = (_rate(limit, limit.best), _rate(limit, limit.median)) if limit.samples else ("-", "-")
    return (name, limit.device, str(limit.threads), size, *figures, str(len(limit.samples)))


def _rate(limit: Limit, rate: float) -> str:
    if limit.what == "dispatch":
        return f"{1e6 / rate:.2f} us"
    unit = {"copy": "GB/s", "read": "GB/s", "gemm": "GOP/s" if limit.precision == "int8" else "GFLOP/s"}[limit.what]
    return f"{rate / 1e9:.1f} {unit}"


def _footnotes(ceilings: Ceilings) -> list[str]:
    reasons = dict.fromkeys(f"No {one.precision or one.what} on {one.device}: {one.reason}." for one in ceilings.limits if one.reason)
    state = "The machine was quiet" if ceilings.quiet.passed else "The machine was NOT quiet: best counts more than median"
    notes = [*reasons, f"{state}: {ceilings.quiet.detail}.", "Copies count bytes read and written; a product counts 2 n^3 operations."]
    return [textwrap.fill(note, WIDTH) for note in notes]


def _title(text: str) -> str:
    return f"\n{text}\n{'-' * len(text)}"


def _pair(name: str, text: str) -> str:
    first, rest = f"{name:{INDENT}}", " " * INDENT
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)


def _columns(table: Table) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)

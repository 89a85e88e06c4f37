"""The ``accel`` command. Every command is a thin call into the road; a user's mistake ends in one message and exit code 2."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from accel_helpers.config import RunConfig
from accel_helpers.errors import AccelError

if TYPE_CHECKING:
    from accel_helpers.bench import Progress
    from accel_helpers.records import Measurement, Verdict
    from accel_helpers.runner import Step

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

LOG_COLUMNS = 200  # where there is no terminal to tell its width

Settings = Annotated[list[str] | None, typer.Argument(help="name=value, or name=value,value to sweep: the fields of RunConfig.")]
Config = Annotated[Path | None, typer.Option("--config", help="a YAML mapping of the same names; settings override it.")]
Out = Annotated[Path, typer.Option("--out", help="folder for executed notebooks and report.html.")]


def say(text: str = "") -> None:
    """One line to standard output."""
    typer.echo(text)


@app.command()
def check(ceilings: Annotated[bool, typer.Option(help="also measure what this machine can reach (some seconds).")] = False) -> None:
    """What this machine has, whether it fits together, what to install or change, and which route to take."""
    from accel_helpers import environment

    here = environment.describe()
    measured = environment.ceilings() if ceilings else None
    say(environment.render(here, environment.findings(here), environment.route(here), measured))


@app.command()
def fetch() -> None:
    """Fetch and convert the files of the built-in models into the store."""
    from accel_helpers.models import assets

    assets.main()


@app.command()
def bench(settings: Settings = None, config: Config = None) -> None:
    """Measure each configuration by itself."""
    from accel_helpers.bench import measure

    measurements = [measure(one, watch=_progress) for one in _configs(settings, config)]
    _summary(measurements, ())


@app.command()
def compare(
    settings: Settings = None,
    config: Config = None,
    skip: Annotated[bool, typer.Option("--skip-unsupported", help="leave out, with the reason, what cannot run here.")] = False,
    budget: Annotated[float | None, typer.Option(help="loss of the task metric to allow; 0.01 is one point.")] = None,
) -> None:
    """Measure configurations in one interleaved run and judge each against the first."""
    from accel_helpers.accuracy import Budget
    from accel_helpers.bench import compare as compare_configs
    from accel_helpers.bench import plan_of, support

    configs = _configs(settings, config)
    if skip:
        supports = [(one, support(one)) for one in configs]
        for one, answer in supports:
            if not answer:
                say(f"left out: {one.engine} {one.precision} {one.device}: {answer.reason}")
        configs = [one for one, answer in supports if answer]
    configs = list({(one.model, plan_of(one)): one for one in configs}.values())  # a sweep repeats plans that a field says nothing of
    if len(configs) < 2:
        raise AccelError("A comparison needs a baseline and a candidate.", "Give a parameter two values, e.g. engine=pytorch,openvino.")
    allowed = None if budget is None else Budget(budget)
    result = compare_configs(configs, watch=_progress, budget=allowed)
    _summary(result.measurements, result.verdicts)
    kept = [_within(candidate, verdict) for candidate, verdict in zip(result.measurements[1:], result.verdicts, strict=True) if allowed]
    if allowed and not any(kept):
        raise typer.Exit(1)


@app.command()
def run(
    settings: Settings = None,
    notebook: Annotated[list[str] | None, typer.Option("--notebook", "-n", help="name or number; all when left out.")] = None,
    out: Out = Path("out"),
) -> None:
    """Run notebooks headless, then write the report."""
    from accel_helpers import report as reports
    from accel_helpers import runner
    from accel_helpers.records import Measurement, Verdict
    from accel_helpers.store import Store

    begun = datetime.now(UTC).isoformat(timespec="seconds")
    pairs = runner.check_settings(runner.find(notebook or []), settings or [])
    outcomes = []
    for number, (path, parameters) in enumerate(pairs, 1):
        target = out / f"{path.stem}{runner.label(parameters)}.ipynb"
        say(f"[{number}/{len(pairs)}] {target.stem}")
        outcomes.append(runner.run(path, parameters, target, _cell_progress, out / "timings.json"))
        say(f"{_clear()}    {'FAILED: ' + outcomes[-1].error if outcomes[-1].error else 'done'} after {outcomes[-1].seconds:.0f} s")
    store = Store()
    measurements = [one for one in store.latest(Measurement, limit=1000) if one.started >= begun][::-1]
    known = {one.digest for one in measurements}
    verdicts = [one for one in store.latest(Verdict, limit=1000) if one.candidate in known][::-1]
    page = reports.report([one.output for one in outcomes if one.output.exists()], measurements, verdicts, out / "report.html")
    say()
    _summary(measurements, verdicts)
    say(f"\nexecuted notebooks: {out.resolve()}\nreport: {page.resolve()}")
    if failed := [one for one in outcomes if one.error]:
        say(f"{len(failed)} of {len(outcomes)} notebooks failed: {', '.join(one.notebook for one in failed)}")
        raise typer.Exit(1)


@app.command()
def report(out: Out = Path("out"), limit: Annotated[int, typer.Option(help="newest measurements to show.")] = 50) -> None:
    """Write one HTML file from the executed notebooks in a folder and the newest records in the store."""
    from accel_helpers import report as reports
    from accel_helpers.records import Measurement, Verdict
    from accel_helpers.store import Store

    store = Store()
    measurements, verdicts = store.latest(Measurement, limit=limit)[::-1], store.latest(Verdict, limit=limit)[::-1]
    page = reports.report(sorted(out.glob("*.ipynb")), measurements, verdicts, out / "report.html")
    say(f"report: {page.resolve()}")


@app.command("commands")
def print_commands(
    settings: Settings = None,
    config: Config = None,
    version: Annotated[str, typer.Option("--tensorrt", help="8, 10, 11 or rtx; the installed one when left out.")] = "",
    timing_cache: Annotated[str, typer.Option(help="file of kernel timings to read and write.")] = "",
    calibration_cache: Annotated[str, typer.Option(help="file of ranges for implicit INT8, which 8 and 10 read.")] = "",
) -> None:
    """Print what builds a model's engine with a version of TensorRT, and how versions differ. Writes no file."""
    from accel_helpers.compilation.commands import fitting as commands

    defaults = RunConfig.from_yaml(config).model_dump() if config else {}
    chosen = RunConfig.parse(settings or [], **defaults)
    intent = commands.intent_of(chosen, timing_cache=timing_cache, calibration_cache=calibration_cache)
    found = commands.commands_for(intent, version or commands.installed_version())
    name = commands.VERSIONS[found.version]
    for title, text in (("on the command line", found.trtexec), ("in Python", found.python), ("with Polygraphy", found.polygraphy)):
        say(f"{name}, {title}:\n\n{text}")
    say("How versions differ:")
    for one in found.differences:
        say(f"- {one.what}: {one.why} [{one.source}]")


@app.command()
def diff(
    settings: Settings = None,
    config: Config = None,
    size: Annotated[list[str] | None, typer.Option(help="batch x sequence, as 7x16; may be given again.")] = None,
    against: Annotated[str, typer.Option(help="first: the first configuration; fp32 or fp64: PyTorch in that type.")] = "first",
) -> None:
    """Compare what engines answer, output by output and at several sizes. Times nothing."""
    from accel_helpers import charts
    from accel_helpers.compilation.debugging import outputs

    shapes = [outputs.size(one) for one in size or []]
    found = outputs.compare(_configs(settings, config), shapes or None, against=against)
    say(charts.as_text(charts.differences_table(found), None if sys.stdout.isatty() else LOG_COLUMNS))
    if not all(found):
        raise typer.Exit(1)


@app.command()
def bisect(
    file: Annotated[Path, typer.Argument(help="an ONNX file.")],
    check: Annotated[str, typer.Option(help="tensorrt, onnx_runtime, openvino: it loads; finite: no NaN, no Inf; differs.")] = "",
    reference: Annotated[Path | None, typer.Option(help="of differs: an ONNX file whose values are right.")] = None,
    tolerance: Annotated[float, typer.Option(help="of differs: the largest relative error of a tensor that is not wrong.")] = 1e-3,
    save: Annotated[Path | None, typer.Option(help="write the smallest part that still fails to this .onnx file.")] = None,
) -> None:
    """Find the operator for which an ONNX graph fails: it does not load, answers NaN, or differs from another graph."""
    from accel_helpers import charts
    from accel_helpers.compilation.debugging.bisect import failing_node

    asked = check or ("differs" if reference else check)
    found = failing_node(file, asked, reference=reference, tolerance=tolerance, save=save)
    say(charts.as_text(charts.culprit_table([found]), None if sys.stdout.isatty() else LOG_COLUMNS))
    if save:
        say(f"the part that still fails: {save.resolve()}")


def _configs(settings: list[str] | None, config: Path | None) -> list[RunConfig]:
    defaults = RunConfig.from_yaml(config).model_dump() if config else {}
    return RunConfig.sweep(settings or [], **defaults)


def _summary(measurements: list[Measurement] | tuple[Measurement, ...], verdicts: list[Verdict] | tuple[Verdict, ...]) -> None:
    from accel_helpers import charts

    say(charts.as_text(charts.table(measurements, verdicts), None if sys.stdout.isatty() else LOG_COLUMNS))
    reasons: dict[tuple[str, str], list[str]] = {}
    for measurement in measurements:
        for reason in measurement.reasons:
            name, _, detail = reason.partition(": ")
            reasons.setdefault((measurement.status, name), []).append(f"{measurement.plan.label}: {detail}")
    for (status, name), plans in reasons.items():
        more = f" (and {len(plans) - 1} more)" if len(plans) > 1 else ""
        say(f"{status}, {name}: {plans[0]}{more}")


def _within(candidate: Measurement, verdict: Verdict) -> bool:
    """Say whether a candidate is right and within its budget, and answer it."""
    check = verdict.budget
    if check is None or check.passed is False or candidate.status == "INVALID":
        reason = "INVALID, for the reasons above" if candidate.status == "INVALID" else check.detail if check else ""
        say(f"out of budget: {candidate.plan.label}: {reason}")
        return False
    say(f"within budget{'' if check.passed else ', but too few samples to be sure'}: {candidate.plan.label}: {check.detail}")
    return True


def _clear() -> str:
    return "\r\x1b[K" if sys.stdout.isatty() else ""


def _line(text: str) -> None:
    """A line that the next one overwrites on a terminal, and a plain one in a log."""
    if sys.stdout.isatty():
        sys.stdout.write(_clear() + text)
        sys.stdout.flush()
    else:
        say(text)


def _progress(progress: Progress) -> None:
    if sys.stdout.isatty() or progress.stage != "measuring" or progress.done == progress.total:
        _line(f"{progress.stage} {progress.done}/{progress.total}")
    if sys.stdout.isatty() and progress.stage == "measuring" and progress.done == progress.total:
        say(_clear())


def _cell_progress(step: Step) -> None:
    left = "no estimate yet" if step.remaining is None else f"about {step.remaining:.0f} s left"
    _line(f"    cell {step.cell}/{step.cells}, {step.elapsed:.0f} s, {left}")


def main() -> NoReturn:
    """Run the command line; exit code 0 is success, 2 a user's mistake, 1 what a command found wrong: a notebook, a budget, an output."""
    try:
        app()
    except AccelError as error:
        typer.echo(f"accel: {error.what}\n       {error.next_step}".rstrip(), err=True)
        sys.exit(2)
    sys.exit(0)


if __name__ == "__main__":
    main()

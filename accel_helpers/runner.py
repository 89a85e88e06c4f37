"""Notebooks headless: papermill with checked parameters, progress, and failures that cannot hide.

Papermill runs on after an unknown parameter, and after a kernel's death it marks every cell completed. So parameters are checked before
anything starts, and a notebook counts as done only when its last cell has written a fresh token to a file.
"""

from __future__ import annotations

import ast
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_helpers.config import RunConfig
from accel_helpers.errors import AccelError, ParameterError, UnknownNameError

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


@dataclass(frozen=True)
class Step:
    """Where a run stands: told before each cell."""

    notebook: str
    cell: int
    cells: int
    elapsed: float  # seconds since this notebook began
    remaining: float | None  # seconds, from the last run of this notebook; None on the first


@dataclass(frozen=True)
class Outcome:
    """One executed notebook. ``error`` is empty when its last cell was reached."""

    notebook: str
    output: Path
    seconds: float
    error: str


def find(names: Sequence[str]) -> list[Path]:
    """Notebooks by name, number or path; all of them for no name.

    Raises:
        UnknownNameError: no such notebook.
    """
    every = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    found = []
    for name in names:
        matches = [Path(name)] if Path(name).is_file() else [path for path in every if path.stem == name or path.stem.split("_")[0] == name]
        if not matches:
            raise UnknownNameError("notebook", name, [path.stem for path in every])
        found += matches
    return found or every


def declared(notebook: Path) -> dict[str, Any]:
    """The parameters that a notebook declares, with their defaults."""
    import nbformat

    cells = nbformat.read(notebook, as_version=4).cells
    source = "\n".join(cell.source for cell in cells if "parameters" in cell.metadata.get("tags", []))
    return {
        node.target.id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
    }


def combinations(notebook: Path, settings: Sequence[str]) -> list[dict[str, Any]]:
    """The parameter sets that ``name=value[,value…]`` settings give for one notebook, every one of them a valid RunConfig.

    Raises:
        ParameterError: unknown, ill-typed, or not declared by this notebook.
    """
    defaults = declared(notebook)
    chosen = [setting.partition("=")[0] for setting in settings]
    for name in chosen:
        if name in RunConfig.model_fields and name not in defaults:
            raise ParameterError(f"{notebook.stem} has no parameter {name!r}.", f"It takes: {', '.join(sorted(defaults))}.")
    return [{name: getattr(config, name) for name in chosen} for config in RunConfig.sweep(settings, **defaults)]


def run(
    notebook: Path, parameters: dict[str, Any], output: Path, watch: Callable[[Step], None] | None = None, timings: Path | None = None
) -> Outcome:
    """Execute one notebook into ``output``; a failing cell or a dead kernel is an Outcome with an error, never an exception."""
    import nbformat
    import papermill

    _register_engine()
    content = nbformat.read(notebook, as_version=4)
    token = secrets.token_hex(16)
    output.parent.mkdir(parents=True, exist_ok=True)
    past = _past(timings, notebook.stem)
    begin = time.monotonic()
    error = ""
    with tempfile.TemporaryDirectory() as folder:
        sentinel, prepared = Path(folder) / "reached", Path(folder) / notebook.name
        content.cells.append(nbformat.v4.new_code_cell(f"open({str(sentinel)!r}, 'w').write({token!r});"))
        nbformat.write(content, prepared)
        os.environ["ACCEL_HEADLESS"] = "1"
        try:
            papermill.execute_notebook(
                prepared,
                output,
                parameters=parameters,
                engine_name="accel",
                progress_bar=False,
                log_output=False,
                cwd=notebook.parent,
                kernel_name="python3",
                language="python",
                on_cell=_teller(notebook.stem, len(content.cells) - 1, begin, past, watch),
            )
        except papermill.PapermillExecutionError as failure:
            error = f"cell {failure.exec_count}: {failure.ename}: {failure.evalue}"
        except Exception as failure:  # a kernel that died raises one of several classes of the client
            error = f"{type(failure).__name__}: {failure}"
        if not error and (not sentinel.exists() or sentinel.read_text() != token):
            error = "the kernel died before the last cell"
    seconds = time.monotonic() - begin
    _without_sentinel(output)
    if not error and timings:
        _remember(timings, notebook.stem, seconds)
    return Outcome(notebook.stem, output, seconds, error)


def _register_engine() -> None:
    """Papermill's nbclient engine, telling someone before each cell."""
    from papermill.engines import NBClientEngine, papermill_engines

    class Telling(NBClientEngine):  # type: ignore[misc]
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, on_cell: Callable[[int], None], **options: Any) -> None:
            start = nb_man.cell_start

            def cell_start(cell: Any, cell_index: int, **more: Any) -> None:
                on_cell(cell_index)
                start(cell, cell_index, **more)

            nb_man.cell_start = cell_start
            quiet = ["--IPKernelApp.log_level=CRITICAL"]  # a kernel's own log is no part of the progress; cell errors are in the notebook
            NBClientEngine.execute_managed_notebook(nb_man, kernel_name, extra_arguments=quiet, **options)

    papermill_engines.register("accel", Telling)


def _teller(name: str, cells: int, begin: float, past: float | None, watch: Callable[[Step], None] | None) -> Callable[[int], None]:
    def tell(index: int) -> None:
        elapsed = time.monotonic() - begin
        if watch and index < cells:
            watch(Step(name, index + 1, cells, elapsed, None if past is None else max(0.0, past - elapsed)))

    return tell


def _past(timings: Path | None, name: str) -> float | None:
    try:
        return float(json.loads(timings.read_text())[name]) if timings else None
    except (OSError, ValueError, KeyError):
        return None


def _remember(timings: Path, name: str, seconds: float) -> None:
    try:
        known = json.loads(timings.read_text())
    except (OSError, ValueError):
        known = {}
    timings.write_text(json.dumps({**known, name: round(seconds, 1)}, indent=1))


def _without_sentinel(output: Path) -> None:
    import nbformat

    if output.exists():
        content = nbformat.read(output, as_version=4)
        content.cells = content.cells[:-1]
        nbformat.write(content, output)


def label(parameters: dict[str, Any]) -> str:
    """A file-name part that tells one combination from another."""
    return "".join(f".{name}-{value}" for name, value in parameters.items()).replace("/", "_").replace(":", "_")


def check_settings(notebooks: Sequence[Path], settings: Sequence[str]) -> list[tuple[Path, dict[str, Any]]]:
    """Every (notebook, parameters) pair of a run; with several notebooks, each takes the settings that it declares.

    Raises:
        ParameterError: a setting that no chosen notebook declares, or that is no parameter at all.
    """
    for setting in settings:
        name = setting.partition("=")[0]
        if name not in RunConfig.model_fields:
            raise UnknownNameError("parameter", name, RunConfig.model_fields)
        if not any(name in declared(notebook) for notebook in notebooks):
            raise ParameterError(f"No chosen notebook has a parameter {name!r}.", "Leave it out, or choose a notebook that has it.")
    pairs = []
    for notebook in notebooks:
        own = [setting for setting in settings if setting.partition("=")[0] in declared(notebook)]
        pairs += [(notebook, parameters) for parameters in combinations(notebook, own)]
    if not pairs:
        raise AccelError("There are no notebooks to run.", "Run python notebooks/build.py to build them from their sources.")
    return pairs

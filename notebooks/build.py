"""Build the notebooks from their sources: ``src/NN_name.py`` (py:percent) becomes ``NN_name.ipynb`` without outputs or solutions.

    python notebooks/build.py                  write the readers' notebooks
    python notebooks/build.py --check          exit with 1 when one of them is stale
    python notebooks/build.py --solutions DIR  write the notebooks with solutions into DIR

The same sources always give the same bytes. An exercise is one cell tagged ``exercise`` that holds both versions and its check::

    # %% tags=["exercise"]
    def double(x):
        ### STUB
        return None  # your line here
        ### SOLUTION
        return 2 * x
        ### END
    lesson.check(double, ((3,), 6), hint="Two of them.")

The rules of a lesson are checked here, so that a notebook that breaks one is never written.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import jupytext
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from accel_helpers.config import RunConfig
from accel_helpers.errors import AccelError

HERE = Path(__file__).resolve().parent
MOST_LINES = 15
STUB, SOLUTION, END = MARKERS = ("### STUB", "### SOLUTION", "### END")
CONFIG = "RunConfig.from_namespace(globals())"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class SourceError(AccelError):
    """A notebook source that breaks a rule; the message names the cell."""


@dataclass(frozen=True)
class Cell:
    """One cell as its source has it: prose or code, with both versions of an exercise."""

    kind: str
    text: str
    tags: tuple[str, ...]
    where: str  # for messages

    def error(self, what: str, next_step: str) -> SourceError:
        """What is wrong with this cell."""
        return SourceError(f"{self.where}: {what}", next_step)

    def build(self, solutions: bool) -> str:
        """The cell's text as a reader gets it, or with solutions."""
        lines, keep = [], True
        for line in self.text.splitlines():
            match line.strip():
                case "### STUB":
                    keep = not solutions
                case "### SOLUTION":
                    keep = solutions
                case "### END":
                    keep = True
                case _ if keep:
                    lines.append(line)
        return "\n".join(lines)


@dataclass(frozen=True)
class Lesson:
    """One source file, read."""

    name: str
    cells: tuple[Cell, ...]

    @property
    def title(self) -> str:
        """The first heading."""
        return self.cells[0].text.splitlines()[0].removeprefix("# ")

    @property
    def link(self) -> str:
        """A Markdown link for the navigation cells."""
        return f"[{self.name[:2]} {self.title}]({self.name}.ipynb)"


def read(path: Path) -> Lesson:
    """A source file, with every rule checked.

    Raises:
        SourceError: a rule is broken; the message names the file, the cell and what to do.
    """
    if not re.fullmatch(r"\d\d_[a-z0-9_]+", path.stem):
        raise SourceError(f"{path.name} is not named NN_name.py.", "Two digits give its place in the order.")
    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    cells = tuple(
        Cell(
            one.cell_type,
            one.source,
            tuple(one.metadata.get("tags", ())),
            f"{path.name}, cell {number} ({next(iter(one.source.splitlines()), 'empty')!r})",
        )
        for number, one in enumerate(notebook.cells, 1)
    )
    if not cells or cells[0].kind != "markdown" or not cells[0].text.startswith("# "):
        raise SourceError(f"{path.name}: the first cell is not a title.", "Begin with a Markdown cell whose first line is `# Title`.")
    for before, cell in pairwise(cells):
        if cell.kind == "code":
            _check_code(before, cell)
    _check_parameters(path.name, [cell for cell in cells if cell.kind == "code"])
    return Lesson(path.stem, cells)


def _check_code(before: Cell, cell: Cell) -> None:
    if before.kind != "markdown":
        raise cell.error("no prose before this code.", "Say first what the cell does and why.")
    exercise = "exercise" in cell.tags
    markers = [line.strip() for line in cell.text.splitlines() if line.strip() in MARKERS]
    if markers != (list(MARKERS) if exercise else []):
        raise cell.error(
            f"its markers are {markers or 'missing'}.",
            f"A cell tagged exercise holds {', '.join(MARKERS)} once, in this order; no other cell holds any.",
        )
    for solutions in (False, True):
        text = cell.build(solutions)
        if (lines := len(text.splitlines())) > MOST_LINES:
            raise cell.error(f"{lines} lines.", f"A cell holds {MOST_LINES} at most: split it, or move the work into the package.")
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            raise cell.error(f"it is not Python: {error}.", "Mend the source.") from None
        _check_statements(cell, tree, exercise)


def _check_statements(cell: Cell, tree: ast.Module, exercise: bool) -> None:
    definitions = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    if definitions and not exercise:
        raise cell.error(f"it defines {definitions[0]}.", "Only exercises define functions or classes: move this one into the package.")
    if exercise and not any(isinstance(node, ast.Call) and ast.unparse(node.func) == "lesson.check" for node in ast.walk(tree)):
        raise cell.error("an exercise without its check.", "End the cell with lesson.check(…).")


def _check_parameters(name: str, code: list[Cell]) -> None:
    tagged = [cell for cell in code if "parameters" in cell.tags]
    if len(tagged) != 1 or code[0] is not tagged[0]:
        raise SourceError(
            f"{name}: {len(tagged)} cells are tagged parameters, and one was expected: the first code cell.",
            'Write # %% tags=["parameters"].',
        )
    if len(code) < 2 or CONFIG not in code[1].text:
        raise SourceError(
            f"{name}: the code cell after the parameters does not read them.", f"It holds {CONFIG}, which refuses a mistyped parameter."
        )
    values = {}
    for statement in ast.parse(tagged[0].text).body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=field), annotation=ast.Name(id=kind), value=ast.Constant(value=value)):
                values[field] = value
                if kind != type(value).__name__:
                    raise tagged[0].error(f"{field} is annotated {kind} and holds {value!r}.", "Annotate the type of its value.")
            case _:
                raise tagged[0].error(
                    f"{ast.unparse(statement)!r} is not an annotated literal.", "Write name: type = literal, nothing else."
                )
    try:
        RunConfig(**values)
    except AccelError as error:
        raise tagged[0].error(error.what, error.next_step) from None


def cell_ids(lesson: Lesson) -> Iterator[str]:
    """One id a cell: a hash of the notebook's name and the cell's source, so that an edit elsewhere leaves it, in either build."""
    seen: Counter[str] = Counter()
    for cell in lesson.cells:
        seen[cell.text] += 1
        yield hashlib.sha256(f"{lesson.name}|{cell.kind}|{seen[cell.text]}|{cell.text}".encode()).hexdigest()[:12]


def navigation(lessons: Sequence[Lesson], index: int) -> str:
    """The last cell: previous, next, and the contents."""
    before = f"← {lessons[index - 1].link}" if index else ""
    after = f"{lessons[index + 1].link} →" if index + 1 < len(lessons) else ""
    contents = "\n".join(f"- **{one.name[:2]} {one.title}**" if one is lessons[index] else f"- {one.link}" for one in lessons)
    return f"---\n{' · '.join(filter(None, (before, after)))}\n\nContents\n\n{contents}"


def render(lessons: Sequence[Lesson], index: int, solutions: bool) -> str:
    """The notebook's JSON text."""
    lesson = lessons[index]
    cells = []
    for cell, name in zip(lesson.cells, cell_ids(lesson), strict=True):
        new = new_markdown_cell if cell.kind == "markdown" else new_code_cell
        cells.append(new(cell.build(solutions), id=name, metadata={"tags": list(cell.tags)} if cell.tags else {}))
    cells.append(new_markdown_cell(navigation(lessons, index), id="navigation", metadata={"tags": ["navigation"]}))
    notebook = new_notebook(cells=cells, metadata=METADATA)
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)) + "\n"


def build(sources: Path, solutions: bool = False) -> dict[str, str]:
    """Every notebook of a folder of sources: file name to JSON text.

    Raises:
        SourceError: a source breaks a rule, or there is none.
    """
    lessons = [read(path) for path in sorted(sources.glob("*.py"))]
    if not lessons:
        raise SourceError(f"{sources} holds no source.", "Sources are named NN_name.py.")
    return {f"{lesson.name}.ipynb": render(lessons, index, solutions) for index, lesson in enumerate(lessons)}


def stale(built: dict[str, str], out: Path) -> list[str]:
    """What is wrong with the notebooks in ``out``, one line each: changed, missing, or without a source."""
    found = {path.name: path.read_text(encoding="utf-8") for path in out.glob("*.ipynb")}
    lines = [
        f"{name} is {'stale' if name in found else 'missing'}: run notebooks/build.py" for name in built if found.get(name) != built[name]
    ]
    return lines + [f"{name} has no source: remove it" for name in sorted(found.keys() - built.keys())]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a notebook is stale")
    parser.add_argument("--solutions", type=Path, metavar="DIR", help="write the notebooks with solutions into DIR instead")
    chosen = parser.parse_args(arguments)
    try:
        built = build(HERE / "src", solutions=chosen.solutions is not None)
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    if chosen.check:
        problems = stale(built, HERE)
        print("\n".join(problems) or f"{len(built)} notebooks are up to date")
        return 1 if problems else 0
    out = chosen.solutions or HERE
    out.mkdir(parents=True, exist_ok=True)
    for name, text in built.items():
        path = out / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

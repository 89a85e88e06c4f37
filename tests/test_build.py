"""The notebook builder: each rule refuses a source that breaks it, naming the cell, and the same sources give the same bytes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks_build", ROOT / "notebooks" / "build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


build: Any = _load()

GOOD = """\
# %% [markdown]
# # A lesson
# Its question.

# %% tags=["parameters"]
batch: int = 1
precision: str = "fp32"

# %% [markdown]
# Read the settings.

# %%
from accel_helpers import lesson
from accel_helpers.config import RunConfig
config = RunConfig.from_namespace(globals())

# %% [markdown]
# Twice as much.

# %% tags=["exercise"]
def double(x):
    ### STUB
    return None  # your line here
    ### SOLUTION
    return 2 * x
    ### END
lesson.check(double, ((3,), 6), hint="two of them")
"""


def _sources(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def _cells(text: str) -> list[dict[str, Any]]:
    return list(json.loads(text)["cells"])


def test_a_good_source_builds_the_same_bytes_twice(tmp_path: Path) -> None:
    sources = _sources(tmp_path, **{"00_first": GOOD, "01_next": GOOD})
    assert build.build(sources) == build.build(sources)


def test_readers_get_stubs_and_solutions_stay_out(tmp_path: Path) -> None:
    sources = _sources(tmp_path, **{"00_first": GOOD})
    stub = "".join(_cells(build.build(sources)["00_first.ipynb"])[5]["source"])
    solved = "".join(_cells(build.build(sources, solutions=True)["00_first.ipynb"])[5]["source"])
    assert "return None" in stub
    assert "2 * x" not in stub
    assert "2 * x" in solved
    assert "return None" not in solved
    assert "###" not in stub + solved


def test_cell_ids_are_unique_shared_by_both_builds_and_survive_an_edit_elsewhere(tmp_path: Path) -> None:
    sources = _sources(tmp_path, **{"00_first": GOOD})
    ids = [cell["id"] for cell in _cells(build.build(sources)["00_first.ipynb"])]
    assert len(set(ids)) == len(ids) == 7
    assert ids == [cell["id"] for cell in _cells(build.build(sources, solutions=True)["00_first.ipynb"])]
    _sources(tmp_path, **{"00_first": GOOD.replace("Read the settings.", "Read them.\n\n# %% [markdown]\n# And more.")})
    after = [cell["id"] for cell in _cells(build.build(sources)["00_first.ipynb"])]
    assert len(after) == 8
    assert len(set(after) & set(ids)) == 6


def test_equal_cells_get_ids_of_their_own(tmp_path: Path) -> None:
    twice = GOOD + "\n# %% [markdown]\n# The same.\n\n# %% [markdown]\n# The same.\n"
    ids = [cell["id"] for cell in _cells(build.build(_sources(tmp_path, **{"00_first": twice}))["00_first.ipynb"])]
    assert len(ids) == len(set(ids)) == 9


def test_navigation_links_the_neighbours_and_the_contents(tmp_path: Path) -> None:
    sources = _sources(tmp_path, **{f"0{number}_n": GOOD.replace("A lesson", f"Lesson {number}") for number in range(3)})
    middle = "".join(_cells(build.build(sources)["01_n.ipynb"])[-1]["source"])
    assert middle.splitlines()[1] == "← [00 Lesson 0](00_n.ipynb) · [02 Lesson 2](02_n.ipynb) →"
    assert "- **01 Lesson 1**" in middle
    first = "".join(_cells(build.build(sources)["00_n.ipynb"])[-1]["source"])
    assert "←" not in first


BROKEN = {
    "no title": (GOOD.replace("# # A lesson", "# A lesson"), "first cell is not a title"),
    "no prose before code": (GOOD.replace("# %% [markdown]\n# Read the settings.\n\n", ""), "no prose before this code"),
    "a long cell": (GOOD.replace("from accel_helpers import lesson\n", "from accel_helpers import lesson\n" + "x = 1\n" * 13), "16 lines"),
    "a long solution": (GOOD.replace("    return 2 * x\n", "    x = x\n" * 14 + "    return 2 * x\n"), "17 lines"),
    "a def outside exercises": (GOOD.replace("from accel_helpers import lesson\n", "def f(): ...\n"), "it defines f"),
    "a class outside exercises": (GOOD.replace("from accel_helpers import lesson\n", "class C: ...\n"), "it defines C"),
    "an exercise without a solution": (GOOD.replace("    ### SOLUTION\n", ""), "its markers are"),
    "an exercise without its tag": (GOOD.replace(' tags=["exercise"]', ""), "its markers are"),
    "an exercise without a check": (GOOD.replace("lesson.check(", "print("), "an exercise without its check"),
    "not Python": (GOOD.replace("return 2 * x", "return 2 *"), "it is not Python"),
    "no parameters": (GOOD.replace(' tags=["parameters"]', ""), "0 cells are tagged parameters"),
    "two parameter cells": (GOOD.replace("# %%\nfrom", '# %% tags=["parameters"]\nfrom'), "2 cells are tagged parameters"),
    "parameters not read": (GOOD.replace("from_namespace(globals())", "parse([])"), "does not read them"),
    "an unknown parameter": (GOOD.replace("batch: int", "bach: int"), "Did you mean 'batch'"),
    "a parameter out of range": (GOOD.replace("batch: int = 1", "batch: int = 0"), "batch=0 is refused"),
    "a parameter of another type": (GOOD.replace("batch: int = 1", "batch: float = 1.5"), "batch=1.5 is refused"),
    "a wrong annotation": (GOOD.replace("batch: int = 1", "batch: str = 1"), "annotated str"),
    "a parameter without annotation": (GOOD.replace("batch: int = 1", "batch = 1"), "not an annotated literal"),
    "a computed parameter": (GOOD.replace("batch: int = 1", "batch: int = 1 + 1"), "not an annotated literal"),
}


def test_the_unbroken_twin_passes(tmp_path: Path) -> None:
    assert set(build.build(_sources(tmp_path, **{"00_first": GOOD}))) == {"00_first.ipynb"}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=list(BROKEN))
def test_a_source_that_breaks_a_rule_is_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    assert text != GOOD
    with pytest.raises(build.SourceError) as caught:
        build.build(_sources(tmp_path, **{"00_first": text}))
    assert message in str(caught.value)
    assert "00_first.py" in str(caught.value)
    assert caught.value.next_step


def test_a_bad_name_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(build.SourceError, match="holds no source"):
        build.build(tmp_path)
    with pytest.raises(build.SourceError, match="not named"):
        build.build(_sources(tmp_path, first=GOOD))


def test_check_finds_stale_missing_and_orphaned_notebooks(tmp_path: Path) -> None:
    built = build.build(_sources(tmp_path, **{"00_first": GOOD, "01_next": GOOD}))
    out = tmp_path / "out"
    out.mkdir()
    for name, text in built.items():
        (out / name).write_text(text, encoding="utf-8")
    assert build.stale(built, out) == []
    (out / "00_first.ipynb").write_text("{}")
    (out / "01_next.ipynb").rename(out / "02_gone.ipynb")
    assert [line.split(":")[0] for line in build.stale(built, out)] == [
        "00_first.ipynb is stale",
        "01_next.ipynb is missing",
        "02_gone.ipynb has no source",
    ]


def test_check_exits_with_1_when_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "src").mkdir()
    _sources(tmp_path / "src", **{"00_first": GOOD})
    monkeypatch.setattr(build, "HERE", tmp_path)
    assert build.main(["--check"]) == 1
    assert build.main([]) == 0
    assert build.main(["--check"]) == 0
    assert build.main(["--solutions", str(tmp_path / "solved")]) == 0
    assert "2 * x" in (tmp_path / "solved" / "00_first.ipynb").read_text()
    assert build.main(["--check"]) == 0
    _sources(tmp_path / "src", **{"00_first": GOOD.replace("question", "Question")})
    capsys.readouterr()
    assert build.main(["--check"]) == 1
    assert "00_first.ipynb is stale" in capsys.readouterr().out

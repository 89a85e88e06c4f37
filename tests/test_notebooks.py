"""Every notebook through papermill in both builds: with solutions each check passes, with stubs each says "not yet"; both reach the end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
from test_build import build

from accel_helpers import runner
from accel_helpers.device import store_root
from accel_helpers.records import Claim
from accel_helpers.store import Store

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "notebooks" / "src").glob("*.py"))
NAMES = [path.stem for path in SOURCES]
TINY = {"model": "tiny-attention", "sequence": 32, "threads": 1, "rounds": 6, "seconds": 0.3}
CLAIMS = {
    "00_environment": {"C18"},
    "01_baseline": {"C3", "C7", "C21"},
    "02_quantization": {"C1", "C2", "C11", "C12", "C13"},
    "03_tensorrt": {"C4", "C5", "C6", "C9", "C14", "C15", "C17", "C19"},
}
MOST_BYTES = 1_000_000

assert list(CLAIMS) == NAMES


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory):
    """A store that both builds share, with the models' files, and no compiler: torch.compile has tests of its own, and here must say why
    it is left out.
    """
    files = store_root() / "assets"
    assert files.is_dir(), "accel fetch has not run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.mktemp("store")))
        (store_root() / "assets").symlink_to(files)
        patch.setenv("CXX", "no-such-compiler")
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The readers' notebooks and those with solutions, in two folders."""
    folders = {}
    for solutions in (False, True):
        folders[solutions] = tmp_path_factory.mktemp("solutions" if solutions else "stubs")
        for name, text in build.build(ROOT / "notebooks" / "src", solutions).items():
            (folders[solutions] / name).write_text(text, encoding="utf-8")
    return folders


def run(notebook: Path, **parameters):
    """The executed notebook; it lies beside the one that was run."""
    out = notebook.with_suffix(".out.ipynb")
    papermill.execute_notebook(notebook, out, parameters=parameters, kernel_name="python3", progress_bar=False, cwd=notebook.parent)
    return out, nbformat.read(out, as_version=4)


def printed(cell) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")


def shown(notebook) -> str:
    """All that a notebook printed or displayed as text."""
    parts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            parts += [output.get("text", ""), data.get("text/markdown", ""), data.get("text/html", "")]
    return "\n".join(parts)


def test_the_committed_notebooks_are_fresh():
    assert build.stale(build.build(ROOT / "notebooks" / "src"), ROOT / "notebooks") == []


def test_the_committed_notebooks_hold_no_outputs_and_no_solutions():
    for name in NAMES:
        notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        exercises = [cell for cell in code if "exercise" in cell.metadata.get("tags", [])]
        assert len(code) > 8
        assert exercises
        assert not any(cell.outputs or cell.execution_count for cell in code)
        assert all("return None" in cell.source for cell in exercises)


# Stubs run `null` where a notebook takes an engine: it starts in a tenth of the time, and its INVALID figures must not stop a lesson.
@pytest.mark.parametrize("solutions", [True, False], ids=["solutions", "stubs"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.timeout(240)
def test_a_notebook_runs_to_its_end(name, solutions, built):
    path = built[solutions] / f"{name}.ipynb"
    quantizes = name == "02_quantization"  # which null does not: it has no layers to count
    chosen = {**TINY, "engine": "onnx_runtime" if quantizes else "pytorch" if solutions else "null"}
    out, notebook = run(path, **{key: value for key, value in chosen.items() if key in runner.declared(path)})
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert out.stat().st_size < MOST_BYTES

    exercises = [cell for cell in code if "exercise" in cell.metadata.get("tags", [])]
    assert exercises
    expected = "passed: " if solutions else "not yet: "
    assert [printed(cell).startswith(expected) for cell in exercises] == [True] * len(exercises)

    text = shown(notebook)
    assert text.count("**Predict.**") == text.count("**Reveal.**") > 0
    made = {one.id: one for one in reversed(Store().latest(Claim))}  # the newest of each counts
    assert made.keys() >= CLAIMS[name]
    for claim in CLAIMS[name]:
        assert f"**Claim {claim}.** {made[claim].statement}: **{made[claim].verdict}**. {made[claim].evidence}" in text
    if name == "03_tensorrt":
        assert "there is no no-such-compiler" in text
        assert "not yet run on a GPU" in made["C4"].evidence
    if name != "00_environment":
        figures = [
            data for cell in code for output in cell.outputs if (data := output.get("data", {}).get("application/vnd.plotly.v1+json"))
        ]
        assert figures
        assert all(figure["layout"]["meta"]["sentence"] for figure in figures)


def test_the_kernel_is_this_interpreter(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import sys; print(sys.executable)")])
    notebook.metadata["kernelspec"] = build.METADATA["kernelspec"]
    nbformat.write(notebook, tmp_path / "where.ipynb")
    _, executed = run(tmp_path / "where.ipynb")
    assert os.path.realpath(printed(executed.cells[0]).strip()) == os.path.realpath(sys.executable)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bach": 4}, "Did you mean 'batch'"),
        ({"seconds": "long"}, "seconds='long' is refused"),
        ({"rounds": 2.5}, "rounds=2.5 is refused"),
    ],
    ids=["unknown", "ill-typed", "not whole"],
)
def test_a_bad_parameter_stops_the_notebook_before_anything_runs(parameters, message, built):
    notebook = built[False] / "03_tensorrt.ipynb"
    with pytest.raises(papermill.PapermillExecutionError) as caught:
        run(notebook, **parameters)
    executed = nbformat.read(notebook.with_suffix(".out.ipynb"), as_version=4)
    assert message in str(caught.value)
    assert "Traceback" not in str(caught.value)
    ran = [cell for cell in executed.cells if cell.cell_type == "code" and cell.execution_count]
    assert ran[-1].source.endswith("RunConfig.from_namespace(globals())")

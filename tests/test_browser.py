"""A real Chromium on a real JupyterLab reads the baseline notebook: runs it, uses its panel, reloads, and asks nothing of the network."""

from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import lab, reader
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from processes import workers

from accel_helpers import bench
from accel_helpers.config import RunConfig

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(600)]

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
QUICK = {"model": "tiny-attention", "sequence": 32, "rounds": 6, "seconds": 0.2}
SMALL = """import threading
import ipywidgets
from accel_helpers import panel
from accel_helpers.config import RunConfig
box = panel.explore(RunConfig(model="tiny-cnn", engine="null", rounds=6, seconds=0.1))
thread = ipywidgets.Label("no callback yet")
batch = next(one for row in box.children[:2] for one in row.children if hasattr(one, "largest"))
batch.observe(lambda _: setattr(thread, "value", threading.current_thread().name), "value")
ipywidgets.VBox([box, thread])"""
QUANTIZE = """from accel_helpers import panel
from accel_helpers.config import RunConfig
base = RunConfig(model="tiny-cnn", engine="onnx_runtime", precision="int8", scheme="dynamic", rounds=6, seconds=0.1)
panel.quantize(base.replace(calibration=8))"""
SWEEP = "Throughput and call time over the batch size"
ROUNDS = "Rounds so far"
FP32 = "pytorch fp32 cpu"
# The second plan: another precision where the processor has one, else another engine.
CONTROL, CHOICE, OTHER = (
    ("Precision", "bf16", "pytorch bf16 cpu")
    if bench.support(RunConfig(precision="bf16"))
    else ("Engine", "onnx_runtime", "onnx_runtime fp32 cpu")
)
BATCHES = [1, 2, 4, 8, 32]  # the notebook's own sweep, which the panel begins with


@pytest.fixture
def folders(tmp_path):
    found = tmp_path / "notebooks", tmp_path / "home"
    for folder in found:
        folder.mkdir()
    return found


def plans(chart):
    return {one["name"]: one["x"] for one in chart["series"] if one["axis"] == "y"}


def serious(violations):
    return [(one["id"], node["html"][:200]) for one in violations if one["impact"] in ("serious", "critical") for node in one["nodes"]]


def test_a_reader_explores_the_baseline(folders):
    root, home = folders
    notebook = parameterize_notebook(load_notebook_node(str(NOTEBOOKS / "01_baseline.ipynb")), QUICK)
    nbformat.write(notebook, root / "01_baseline.ipynb")
    with lab(root, home) as (address, token), reader(address, token, "01_baseline.ipynb") as one:
        one.run_all()
        assert plans(one.wait_for_chart(SWEEP, FP32, BATCHES)) == {FP32: BATCHES}
        changes_a_choice_and_the_batch(one)
        meets_an_option_that_cannot_run(one)
        stops_a_run(one)
        assert serious(Axe().run(one.page, context={"include": [[".jp-OutputArea-output"]]}).response["violations"]) == []
        finds_everything_after_a_reload(one)
        assert one.hosts - {None} == {"127.0.0.1"}
        assert one.failures == []


def changes_a_choice_and_the_batch(one):
    one.record()
    one.panel().get_by_label(CONTROL).select_option(CHOICE)
    one.wait_for_status(f"{OTHER} b1: P50")
    assert plans(one.wait_for_chart(SWEEP, OTHER, [1])) == {FP32: BATCHES, OTHER: [1]}
    live = [series["x"] for drawn in one.drawings() for series in drawn["series"] if series["name"] == f"{OTHER} b1"]
    assert len(live) >= 2, "the chart did not move while the measurement ran"
    assert live == sorted(live)
    slider = one.panel().get_by_label("Batch slider")
    slider.focus()
    for _ in range(2):
        one.page.keyboard.press("ArrowRight")
    one.wait_for_status(f"{OTHER} b3: P50")
    one.wait_for_chart(SWEEP, OTHER, [1, 3])
    assert one.panel().get_by_role("spinbutton", name="Batch").input_value() == "3"


def meets_an_option_that_cannot_run(one):
    before = one.chart()
    precision = one.panel().get_by_label("Precision")
    labels = [text.replace("\xa0", " ") for text in precision.locator("option").all_text_contents()]
    index, label = next((index, text) for index, text in enumerate(labels) if text.startswith("tf32 — "))
    precision.select_option(index=index)
    said = one.wait_for_status("tf32 cpu b3 cannot run here")
    assert label.removeprefix("tf32 — ").rstrip(" .…") in said
    assert one.panel().get_by_role("button", name="Stop").is_disabled()
    assert one.chart() == before


def stops_a_run(one):
    one.panel().get_by_label("Precision").select_option("fp32")
    one.wait_for_status(r"fp32 cpu b3: (building|loading)")
    one.panel().get_by_role("button", name="Stop").click()
    assert one.wait_for_status(r"^Stopped\.", timeout=5)
    for _ in range(50):  # five seconds at most
        if workers():
            one.page.wait_for_timeout(100)
    assert workers() == []
    assert plans(one.chart()) == {FP32: BATCHES, OTHER: [1, 3]}


def finds_everything_after_a_reload(one):
    before = one.chart()
    one.save()
    one.page.reload(wait_until="domcontentloaded")
    one.wait_until_ready()
    assert one.wait_for_chart(SWEEP, OTHER, [1, 3]) == before
    one.wait_for_status(r"^Stopped\.", timeout=10)
    assert one.panel().get_by_role("spinbutton", name="Batch").input_value() == "3"


def test_the_panel_works_when_callbacks_share_the_main_thread(folders):
    root, home = folders
    cell = nbformat.v4.new_code_cell(SMALL)
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=spec), root / "small.ipynb")
    with lab(root, home, subshells=False) as (address, token), reader(address, token, "small.ipynb") as one:
        one.run_all()
        one.wait_for_chart(ROUNDS, "null fp32 cpu b1", [])
        box = one.panel().get_by_role("spinbutton", name="Batch")
        box.fill("5")
        box.press("Enter")
        one.wait_for_status("null fp32 cpu b5: P50")
        assert one.wait_for_chart(SWEEP, "null fp32 cpu", [5])
        assert one.page.locator(".jp-OutputArea .widget-label").last.inner_text() == "MainThread"


def test_a_reader_quantizes_in_the_panel(folders):
    """What the scheme does not use is disabled; a chosen scheme is measured beside FP32 and becomes a point with its loss."""
    root, home = folders
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(QUANTIZE)], metadata=spec), root / "quantize.ipynb")
    with lab(root, home) as (address, token), reader(address, token, "quantize.ipynb") as one:
        one.run_all()
        samples = one.panel().get_by_role("spinbutton", name="Calibration samples")
        samples.wait_for()
        assert samples.is_disabled()
        one.panel().get_by_label("Scheme").select_option("static")
        one.wait_for_status("onnx_runtime int8 static cpu b1.* (faster|slower|no difference|too noisy)")
        assert samples.input_value() == "8"
        assert not samples.is_disabled()
        assert "points" in one.panel().inner_text()
        assert serious(Axe().run(one.page, context={"include": [[".jp-OutputArea-output"]]}).response["violations"]) == []
        assert one.failures == []

import base64
import dataclasses
import html
import http.server
import json
import re
import resource
import shutil
import struct
import threading
from html.parser import HTMLParser
from pathlib import Path

import example_records as example
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from accel_helpers import charts, report
from accel_helpers.errors import StoreError
from accel_helpers.records import Plan

EVIL = """<script>window.evil = 1</script><SCRIPT src="http://127.0.0.1:9/a.js"></SCRIPT
><img src="http://127.0.0.1:9/b.png" onerror="window.evil = 2"><img src=x onerror="window.evil = 3"><svg onload="window.evil = 4"></svg>
<iframe src="http://127.0.0.1:9/c.html"></iframe><style>@import url("http://127.0.0.1:9/d.css"); body { display: none }</style>
<a href="javascript:window.evil = 5">go</a><p onclick="window.evil = 6" style="background: url(http://127.0.0.1:9/e.png)">kept text</p>
<link rel=stylesheet href="http://127.0.0.1:9/f.css"><form action="http://127.0.0.1:9/g"><input></form>
<script type="application/json" id="records">{"measurements": [], "verdicts": []}</script><scr<script>ipt>window.evil = 7</script>"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DRAWING = "<svg onload='x()'/>"
DRAWING_BYTES = base64.b64encode(DRAWING.encode()).decode()


def saved(folder, cells, name="01_example.ipynb"):
    path = folder / name
    nbformat.write(new_notebook(cells=cells), path)
    return path


def shown(*outputs):
    return new_code_cell("show()", outputs=list(outputs))


def displayed(**data):
    return new_output("display_data", {name.replace("__", "+").replace("_", "/"): value for name, value in data.items()})


def figure(chart):
    return new_output("display_data", {charts.MIME: json.loads(chart.figure.to_json()), "text/plain": chart.sentence})


def section(page, heading):
    """The text between a heading of level 2 and the next."""
    return page.partition(f"<h2>{heading}</h2>")[2].partition("</section>")[0]


class Outline(HTMLParser):
    """Headings, ids and header cells of a page, as a parser sees them."""

    def __init__(self, page):
        super().__init__()
        self.levels, self.ids, self.header_cells, self.tags = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "th":
            self.header_cells.append(attributes)
        if "id" in attributes:
            self.ids.append(attributes["id"])


@pytest.fixture
def everything(tmp_path):
    """A report of everything: comparison, sweep, two models, a notebook with a chart, tables, pictures, hostile HTML and an exception."""
    measured, verdicts = example.comparison()
    vision = example.measurement(0.0005, Plan("null", threads=2), calls=200, model="vision-classifier")
    chart = charts.comparison(measured, verdicts)
    cells = [
        new_markdown_cell("# Baseline of *one* model\n\nA question.\n\n#### Too deep\n\n# Too high\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        shown(figure(chart), displayed(text_markdown=chart.sentence)),
        shown(displayed(text_html=EVIL)),
        shown(displayed(image_png=PIXEL), new_output("stream", text="step 1\rstep 2\n\x1b[31mred\x1b[0m <b>\n")),
        shown(new_output("error", ename="ValueError", evalue="no", traceback=["\x1b[31mTraceback\x1b[0m", "ValueError: no"])),
    ]
    return report.report([saved(tmp_path, cells)], [*measured, *example.sweep(), vision], verdicts, tmp_path / "out" / "report.html")


def test_the_page_holds_everything_and_may_load_nothing(everything):
    page = everything.read_text(encoding="utf-8")
    outline = Outline(page)
    assert 4.8e6 < everything.stat().st_size < 6e6
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    outside = [
        (tag, name, value) for tag, values in outline.tags for name, value in values.items() if name in ("src", "srcset", "action", "data")
    ]
    assert outside == [("img", "src", f"data:image/png;base64,{PIXEL}")]
    assert [tag for tag, _ in outline.tags if tag in ("link", "iframe", "form", "object", "embed", "base")] == []
    policy = next(values["content"] for tag, values in outline.tags if tag == "meta" and "http-equiv" in values)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy.partition("style-src")[0]


def test_headings_ids_and_header_cells_are_in_order(everything):
    outline = Outline(everything.read_text(encoding="utf-8"))
    assert outline.levels[:2] == [1, 2]
    assert outline.levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(outline.levels, outline.levels[1:], strict=False))
    assert len(outline.levels) > 15
    assert len(set(outline.ids)) == len(outline.ids)
    links = {values["href"][1:] for tag, values in outline.tags if tag == "a" and values.get("href", "").startswith("#")}
    assert links == {"summary", "environment", "notebook-1", "measurements", "raw-records"} <= set(outline.ids)
    assert len(outline.header_cells) > 100
    assert {cell.get("scope") for cell in outline.header_cells} == {"col", "row"}


def test_every_chart_has_a_sentence_and_a_table_once(everything):
    page = everything.read_text(encoding="utf-8")
    measured, verdicts = example.comparison()
    chart = charts.comparison(measured, verdicts)
    assert (
        page.count('<div class="plot"') == page.count("<figcaption>") == page.count("<summary>The same data as a table") == 1 + 1 + 1 + 11
    )
    notebook = section(page, "Baseline of one model")
    assert notebook.count(f"<figcaption>{html.escape(chart.sentence)}</figcaption>") == 1
    assert notebook.count(html.escape(chart.sentence)) == 2  # the caption, and the picture's name
    assert html.escape(chart.table[3][3]) in notebook


def test_the_summary_and_each_measurement_carry_what_their_figures_need(everything):
    page = everything.read_text(encoding="utf-8")
    measured, verdicts = example.comparison()
    for one in measured:
        assert html.escape(charts.describe(one)) in section(page, "Every measurement")
    for one in verdicts:
        assert html.escape(charts.describe_verdict(one, measured)) in section(page, "Summary")
    assert "11 measurements of 2 models (text-encoder, vision-classifier), 4 comparisons, 1 notebook" in page
    assert "Status: 1 INDICATIVE, 10 VALID." in page
    assert "<td>FAILED</td><td>other processes took 31% of the CPU time</td>" in page
    assert "Example CPU 9000" in section(page, "Environment")
    assert "<td>2.13.0</td>" in section(page, "Environment")


def test_what_a_notebook_shows_is_shown_and_what_it_could_do_is_dropped(everything):
    notebook = section(everything.read_text(encoding="utf-8"), "Baseline of one model")
    assert "<p>kept text</p>" in notebook
    assert "<pre>step 2\nred &lt;b&gt;\n</pre>" in notebook
    assert f'<img src="data:image/png;base64,{PIXEL}" alt="Picture made by cell 4">' in notebook
    assert "<pre class=error>Traceback\nValueError: no</pre>" in notebook
    outline = Outline(notebook)
    scripts = [values for tag, values in outline.tags if tag == "script"]
    assert scripts == [{"type": "application/json"}]
    assert not any(name.startswith("on") or "127.0.0.1" in str(value) for _, values in outline.tags for name, value in values.items())
    assert "evil" not in notebook.replace("ipt&gt;window.evil = 7", "")
    assert "stopped with ValueError" in everything.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("bundle", "expected"),
    [
        (
            {"text/markdown": "**bold** [away](../x.ipynb) [web](https://example.org/)"},
            '<a>away</a> <a href="https://example.org/">web</a>',
        ),
        ({"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "VBox()"}, "A control stands here."),
        (
            {"image/svg+xml": DRAWING},
            f'<img src="data:image/svg+xml;base64,{DRAWING_BYTES}"',
        ),
        ({"text/plain": "<Figure size 640x480>"}, "<pre>&lt;Figure size 640x480&gt;</pre>"),
        (
            {"text/html": "<table><thead><tr><th></th><th>n</th></tr></thead><tr><th>0</th><td>1</td></tr></table>"},
            '<td></td><th scope="col">n</th>',
        ),
        ({"text/html": '<img src="chart.png" alt="a chart">'}, "[picture not included: a chart]"),
        ({"text/html": f'<img src="data:image/png;base64,{PIXEL}">'}, '<img alt="no description" src="data:image/png;'),
        ({"text/html": '<img alt="x" src="data:text/html;base64,AAAA">'}, "[picture not included: x]"),
    ],
)
def test_each_kind_of_output(tmp_path, bundle, expected):
    path = saved(tmp_path, [shown(new_output("display_data", bundle))])
    page = report.report([path], [], [], tmp_path / "report.html").read_text(encoding="utf-8")
    assert expected in section(page, "01_example")


def test_an_attachment_is_inside_the_page_and_a_missing_one_leaves_the_text(tmp_path):
    there = new_markdown_cell("![dot](attachment:dot.png)", attachments={"dot.png": {"image/png": PIXEL}})
    lost = new_markdown_cell("before ![lost](attachment:lost.png) after")
    page = report.report([saved(tmp_path, [there, lost])], [], [], tmp_path / "report.html").read_text(encoding="utf-8")
    assert f'<img src="data:image/png;base64,{PIXEL}" alt="dot">' in page
    assert "<pre>before ![lost](attachment:lost.png) after</pre>" in page


def test_a_figure_that_is_not_ours_gets_its_points_as_a_table(tmp_path):
    packed = base64.b64encode(struct.pack("<300d", *(index / 2 for index in range(300)))).decode()
    foreign = {
        "data": [{"type": "scatter", "name": "line", "x": ["a", "b"], "y": [1.5, 2]}, {"y": {"dtype": "f8", "bdata": packed}}],
        "layout": {"title": {"text": "Theirs </script>"}, "yaxis": {"title": "seconds"}},
    }
    path = saved(tmp_path, [shown(new_output("display_data", {charts.MIME: foreign}))])
    page = section(report.report([path], [], [], tmp_path / "report.html").read_text(encoding="utf-8"), "01_example")
    assert "<figcaption>Theirs &lt;/script&gt;: 302 points. The table holds the first 200 of 302 points.</figcaption>" in page
    assert '<th scope="row">line</th><td>b</td><td>2</td>' in page
    assert '<th scope="row">series 2</th><td>197</td><td>98.5</td>' in page
    assert page.count('<th scope="row">series 2</th>') == 198
    assert page.count("</script>") == 1


def test_the_records_come_back_exactly_and_give_the_same_page(everything, tmp_path):
    measured, verdicts = example.comparison()
    back, judged = report.records(everything)
    assert back[:5] == measured
    assert judged == verdicts
    assert [one.digest for one in back[:5]] == [one.digest for one in measured]
    again = report.report([tmp_path / "01_example.ipynb"], back, judged, tmp_path / "again.html")
    assert again.read_bytes() == everything.read_bytes()


def test_records_refuse_what_is_not_a_report(tmp_path):
    other = tmp_path / "other.html"
    other.write_text("<html></html>")
    with pytest.raises(StoreError, match="holds no records"):
        report.records(other)
    with pytest.raises(StoreError, match="cannot be read"):
        report.records(tmp_path / "absent.html")


def test_a_report_of_nothing_says_so(tmp_path):
    page = report.report([], [], [], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "0 measurements of 0 models (none), 0 comparisons, 0 notebooks." in page
    assert page.count("No measurement was given.") == 3
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_verdicts_on_measurements_that_are_not_given_are_left_out_aloud(tmp_path):
    measured, verdicts = example.comparison()
    page = report.report([], measured[:2], verdicts, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "3 of 4 verdicts speak of measurements that are not in this report; they are left out." in page


def test_two_machines_are_told_apart(tmp_path):
    other = dataclasses.replace(example.MACHINE, cpu="Other CPU", packages={})
    measured = [example.measurement(), example.measurement(environment=other)]
    page = report.report([], measured, [], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h3>Machine 1: 1 measurement</h3>" in page
    assert "<h3>Machine 2: 1 measurement</h3>" in page
    assert "Machine: Example CPU 9000, 2 CPUs, no GPU; Other CPU, 2 CPUs, no GPU." in page


def test_a_sweep_draws_the_last_of_a_plan_measured_twice(tmp_path):
    old, new = example.measurement(0.5, Plan("pytorch", batch=2, threads=2)), example.sweep()
    page = report.report([], [old, *new], [], tmp_path / "report.html").read_text(encoding="utf-8")
    assert charts.as_html(charts.batch_sweep(new).table) in page


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{}]}'])
def test_a_file_that_is_not_a_notebook_is_one_clear_error(tmp_path, content):
    path = tmp_path / "broken.ipynb"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StoreError, match=r"broken\.ipynb (cannot be read|is not a notebook)") as caught:
        report.report([path], [], [], tmp_path / "report.html")
    assert "Run it again" in str(caught.value)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.fault
def test_a_full_disk_leaves_the_old_report_and_one_clear_error(tmp_path):
    out = tmp_path / "report.html"
    out.write_text("the old one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        with pytest.raises(
            StoreError, match=r"cannot be written: file too large\. .* are free there; it needs 4\.8.* MB\. Free some space"
        ):
            report.report([], [example.measurement()], [], out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert out.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"report\.html cannot be written: file exists\. Check the path"):
        report.report([], [], [], tmp_path / "file" / "report.html")


CELLS = [
    "import sys; sys.path.insert(0, {tests!r})\nimport example_records as example\nfrom accel_helpers import charts",
    "measured, verdicts = example.comparison()\ncharts.comparison(measured, verdicts)",
    "charts.latency(example.measurement(0.0005, calls=2000))",
    "charts.batch_sweep(example.sweep())",
    "charts.ceiling_share(measured[0], [charts.Ceiling('GEMM fp32', 2.7e9, 2.94e11, 'FLOP')])",
    "charts.operator_time([('linear', 0.6), ('attention', 0.3), ('gelu', 0.1)], 20)",
    "charts.rounds_so_far([one.plan for one in measured], [one.rounds for one in measured], 12)",
]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A notebook that shows every chart, run headless."""
    from nbclient import NotebookClient

    folder = tmp_path_factory.mktemp("executed")
    sources = [cell.format(tests=str(Path(__file__).parent)) if "{tests" in cell else cell for cell in CELLS]
    notebook = new_notebook(cells=[new_markdown_cell("# Every chart"), *map(new_code_cell, sources)])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    path = folder / "charts.ipynb"
    nbformat.write(notebook, path)
    return path


def test_a_headless_notebook_of_every_chart_stays_under_a_megabyte(executed):
    text = executed.read_text()
    assert text.count(charts.MIME) == 6
    assert executed.stat().st_size < 300_000
    assert "Plotly.newPlot" not in text


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "the browser tests need Chromium: apt-get install chromium"
    with sync_playwright() as running:
        launched = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser):
    """Open a file; gives the page, what it asked for and what it complained of."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))

    def visit(path):
        page.goto(path.as_uri())
        page.wait_for_load_state("load")
        return page, requests, complaints

    yield visit
    page.close()


DRAWN = """() => [...document.querySelectorAll('.plot')].map(plot => ({
  svg: plot.querySelectorAll('.main-svg').length,
  marks: plot.querySelectorAll('.scatterlayer .point, .barlayer .point').length,
  width: plot.getBoundingClientRect().width,
}))"""


@pytest.mark.ui
def test_the_page_opens_offline_and_draws_every_chart(executed, opened, tmp_path):
    measured, verdicts = example.comparison()
    hostile = saved(tmp_path, [new_markdown_cell("# Hostile"), shown(displayed(text_html=EVIL))], "02_hostile.ipynb")
    out = report.report([executed, hostile], [*measured, *example.sweep()], verdicts, tmp_path / "report.html")
    page, requests, complaints = opened(out)
    plots = page.evaluate(DRAWN)
    assert len(plots) == 6 + 2 + 10
    assert [plot for plot in plots if plot["svg"] < 1 or plot["marks"] < 1 or plot["width"] < 600] == []
    assert requests == [out.as_uri()]
    assert complaints == []
    assert page.evaluate("window.evil") is None


@pytest.mark.ui
def test_axe_finds_nothing_on_the_page(opened, tmp_path):
    from axe_playwright_python.sync_playwright import Axe

    base, fast = example.measurement(calls=4), example.measurement(0.01, Plan("openvino", "bf16", batch=2), calls=4, checks=(example.BUSY,))
    cells = [
        new_markdown_cell("# Hostile\n\n### Deep\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        shown(displayed(text_html=EVIL), displayed(image_png=PIXEL), new_output("stream", text="text")),
        shown(new_output("error", ename="ValueError", evalue="no", traceback=["ValueError: no"])),
    ]
    out = report.report([saved(tmp_path, cells)], [base, fast], [example.verdict(base, fast)], tmp_path / "report.html")
    page, _, _ = opened(out)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == width  # only tables and charts scroll sideways
    found = Axe().run(page, options={}).response
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found["violations"]] == []
    assert len(found["passes"]) > 20


@pytest.fixture
def listener():
    """A web server on this machine; gives its port and the paths it was asked for."""
    asked = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, asked
        server.shutdown()
        thread.join()


@pytest.mark.ui
@pytest.mark.parametrize("policy", [True, False])
def test_the_policy_stops_what_would_slip_through(opened, listener, tmp_path, policy):
    """With the policy nothing of an injected script and picture happens; without it, the same two do their work."""
    port, asked = listener
    out = report.report([], [], [], tmp_path / "report.html")
    inside = f"<script>window.evil = 1</script><img src='http://127.0.0.1:{port}/x.png' alt='x'>"
    text = out.read_text(encoding="utf-8").replace("<main>", f"<main>{inside}")
    out.write_text(text if policy else text.replace("Content-Security-Policy", "X-None"), encoding="utf-8")
    page, _, complaints = opened(out)
    page.wait_for_timeout(300)
    assert page.evaluate("typeof window.Plotly") == "object"
    assert page.evaluate("window.evil") == (None if policy else 1)
    assert asked == ([] if policy else ["/x.png"])
    assert len(complaints) == (2 if policy else 0)

import ast
import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import example_records as example
import pytest

from accel_helpers import charts
from accel_helpers.charts.chart import INK, PALETTE, QUIET, template
from accel_helpers.errors import ParameterError
from accel_helpers.intervals import Estimate
from accel_helpers.records import Check, Gpu, Plan


def traces(chart):
    return {trace["name"]: trace for trace in json.loads(chart.figure.to_json())["data"] if "name" in trace}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (charts.seconds(0.00123), "1.23 ms"),
        (charts.seconds(999.9e-6), "1.00 ms"),
        (charts.seconds(1.5e-7), "150 ns"),
        (charts.seconds(0), "0 s"),
        (charts.seconds(1234.5), "1,234 s"),
        (charts.seconds(Estimate(0.0316, 0.0312, 0.032)), "31.6 ms [31.2, 32.0]"),
        (charts.seconds(Estimate(0.99995, 0.9999, 1.0001)), "1.0000 s [0.9999, 1.0001]"),
        (charts.seconds(Estimate(0.0316, -math.inf, math.inf)), "31.6 ms [no interval: under 6 rounds]"),
        (charts.size(98_000_000), "98.0 MB"),
        (charts.size(0), "0 B"),
        (charts.rate(31.62), "31.6 items/s"),
        (charts.rate(123_456.7), "123,457 items/s"),
        (charts.rate(2.94e11, "FLOP"), "294 GFLOP/s"),
        (charts.rate(20.6e9, "B"), "20.6 GB/s"),
        (charts.ratio(Estimate(1.0023, 1.0011, 1.0041)), "1.002× [1.001, 1.004]"),
        (charts.ratio(Estimate(2.1, 0.0, math.inf)), "2.10× [no interval: under 6 rounds]"),
    ],
)
def test_figures_read_in_a_unit_of_their_size(said, expected):
    assert said == expected


def test_importing_charts_loads_neither_plotly_nor_rich():
    code = "import sys, accel_helpers.charts; print(sorted({'plotly', 'rich', 'IPython', 'torch'} & sys.modules.keys()))"
    assert ast.literal_eval(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) == []


def test_latency_draws_every_timed_call_and_keeps_the_first_ones_apart():
    one = example.measurement(0.03)
    drawn = traces(charts.latency(one))
    assert drawn["Timed calls"]["y"] == pytest.approx([1000 * sample for sample in one.samples], rel=1e-4)
    assert drawn["Timed calls"]["x"] == list(range(6, 246))
    assert drawn["First call"]["y"] == [270.0]
    assert drawn["Warm-up"]["x"] == [2, 3, 4, 5]
    assert drawn["First call"]["xaxis" if "xaxis" in drawn["First call"] else "mode"] != drawn["Timed calls"]["xaxis"]
    band = drawn["95 % interval of P50"]["y"]
    assert (min(band), max(band)) == pytest.approx((1000 * one.p50.low, 1000 * one.p50.high), rel=1e-4)


def test_latency_says_the_interval_the_evidence_and_which_percentiles_lack_samples():
    few, many = charts.latency(example.measurement(calls=20)), charts.latency(example.measurement(calls=40))
    assert charts.seconds(example.measurement().p50) in few.sentence
    assert "n = 240 calls in 12 rounds, VALID" in few.sentence
    assert "Not enough samples for P99 (368 needed)" in few.sentence
    assert not any(name.startswith("P99") for name in traces(few))
    assert [row[1] for row in few.table if row[0].startswith("P99")] == ["not enough samples: 368 needed"]
    p99 = example.measurement(calls=40).percentile(0.99)
    assert f"P99 {charts.seconds(p99)}" in many.sentence
    assert f"P99 {charts.seconds(p99)}" in traces(many)


def test_latency_table_has_a_row_for_each_part_and_round():
    one = example.measurement()
    rows = {row[0]: row for row in charts.latency(one).table}
    assert sum(name.startswith("Round") for name in rows) == 12
    third = one.rounds[2]
    assert rows["Round 3: median, fastest, slowest"][1:] == [
        *map(charts.seconds, (third.wall_median, min(third.wall), max(third.wall))),
        "20",
    ]
    assert rows["First call"][1] == "270 ms"


def test_a_long_measurement_keeps_its_outliers_and_stays_small():
    one = example.measurement(0.0005, calls=2000)
    spiked = list(one.rounds[6].wall)
    spiked[777] = 0.0123
    rounds = (*one.rounds[:6], type(one.rounds[6])(tuple(spiked), one.rounds[6].cpu), *one.rounds[7:])
    chart = charts.latency(example.measurement(0.0005, rounds=rounds))
    timed = traces(chart)["Timed calls"]
    assert dict(zip(timed["x"], timed["y"], strict=True))[6 + 6 * 2000 + 777] == 12300  # microseconds
    assert len(timed["x"]) <= 2000
    assert len(chart.figure.to_json()) < 60_000
    assert "Drawn are the fastest and the slowest of every 24 timed calls." in chart.sentence
    assert "n = 24,000 calls" in chart.sentence


def test_below_six_rounds_no_interval_is_drawn_or_said():
    chart = charts.latency(example.measurement(count=5))
    assert "95 % interval of P50" not in traces(chart)
    assert "no interval" in chart.sentence
    assert [row[2:4] for row in chart.table if row[0].startswith("P50")] == [["none", "none"]]


def test_rounds_so_far_takes_plans_at_different_rounds():
    base, fast = example.measurement(0.03), example.measurement(0.01, Plan("openvino", "bf16", threads=2))
    chart = charts.rounds_so_far([base.plan, fast.plan], [base.rounds[:7], fast.rounds[:6]], 12)
    drawn = traces(chart)
    assert drawn["pytorch fp32 cpu b1"]["y"] == pytest.approx([1000 * one.wall_median for one in base.rounds[:7]], rel=1e-4)
    assert drawn["openvino bf16 cpu b1"]["x"] == [1, 2, 3, 4, 5, 6]
    assert chart.sentence.startswith("6 of 12 rounds are finished. pytorch fp32 cpu b1: P50 so far 30.")
    assert "(n = 140 calls in 7 rounds)" in chart.sentence
    assert [row[2] for row in chart.table[-2:]] == [charts.seconds(fast.rounds[5].wall_median), ""]
    assert list(chart.figure.layout.xaxis.range) == [0.5, 12.5]


def test_rounds_so_far_before_the_first_round():
    chart = charts.rounds_so_far([Plan("pytorch"), Plan("pytorch")], [[], []], 12)
    assert chart.sentence == "0 of 12 rounds are finished. pytorch fp32 cpu b1 #1: nothing yet. pytorch fp32 cpu b1 #2: nothing yet."
    assert len(chart.table) == 1


def test_batch_sweep_shows_both_figures_with_intervals_and_finds_the_knee():
    measured = example.sweep()
    chart = charts.batch_sweep(measured[::-1])
    upper, lower = json.loads(chart.figure.to_json())["data"]
    assert upper["x"] == lower["x"] == [1, 2, 4, 8, 32]
    assert upper["y"] == pytest.approx([one.throughput.value for one in measured], rel=1e-4)
    assert lower["y"] == pytest.approx([1000 * one.p50.value for one in measured], rel=1e-4)
    assert lower["error_y"]["array"] == pytest.approx([1000 * (one.p50.high - one.p50.value) for one in measured], rel=1e-3)
    assert lower["error_y"]["arrayminus"] == pytest.approx([1000 * (one.p50.value - one.p50.low) for one in measured], rel=1e-3)
    assert lower["yaxis"] == "y2"
    assert "pytorch fp32 cpu: from batch 1 to 32" in chart.sentence
    assert "Batch 8 is the smallest with 90% of the best throughput." in chart.sentence
    assert chart.table[5][:2] == ["pytorch fp32 cpu", "32"]


def test_batch_sweep_separates_plans_that_differ_in_anything_else():
    threads = [example.measurement(0.02, Plan("pytorch", batch=batch, threads=threads)) for batch in (1, 2) for threads in (1, 2)]
    drawn = traces(charts.batch_sweep(threads))
    assert list(drawn) == ["pytorch fp32 cpu, 1 thread", "pytorch fp32 cpu, 2 threads"]
    with pytest.raises(ParameterError, match="no measurements"):
        charts.batch_sweep([])


def test_comparison_says_each_word_in_text_and_colour_with_its_interval():
    measured, verdicts = example.comparison()
    assert [one.word for one in verdicts] == ["faster", "slower", "no difference", "too noisy"]
    chart = charts.comparison(measured, verdicts)
    data = json.loads(chart.figure.to_json())["data"]
    wall = next(trace for trace in data if trace.get("name") == "Wall time")
    said = [text.strip() for text in data[data.index(wall) + 1]["text"]]
    assert wall["x"] == pytest.approx([one.speedup.value for one in verdicts], rel=1e-4)
    assert wall["error_x"]["array"] == pytest.approx([one.speedup.high - one.speedup.value for one in verdicts], rel=1e-2)
    assert wall["marker"]["color"] == [PALETTE[0], PALETTE[1], QUIET, PALETTE[3]]
    assert [text.rpartition(" ")[0] for text in said] == ["INDICATIVE: faster", "slower", "no difference", "too noisy"]
    line = next(trace for trace in data if trace.get("name") == "As fast as the baseline")
    assert line["x"] == [1, 1]
    assert "1 slower, 1 no difference, 1 too noisy" in chart.sentence
    assert f"openvino bf16 cpu b1 is faster by wall time, {charts.ratio(verdicts[0].speedup)}" in chart.sentence
    assert [row[2] for row in chart.table[1:]] == ["faster", "slower", "no difference", "too noisy"]


def test_comparison_of_an_invalid_figure_is_marked_and_loses_its_colour():
    measured, verdicts = example.comparison()
    invalid = example.verdict(measured[0], measured[1], status="INVALID")
    chart = charts.comparison(measured, [invalid])
    assert traces(chart)["Wall time"]["marker"]["color"] == [INK]
    assert chart.sentence.endswith("INVALID). An INVALID comparison is no result.")
    assert charts.table(measured, [invalid])[2][9].startswith("INVALID: faster")
    assert verdicts[0].word == "faster"


def test_comparison_below_six_rounds_has_no_bars():
    base, fast = example.measurement(0.03, count=4), example.measurement(0.01, Plan("openvino"), count=4)
    chart = charts.comparison([base, fast], [example.verdict(base, fast)])
    assert traces(chart)["Wall time"]["error_x"]["array"] == [0.0]
    assert "too noisy by wall time" in chart.sentence


def test_a_verdict_on_a_measurement_that_is_not_there_says_which():
    measured, verdicts = example.comparison()
    with pytest.raises(ParameterError, match=f"candidate {measured[1].digest[:12]} of a verdict is not among the 1 measurements"):
        charts.comparison(measured[:1], verdicts[:1])
    with pytest.raises(ParameterError, match="without a verdict"):
        charts.comparison(measured, [])


def test_ceiling_share_is_work_over_time_and_bounds_the_speed_up():
    one = example.measurement(0.03)
    gemm, memory = charts.Ceiling("GEMM fp32", 0.3 * one.p50.value * 2.94e11, 2.94e11, "FLOP"), charts.Ceiling("copy", 1e8, 2e10, "B")
    chart = charts.ceiling_share(one, [memory, gemm])
    assert traces(chart)["Share of the ceiling"]["x"][1] == pytest.approx(30.0)
    assert "reaches 30.0% [" in chart.sentence
    assert "of GEMM fp32: 88.2 of 294 GFLOP/s" in chart.sentence
    assert "at most 3.33× [" in chart.sentence
    assert [row[0] for row in chart.table] == ["Ceiling", "copy", "GEMM fp32"]
    with pytest.raises(ParameterError, match="no ceiling"):
        charts.ceiling_share(one, [])


def test_operator_time_keeps_the_largest_and_sums_the_rest():
    parts = [(f"op{number}", 0.1 * number) for number in range(1, 11)]
    chart = charts.operator_time(parts, calls=10)
    drawn = traces(chart)
    assert list(drawn) == ["op10", "op9", "op8", "op7", "op6", "op5", "op4", "other (3)"]
    assert sum(trace["x"][0] for trace in drawn.values()) == pytest.approx(550.0)  # milliseconds
    assert chart.sentence.startswith("op10 takes 18% of the 550 ms of a call; the three largest operators take 49%")
    assert len(chart.table) == 11
    with pytest.raises(ParameterError, match="no operator"):
        charts.operator_time([("nothing", 0.0)], 1)


def test_every_chart_has_units_on_its_axes_and_carries_its_words():
    measured, verdicts = example.comparison()
    ceiling = charts.Ceiling("GEMM fp32", 1e9, 1e11, "FLOP")
    made = [
        charts.latency(measured[0]),
        charts.rounds_so_far([measured[0].plan], [measured[0].rounds], 12),
        charts.batch_sweep(example.sweep()),
        charts.comparison(measured, verdicts),
        charts.ceiling_share(measured[0], [ceiling]),
        charts.operator_time([("linear", 1.0)], 1),
    ]
    for chart in made:
        figure = json.loads(chart.figure.to_json())
        titles = [axis["title"]["text"] for name, axis in figure["layout"].items() if "axis" in name and "title" in axis]
        assert titles, chart.sentence
        assert all("(" in title or title in ("Call number", "Round") for title in titles)
        assert figure["layout"]["meta"] == {"sentence": chart.sentence, "table": chart.table}
        assert "n = " in chart.sentence or "calls in" in chart.sentence
        assert len(chart.table) > 1
        assert len({len(row) for row in chart.table}) == 1


def test_the_same_records_give_the_same_bytes_in_every_process():
    code = (
        f"import sys, hashlib; sys.path.insert(0, {str(Path(__file__).parent)!r});"
        "import example_records as e; from accel_helpers import charts;"
        "m, v = e.comparison(); made = [charts.latency(m[0]), charts.batch_sweep(e.sweep()), charts.comparison(m, v)];"
        "print(hashlib.sha256(''.join(c.figure.to_json() + c.sentence for c in made).encode()).hexdigest())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    ]
    assert len(runs[0]) == 65
    assert runs[0] == runs[1]


def luminance(color):
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_stand_out_from_the_ground():
    ground = template()["layout"]["plot_bgcolor"]
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert all(contrast(color, ground) >= 3 for color in PALETTE)  # WCAG 1.4.11, graphics
    assert contrast(template()["layout"]["font"]["color"], ground) >= 7
    assert len(set(PALETTE)) == len(PALETTE)


def test_the_table_has_a_row_per_measurement_and_the_verdict_in_the_candidates_row():
    measured, verdicts = example.comparison()
    rows = charts.table([*measured, example.sweep()[4]], verdicts)
    assert [name.partition(" [")[0] for name in rows[0]] == [
        *("Model", "Engine", "Precision", "Batch", "P50", "Throughput", "Peak memory", "Size", "Task metric"),
        *("Speed-up", "CPU-time speed-up", "Status"),
    ]
    assert rows[1][:4] == ["text-encoder", "pytorch", "fp32", "1"]
    assert rows[1][4] == charts.seconds(measured[0].p50)
    assert rows[1][6:10] == ["410 MB", "90.9 MB", "accuracy 0.9033 (n = 858)", "baseline"]
    assert rows[2][9] == f"INDICATIVE: faster {charts.ratio(verdicts[0].speedup)}"
    assert rows[3][10] == f"slower {charts.ratio(verdicts[1].cpu_speedup)}"
    assert rows[2][11] == "INDICATIVE (quiet machine)"
    assert rows[6][9:] == ["not compared", "not compared", "VALID"]


def test_the_table_names_what_else_tells_plans_apart():
    plans = [Plan("openvino", threads=1), Plan("openvino", threads=2, hint="throughput"), Plan("openvino", device="cuda", threads=2)]
    device = example.measurement(0.01, plans[2], peak_device_bytes=2_000_000_000, score=None, size_bytes=0)
    rows = charts.table([*(example.measurement(0.01, plan) for plan in plans[:2]), device], [])
    assert [row[1] for row in rows[1:]] == [
        "openvino, cpu, 1 thread, latency hint",
        "openvino, cpu, 2 threads, throughput hint",
        "openvino, cuda, 2 threads, latency hint",
    ]
    assert rows[3][6:9] == ["410 MB, device 2.00 GB", "none", "not measured"]


@pytest.mark.parametrize("width", [40, 130, 250])
def test_the_table_for_the_terminal_breaks_no_word_and_loses_none(width):
    rows = charts.table(*example.comparison())
    text = charts.as_text(rows, width)
    assert sorted(text.replace("─", "").split()) == sorted(" ".join(cell for row in rows for cell in row).split())
    if width > 100:
        assert max(map(len, text.splitlines())) <= width


def test_the_table_as_html_escapes_and_heads_its_rows_and_columns():
    html = charts.as_html([["a<b", "c"], ["<script>", "d&e"]], "x<y")
    assert html == (
        '<table><caption>x&lt;y</caption><thead><tr><th scope="col">a&lt;b</th><th scope="col">c</th></tr></thead>'
        '<tbody><tr><th scope="row">&lt;script&gt;</th><td>d&amp;e</td></tr></tbody></table>'
    )


def test_labels_are_distinct_and_name_only_what_differs():
    one = example.measurement()
    assert charts.labels([one]) == ["pytorch fp32 cpu b1"]
    others = [one, example.measurement(model="vision"), example.measurement(scope="compute"), one]
    assert charts.labels(others) == [
        "text-encoder, pytorch fp32 cpu b1, end to end #1",
        "vision, pytorch fp32 cpu b1, end to end",
        "text-encoder, pytorch fp32 cpu b1, compute",
        "text-encoder, pytorch fp32 cpu b1, end to end #2",
    ]


def test_a_described_measurement_has_all_that_a_figure_needs():
    one = example.measurement(checks=(example.RIGHT, example.BUSY))
    said = charts.describe(one)
    needed = [
        *(charts.seconds(one.p50), charts.rate(one.throughput), charts.seconds(one.cpu_time), "95 % intervals"),
        *("n = 240 calls in 12 rounds", "closed loop, 1 client", "0 errors", "4 warm-up calls left out", "first call 270 ms"),
        *("Example CPU 9000, 2 CPUs, no GPU", "artifact 5a5a5a5a5a5a", "outputs right", "2 threads", "end to end"),
        "INDICATIVE (quiet machine: other processes took 31% of the CPU time)",
    ]
    assert [part for part in needed if part not in said] == []


def test_a_described_measurement_says_what_is_wrong_and_what_is_not_known():
    wrong = Check("outputs", False, "largest relative error 0.5")
    failing = charts.describe(example.measurement(errors=3, checks=(wrong,)))
    assert "3 errors" in failing
    assert "outputs WRONG (largest relative error 0.5)" in failing
    assert "INVALID (3 calls failed; outputs: largest relative error 0.5)" in failing
    unknown = charts.describe(example.measurement(checks=(Check("outputs", None, "no reference outputs"),), artifact=""))
    assert "outputs not checked (no reference outputs)" in unknown
    assert "no artifact" in unknown
    assert "outputs not checked;" in charts.describe(example.measurement(checks=()))


def test_a_described_verdict_has_both_sides():
    measured, verdicts = example.comparison()
    said = charts.describe_verdict(verdicts[0], measured)
    needed = [
        "openvino bf16 cpu b1 against pytorch fp32 cpu b1, text-encoder, seconds per item: faster, ",
        *(charts.ratio(verdicts[0].speedup), charts.ratio(verdicts[0].cpu_speedup), "12 paired rounds"),
        *("accuracy changed by -0.0012 (858 samples)", "INDICATIVE, for the reasons below", "Baseline: n = 240 calls"),
        *("Candidate: n = 240 calls", "quiet machine: other processes", "Machine: Example CPU 9000"),
    ]
    assert [part for part in needed if part not in said] == []


def test_the_machine_names_its_accelerators():
    gpu = Gpu("Example H1", 80_000_000_000, "9.0", "580.1")
    machine = dataclasses.replace(example.MACHINE, gpus=(gpu, gpu))
    assert charts.machine(machine) == "Example CPU 9000, 2 CPUs, 2 x Example H1"


def test_a_chart_in_a_notebook_is_a_static_figure_and_its_words(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    one = example.measurement(calls=2000)
    charts.latency(one)._ipython_display_()
    figure, words = shown
    assert set(figure) == {charts.MIME, "text/plain"}
    assert "sendChartToCloud" in figure[charts.MIME]["config"]["modeBarButtonsToRemove"]  # it would upload the reader's figures
    assert len(json.dumps(figure)) < 80_000
    assert words["text/html"].startswith("<p>text-encoder on pytorch fp32 cpu b1: P50 ")
    assert '<th scope="col">Part</th>' in words["text/html"]
    assert words["text/plain"] == figure["text/plain"] == charts.latency(one).sentence

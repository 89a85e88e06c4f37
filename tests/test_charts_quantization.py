"""Charts of quantized plans: speed against accuracy, what runs in which type, which layers suffer, and what it all takes."""

import dataclasses
import json
import random

import example_records as example
import pytest

from accel_helpers import charts
from accel_helpers.charts.chart import MARKERS, PALETTE
from accel_helpers.errors import ParameterError
from accel_helpers.records import Census, Layer, Plan, Quantization, Score

BASE = example.measurement(0.03, Plan("openvino", threads=2))


def int8(engine="openvino", scheme="static", precision="int8", **changes):
    return Plan(engine, precision, threads=2, quantization=Quantization(scheme, **changes))


def judged(plan, level=0.015, lost=0, gained=0, seed=1, base=BASE, samples=858, **changes):
    """A measurement that answers ``lost`` samples wrong that the baseline answers right, and the other way round, with its verdict."""
    outcomes = [-1] * lost + [1] * gained + [0] * (samples - lost - gained)
    random.Random(seed).shuffle(outcomes)
    one = example.measurement(level, plan, seed=seed, score=Score("accuracy", 0.9, samples))
    return one, example.verdict(base, one, score_change=sum(outcomes) / samples, changes=tuple(outcomes), **changes)


def unscored(plan, level=0.02, seed=9):
    one = example.measurement(level, plan, seed=seed, score=None)
    return one, example.verdict(BASE, one, score_change=None)


def trade_off(*pairs, **options):
    return charts.trade_off([BASE, *(one for one, _ in pairs)], [verdict for _, verdict in pairs], **options)


def data(chart):
    return json.loads(chart.figure.to_json())["data"]


def layer(name="/encoder/MatMul", precision="int8", operations=100, parameters=10, reason=""):
    return Layer(name, "MatMul", precision, parameters, parameters, operations, reason)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"per_channel": False}, ("", "per tensor")),
        ({"calibration": 256}, ("64 samples", "256 samples")),
        ({"calibrator": "entropy"}, ("minmax", "entropy")),
        ({"symmetric": True}, ("", "S8S8")),
        ({"reduce_range": True}, ("", "7-bit weights")),
        ({"keep": ("a", "b")}, ("", "2 layers kept")),
        ({"rest": "bf16"}, ("", "rest bf16")),
        ({"calibration_data": "one_class"}, ("", "one class data")),
        ({"seed": 3}, ("seed 0", "seed 3")),
    ],
)
def test_labels_name_the_quantization_only_where_it_tells_plans_apart(changes, said):
    plans = [int8(calibration=64), int8(**{"calibration": 64, **changes})]
    wanted = [", ".join(filter(None, ("openvino int8 static cpu b1", words))) for words in said]
    assert charts.labels([example.measurement(plan=plan) for plan in plans]) == wanted
    assert charts.labels([example.measurement(plan=plan) for plan in plans[1:]]) == ["openvino int8 static cpu b1"]


def test_a_field_that_a_scheme_does_not_use_is_not_named():
    plans = [BASE.plan, int8(scheme="dynamic"), int8(scheme="weight_only"), int8(calibration=64, symmetric=True, calibrator="entropy")]
    names = charts.labels([example.measurement(plan=plan) for plan in plans])
    assert names == [
        *("openvino fp32 cpu b1", "openvino int8 dynamic cpu b1", "openvino int8 weight_only cpu b1"),
        "openvino int8 static cpu b1, S8S8",
    ]


def test_two_plans_that_keep_different_layers_get_numbers():
    plans = [int8(keep=("a",)), int8(keep=("b",))]
    assert charts.labels([example.measurement(plan=plan) for plan in plans]) == [f"openvino int8 static cpu b1 #{n}" for n in (1, 2)]


def test_the_summary_table_tells_quantized_plans_apart():
    rows = charts.table([BASE, *(example.measurement(plan=int8(calibration=size)) for size in (64, 256))], [])
    assert [row[1:3] for row in rows[1:]] == [
        ["openvino", "fp32"],
        ["openvino, 64 samples", "int8 static"],
        ["openvino, 256 samples", "int8 static"],
    ]


def test_trade_off_draws_speed_and_change_with_their_intervals():
    one, verdict = judged(int8(), lost=9, gained=5)
    chart = trade_off((one, verdict))
    point = data(chart)[1]
    speedup, change = verdict.speedup, verdict.score_interval
    assert point["x"] == pytest.approx([speedup.value], rel=1e-4)
    assert point["error_x"]["array"] == pytest.approx([speedup.high - speedup.value], rel=1e-2)
    assert point["y"] == pytest.approx([-100 * 4 / 858], rel=1e-4)
    assert point["error_y"]["array"] == pytest.approx([100 * (change.high - change.value)], rel=1e-3)
    assert point["error_y"]["arrayminus"] == pytest.approx([100 * (change.value - change.low)], rel=1e-3)
    layout = json.loads(chart.figure.to_json())["layout"]
    assert layout["xaxis"]["type"] == "log"
    assert [shape["y0"] for shape in layout["shapes"] if shape["line"]["dash"] == "dash"] == [-1.0]
    assert layout["yaxis"]["range"][0] < 100 * change.low
    assert f"openvino int8 static cpu b1 is faster, {charts.ratio(speedup)}; -0.47 points [" in chart.sentence
    assert "(n = 12 paired rounds, 858 samples, VALID)" in chart.sentence


@pytest.mark.parametrize(
    ("lost", "gained", "word"),
    [(3, 4, "no worse"), (60, 10, "worse"), (20, 10, "not enough samples"), (1, 30, "better")],
)
def test_trade_off_says_of_the_budget_only_what_the_interval_allows(lost, gained, word):
    chart = trade_off(judged(int8(), lost=lost, gained=gained))
    assert chart.table[1][5] == word


def test_a_wider_budget_moves_the_line_and_the_word():
    chart = trade_off(judged(int8(), lost=60, gained=10), budget=0.1)
    assert chart.table[1][5] == "no worse"
    assert [shape["y0"] for shape in chart.figure.layout.shapes if shape["line"]["dash"] == "dash"] == [-10.0]
    assert chart.figure.layout.annotations[0].text == "budget: 10 points"


def test_trade_off_tells_engines_and_precisions_and_statuses_apart():
    pairs = [
        judged(int8(), seed=1),
        judged(int8(calibration=256), seed=2),
        judged(int8("onnx_runtime"), seed=3, status="INDICATIVE"),
        judged(int8("onnx_runtime", precision="int4", scheme="weight_only"), seed=4, status="INVALID"),
    ]
    looks = [(trace["marker"]["symbol"], trace["marker"]["color"]) for trace in data(trade_off(*pairs))[1:]]
    assert looks == [
        *[(MARKERS[0], PALETTE[0])] * 2,
        (f"{MARKERS[1]}-open", PALETTE[1]),
        (f"{MARKERS[2]}-open-dot", PALETTE[2]),
    ]
    assert data(trade_off(*pairs))[3]["name"] == "3 onnx_runtime int8 static cpu b1, INDICATIVE"


def test_plans_without_a_score_stand_in_a_strip_of_their_own():
    pairs = [judged(int8()), unscored(int8("compiled", "weight_only"))]
    chart = trade_off(*pairs)
    scored, lone = data(chart)[1:]
    assert scored.get("yaxis", "y") == "y"
    assert (lone["yaxis"], lone["y"]) == ("y2", [0])
    assert chart.figure.layout.yaxis2.ticktext == ("not scored",)
    assert chart.figure.layout.yaxis2.domain[1] < chart.figure.layout.yaxis.domain[0]
    assert chart.table[2][4:6] == ["not scored", "not scored"]
    assert "yaxis2" not in json.loads(trade_off(pairs[0]).figure.to_json())["layout"]


def test_a_score_without_single_samples_has_no_interval_and_no_word():
    one = example.measurement(0.015, int8(), seed=1)
    chart = trade_off((one, example.verdict(BASE, one, score_change=-0.002)))
    assert data(chart)[1]["error_y"]["array"] == [0.0]
    assert chart.table[1][4:6] == ["-0.20 points [no interval]", "no interval"]


def test_of_many_plans_the_fastest_within_the_budget_is_named_and_an_invalid_one_never():
    pairs = [
        judged(int8(calibration=64), 0.015, 3, 4, seed=1),
        judged(int8(calibration=256), 0.012, 3, 4, seed=2),
        judged(int8("onnx_runtime"), 0.006, 3, 4, seed=3, status="INVALID"),
        judged(int8("compiled"), 0.004, 60, 5, seed=4),
        judged(Plan("compiled", "bf16", threads=2), 0.05, 0, 0, seed=5),
        unscored(int8("compiled", "weight_only"), seed=6),
    ]
    said = trade_off(*pairs).sentence
    assert (
        "2 of 6 plans are faster and within it, n = 12 paired rounds or more. The fastest of them: openvino int8 static cpu b1, 256" in said
    )
    assert "Over the budget: compiled int8 static cpu b1." in said
    assert "Not scored: compiled int8 weight_only cpu b1." in said
    assert "Not faster: compiled bf16 cpu b1 (slower)." in said


def test_a_metric_of_which_less_is_better_has_its_budget_above():
    pairs = [(0.4, (0.4, 0.5) * 20), (-0.4, (-0.4, -0.5) * 20)]
    scored = [Score("mse", 1.0, 40, higher_is_better=False)] * 2
    made = [example.measurement(0.01, int8(calibration=64 + n), seed=n, score=scored[n]) for n in (0, 1)]
    verdicts = [
        example.verdict(BASE, one, score_change=change, changes=changes, higher_is_better=False)
        for one, (change, changes) in zip(made, pairs, strict=True)
    ]
    chart = charts.trade_off([BASE, *made], verdicts, 0.1)
    assert [row[5] for row in chart.table[1:]] == ["worse", "better"]
    assert [shape["y0"] for shape in chart.figure.layout.shapes if shape["line"]["dash"] == "dash"] == [0.1]
    assert "points" not in chart.sentence


def test_trade_off_draws_what_is_there():
    empty = charts.trade_off([], [])
    assert [trace["name"] for trace in data(empty)] == ["baseline"]
    assert empty.sentence == "No plan is finished yet; the budget is 1 point of the task metric."
    one, verdict = judged(int8())
    with pytest.raises(ParameterError, match=r"candidate .* is not among the 1 measurements"):
        charts.trade_off([BASE], [verdict])
    assert len(data(charts.trade_off([BASE, one], [verdict]))) == 2


def test_a_running_comparison_shows_speed_first_and_then_each_score():
    pairs = [judged(int8(calibration=size), lost=3, gained=4, seed=size) for size in (64, 256)]
    plans = [BASE.plan, *(one.plan for one, _ in pairs)]
    rounds = [BASE.rounds[:7], pairs[0][0].rounds[:7], pairs[1][0].rounds[:6]]
    running = charts.trade_off_so_far(plans, rounds)
    first = data(running)[1]
    assert first["yaxis"] == "y2"
    expected = [old.wall_median / new.wall_median for old, new in zip(rounds[0], rounds[1], strict=True)]
    assert min(expected) <= first["x"][0] <= max(expected)
    assert [row[6:] for row in running.table[1:]] == [[f"n = {n} paired rounds", "still running"] for n in (7, 6)]
    half = charts.trade_off_so_far(plans, rounds, 0.01, [BASE, pairs[0][0]], [pairs[0][1]])
    assert [row[5] for row in half.table[1:]] == ["no worse", "not scored"]
    assert [trace["name"] for trace in data(half)][1:] == [
        "1 openvino int8 static cpu b1, 64 samples",
        "2 openvino int8 static cpu b1, 256 samples, still running",
    ]
    assert len(data(charts.trade_off_so_far(plans, ((), (), ())))) == 1


def test_census_shows_the_share_of_each_type_and_says_why_layers_stayed_behind():
    left = "the product of two activations has no weight"
    other = [layer("/head", "fp32", 5, 0, "kept by the plan")]
    mixed = Census((*[layer()] * 3, *[layer("/attention/MatMul", "fp32", 50, 0, left)] * 2, *other), unfused=1, transitions=4)
    chart = charts.census([("a plan", mixed), ("another", Census((layer(), layer(precision="int8 weights", parameters=30))))])
    bars = {(trace["name"], trace.get("xaxis", "x")): trace["x"] for trace in data(chart)}
    assert bars["int8", "x"] == pytest.approx([100 * 300 / 405, 50], rel=1e-4)
    assert bars["fp32", "x"] == pytest.approx([100 * 105 / 405, 0], rel=1e-4)
    assert bars["int8 weights", "x2"] == [0, 75]
    assert (
        "a plan: 74.1% of the multiplications and 100.0% of the parameters are quantized (n = 6 layers); 3 layers stayed behind, "
        f"mostly because: {left} (2 of them), such as /attention/MatMul; 1 quantize or dequantize operator runs unfused, "
        "and a value changes its type in 4 places."
    ) in chart.sentence
    assert "another: 100.0%" in chart.sentence
    assert "no layer stayed behind" in chart.sentence
    assert [row[:4] for row in chart.table[1:4]] == [
        ["a plan", "int8", "3", "300 (74.1%)"],
        ["a plan", "fp32", "3", "105 (25.9%)"],
        ["a plan", "all", "6", "405 (100.0%)"],
    ]
    assert chart.table[2][6] == f"{left} (2); kept by the plan (1)"


def test_census_takes_measurements_and_names_those_without_one():
    counted = example.measurement(plan=int8(), report={"census": Census((layer(),)).to_dict()})
    chart = charts.census([BASE, counted])
    assert {tuple(trace["y"]) for trace in data(chart)} == {("openvino int8 static cpu b1",)}
    assert chart.sentence.endswith("Without a census: openvino fp32 cpu b1.")
    with pytest.raises(ParameterError, match="no quantized model"):
        charts.census([BASE])


def test_a_type_has_the_same_colour_beside_any_other():
    one, other = (charts.census([("a", Census((layer(), layer(precision=kind))))]) for kind in ("fp32", "bf16"))
    assert data(one)[0]["marker"] == data(other)[0]["marker"]
    assert data(one)[1]["marker"]["color"] != data(other)[1]["marker"]["color"]


def test_layer_bars_draw_the_most_sensitive_first_and_sum_up_the_rest():
    names = [f"/encoder/{number}/" + "x" * 50 for number in range(60)]
    values = [float((7 * number) % 60) for number in range(60)]
    kinds = ["attention" if value < 20 else "other" for value in values]
    words = {"quantity": "Signal-to-noise ratio", "unit": "dB", "title": "Sensitivity", "evidence": "n = 64 samples"}
    chart = charts.layer_bars(names, values, kinds, **words)
    drawn = data(chart)
    assert sorted(value for trace in drawn for value in trace["x"]) == list(range(40))
    assert [trace["y"] for trace in drawn] == [list(range(20)), list(range(20, 40))]
    assert all(len(text) <= 44 for text in chart.figure.layout.yaxis.ticktext)
    assert chart.sentence.startswith(f"{names[0]} (attention) has the lowest signal-to-noise ratio, 0 dB; the median of the 60 layers")
    assert "The lowest tenth are 6 attention. Drawn are 40; the other 20 lie between 40 and 59 dB (n = 64 samples)." in chart.sentence
    assert len(chart.table) == 61
    upside = charts.layer_bars(names, values, kinds, lowest_first=False, **words)
    assert "(other) has the highest signal-to-noise ratio, 59 dB" in upside.sentence
    with pytest.raises(ParameterError, match="no layers"):
        charts.layer_bars([], [], [], **words)


def test_size_and_memory_stand_beside_fp32_of_the_same_engine():
    plain = example.measurement(plan=Plan("onnx_runtime", threads=2), size_bytes=100_000_000, peak_memory_bytes=500_000_000)
    small = dataclasses.replace(plain, plan=int8("onnx_runtime"), size_bytes=25_000_000, peak_memory_bytes=400_000_000)
    chart = charts.size_and_memory([BASE, plain, small])
    disk, memory = data(chart)
    assert disk["x"] == [90.9, 100.0, 25.0]
    assert disk["text"] == ["90.9 MB", "100 MB", "0.250×"]
    assert memory["x"] == [410.0, 500.0, 400.0]
    assert (
        "onnx_runtime int8 static cpu b1 takes 25.0 MB on disk, 0.250× FP32's and 400 MB of memory at its peak, 0.800× FP32's"
        in chart.sentence
    )
    assert [row[2] for row in chart.table[1:]] == ["1.00×", "1.00×", "0.250×"]
    alone = charts.size_and_memory([small])
    assert alone.table[1][2] == "none"
    with pytest.raises(ParameterError, match="no plan"):
        charts.size_and_memory([])


def test_every_chart_has_units_on_its_axes_and_carries_its_words():
    counted = example.measurement(plan=int8(), report={"census": Census((layer(),)).to_dict()})
    made = [
        trade_off(judged(int8())),
        charts.trade_off_so_far([BASE.plan, int8()], [BASE.rounds, BASE.rounds]),
        charts.census([counted]),
        charts.layer_bars(["a"], [1.0], ["b"], quantity="Loss", unit="points", title="Loss", evidence="n = 64 samples"),
        charts.size_and_memory([BASE]),
    ]
    for chart in made:
        figure = json.loads(chart.figure.to_json())
        titles = [axis["title"]["text"] for name, axis in figure["layout"].items() if "axis" in name and "title" in axis]
        assert titles
        assert all("(" in title for title in titles)
        assert figure["layout"]["meta"] == {"sentence": chart.sentence, "table": chart.table}
        assert "n = " in chart.sentence
        assert len(chart.table) > 1
        assert len({len(row) for row in chart.table}) == 1

"""What records say of the claims about quantization: each verdict reached from figures, and its opposite from others."""

from dataclasses import replace

import pytest
from example_records import MACHINE, measurement, verdict

from accel_helpers import charts, claims
from accel_helpers.bench import Comparison
from accel_helpers.calibration import Symptom
from accel_helpers.intervals import Estimate
from accel_helpers.quantize import BitWidth, Cause, SensitivePart, Trial, Trials
from accel_helpers.records import Census, Layer, Plan, Quantization, Score

STATIC = Quantization("static", calibration=64)
BYTES = Census((Layer("a", "MatMul", "int8", 900, 900, 900), Layer("b", "MatMul", "fp32", 100, 400, 100, "kept")))


def plan(precision, engine="onnx_runtime"):
    return Plan(engine, precision, threads=2, quantization=STATIC if precision == "int8" else None)


def compared(*found):
    return Comparison(tuple(found), tuple(verdict(found[0], one) for one in found[1:]))


def of_size(precision, size, level=0.03, seed=0, engine="onnx_runtime"):
    return measurement(level, plan(precision, engine), seed=seed, size_bytes=size, report={"census": BYTES.to_dict()})


@pytest.mark.parametrize(("size", "word"), [(25, "holds"), (50, "does not hold here")])
def test_four_times_smaller_is_judged_by_the_files(size, word):
    made = claims.smaller(compared(of_size("fp32", 100), of_size("int8", size, seed=1)))
    assert (made.id, made.verdict) == ("C1", word)
    assert f"{100 / size:.2f}×" in made.evidence
    assert "90%" in made.evidence, "the share of the parameters that are integers"


def test_each_engine_is_held_against_its_own_fp32():
    small, own = of_size("int8", 100, seed=1, engine="openvino"), of_size("fp32", 400, seed=2, engine="openvino")
    assert claims.smaller(compared(of_size("fp32", 100), small, own)).verdict == "holds"


@pytest.mark.parametrize(
    ("levels", "word"), [((0.02, 0.01), "holds"), ((0.02, 0.05), "does not hold here"), ((0.02, 0.03), "too noisy to say")]
)
def test_quantization_is_faster_if_every_plan_is(levels, word):
    base = of_size("fp32", 100, level=0.03)
    found = [measurement(level, replace(plan("int8"), batch=1, hint=str(level)), seed=seed + 5) for seed, level in enumerate(levels)]
    made = claims.quantized_is_faster(compared(base, *found))
    assert (made.id, made.verdict) == ("C2", word)
    assert "No engine here ran BF16" in made.evidence


def test_bf16_stands_beside_where_it_ran():
    found = compared(of_size("fp32", 100, 0.03), of_size("bf16", 100, 0.01, seed=1), of_size("int8", 50, 0.02, seed=2))
    assert "Against BF16: onnx_runtime int8 static cpu b1 0.5" in claims.quantized_is_faster(found).evidence


def scored(right, of=1000, start=0):
    """A score whose first ``right`` samples, from ``start`` on, are right."""
    outcomes = tuple(int(start <= place < start + right) for place in range(of))
    return Score("top-1", right / of, of, outcomes)


def trials(**right):
    symptom = (Symptom("noise", "it is noise.", {}),)
    made = [Trial(data, 0, 64, scored(count), 10.0, () if data == "representative" else symptom) for data, count in right.items()]
    return Trials("text-encoder", plan("int8"), scored(900), tuple(made))


@pytest.mark.parametrize(
    ("right", "word"),
    [
        ({"representative": 900, "one_class": 700, "noise": 300}, "holds"),
        ({"representative": 900, "one_class": 900, "noise": 300}, "does not hold here"),
        ({"representative": 800, "noise": 300}, "does not hold here"),
        ({"representative": 900, "noise": 889}, "too noisy to say"),
    ],
)
def test_calibration_data(right, word):
    made = claims.calibration_data(trials(**right), MACHINE)
    assert (made.id, made.verdict, made.model, made.hardware) == ("C11", word, "text-encoder", MACHINE.hardware)
    assert made.evidence.count("detected beforehand") == len(right) - 1
    assert trials(**right).worst.score.value == min(right.values()) / 1000


@pytest.mark.parametrize(
    ("share", "repaired", "word"),
    [((0.7, 0.6, 0.8), (0.6, 0.55, 0.7), "holds"), ((0.05, 0.04, 0.06), (0.6, 0.55, 0.7), "does not hold here")],
)
def test_the_sensitive_part(share, repaired, word):
    part = SensitivePart(
        {"softmax": Estimate(*share)}, Estimate(*share), 0.1, {"softmax": Estimate(*repaired)}, attention_repaired=Estimate(*repaired)
    )
    made = claims.attention_is_sensitive(part, "text-encoder", MACHINE)
    assert (made.id, made.verdict) == ("C12", word)
    assert "10% of the multiplications" in made.evidence


@pytest.mark.parametrize(
    ("ptq", "qat", "word"),
    [(500, 850, "holds"), (500, 520, "does not hold here"), (500, 700, "too noisy to say"), (899, 900, "too noisy to say")],
)
def test_training_recovers(ptq, qat, word):
    widths = [BitWidth(8, scored(900), scored(900), scored(900), 1.0, 2.0), BitWidth(3, scored(900), scored(ptq), scored(qat), 1.0, 2.0)]
    made = claims.training_recovers(widths, MACHINE, "digits")
    assert (made.id, made.verdict, made.model) == ("C13", word, "digits")
    assert ("nothing to recover" in made.evidence) == (ptq == 899)
    rows = charts.bit_widths(widths)
    assert rows[2][0] == "3"
    assert rows[2][4] == f"{qat / 1000:.4f}"
    assert [len(row) for row in rows] == [len(rows[0])] * 3


def test_tables_name_what_was_lost_and_won():
    base = measurement(0.03, plan("fp32"), score=scored(900))
    worse = measurement(0.02, plan("int8"), seed=1, score=scored(880))
    unknown = measurement(0.02, Plan("openvino"), seed=2, score=None)
    changes = worse.score.changes(base.score)
    verdicts = [
        verdict(base, worse, changes=changes, score_change=sum(changes) / len(changes)),
        verdict(base, unknown, score_change=None),
    ]
    rows = charts.accuracy([base, worse, unknown], verdicts)
    assert rows[1][2] == "baseline"
    assert rows[2][3:5] == ["worse", "20, 0"]
    assert rows[2][2].startswith("-0.0200 [-0.03")
    assert rows[3][1:3] == ["not measured", "not measured"]


def test_tables_of_trials_and_causes():
    found = trials(representative=900, noise=300)
    rows = charts.trials(found)
    assert [row[0] for row in rows[1:]] == ["representative", "noise", "FP32"]
    assert rows[1][-1] == "nothing"
    assert rows[2][-1] == "it is noise."
    cause = Cause("saturation", "wrong", "Products overflow.", "1,048,544 for 2,072,640.", "Take seven bits.", Estimate(2.0, 1.5, 3.0))
    rows = charts.causes([(plan("int8"), (cause,)), (plan("fp32"), ())])
    assert rows[1][1:3] == ["wrong", "Products overflow."]
    assert rows[1][-1] == "2.00× [1.50, 3.00] less error"
    assert "neither" in rows[2][1]

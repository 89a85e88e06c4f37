"""What trials say of the claims about graphs: each verdict reached from counts, and its opposite from others."""

import pytest
from example_records import MACHINE

from accel_helpers import charts, claims
from accel_helpers.compilation.builds.attempts import After, ShapeTrial, ShapeTrials, SimplifyTrial, SimplifyTrials
from accel_helpers.compilation.builds.shape_trials import OPENVINO, ORT, TENSORRT


def graph(title, foldable=True, ok=False, **after):
    kind = "" if ok else "unsupported_operator"
    said = "it lacks that"
    trials = tuple(After(tool, built, "" if built else said, 0.0) for tool, built in after.items())
    return SimplifyTrial(title, ok, kind, "DFT", said, foldable, trials)


def simplified(*trials):
    return claims.simplifying_helps(SimplifyTrials(trials), MACHINE)


def test_simplifying_helps_if_one_tool_mends_everything():
    made = simplified(graph("a", onnxsim=True, onnxslim=False), graph("b", onnxsim=True, onnxslim=True))
    assert (made.id, made.verdict, made.hardware) == ("C14", "holds", MACHINE.hardware)
    assert "onnxsim mends 2 and onnxslim mends 1" in made.evidence


def test_simplifying_does_not_help_if_a_graph_stays_refused():
    made = simplified(graph("a", onnxsim=True, onnxslim=True), graph("b", foldable=False, onnxsim=False, onnxslim=False))
    assert made.verdict == "does not hold here"
    assert "1 of the 1 whose trouble is computed" in made.evidence
    assert "0 of the 1 others" in made.evidence
    assert "without an interval" in made.evidence


def test_simplifying_does_not_help_if_it_breaks_a_healthy_graph():
    healthy = graph("c", ok=True, onnxsim=False, onnxslim=True)
    made = simplified(graph("a", onnxsim=True, onnxslim=True), healthy)
    assert made.verdict == "does not hold here"
    assert "Of 1 that it builds, 1 are refused or changed" in made.evidence


def shaped(*builds, missing=""):
    cpu = [ShapeTrial("fixed", wrong, runtime, "run", not wrong) for runtime in (ORT, OPENVINO) for wrong in (True, False)]
    made = [ShapeTrial(declared, wrong, TENSORRT, "build", ok) for declared, wrong, ok in builds]
    return ShapeTrials("tiny-cnn", (*cpu, *made), missing)


@pytest.mark.parametrize(
    ("late", "mended", "word"),
    [(False, True, "holds"), (True, True, "does not hold here"), (False, False, "does not hold here")],
)
def test_shapes(late, mended, word):
    found = shaped(("no profile", True, False), ("greatest 2", True, late), ("in order", False, mended))
    made = claims.shapes_mend(found, MACHINE)
    assert (made.id, made.verdict, made.model) == ("C15", word, "tiny-cnn")
    assert f"refuses to build {1 if late else 2}" in made.evidence
    assert ("greatest 2" in made.evidence) == late
    assert "ONNX Runtime 1 of 1 wrong ones, 0 of 1 open ones" in made.evidence
    assert "not yet run on a GPU" in made.evidence


def test_without_tensorrt_neither_is_tested():
    found = shaped(missing="TensorRT is not installed here")
    made = claims.shapes_mend(found, MACHINE)
    assert made.verdict == "not tested here"
    assert "TensorRT is not installed here" in made.evidence
    assert charts.shapes_table(found)[-1][-1] == "TensorRT is not installed here"
    assert claims.simplifying_helps(SimplifyTrials((), "TensorRT is not installed here"), MACHINE).verdict == "not tested here"


def test_tables():
    rows = charts.simplified_table(
        SimplifyTrials((graph("a", onnxsim=True, onnxslim=False), graph("c", ok=True, onnxsim=True, onnxslim=True)))
    )
    assert rows[0][-2:] == ["After onnxsim", "After onnxslim"]
    assert rows[1][-2:] == ["built, outputs moved 0", "refused as before"]
    assert rows[2][1:4] == ["built", "DFT", "none"]

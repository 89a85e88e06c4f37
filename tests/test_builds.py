"""Experiments with builds: shapes declared wrong and right, simplified graphs, replaced operators, and a machine without TensorRT."""

import numpy as np
import pytest
import small_models

from accel_helpers import charts
from accel_helpers.compilation.builds import attempts as builds
from accel_helpers.compilation.builds import faulty
from accel_helpers.compilation.builds._remedies import SQUARED, written
from accel_helpers.compilation.builds._trial import Asked, absent, trial
from accel_helpers.compilation.builds.shape_trials import OPENVINO, ORT, RIGHT, TENSORRT
from accel_helpers.engines import _onnx_export, _tensorrt_build
from accel_helpers.errors import ModelError, UnsupportedError

here = pytest.mark.skipif(bool(absent()), reason=absent() or "TensorRT is here")
ROWS = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
CUSTOM = "(float[n,4] x) => (float[n,4] y) { [squared] y = my.ops.SquaredRelu(x) }"


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        yield


@pytest.fixture(scope="module")
def shapes():
    return builds.dynamic_shapes("tiny-cnn")


@pytest.fixture(scope="module")
def simplified():
    return builds.simplifying(("tiny-cnn",))


@here
def test_wrong_shapes_break_the_build_or_wait_for_the_run(shapes):
    wrong, right = shapes.of(TENSORRT, "build", True), shapes.of(TENSORRT, "build", False)
    refused = {one.declared: one.said for one in wrong if not one.ok}
    assert {"no optimization profile" in said or "axes" in said or "falls" in said or "fixed" in said for said in refused.values()} == {
        True
    }
    assert len(refused) == 4
    assert {one.declared for one in wrong if one.ok} == {
        "batch fixed to 2 by the export, no profile",
        "axis called open, 2 written inside, profile 1 to 8",
        "open batch, greatest 2",
    }, "these build, and fail or answer wrongly when run"
    assert [(one.declared, one.ok) for one in right] == [(RIGHT, True)]
    admitted = [*shapes.of(TENSORRT, "admit", True), *shapes.of(TENSORRT, "admit", False)]
    assert [one.ok for one in admitted] == [False, False, True]
    assert not shapes.of(TENSORRT, "run", False), "nothing ran on a GPU"


def test_a_cpu_shows_the_fixed_batch_too(shapes):
    assert [one.ok for one in shapes.of(ORT, "run", True)] == [False, False]
    assert "Got: 3 Expected: 2" in shapes.of(ORT, "run", True)[0].said
    fixed, inside = shapes.of(OPENVINO, "run", True)
    assert not fixed.ok
    assert "incompatible" in fixed.said
    assert not inside.ok, "OpenVINO raises nothing here, and answers for two of three"
    assert all(one.ok for runtime in (ORT, OPENVINO) for one in shapes.of(runtime, "run", False))


@here
def test_simplifying_mends_what_is_constant_or_unread_and_nothing_else(simplified):
    assert len(simplified.refused) == len(faulty.GRAPHS) + len(faulty.QUANTIZED) + 6
    mended = {one.title for tool in ("onnxsim", "onnxslim") for one in simplified.mended(tool)}
    assert mended == {one.title for one in simplified.refused if one.foldable}
    assert {one.title for one in simplified.mended("onnxsim")} != {one.title for one in simplified.mended("onnxslim")}
    assert [(one.title, one.ok, [after.helped for after in one.after]) for one in simplified.healthy] == [("tiny-cnn", True, [True, True])]


def test_a_graph_that_builds_but_means_something_else_is_not_mended():
    for error, mends in ((0.5, False), (None, False), (1e-6, True)):
        after = builds.After("onnxsim", True, "", error)
        one = builds.SimplifyTrial("a graph", False, "unsupported_operator", "Unique", "it lacks that", True, (after,))
        assert bool(builds.SimplifyTrials((one,)).mended("onnxsim")) == mends


@here
def test_an_operator_of_a_network_is_named_replaced_compared_and_built(tmp_path):
    import torch

    fold = lambda self, x: torch.nn.functional.fold(x, (4, 4), (2, 2))  # noqa: E731
    model = small_models.network(fold, "fold", shape=(4, 9))
    _onnx_export.export(model, tmp_path)
    source, out = tmp_path / "model.onnx", tmp_path / "replaced.onnx"
    asked = Asked(({"x": ((1, 4, 9), (2, 4, 9), (8, 4, 9))},))
    failure = trial(source, asked, "fold").error.failure
    assert (failure.kind, failure.operator) == ("unsupported_operator", "Col2Im")
    inputs = model.example(3, 0, 0)
    network = model.build()
    done = builds.replace_operator(
        source, failure.operator, out, inputs, answer=lambda given: {"y": network(torch.from_numpy(given["x"])).numpy()}
    )
    assert done.nodes == (failure.node,)
    assert done.by == ("Reshape", "ConvTranspose")
    assert done.error < 1e-6
    assert trial(out, asked, "fold").ok


FOLD = "(float[n,8,15] x) => (float[n,2,5,4] y) <int64[2] i={5,4}, int64[2] b={2,2}> { y = Col2Im<strides=[2,1],pads=[1,1,1,1]>(x, i, b) }"


@pytest.mark.parametrize(
    ("graph", "operator", "shape", "by"),
    [
        (FOLD, "Col2Im", (3, 8, 15), "ConvTranspose"),
        ("(float[n,9,1] x) => (float[n,9,2] y) <int64 a={-2}> { y = DFT(x, , a) }", "DFT", (3, 9, 1), "MatMul"),
        ("(int32[n,4] x) => (int32[n,4] y) <int32[1] m={7}> { y = BitwiseAnd(x, m) }", "BitwiseAnd", (3, 4), "Mod"),
    ],
)
def test_replacements_are_exact(graph, operator, shape, by, tmp_path):
    source = written(graph, tmp_path / "a.onnx", 20)
    inputs = (50 * np.random.default_rng(0).normal(size=shape)).astype(np.int32 if "int32" in graph else np.float32)
    done = builds.replace_operator(source, operator, tmp_path / "b.onnx", {"x": inputs})
    assert by in done.by
    assert done.against == "ONNX Runtime"
    assert done.error < 1e-5


@pytest.mark.parametrize(
    ("graph", "operator"),
    [
        ("(int32[n,4] x) => (int32[n,4] y) <int32[1] m={5}> { [mask] y = BitwiseAnd(x, m) }", "BitwiseAnd"),
        ("(float[n,9,2] x) => (float[n,9,2] y) <int64 a={-2}> { [mask] y = DFT<inverse=1>(x, , a) }", "DFT"),
    ],
)
def test_what_no_replacement_fits_is_refused_and_named(graph, operator, tmp_path):
    source = written(graph, tmp_path / "a.onnx", 20)
    with pytest.raises(UnsupportedError, match=rf"No replacement of {operator} is known for node 'mask'"):
        builds.replace_operator(source, operator, tmp_path / "b.onnx", {})


def test_a_replacement_that_changes_an_output_is_refused_and_not_written(tmp_path):
    source, out = written(CUSTOM, tmp_path / "a.onnx", 20), tmp_path / "b.onnx"
    right = lambda given: {"y": np.maximum(given["x"], 0) ** 2}  # noqa: E731
    with pytest.raises(ModelError, match=r"changes an output of a\.onnx by"):
        builds.replace_operator(source, "SquaredRelu", out, {"x": ROWS}, SQUARED.replace("Mul", "Add"), right)
    assert not out.exists()
    with pytest.raises(ModelError, match=r"original of a\.onnx does not run.*Give what answers"):
        builds.replace_operator(source, "SquaredRelu", out, {"x": ROWS}, SQUARED)
    with pytest.raises(UnsupportedError, match=r"No replacement of SquaredRelu.*as an ONNX function"):
        builds.replace_operator(source, "SquaredRelu", out, {"x": ROWS})
    with pytest.raises(ModelError, match="holds no node Missing"):
        builds.replace_operator(source, "Missing", out, {"x": ROWS})
    assert builds.replace_operator(source, "SquaredRelu", out, {"x": ROWS}, SQUARED, right).error == 0
    assert out.exists()


def test_without_tensorrt_the_answer_is_the_reason(monkeypatch):
    monkeypatch.setattr(_tensorrt_build, "NAME", "no_such_module")
    (one,) = builds.failures()
    assert one.kind == builds.ABSENT
    assert "not installed here" in one.cause
    found = builds.simplifying()
    assert not found.trials
    assert "not installed here" in found.missing
    assert "not installed here" in charts.attempts_table([one])[1][1]
    assert "not tried" in charts.simplified_table(found)[1]


def test_tables_have_a_row_for_each_trial(shapes):
    rows = charts.shapes_table(shapes)
    assert len(rows) == 1 + len(shapes.trials)
    assert {len(row) for row in rows} == {len(rows[0])}
    cases = [one for one in faulty.PROFILES if one.kind == "no_profile"]
    rows = charts.attempts_table(builds.failures(cases))
    assert len(rows) == 2
    assert {len(row) for row in rows} == {len(rows[0])}

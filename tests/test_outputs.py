"""Engines against one another output by output, and graphs against one another tensor by tensor."""

import math

import numpy as np
import pytest
from faulty_graphs import WIDTH, chain
from polygraphy.backend.onnxrt import OnnxrtRunner
from polygraphy.comparator import Comparator, SimpleCompareFunc
from polygraphy.logger import G_LOGGER

from accel_helpers import models
from accel_helpers.accuracy import TOLERANCE, compare_outputs
from accel_helpers.charts import differences_table, error_along
from accel_helpers.compilation.debugging import outputs
from accel_helpers.compilation.debugging._numbers import apart
from accel_helpers.compilation.debugging.runners import SessionRunner
from accel_helpers.config import RunConfig
from accel_helpers.engines import _onnx_export
from accel_helpers.errors import ModelError, ParameterError, UnknownNameError, UnsupportedError

TINY = RunConfig(model="tiny-cnn", threads=1)
X = {"x": np.random.default_rng(1).normal(size=(3, WIDTH)).astype(np.float32)}


@pytest.fixture(scope="module", autouse=True)
def own_store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.mktemp("store")))
        yield


@pytest.fixture(scope="module")
def exported(own_store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    _onnx_export.export(models.get("tiny-cnn"), folder)
    return folder / _onnx_export.FILE


@pytest.fixture(scope="module")
def differences(exported):
    engines = [("pytorch", "fp32"), ("onnx_runtime", "fp32"), ("openvino", "fp32"), ("pytorch", "bf16"), ("null", "fp32")]
    return outputs.compare([TINY.replace(engine=engine, precision=precision) for engine, precision in engines], [(1, 16), (5, 16), (5, 21)])


def test_every_engine_is_compared_with_the_first_at_every_size(differences):
    assert [(one.plan.engine, one.plan.precision, one.batch) for one in differences] == [
        (engine, precision, batch)
        for batch in (1, 5)  # a model without sequences has one comparison a batch
        for engine, precision in [("onnx_runtime", "fp32"), ("openvino", "fp32"), ("pytorch", "bf16"), ("null", "fp32")]
    ]
    assert {(one.output, one.sequence, one.against.split(" cpu")[0]) for one in differences} == {("logits", None, "pytorch fp32")}
    assert all(one.plan.batch == one.batch for one in differences)
    for one in differences:
        assert one.tolerance == TOLERANCE[one.plan.precision]
        assert (one.rows, bool(one)) == (one.batch, one.plan.engine != "null")
        assert one.other_answers == (one.batch if one.plan.engine == "null" else 0)
    rounded = {one.plan.precision: one.relative for one in differences if one.plan.engine != "null"}
    assert rounded["fp32"] < 1e-5 < 1e-4 < rounded["bf16"]


def test_a_table_has_a_row_for_each(differences):
    head, *rows = differences_table(differences)
    assert {len(row) for row in rows} == {len(head)}
    assert len(rows) == len(differences)
    assert rows[-1][0] == "null fp32 cpu b5"
    assert rows[-1][-2:] == ["5 of 5", "NO, up to 0.001"]
    assert rows[0][-1] == "yes, up to 0.001"
    assert differences_table([]) == [head]


def test_fp64_tells_rounding_from_a_difference(exported):
    found = outputs.compare([TINY, TINY.replace(precision="bf16")], [(5, 16)], against="fp64")
    assert [(one.plan.precision, one.against) for one in found] == [("fp32", "PyTorch FP64"), ("bf16", "PyTorch FP64")]
    assert 0 < found[0].relative < 1e-5 < found[1].relative < TOLERANCE["bf16"]
    (same,) = outputs.compare([TINY], [(5, 16)], against="fp32")
    assert (same.relative, same.cosine, same.against) == (0, 1, "pytorch fp32 cpu b5")


def test_the_figures_are_those_of_accuracy():
    right = {"y": np.array([[3.0, 4.0], [1.0, 0.0]], np.float32)}
    other = {"y": np.array([[4.0, 3.0], [1.1, 0.0]], np.float32), "z": np.zeros(3)}
    (one,) = outputs._judge(TINY, "that", (2, None), 0.1)(right, other).values()
    expected = compare_outputs(other, right)["y"]
    assert (one.max_absolute, one.relative, one.cosine) == (expected.max_absolute, expected.relative, expected.cosine)
    assert (one.rows, one.other_answers, bool(one)) == (2, 1, False)
    (missing,) = outputs._judge(TINY, "that", (2, None), 0.1)(right, {}).values()
    assert (missing.relative, missing.other_answers, bool(missing)) == (math.inf, 2, False)
    bf16 = TINY.replace(precision="bf16")
    assert outputs._tolerance(TINY, bf16) == outputs._tolerance(bf16, TINY) == TOLERANCE["bf16"]  # the reference is rounded, too


def test_our_sessions_run_in_polygraphys_own_comparison(exported):
    """Beside Polygraphy's own runner on the exported file, fed by its own data loader, judged by its own function."""
    import onnxruntime

    runners = [SessionRunner(TINY.replace(engine="onnx_runtime")), OnnxrtRunner(onnxruntime.InferenceSession(exported))]
    feeds = [models.get("tiny-cnn").example(2, 16, seed) for seed in range(2)]
    with G_LOGGER.verbosity():
        results = Comparator.run(runners, data_loader=feeds)
        assert Comparator.compare_accuracy(results, compare_func=SimpleCompareFunc(atol=1e-5, rtol=1e-5))
        results[1][1][1]["logits"] = results[1][1][1]["logits"] + 1
        assert not Comparator.compare_accuracy(results, compare_func=SimpleCompareFunc(atol=1e-5, rtol=1e-5))
        with runners[0] as runner:
            assert list(runner.get_input_metadata(use_numpy_dtypes=False)["pixel_values"].shape) == [None, 3, 32, 32]
            session = runner._session
    with pytest.raises(Exception, match="closed"):
        session(feeds[0])


def test_mistakes_are_said_before_anything_is_built(tmp_path):
    with pytest.raises(ParameterError, match="a reference and a candidate"):
        outputs.compare([TINY])
    with pytest.raises(ParameterError, match="of one model"):
        outputs.compare([TINY, TINY.replace(model="tiny-attention")])
    with pytest.raises(UnknownNameError, match="Did you mean 'fp64'"):
        outputs.compare([TINY], against="fp65")
    with pytest.raises(UnsupportedError, match="TF32"):
        outputs.compare([TINY, TINY.replace(precision="tf32")], [(1, 16)])
    with pytest.raises(UnsupportedError, match="without a network"):
        outputs.compare([TINY.replace(model=str(chain(tmp_path / "g.onnx", 2)), engine="onnx_runtime")], [(1, 16)], against="fp64")
    for text in ("7", "0x4", "axb", "3x4x5"):
        with pytest.raises(ParameterError, match="is no size"):
            outputs.size(text)
    assert outputs.size("7x16") == (7, 16)


# along a graph


def test_the_first_jump_is_where_a_weight_differs(tmp_path):
    right, other = chain(tmp_path / "right.onnx", 21), chain(tmp_path / "other.onnx", 21, w9=np.full(WIDTH, 0.5, np.float32))
    errors = outputs.along(right, other, X)
    assert [one.place for one in errors] == list(range(21))
    assert all(one.relative == 0 for one in errors[:9])
    jump = outputs.first_jump(errors)
    assert (jump.tensor, jump.node, jump.operator, jump.read) == ("t9", "n9", "Add", 0)
    assert errors[10].read == jump.relative
    chart = error_along(errors)
    assert "jumps at t9 (Add), from 0 in what it reads" in chart.sentence
    assert len(chart.table) == 22
    assert chart.figure.layout.yaxis.type == "log"
    assert min(chart.figure.data[0].y) > 0  # an error of zero is drawn, too


def test_an_error_that_grows_step_by_step_is_no_jump():
    def error(relative, read):
        return outputs.TensorError("t", "n", "Add", 0, 0.0, relative, 1.0, read)

    assert outputs.first_jump([error(1e-9, 0), error(4e-3, 2e-3), error(1e-2, 4e-3)]) is None
    jump = error(5e-2, 4e-3)
    assert outputs.first_jump([error(4e-3, 2e-3), jump, error(1, 0)]) is jump
    assert "no operator adds much by itself" in error_along([error(4e-3, 2e-3), error(1e-2, 4e-3)]).sentence


def test_an_optimised_graph_jumps_nowhere(exported):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(exported.with_name("optimised.onnx"))
    onnxruntime.InferenceSession(exported, options)
    inputs = models.get("tiny-cnn").example(2, 16, 0)
    errors = outputs.along(exported, exported.with_name("optimised.onnx"), inputs)
    assert 1 < len(errors) < len(outputs.along(exported, exported, inputs))  # the tensors that the optimiser fused away are not there
    assert outputs.first_jump(errors) is None
    assert "jumps nowhere" in error_along(errors).sentence


def test_onnx_runtime_against_the_reference_implementation(exported):
    errors = outputs.along(exported, exported, models.get("tiny-cnn").example(2, 16, 0), by="onnx")
    assert 0 < max(one.relative for one in errors) < 1e-5
    assert outputs.first_jump(errors) is None


def test_fp16_rounds_everywhere_and_jumps_nowhere(exported):
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    half = convert_float_to_float16(onnx.load(exported), keep_io_types=True)
    errors = outputs.along(exported, half, models.get("tiny-cnn").example(2, 16, 0))
    assert 1e-5 < errors[-1].relative < TOLERANCE["fp16"]
    assert outputs.first_jump(errors, TOLERANCE["fp16"]) is None


def test_an_error_is_followed_through_tensors_that_are_not_shared(tmp_path):
    import onnx

    right, other = chain(tmp_path / "right.onnx", 21), onnx.load(chain(tmp_path / "other.onnx", 21, w4=np.ones((WIDTH, WIDTH), np.float32)))
    other.graph.node[5].output[0] = other.graph.node[6].input[0] = "renamed"
    by_name = {one.tensor: one for one in outputs.along(right, other, X)}
    assert "t5" not in by_name
    assert by_name["t6"].read == by_name["t4"].relative > 0


def test_a_mask_that_both_have_is_no_error():
    mask = np.array([0, -np.inf, np.nan, 2], np.float32)
    assert apart(mask, mask).relative == 0
    assert apart(np.array([0, -np.inf, np.nan, 3], np.float32), mask).relative == 0.5
    assert apart(np.array([0, np.inf, np.nan, 2], np.float32), mask).relative == math.inf
    assert apart(mask[:2], mask).relative == math.inf


def test_graphs_that_share_nothing_are_refused(tmp_path):
    import onnx

    other = onnx.load(chain(tmp_path / "g.onnx", 1))
    other.graph.node[0].output[0] = other.graph.output[0].name = "z"
    with pytest.raises(ParameterError, match="share no tensor"):
        outputs.along(tmp_path / "g.onnx", other, X)
    with pytest.raises(ModelError, match="does not exist"):
        outputs.along(tmp_path / "missing.onnx", other, X)
    with pytest.raises(ParameterError, match="no tensors"):
        error_along([])

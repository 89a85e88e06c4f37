"""Graphs with explicit Q/DQ pairs for TensorRT, and what it says of others."""

from dataclasses import replace

import numpy as np
import pytest

from accel_helpers import calibration, models
from accel_helpers.accuracy import relative_error
from accel_helpers.engines import _explicit_qdq, _onnx_export, _onnx_quantize, _tensorrt_build, tensorrt
from accel_helpers.errors import ModelError, UnknownNameError
from accel_helpers.records import Plan, Quantization

STATIC = Quantization("static", calibration=8, symmetric=True)


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        yield


def plan_of(precision):
    return Plan("tensorrt", precision, "cuda", batch=4, sequence=16, quantization=STATIC)


def explicit(name, precision, folder, **change):
    """The explicit graph of a model, saved in ``folder``, and the type of each product."""
    import onnx

    model, quantization = models.get(name), replace(STATIC, **change)
    _onnx_export.export(model, folder)
    split = calibration.samples(model, quantization)
    source = folder / "model.onnx"
    loaded, typed = _explicit_qdq.explicit(source, precision, quantization, lambda: (inputs for inputs, _ in split.batches(1)))
    onnx.save(loaded, source)
    return source, loaded, typed


@pytest.mark.parametrize("precision", ["int8", "fp8"])
@pytest.mark.parametrize("name", ["tiny-cnn", "tiny-attention"])
def test_the_explicit_graph_answers_like_fp32_and_not_the_same(name, precision, tmp_path):
    import onnxruntime

    inputs, answers = models.get(name).example(4, 16, 1), []
    (tmp_path / "fp32").mkdir()
    (tmp_path / precision).mkdir()
    _onnx_export.export(models.get(name), tmp_path / "fp32")
    for source in (tmp_path / "fp32" / "model.onnx", explicit(name, precision, tmp_path / precision)[0]):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # the graph as it is written
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        answers.append({"logits": session.run(["logits"], inputs)[0]})
    assert 0 < relative_error(answers[1], answers[0]) < 0.1


@pytest.mark.parametrize(("precision", "largest"), [("int8", 127), ("fp8", 448)])
def test_scales_are_signed_around_zero_and_biases_stay_float(precision, largest, tmp_path):
    import onnx

    _, loaded, typed = explicit("tiny-cnn", precision, tmp_path)
    values = {one.name: onnx.numpy_helper.to_array(one) for one in loaded.graph.initializer}
    quantizers = [node for node in loaded.graph.node if node.op_type == "QuantizeLinear"]
    assert len(quantizers) == 6, "an input and a weight for each of three products"
    assert not any(values[node.input[2]].astype(np.float32).any() for node in quantizers)
    weights = [node for node in quantizers if node.input[0] in values]
    assert len(weights) == 3
    for node in weights:
        weight, scale = values[node.input[0]], values[node.input[1]]
        assert scale.size == (weight.shape[0] if precision == "int8" else 1)
        assert np.isclose(scale.max() * largest, np.abs(weight).max())
    products = [node for node in loaded.graph.node if node.op_type in ("Conv", "Gemm")]
    assert all(node.input[2] in values and values[node.input[2]].dtype == np.float32 for node in products if len(node.input) > 2)
    assert set(typed.values()) == {precision}


def test_a_layer_in_keep_stays_and_an_unknown_one_is_named(tmp_path):
    for folder in ("all", "kept", "wrong"):
        (tmp_path / folder).mkdir()
    first = next(iter(explicit("tiny-cnn", "int8", tmp_path / "all")[2]))
    _, loaded, typed = explicit("tiny-cnn", "int8", tmp_path / "kept", keep=(first,))
    assert [kind for name, kind in typed.items() if name == first] == [""]
    assert sum(node.op_type == "QuantizeLinear" for node in loaded.graph.node) == 4
    with pytest.raises(UnknownNameError, match="no layer 'nothing'"):
        explicit("tiny-cnn", "int8", tmp_path / "wrong", keep=("nothing",))


def test_the_graph_that_onnx_runtime_wants_fails_in_tensorrt_with_one_sentence(tmp_path):
    """Unsigned bytes with a zero point, and biases in 32-bit integers: right on x86, unreadable for TensorRT."""
    import onnx

    model = models.get("tiny-cnn")
    _onnx_export.export(model, tmp_path)
    source, split = tmp_path / "model.onnx", calibration.samples(model, STATIC)
    unsigned = replace(STATIC, symmetric=False)
    onnx.save(_onnx_quantize.static(source, unsigned, lambda: (inputs for inputs, _ in split.batches(1))), source)
    with pytest.raises(ModelError, match=r"TensorRT cannot read the graph of tiny-cnn: .{10,}") as caught:
        _tensorrt_build.serialized(model, plan_of("int8"), source, [tensorrt.AHEAD])
    assert "\n" not in str(caught.value)


def test_fp8_needs_a_capability_that_has_it(tmp_path):
    source = explicit("tiny-cnn", "fp8", tmp_path)[0]
    with pytest.raises(ModelError, match=r"TensorRT cannot build for compute capability 8\.6 of tiny-cnn: .{10,}"):
        _tensorrt_build.serialized(models.get("tiny-cnn"), plan_of("fp8"), source, ["8.6"])

"""TensorRT engines from typed graphs, built ahead of time: no GPU is needed for that, and none is used here."""

from dataclasses import replace

import numpy as np
import pytest

from accel_helpers import calibration, engines, environment, models
from accel_helpers.accuracy import relative_error
from accel_helpers.engines import _explicit_qdq, _onnx_export, _onnx_quantize, tensorrt
from accel_helpers.environment import gpu_rules
from accel_helpers.errors import ModelError, UnknownNameError, UnsupportedError
from accel_helpers.records import Gpu, Plan, Quantization

ENGINE = engines.get("tensorrt")
STATIC = Quantization("static", calibration=8, symmetric=True)
ADA = Gpu("NVIDIA RTX 4090", 24 * 2**30, "8.9", "600.1")
HERE = replace(environment.describe(), gpus=(ADA,), cuda="13.0")


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        yield


def plan_of(precision, **more):
    quantization = STATIC if precision in ("int8", "fp8") else None
    return replace(Plan("tensorrt", precision, "cuda", batch=4, sequence=16, quantization=quantization), **more)


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


@pytest.mark.parametrize(
    ("name", "precision"),
    [("tiny-cnn", "fp32"), ("tiny-cnn", "int8"), ("tiny-cnn", "fp8"), ("tiny-attention", "fp16"), ("tiny-attention", "int8")],
)
def test_each_precision_builds_without_a_gpu(name, precision, out):
    built = ENGINE.build(models.get(name), plan_of(precision), out)
    assert [file.name for file in out.iterdir()] == list(built.files) == [tensorrt.PLAN]
    assert (out / tensorrt.PLAN).read_bytes()[1:4] == b"trt"
    assert built.report["types"][precision] == {"tiny-cnn": 3, "tiny-attention": 9 if precision in ("int8", "fp8") else 13}[name]
    assert bool(built.report["kept"]) == (name == "tiny-attention" and precision in ("int8", "fp8"))
    assert built.report["compute_capability"]


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
        tensorrt.serialized(model, plan_of("int8"), source, tensorrt.AHEAD)
    assert "\n" not in str(caught.value)


def test_fp8_needs_a_capability_that_has_it(tmp_path):
    source = explicit("tiny-cnn", "fp8", tmp_path)[0]
    with pytest.raises(ModelError, match=r"TensorRT cannot build for compute capability 8\.6 of tiny-cnn: .{10,}"):
        tensorrt.serialized(models.get("tiny-cnn"), plan_of("fp8"), source, "8.6")


def test_supports_says_what_stands_in_the_way():
    no_gpu, hopper = replace(HERE, gpus=()), replace(HERE, gpus=(replace(ADA, name="NVIDIA H200", compute_capability="9.0"),))
    ampere = replace(HERE, gpus=(replace(ADA, name="NVIDIA A10", compute_capability="8.6"),))
    for plan in map(plan_of, ("fp32", "fp16", "int8", "fp8")):
        assert "not run yet" in ENGINE.supports(plan, HERE).reason, "all else is there"
    for plan, here, told in [
        (plan_of("fp32", device="cpu"), HERE, "choose device=cuda"),
        (plan_of("bf16"), HERE, "not BF16"),
        (plan_of("fp32"), no_gpu, "no CUDA GPU"),
        (plan_of("fp8"), ampere, "needs compute capability 8.9"),
        (plan_of("int8", quantization=replace(STATIC, symmetric=False)), HERE, "choose symmetric=true"),
        (plan_of("int8", quantization=replace(STATIC, reduce_range=True)), HERE, "choose reduce_range=off"),
        (plan_of("int8", quantization=replace(STATIC, rest="bf16")), HERE, "choose rest=fp32"),
        (plan_of("int8", quantization=Quantization("dynamic")), HERE, "by scheme static"),
    ]:
        answer = ENGINE.supports(plan, here)
        assert not answer
        assert told in answer.reason
    if ENGINE.needs[0] == "tensorrt_rtx":
        assert "H200 has 9.0" in ENGINE.supports(plan_of("fp32"), hopper).reason


def test_the_capabilities_are_those_that_the_environment_check_names():
    assert tensorrt.RTX_CAPABILITIES == gpu_rules.RTX_CAPABILITIES


def test_loading_refuses_instead_of_pretending(tmp_path):
    with pytest.raises(UnsupportedError, match=r"running TensorRT engines is not there yet.*device=cuda"):
        ENGINE.load(models.get("tiny-cnn"), plan_of("fp32"), tmp_path)

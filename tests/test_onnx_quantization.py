"""ONNX Runtime's quantized plans: what is asked for is what runs, and the census tells."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import small_models
from quantized_graphs import ENGINE, FP32, RANDOM, build, constants, convolutions, plan, with_data

from accel_helpers import environment, models
from accel_helpers.accuracy import TOLERANCE, relative_error
from accel_helpers.device import store_root
from accel_helpers.engines import _onnx_census, _onnx_export, _onnx_quantize, onnx_runtime
from accel_helpers.errors import UnknownNameError, UnsupportedError

STORE = str(store_root())  # the built-in models are there; the other tests have one of their own
HERE = environment.describe()


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.mktemp("store")))
        yield


def cpu_seconds(call, calls=12):
    """The least CPU time of a call, of one thread."""
    times = [time.process_time()]
    for _ in range(calls):
        call()
        times.append(time.process_time())
    return min(np.diff(times))


@pytest.mark.parametrize(
    ("model_name", "more"),
    [
        ("tiny-cnn", {"calibrator": "entropy"}),
        ("tiny-attention", {"calibrator": "percentile"}),
        ("tiny-cnn", {"symmetric": True}),
        ("tiny-attention", {"symmetric": True}),
        ("tiny-cnn", {"per_channel": False}),
        ("tiny-attention", {"per_channel": False}),
    ],
    ids=str,
)
def test_every_way_to_calibrate_answers_like_fp32(model_name, more, tmp_path):
    model = models.get(model_name)
    _, _, right = build(model, FP32, tmp_path / "fp32")
    _, census, answers = build(model, plan("static", reduce_range=True, **more), tmp_path / "int8")
    assert all(one.precision == "int8" for one in census.layers if one.parameters and one.operations)
    assert 0 < relative_error(answers, right) <= TOLERANCE["int8"]


def test_the_census_of_a_hand_made_graph_is_right(tmp_path):
    first, second = RANDOM.normal(size=(4, 8)), RANDOM.normal(size=(8, 4))
    nodes = [
        ("MatMul", ["x", "first"], ["wide"], {}),
        ("Relu", ["wide"], ["positive"], {}),
        ("MatMul", ["positive", "second"], ["narrow"], {"name": "second"}),
        ("Unsqueeze", ["narrow", "last"], ["column"], {}),
        ("Unsqueeze", ["narrow", "middle"], ["row"], {}),
        ("MatMul", ["column", "row"], ["square"], {"name": "activations"}),
        ("ReduceSum", ["square", "last"], ["y"], {"keepdims": 0}),
    ]
    held = [("first", first.astype(np.float32)), ("second", second.astype(np.float32)), ("last", np.array([2])), ("middle", np.array([1]))]
    model = with_data(models.get(small_models.onnx_file(tmp_path / "own.onnx", nodes, held)))
    sizes = {"MatMul_0": (32, 32), "second": (32, 32), "activations": (0, 16)}

    _, census, _ = build(model, FP32, tmp_path / "fp32")
    assert {one.name: (one.parameters, one.operations) for one in census.layers} == sizes
    assert {one.precision for one in census.layers} == {"fp32"}
    assert [one.weight_bytes for one in census.layers] == [128, 128, 0]
    assert (census.share(), census.unfused, census.transitions) == (0, 0, 0)

    _, census, _ = build(model, plan("static"), tmp_path / "int8")
    assert {one.name: (one.parameters, one.operations) for one in census.layers} == sizes
    assert [one.precision for one in census.layers] == ["int8", "int8", "fp32"]
    assert [bool(one.reason) for one in census.layers] == [False, False, True]
    assert census.share() == 64 / 80
    assert all(32 < one.weight_bytes < 128 for one in census.layers[:2])
    assert [one.operator for one in census.layers[:2]] == ["QLinearMatMul", "MatMulIntegerToFloat"]
    assert (census.unfused, census.transitions) == (1, 2), "one quantizer at the entrance, and the second product answers floats"

    _, census, _ = build(model, plan("static", keep=("second",)), tmp_path / "kept")
    assert [one.precision for one in census.layers] == ["int8", "fp32", "fp32"]
    assert "keep" in census.layers[1].reason
    assert (census.unfused, census.transitions) == (2, 2), "into the first product and out of it"


@pytest.mark.parametrize(
    ("asked", "operator"),
    [
        (plan("static", keep=("node_MatMul_9",)), "MatMulIntegerToFloat"),
        (plan("dynamic", keep=("node_MatMul_9",)), "DynamicQuantizeMatMul"),
        (plan("weight_only", keep=("node_MatMul_9",)), "MatMulNBits"),
        (plan("weight_only", "int4", keep=("node_MatMul_9", "node_linear_8")), "MatMulNBits"),
    ],
    ids=["static", "dynamic", "int8 weights", "int4 weights"],
)
def test_what_keep_names_stays_in_float(asked, operator, tmp_path):
    _, census, _ = build(models.get("tiny-attention"), asked, tmp_path)
    weighted = {one.name: one for one in census.layers if one.parameters and one.operations}
    stayed = {name for name, one in weighted.items() if one.precision == "fp32"}
    assert stayed == set(asked.quantization.keep)
    assert {one.operator for name, one in weighted.items() if name not in stayed} <= {operator, "QGemm"}
    assert all("keep" in weighted[name].reason for name in stayed)


def test_a_layer_that_is_not_there_cannot_be_kept(tmp_path):
    with pytest.raises(UnknownNameError, match=r"no layer 'node_conv'.*node_Conv_24"):
        build(models.get("tiny-cnn"), plan("static", keep=("node_conv",)), tmp_path)


def test_the_graph_holds_the_types_and_the_ranges_asked_for(tmp_path):
    model = models.get("tiny-cnn")
    for symmetric, kind in ((False, np.uint8), (True, np.int8)):
        for short, most in ((False, 127), (True, 64)):
            graph, _, _ = build(model, plan("static", symmetric=symmetric, reduce_range=short), tmp_path / f"{symmetric}-{short}")
            held = constants(graph)
            read = {node.input[2] for node in graph.graph.node if node.op_type == "QuantizeLinear"}
            assert read
            assert {held[name].dtype.type for name in read} == {kind}
            assert not symmetric or not any(held[name].any() for name in read)
            weights = [values for name, values in held.items() if name.endswith("_quantized") and "bias" not in name]
            assert len(weights) == 3
            assert {values.dtype.type for values in weights} == {np.int8}
            largest = max(int(np.abs(values.astype(int)).max()) for values in weights)
            assert 0.9 * most < largest <= most


@pytest.mark.parametrize("scheme", ["static", "dynamic"])
def test_a_scale_for_each_output_channel_or_one_for_all(scheme, tmp_path):
    model = models.get("tiny-attention")
    for per_channel in (True, False):
        held = constants(build(model, plan(scheme, per_channel=per_channel), tmp_path / str(per_channel))[0])
        weights = [name.removesuffix("_quantized") for name, values in held.items() if values.dtype == np.int8 and values.ndim == 2]
        assert len(weights) == 9
        for name in weights:
            outputs = held[f"{name}_quantized"].shape[0 if name == "head.weight" else 1]
            assert held[f"{name}_scale"].size == (outputs if per_channel else 1), name


def test_dynamic_weights_keep_to_seven_bits_where_asked(tmp_path):
    for short, most in ((False, 127), (True, 64)):
        held = constants(build(models.get("tiny-attention"), plan("dynamic", reduce_range=short), tmp_path / str(short))[0])
        assert 0.9 * most < max(int(np.abs(values.astype(int)).max()) for values in held.values() if values.dtype == np.int8) <= most


def test_batch_norms_and_biases_join_their_products_before_these_are_quantized(tmp_path):
    model = convolutions(tmp_path / "normed.onnx", 8, normed=True)
    _, _, right = build(model, FP32, tmp_path / "fp32")
    _, census, answers = build(model, plan("static", reduce_range=True), tmp_path / "int8")
    assert [one.operator for one in census.layers] == ["QLinearConv"] * 4 + ["QGemm"]
    assert (census.unfused, census.transitions) == (1, 2), "one quantizer at the entrance; the last product answers floats"
    assert relative_error(answers, right) < 0.1


@pytest.mark.parametrize("symmetric", [False, True], ids=["U8S8", "S8S8"])
@pytest.mark.parametrize("after", ["Relu", "Sigmoid"])
@pytest.mark.parametrize("operator", ["MatMul", "Gemm"])
def test_a_product_alone_runs_in_integers_whatever_follows_it(operator, after, symmetric, tmp_path):
    nodes = [(operator, ["x", "w"], ["product"], {"name": "product"}), (after, ["product"], ["bent"], {}), ("Softmax", ["bent"], ["y"], {})]
    weight = RANDOM.normal(size=(4, 4)).astype(np.float32)
    model = with_data(models.get(small_models.onnx_file(tmp_path / "own.onnx", nodes, [("w", weight)])))
    _, _, right = build(model, FP32, tmp_path / "fp32")
    _, census, answers = build(model, plan("static", symmetric=symmetric, reduce_range=True), tmp_path / "int8")
    assert census.share() == 1
    assert relative_error(answers, right) < 0.05


def test_k1_a_small_network_gains_less_from_integers_than_a_wide_one(tmp_path):
    """Quantizing the input, changing layouts and rescaling cost the same for 4 channels as they do for 128."""
    gains = {}
    for channels in (4, 128):
        model = convolutions(tmp_path / f"{channels}.onnx", channels)
        inputs, spent = model.example(1, 1, 0), {}
        for asked in (FP32, plan("static", reduce_range=True)):
            _, census, _ = build(model, asked, tmp_path / f"{channels}-{asked.precision}")
            with ENGINE.load(model, asked, tmp_path / f"{channels}-{asked.precision}") as session:
                spent[asked.precision] = cpu_seconds(partial(session.run, inputs))
        assert census.share() == 1
        assert (census.unfused, census.transitions) == (1, 2)
        gains[channels] = spent["fp32"] / spent["int8"]
    assert gains[4] < gains[128]


def test_k2_dynamic_quantization_of_convolutions_is_refused_because_it_is_slower(tmp_path):
    from onnxruntime.quantization import quantize_dynamic

    model = convolutions(tmp_path / "own.onnx", 32)
    with pytest.raises(UnsupportedError, match=r"4 of its 5 layers.*ConvInteger.*scheme=static"):
        build(model, plan("dynamic"), tmp_path / "refused")
    with _onnx_export.quiet():
        quantize_dynamic(tmp_path / "own.onnx", tmp_path / "dynamic.onnx")  # what the reporters did
    inputs, spent = model.example(1, 1, 0), {}
    for name in ("own", "dynamic"):
        session = onnx_runtime.open_session(model, FP32, tmp_path / f"{name}.onnx", tmp_path)
        session.run(None, inputs)
        ran = _onnx_census.ran(Path(session.end_profiling()), tmp_path / "optimised.onnx")
        assert sum(one.operator == "ConvInteger" for one in ran) == (4 if name == "dynamic" else 0)
        spent[name] = cpu_seconds(partial(session.run, None, inputs))
    assert spent["dynamic"] > 1.2 * spent["own"]


@pytest.mark.parametrize("scheme", ["static", "dynamic", "weight_only"])
def test_k3_nothing_quantized_is_an_error_that_says_what_stayed(scheme, tmp_path):
    model = with_data(models.get(small_models.onnx_file(tmp_path / "own.onnx", [("Relu", ["x"], ["y"], {})])))
    with pytest.raises(UnsupportedError, match=r"0 % of this model.*no product at all"):
        build(model, plan(scheme), tmp_path / "nothing")
    if scheme != "dynamic":  # refused for its convolutions
        model = convolutions(tmp_path / "convolutions.onnx", 4, layers=1)
        with pytest.raises(UnsupportedError, match=r"0 % of this model.*1 Conv, 1 (Gemm|MatMul)"):
            build(model, plan(scheme, keep=("conv0", "head")), tmp_path / "kept")


def test_k3_integers_that_the_runtime_turns_back_into_floats_count_as_nothing(tmp_path, monkeypatch):
    """A graph full of DequantizeLinear whose product ONNX Runtime computes in FP32: asked for, written, and yet not run."""
    import onnx

    model = with_data(small_models.linear())

    def weights_alone(source, quantization, batches):
        loaded = onnx.load(source)
        for node in _onnx_quantize.weighted(loaded):
            held = next(one for one in loaded.graph.initializer if one.name == node.input[1])
            short = onnx.numpy_helper.from_array((onnx.numpy_helper.to_array(held) * 64).astype(np.int8), held.name)
            held.CopyFrom(short)
            loaded.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1 / 64), f"{held.name} scale"))
            loaded.graph.node.insert(
                0, onnx.helper.make_node("DequantizeLinear", [held.name, f"{held.name} scale"], [f"{held.name} float"])
            )
            node.input[1] = f"{held.name} float"
        return loaded

    monkeypatch.setattr(_onnx_quantize, "static", weights_alone)
    with pytest.raises(UnsupportedError, match=r"quantizes 0 % of the multiplications.*1 FusedGemm: .*dequantizes.*1 Gemm: .*dequantizes"):
        build(model, plan("static"), tmp_path)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (replace(plan("static"), device="cuda"), "few quantized operators in INT8"),
        (plan("static", rest="bf16"), "no BF16 kernels"),
        (plan("dynamic", symmetric=True), "symmetric=false"),
        (plan("weight_only", per_channel=False), "32 values of a channel"),
        (plan("dynamic", "int4"), "by scheme weight_only"),
        (plan("static", "fp8"), "quantizes nothing to FP8"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_cannot_run_is_refused_with_its_reason(asked, reason):
    answer = ENGINE.supports(asked, HERE)
    assert not answer
    assert reason in answer.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_name", "scheme"), [("text-encoder", "static"), ("text-encoder", "dynamic"), ("vision-classifier", "static")]
)
def test_real_models_lose_less_than_a_point(model_name, scheme, tmp_path, monkeypatch):
    """With seven-bit weights, as on processors without VNNI: that is where they lose the most."""
    monkeypatch.setenv("ACCEL_STORE", STORE)
    model, asked = models.get(model_name), plan(scheme, reduce_range=True, **({"calibration": 64} if scheme == "static" else {}))
    build(model, asked, tmp_path)
    validation = model.dataset().validation
    with ENGINE.load(model, replace(asked, threads=2), tmp_path) as session:
        answers = [session(inputs) for inputs, _ in validation.batches(1)]
    outputs = {name: np.concatenate([one[name] for one in answers]) for name in model.outputs}
    assert model.metric.function(outputs, validation.labels) >= model.metric.published - 0.01

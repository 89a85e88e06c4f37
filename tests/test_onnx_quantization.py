"""ONNX Runtime's quantized plans: what is asked for is what runs, the census tells, and calibration fits the memory."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import small_models

from accel_helpers import engines, environment, models
from accel_helpers.accuracy import TOLERANCE, relative_error
from accel_helpers.device import store_root
from accel_helpers.engines import _onnx_calibrate, _onnx_census, _onnx_export, _onnx_quantize, onnx_runtime
from accel_helpers.errors import ModelError, UnknownNameError, UnsupportedError
from accel_helpers.models import Dataset, Split
from accel_helpers.records import Census, Plan, Quantization

STORE = str(store_root())  # the built-in models are there; the other tests have one of their own
ENGINE = engines.get("onnx_runtime")
HERE = environment.describe()
FP32 = Plan("onnx_runtime", sequence=16)
RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.mktemp("store")))
        yield


def plan(scheme, precision="int8", **more):
    more = {"calibration": 16, **more} if scheme == "static" else more
    return replace(FP32, precision=precision, quantization=Quantization(scheme, **more))


def build(model, asked, folder):
    """The built graph, the census and the answers to one batch."""
    import onnx

    folder.mkdir(exist_ok=True)
    census = Census.from_dict(ENGINE.build(model, asked, folder).report["census"])
    with ENGINE.load(model, asked, folder) as session:
        return onnx.load(folder / "model.onnx"), census, session(model.example(2, 16, 3))


def constants(graph):
    import onnx

    return {one.name: onnx.numpy_helper.to_array(one) for one in graph.graph.initializer}


def convolutions(path, channels, layers=4, normed=False):
    """A reader's own file: ``layers`` 3 x 3 convolutions with rectifiers, a mean, and a matrix product with a bias; with data."""
    import onnx
    from onnx import helper

    nodes, kept, last, width = [], {}, "x", 3
    for index in range(layers):
        kept[f"w{index}"] = RANDOM.normal(size=(channels, width, 3, 3), scale=(2 / 9 / width) ** 0.5).astype(np.float32)
        nodes.append(helper.make_node("Conv", [last, f"w{index}"], [f"c{index}"], f"conv{index}", pads=[1, 1, 1, 1]))
        if normed:
            kept |= {f"{name}{index}": np.full(channels, value, np.float32) for name, value in (("s", 2), ("b", 0.5), ("m", 0), ("v", 1))}
            nodes.append(helper.make_node("BatchNormalization", [f"{n}{index}" for n in "csbmv"], [f"n{index}"], f"norm{index}"))
        nodes.append(helper.make_node("Relu", [f"{'n' if normed else 'c'}{index}"], [f"r{index}"], f"relu{index}"))
        last, width = f"r{index}", channels
    kept |= {"head": RANDOM.normal(size=(channels, 4)).astype(np.float32), "bias": np.ones(4, np.float32)}
    nodes += [helper.make_node("GlobalAveragePool", [last], ["mean"]), helper.make_node("Flatten", ["mean"], ["flat"])]
    nodes += [
        helper.make_node("MatMul", ["flat", "head"], ["product"], "head"),
        helper.make_node("Add", ["product", "bias"], ["y"], "bias"),
    ]
    ends = [helper.make_tensor_value_info(name, 1, ["batch", *shape]) for name, shape in (("x", (3, 32, 32)), ("y", (4,)))]
    held = [onnx.numpy_helper.from_array(values, name) for name, values in kept.items()]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return with_data(models.get(str(path)))


def with_data(model, validation=None):
    inputs = {name: np.concatenate([model.example(1, 16, seed)[name] for seed in range(16)]) for name in model.example(1, 16, 0)}
    return replace(model, dataset=lambda: Dataset(Split(inputs, None), Split(inputs, None) if validation is None else validation))


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
    assert census.share("parameters") == 1
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
    weighted = {one.name: one for one in census.layers if one.parameters}
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


def test_calibration_reads_its_own_part_and_no_other(tmp_path):
    class Untouchable(Split):
        def __getattribute__(self, name):
            raise AssertionError("the validation part was read")

    model = with_data(small_models.linear(), validation=Untouchable({}, None))
    graph, _, _ = build(model, plan("static"), tmp_path)
    held, inputs = constants(graph), model.dataset().calibration.inputs["x"]
    least, greatest = min(inputs.min(), 0), max(inputs.max(), 0)
    assert held["x_scale"] == pytest.approx((greatest - least) / 255, rel=1e-5)


def test_a_model_without_data_is_told_which_schemes_need_none(tmp_path):
    with pytest.raises(ModelError, match="scheme=dynamic or weight_only"):
        build(small_models.linear(), plan("static"), tmp_path)
    build(small_models.linear(), plan("dynamic"), tmp_path / "dynamic")


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


MEMORY = """
import json, sys
from pathlib import Path
import numpy as np, onnx
from onnx import helper
from accel_helpers.device import peak_memory
from accel_helpers.device import store_root
from accel_helpers.engines import _onnx_calibrate

count, how, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
source = folder / f"{count}-{how}.onnx"
wide = 2**16
weights = [np.full((4, wide), 0.5, np.float32), np.full((wide, 4), 0.5, np.float32)]
nodes = [("MatMul", ["x", "0"], ["a"]), ("Relu", ["a"], ["b"]), ("MatMul", ["b", "1"], ["y"])]
ends = [[helper.make_tensor_value_info(name, 1, ["batch", 4])] for name in "xy"]
graph = helper.make_graph([helper.make_node(*node) for node in nodes], "graph", *ends,
                          [onnx.numpy_helper.from_array(one, str(index)) for index, one in enumerate(weights)])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), source)
samples = np.random.default_rng(0).normal(size=(count, 1, 4)).astype(np.float32)
found = None
if how.startswith("library"):
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator

    class Reader(CalibrationDataReader):
        left = iter(samples)
        def get_next(self):
            return next(({"x": one} for one in self.left), None)

    calibrator = create_calibrator(source, ["MatMul"], str(folder / f"augmented-{count}.onnx"), CalibrationMethod.Percentile)
    calibrator.collect_data(Reader())
else:
    batches = lambda: ({"x": one} for one in samples)
    predicted = _onnx_calibrate.predicted(source, ["x", "b"], {"x": samples[0]}, how)
    found = {name: [float(one) for one in both] for name, both in _onnx_calibrate.ranges(source, ["x", "b"], batches, how).items()}
print(json.dumps([peak_memory(), found]), file=sys.stderr)
"""


def peak(count, how, folder):
    """Peak memory in bytes of a fresh process that calibrates with so many samples, and the ranges that it found."""
    import os

    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", MEMORY, str(count), how, str(folder)], capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("calibrator", ["minmax", "entropy", "percentile"])
def test_k9_the_memory_of_calibration_does_not_grow_with_the_samples(calibrator, tmp_path):
    (few, _), (many, found) = peak(64, calibrator, tmp_path), peak(512, calibrator, tmp_path)
    assert many <= 1.5 * few
    least, greatest = found["b"]
    assert least == 0
    assert 1 < greatest < 6


def test_k9_the_librarys_own_calibrator_keeps_every_activation(tmp_path):
    """What the bound above is worth: the same graph and samples, a quarter of a mebibyte of activations each."""
    few, many = (peak(count, "library", tmp_path)[0] for count in (64, 512))
    assert many > 1.5 * few


def test_k9_calibration_is_refused_before_it_starts_where_it_would_not_fit(tmp_path, monkeypatch):
    model = convolutions(tmp_path / "own.onnx", 16)
    split = model.dataset().calibration
    need = _onnx_calibrate.predicted(tmp_path / "own.onnx", ["x", "r0", "r1"], next(split.batches(1))[0], "percentile")
    activations, histograms = 4 * 32 * 32 * (3 + 16 + 16), 3 * 2048 * 12
    assert need == activations + histograms + 4 * 32 * 32 * 16
    monkeypatch.setattr(_onnx_calibrate, "_extremes", lambda *_: pytest.fail("it started"))
    monkeypatch.setattr(_onnx_calibrate, "usable_memory", lambda: psutil.Process().memory_info().rss + 2**18)
    with pytest.raises(UnsupportedError, match=r"would need [\d,]+ KiB .* [\d,]+ KiB are free"):
        build(model, plan("static", calibrator="percentile"), tmp_path / "int8")


def test_an_infinite_activation_is_named(tmp_path):
    nodes = [("Log", ["x"], ["logarithm"], {}), ("MatMul", ["logarithm", "w"], ["y"], {})]
    path = small_models.onnx_file(tmp_path / "own.onnx", nodes, [("w", np.eye(4, dtype=np.float32))])
    with pytest.raises(ModelError, match="'logarithm' goes from -inf"):
        _onnx_quantize.static(tmp_path / "own.onnx", Quantization("static"), lambda: [{"x": np.zeros((1, 4), np.float32)}])
    assert path


def test_ranges_from_one_sample_at_a_time_are_those_of_the_library_from_all_at_once(tmp_path):
    from onnxruntime.quantization.calibrate import HistogramCollector

    small_models.onnx_file(tmp_path / "own.onnx", [("MatMul", ["x", "w"], ["y"], {})], [("w", np.eye(4, dtype=np.float32))])
    values = np.random.default_rng(0).laplace(size=(16, 20000, 4)).astype(np.float32)
    values[3, 7, 2] = 50

    def found(calibrator):
        return _onnx_calibrate.ranges(tmp_path / "own.onnx", ["x"], lambda: ({"x": one} for one in values), calibrator)["x"]

    assert found("minmax") == (values.min(), 50)
    for calibrator, bins in _onnx_calibrate.BINS.items():
        whole = HistogramCollector(calibrator, False, bins, _onnx_calibrate.LEVELS, _onnx_calibrate.PERCENTILE, "same")
        whole.collect({"x": values})
        expected = whole.compute_collection_result()["x"]
        assert list(found(calibrator)) == pytest.approx([float(one) for one in expected[:2]], rel=1e-5)
    assert found("percentile")[1] < 20, "the outlier is cut"


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

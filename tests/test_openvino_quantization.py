"""OpenVINO quantized by NNCF: what runs in which type, what was refused, and what accuracy control took back."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import small_models

from accel_helpers import engines, environment, models
from accel_helpers.accuracy import TOLERANCE, evaluate, relative_error
from accel_helpers.errors import ModelError, UnknownNameError, UnsupportedError
from accel_helpers.models import Dataset, Metric, Split
from accel_helpers.records import Census, Plan, Quantization

ENGINE = engines.get("openvino")
HERE = environment.describe()
STATIC = Quantization("static", calibration=16, reduce_range=True)
WEIGHTS = Quantization("weight_only")


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        yield


def plan_of(quantization, precision="int8"):
    return Plan("openvino", precision if quantization else "fp32", batch=2, sequence=16, quantization=quantization)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build once: (model name, quantization, precision) -> (plan, folder, Built, Census)."""
    made = {}

    def get(model, quantization, precision="int8"):
        key = model, quantization, precision
        if key not in made:
            plan, folder = plan_of(quantization, precision), tmp_path_factory.mktemp("built")
            answer = ENGINE.build(models.get(model), plan, folder)
            made[key] = plan, folder, answer, Census.from_dict(answer.report["census"])
        return made[key]

    return get


def layers(census):
    return {layer.name: layer for layer in census.layers}


@pytest.mark.parametrize("model", ["tiny-cnn", "tiny-attention"])
def test_static_int8_runs_every_product_in_integers_and_answers_right(model, built):
    plan, folder, answer, census = built(model, STATIC)
    multiplying = [layer for layer in census.layers if layer.operations]
    assert {layer.precision for layer in multiplying} == {"int8"}
    assert all(layer.weight_bytes == layer.parameters for layer in multiplying), "a byte for each weight, none for a product of activations"
    assert census.share() == 1
    assert answer.report["types"]["int8"] >= len(multiplying)
    assert census.transitions >= census.unfused >= 1, "something must turn the first float into a byte"
    inputs, run = models.get(model).example(2, 16, 3), {}
    for quantization in (None, STATIC):
        wanted, files = (plan, folder) if quantization else built(model, None)[:2]
        with ENGINE.load(models.get(model), wanted, files) as session:
            run[quantization] = session(inputs)
            assert evaluate(session, models.get(model)).value >= 0.99
    assert 0 < relative_error(run[STATIC], run[None]) <= TOLERANCE["int8"]


def test_the_census_counts_what_the_networks_hold(built):
    cnn, attention = (layers(built(model, None)[3]) for model in ("tiny-cnn", "tiny-attention"))
    network = models.get("tiny-cnn").build()
    weights = [value.numel() for name, value in network.named_parameters() if value.ndim > 1]
    assert sorted(layer.parameters for layer in cnn.values()) == sorted(weights)
    assert [layer.operations for layer in cnn.values()] == [16 * 16 * 16 * 3 * 9, 8 * 8 * 32 * 16 * 9, 4 * 512]
    assert {layer.precision for layer in (*cnn.values(), *attention.values())} == {"fp32"}
    assert not any(layer.reason for layer in attention.values()), "nothing was asked to be quantized"
    products = [layer for layer in attention.values() if not layer.parameters]
    assert len(products) == 4
    assert {layer.operations for layer in products} == {16 * 16 * 64}, "one item at the plan's length: heads x 16 x 16 x 16"


def test_depthwise_and_transposed_convolutions_are_counted_by_group(out):
    import openvino

    def build():
        import torch

        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(8, 8, 3, padding=1, groups=8), torch.nn.Conv2d(8, 4, 1), torch.nn.ConvTranspose2d(4, 6, 2, stride=2)
        )

    model = small_models.of(lambda: _one_input(build()), "convolutions", shape=(8, 10, 10))
    census = Census.from_dict(ENGINE.build(model, Plan("openvino", batch=3), out).report["census"])
    assert [(layer.parameters, layer.operations) for layer in census.layers] == [(72, 7200), (32, 3200), (96, 9600)]
    kinds = {node.get_type_name() for node in openvino.Core().read_model(out / "model.xml").get_ops()}
    assert not kinds & {"Reshape", "ShapeOf"}, "a bias that is computed from a constant is none to NNCF, and goes uncorrected"


def _one_input(layers):
    import torch

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            return self.layers(x)

    return Network()


@pytest.mark.parametrize(("precision", "bits"), [("int8", 8), ("int4", 4)])
def test_weight_only_keeps_the_arithmetic_in_float_and_says_so(precision, bits, built):
    plan, folder, answer, census = built("tiny-attention", WEIGHTS, precision)
    linear = [layer for layer in census.layers if layer.parameters and layer.operations]
    short = [layer for layer in linear if layer.precision == f"{precision} weights"]
    assert len(short) >= len(linear) - 1, "NNCF keeps the last layer in eight bits"
    assert all(layer.weight_bytes == layer.parameters * bits // 8 for layer in short)
    assert {layer.precision for layer in census.layers if layer.operations and not layer.parameters} == {"fp32"}
    assert all("activations" in layer.reason for layer in census.layers if not layer.parameters)
    assert answer.report["types"][precision] == len(short)
    with ENGINE.load(models.get("tiny-attention"), plan, folder) as session:
        assert evaluate(session, models.get("tiny-attention")).value >= 0.99
        beyond = {"input_ids": np.full((1, 16), 5000), "attention_mask": np.ones((1, 16), np.int64)}
        with pytest.raises(ModelError, match="rows of a table"):
            session(beyond)


def test_weight_only_is_not_turned_into_dynamic_quantization(built):
    """With VNNI, OpenVINO quantizes the activations of compressed layers on the fly unless told otherwise."""
    plan, folder = built("tiny-attention", WEIGHTS)[:2]
    asked = {}
    with pytest.MonkeyPatch.context() as patch:
        import openvino

        compile_model = openvino.Core.compile_model
        patch.setattr(openvino.Core, "compile_model", lambda self, g, d, s: asked.update(s) or compile_model(self, g, d, s))
        ENGINE.load(models.get("tiny-attention"), plan, folder).close()
    assert asked["DYNAMIC_QUANTIZATION_GROUP_SIZE"] == 0


def test_zero_percent_quantized_is_an_error_that_says_what_stayed(out):
    model = small_models.of(lambda: _one_input(_convolution()), "convolution", shape=(3, 8, 8))
    with pytest.raises(UnsupportedError, match=r"No multiplication of convolution runs in INT8.*1 of Convolution.*unfolds"):
        ENGINE.build(model, plan_of(WEIGHTS), out)


def _convolution():
    import torch

    return torch.nn.Conv2d(3, 16, 3)


def test_the_layers_in_keep_stay_and_are_named_as_the_census_names_them(built, tmp_path):
    names = [layer.name for layer in built("tiny-cnn", None)[3].layers]
    kept = layers(built("tiny-cnn", replace(STATIC, keep=(names[1],)))[3])
    assert kept[names[1]].precision == "fp32"
    assert kept[names[1]].reason == "kept by request"
    assert kept[names[0]].precision == kept[names[2]].precision == "int8"
    with pytest.raises(UnknownNameError, match=r"no layer 'node_Konv'.*node_Conv"):
        ENGINE.build(models.get("tiny-cnn"), plan_of(replace(STATIC, keep=("node_Konv",))), tmp_path)


def test_each_way_to_calibrate_reaches_nncf(built):
    """Seven bits, one scale a tensor, symmetric bytes and percentiles each give other weights or other ranges."""
    ways = [STATIC, *(replace(STATIC, **change) for change in ({"reduce_range": False}, {"per_channel": False}, {"symmetric": True}))]
    ways.append(replace(STATIC, calibrator="percentile"))
    folders = [built("tiny-cnn", way)[1] for way in ways]
    files = {(folder / "model.bin").read_bytes() + (folder / "model.xml").read_bytes() for folder in folders}
    assert len(files) == len(ways)


def test_what_nncf_lacks_is_refused_before_anything_is_built():
    for chosen, precision, told in [
        (replace(STATIC, calibrator="entropy"), "int8", "no entropy calibrator"),
        (replace(WEIGHTS, per_channel=False), "int8", "its own scale"),
        (Quantization("dynamic"), "int8", "static or accuracy_control or weight_only"),
        (STATIC, "int4", "weight_only"),
        (STATIC, "fp8", "nothing to FP8"),
    ]:
        answer = ENGINE.supports(Plan("openvino", precision, quantization=chosen), HERE)
        assert not answer
        assert told in answer.reason
    old, new = replace(HERE, isa=("avx2",)), replace(HERE, isa=("avx2", "avx512_bf16"))
    rest = Plan("openvino", "int8", quantization=replace(STATIC, rest="bf16"))
    assert not ENGINE.supports(rest, old)
    assert ENGINE.supports(rest, new)
    assert ENGINE.supports(Plan("openvino", "int8", quantization=STATIC), old)


def test_static_without_data_says_what_is_missing(out):
    with pytest.raises(ModelError, match="no data to calibrate with"):
        ENGINE.build(small_models.linear(), plan_of(STATIC), out)


def outlier():
    """Three layers; of the values between the first two, one is a thousand times larger than the others, and the answer hardly uses it."""

    def build():
        import torch

        torch.manual_seed(0)
        linear = [torch.nn.Linear(*sizes, bias=False) for sizes in ((16, 32), (32, 32), (32, 4))]
        with torch.no_grad():
            linear[0].weight[0] *= 3000
            linear[1].weight[:, 0] *= 1e-6
        return _one_input(torch.nn.Sequential(linear[0], torch.nn.ReLU(), linear[1], torch.nn.ReLU(), linear[2]))

    import torch

    x = np.random.default_rng(1).normal(size=(128, 16)).astype(np.float32)
    with torch.inference_mode():
        labels = build()(torch.from_numpy(x)).numpy().argmax(axis=1)
    metric = Metric("top-1", lambda outputs, labels: float((outputs["logits"].argmax(axis=1) == labels).mean()))
    part = Split({"x": x}, labels)
    model = small_models.of(build, "outlier", shape=(16,), outputs=("logits",))
    return replace(model, dataset=lambda: Dataset(part, part), metric=metric)


def test_accuracy_control_takes_back_what_costs_more_than_a_point(tmp_path):
    model, plan = outlier(), plan_of(replace(STATIC, calibration=64))
    for scheme in ("static", "accuracy_control"):
        (tmp_path / scheme).mkdir()
    static = ENGINE.build(model, plan, tmp_path / "static")
    controlled = replace(plan, quantization=replace(plan.quantization, scheme="accuracy_control"))
    report = ENGINE.build(model, controlled, tmp_path / "accuracy_control").report
    control = report["accuracy_control"]
    assert control["fp32"] == 1
    assert control["quantized"] < 0.9, "quantized whole, it must hurt, or this proves nothing"
    assert control["reached"]
    assert control["left"] >= control["fp32"] - 0.01
    census = layers(Census.from_dict(report["census"]))
    assert list(census)[1] in control["reverted"], "the layer that reads the large value"
    assert {(census[name].precision, census[name].reason) for name in control["reverted"]} == {("fp32", "accuracy control took it back")}
    assert 0 < Census.from_dict(report["census"]).share() < Census.from_dict(static.report["census"]).share()
    with ENGINE.load(model, controlled, tmp_path / "accuracy_control") as session:
        assert evaluate(session, model).value >= 0.99


def test_accuracy_control_is_not_steered_by_the_validation_part(out):
    model = outlier()
    unlabelled = Dataset(Split(model.dataset().calibration.inputs, None), model.dataset().validation)
    with pytest.raises(UnsupportedError, match=r"outlier has no labels in its calibration part.*Choose scheme=static"):
        ENGINE.build(replace(model, dataset=lambda: unlabelled), plan_of(replace(STATIC, scheme="accuracy_control")), out)


CALIBRATE = """
import resource, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from accel_helpers import engines, models
from accel_helpers.models import Dataset, Split
from accel_helpers.records import Plan, Quantization
data = Split({"pixel_values": np.random.default_rng(0).normal(size=(512, 3, 32, 32)).astype(np.float32)}, None)
model = replace(models.get("tiny-cnn"), dataset=lambda: Dataset(data, data))
peaks = []
for count in (64, 512):
    quantization = Quantization("static", calibration=count, calibrator="percentile")
    engines.get("openvino").build(model, Plan("openvino", "int8", batch=2, quantization=quantization), Path(sys.argv[1]))
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(*peaks, type(sys.modules["nncf.telemetry.wrapper"].telemetry).__name__)
"""


def test_512_samples_need_at_most_one_and_a_half_times_the_memory_of_64_and_nncf_prints_and_reports_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", CALIBRATE, str(tmp_path)], capture_output=True, text=True, check=True)
    few, many, telemetry = done.stdout.split()
    assert int(many) <= 1.5 * int(few)
    assert telemetry == "MagicMock"
    assert done.stderr == ""

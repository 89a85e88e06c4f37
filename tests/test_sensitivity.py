import dataclasses
from pathlib import Path

import numpy as np
import pytest
import small_models

from accel_helpers import models
from accel_helpers.errors import ModelError, UnknownNameError, UnsupportedError
from accel_helpers.intervals import Estimate
from accel_helpers.models import Dataset, Split, metrics
from accel_helpers.quantize import _observed, compared, sensitivity
from accel_helpers.quantize._graph import Graph, groups
from accel_helpers.quantize._simulated import Simulated, places, rounded, scale
from accel_helpers.records import Quantization, Score

STATIC = Quantization("static", calibration=64)


@pytest.fixture(scope="module")
def attention():
    return sensitivity.layer_noise(models.get("tiny-attention"), STATIC, 16)


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    """A model that is one matrix product and its data: x (batch, 4) times W (4, 4)."""
    weight = np.random.default_rng(3).normal(size=(4, 4)).astype(np.float32)
    file = tmp_path_factory.mktemp("product") / "product.onnx"
    path = small_models.onnx_file(file, [("MatMul", ["x", "W"], ["y"], {"name": "product"})], [("W", weight)])
    inputs = np.random.default_rng(4).normal(size=(60, 4)).astype(np.float32)
    labels = (inputs @ weight).argmax(axis=1)
    data = Dataset(Split({"x": inputs[:40]}, labels[:40]), Split({"x": inputs[40:]}, labels[40:]))
    model = dataclasses.replace(models.get(path), dataset=lambda: data, metric=metrics.classification(output="y"))
    return model, weight


def graph(nodes, constants):
    from onnx import helper, numpy_helper

    made = [helper.make_node(operator, inputs, outputs, name=outputs[0], **options) for operator, inputs, outputs, options in nodes]
    tensors = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    return Graph(helper.make_graph(made, "graph", [], [], tensors))


def test_every_layer_of_a_transformer_is_found_and_grouped(attention):
    counts = {one.name: len(one.layers) for one in attention.groups}
    assert counts == {
        "embeddings": 2,
        "layer norm": 5,
        "attention projections": 4,
        "attention products": 4,
        "softmax": 2,
        "feed-forward": 4,
        "head": 1,
        "first layer": 1,
        "last layer": 1,
        "attention products and softmax": 6,
        "layers with weights": 9,
        "weights": 22,
        "activations": 22,
    }


def test_convolutions_are_told_from_depthwise_ones():
    nodes = [
        ("Conv", ["x", "full"], ["a"], {}),
        ("Conv", ["a", "each"], ["b"], {"group": 8}),
        ("Gemm", ["b", "last"], ["c"], {"transB": 1}),
        ("Softmax", ["c"], ["d"], {}),
    ]
    shapes = {"full": (8, 3, 3, 3), "each": (8, 1, 3, 3), "last": (5, 8)}
    found = graph(nodes, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    assert [(one.group, one.axis) for one in found.layers] == [
        ("convolutions", 0),
        ("depthwise convolutions", 0),
        ("head", 0),
        ("final softmax", None),
    ]
    assert groups(found.layers)["last layer"] == ("c",)


def test_a_weight_is_seen_through_a_transpose_and_on_the_left():
    nodes = [("Transpose", ["W"], ["T"], {}), ("MatMul", ["x", "T"], ["y"], {}), ("MatMul", ["W", "y"], ["z"], {})]
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    first, second = graph(nodes, {"W": weight}).layers
    assert np.array_equal(first.weight, weight.T)
    assert (first.inputs, first.axis) == (("x",), 1)
    assert (second.inputs, second.place, second.axis) == (("y",), 0, 0)


def test_nothing_is_rounded_where_no_place_is_named():
    model = models.get("tiny-attention")
    inputs = next(model.dataset().validation.batches(8))[0]
    import torch

    with Simulated(model) as simulated, torch.inference_mode():
        right = model.build()(**{name: torch.from_numpy(values) for name, values in inputs.items()}).numpy()
        assert np.allclose(simulated.run(inputs)["logits"], right, atol=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_rounded_product_is_what_integers_would_give(product, symmetric, per_channel):
    model, weight = product
    inputs = np.random.default_rng(5).normal(size=(7, 4)).astype(np.float32)
    step, zero = scale(-2.5, 3.0, symmetric)
    integers = np.clip(np.rint(inputs / step) + zero, 0, 255) - zero
    steps = np.abs(weight).max(axis=0 if per_channel else None, keepdims=True) / 127
    expected = (integers @ np.rint(weight / steps)) * step * steps
    with Simulated(model) as simulated:
        simulated.calibrate({"x": scale(-2.5, 3.0, symmetric)}, dataclasses.replace(STATIC, symmetric=symmetric, per_channel=per_channel))
        assert np.allclose(simulated.run({"x": inputs}, places(simulated.layers))["y"], expected, atol=1e-5)
        weights_only = simulated.run({"x": inputs}, places(simulated.layers, ("weights",)))["y"]
        assert np.allclose(weights_only, inputs @ (np.rint(weight / steps) * steps), atol=1e-5)


def test_seven_bits_leave_twice_the_step():
    weight = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    fine, coarse = (
        np.square(rounded(weight, 1, dataclasses.replace(STATIC, reduce_range=short)) - weight).mean() for short in (False, True)
    )
    assert 3 < coarse / fine < 5  # noise power goes with the square of the step


def test_ranges_are_those_of_the_calibration_samples(product):
    model, _ = product
    seen = sensitivity.ranges(model, dataclasses.replace(STATIC, calibration=24))
    from accel_helpers import calibration

    values = calibration.samples(model, dataclasses.replace(STATIC, calibration=24)).inputs["x"]
    (one,) = seen
    assert (one.tensor, one.layers, one.samples) == ("x", ("product",), 24)
    assert (one.low, one.high) == (values.min(), values.max())
    assert one.percentiles == pytest.approx(np.percentile(values, _observed.PERCENTILES), rel=1e-6)
    assert one.outliers > 1


def test_masked_scores_are_no_part_of_a_range():
    seen = sensitivity.ranges(models.get("tiny-attention"), STATIC)
    scores = [one for one in seen if any("Softmax" in layer for layer in one.layers)]
    assert scores
    assert all(-1e3 < one.low <= one.high < 1e3 for one in scores)


def test_figures_come_from_samples_that_no_range_was_taken_from():
    model = models.get("tiny-attention")
    seen, judged = _observed.samples(model, STATIC, 24)
    rows = {row.tobytes() for row in seen.inputs["input_ids"]}
    assert (len(seen), len(judged)) == (64, 24)
    assert not any(row.tobytes() in rows for row in judged.inputs["input_ids"])


def test_a_small_calibration_part_is_shared_between_ranges_and_figures(product):
    seen, judged = _observed.samples(product[0], STATIC, 24)
    assert (len(seen), len(judged)) == (20, 20)


def test_noise_of_a_layer_alone_is_part_of_the_noise_of_all(attention):
    assert len(attention.everything) == 16
    assert attention.calibrated == 64
    assert all(len(one.alone) == len(one.accumulated) == 16 for one in attention.layers)
    assert 20 < attention.snr < min(one.alone_snr for one in attention.layers)
    assert attention.worst[0].alone_snr == min(one.alone_snr for one in attention.layers)
    every, weights, activations = (attention.group(name) for name in ("layers with weights", "weights", "activations"))
    assert every.alone_snr > attention.snr
    assert (weights.alone, weights.spared) == (activations.spared, activations.alone)


def test_multiplications_are_counted_for_one_item(attention):
    head = next(one for one in attention.layers if one.group == "head")
    assert head.operations == 64 * 4
    per_token = {"attention projections": 64 * 3 * 64, "feed-forward": 64 * 4 * 64}
    for group, each in per_token.items():
        first = next(one for one in attention.layers if one.group == group)
        assert first.operations % each == 0
        assert 16 <= first.operations // each <= 64  # tokens


def test_what_is_left_in_float_adds_no_noise(attention):
    left = sensitivity.layer_noise(models.get("tiny-attention"), STATIC, 16, leave=("layer norm", "embeddings"))
    assert left.snr > attention.snr
    assert {one.group for one in left.layers}.isdisjoint({"layer norm", "embeddings"})
    with pytest.raises(UnknownNameError, match="layer norms"):
        sensitivity.layer_noise(models.get("tiny-attention"), STATIC, 16, leave=("layer norms",))


def test_a_record_survives_json(attention):
    assert sensitivity.Sensitivity.from_json(attention.to_json()) == attention


def test_every_calibrator_gives_scales(product):
    model, _ = product
    found = {}
    with Simulated(model) as simulated:
        for calibrator in ("minmax", "percentile", "entropy"):
            chosen = dataclasses.replace(STATIC, calibrator=calibrator)
            found[calibrator] = _observed.scales(simulated, chosen, _observed.samples(model, chosen, 8)[0])["x"].step
    assert 0 < found["entropy"] <= found["minmax"]
    assert 0 < found["percentile"] <= found["minmax"]


def noises(alone, spared, samples=40):
    """A made-up Sensitivity: group -> mean noise alone and spared; a tenth of it varies from sample to sample."""
    varied = 1 + 0.1 * np.random.default_rng(0).normal(size=samples)
    spread = {name: tuple(varied * noise) for name, noise in alone.items()}
    left = {name: tuple(varied * noise) for name, noise in spared.items()}
    layers = tuple(sensitivity.LayerNoise(name, "MatMul", name, 10, (0.1,), spread[name]) for name in alone)
    joint = sensitivity.BOTH
    parts = [sensitivity.GroupNoise(name, (name,), spread.get(name, left[name]), left[name]) for name in (*alone, joint)]
    return sensitivity.Sensitivity("made up", STATIC, 64, layers, tuple(parts), tuple(varied * 1.0))


def test_attention_that_brings_the_noise_is_called_the_sensitive_part():
    alone = {"attention products": 0.6, "softmax": 0.2, "feed-forward": 0.2}
    spared = {"attention products": 0.4, "softmax": 0.8, "feed-forward": 0.8, sensitivity.BOTH: 0.2}
    part = sensitivity.sensitive_part(noises(alone, spared))
    assert part.attention.value == pytest.approx(0.8)
    assert part.attention.low <= 0.8 <= part.attention.high
    assert part.attention_repaired.value == pytest.approx(0.8)
    assert part.worst == "attention products"
    assert part.operations == pytest.approx(2 / 3)
    assert (part.loss, part.attention_gain) == (None, None)


def test_attention_that_brings_none_is_not():
    alone = {"attention products": 0.01, "layer norm": 0.99}
    spared = {"attention products": 0.99, "layer norm": 0.01, sensitivity.BOTH: 0.99}
    part = sensitivity.sensitive_part(noises(alone, spared))
    assert part.attention.high < 0.05
    assert part.worst == "layer norm"
    assert part.repaired["layer norm"].low > 0.9


def test_a_model_without_attention_has_no_share_of_it():
    part = sensitivity.sensitive_part(sensitivity.layer_noise(models.get("tiny-cnn"), STATIC, 16))
    assert part.attention == Estimate(0.0, 0.0, 0.0)
    assert part.attention_repaired == Estimate(0.0, 0.0, 0.0)
    assert sum(share.value for share in part.shares.values()) == pytest.approx(1)


def test_what_the_samples_disagree_on_widens_the_interval():
    narrow = noises({"attention products": 0.5, "head": 0.5}, {"attention products": 0.5, "head": 0.5, sensitivity.BOTH: 0.5})
    one, other = narrow.groups[:2]
    uneven = tuple(noise * (2 if index % 2 else 0.1) for index, noise in enumerate(one.alone))
    wide = dataclasses.replace(narrow, groups=(dataclasses.replace(one, alone=uneven), other, *narrow.groups[2:]))
    widths = [part.attention.high - part.attention.low for part in map(sensitivity.sensitive_part, (narrow, wide))]
    assert widths[0] < 0.001 < 0.05 < widths[1]


def test_the_task_metric_of_each_group_keeps_its_outcomes(product):
    found = sensitivity.group_scores(product[0], STATIC, 20)
    assert found.float32.value == 1.0
    assert len(found.everything.outcomes) == 20
    assert found.group("weights").alone.samples == 20
    change = found.change(found.everything)
    assert change.low <= 0 <= change.high
    part = sensitivity.sensitive_part(sensitivity.layer_noise(product[0], STATIC, 16), found)
    assert part.loss == change
    assert sensitivity.Scores.from_json(found.to_json()) == found


def test_only_the_groups_asked_for_are_scored(product):
    found = sensitivity.group_scores(product[0], STATIC, 20, only=("weights",))
    assert [one.name for one in found.groups] == ["weights"]
    with pytest.raises(UnknownNameError, match="wights"):
        sensitivity.group_scores(product[0], STATIC, 20, only=("wights",))


def test_a_metric_that_falls_is_seen():
    right, wrong = Score("accuracy", 1.0, 50, (1,) * 50), Score("accuracy", 0.5, 50, (1, 0) * 25)
    change = sensitivity.Scores(right, wrong, ()).change(wrong)
    assert change.value == -0.5
    assert change.high < -0.3


def test_the_layers_of_a_built_file_are_compared_with_the_original(out):
    from accel_helpers.engines import _onnx_export, _onnx_quantize

    model = models.get("tiny-attention")
    _onnx_export.export(model, out)
    _, judged = _observed.samples(model, STATIC, 16)
    same = compared.layer_errors(model, out / _onnx_export.FILE, judged)
    assert {one.snr for one in same} == {float("inf")}
    _onnx_quantize.quantize(model, STATIC, 8, out)
    found = compared.layer_errors(model, out / _onnx_export.FILE, judged)
    products = [one for one in found if one.operator in ("MatMul", "Gemm")]
    assert len(products) == 13
    assert all(20 < one.snr < 60 for one in products)


def test_a_convolution_whose_rectifier_became_saturation_is_compared_behind_it(out):
    from accel_helpers.engines import _onnx_export, _onnx_quantize

    model = models.get("tiny-cnn")
    _onnx_export.export(model, out)
    _onnx_quantize.quantize(model, STATIC, 8, out)
    found = compared.layer_errors(model, out / _onnx_export.FILE, _observed.samples(model, STATIC, 16)[1])
    assert [one.operator for one in found] == ["Conv", "Conv", "Gemm"]
    assert all(25 < one.snr < 60 for one in found)


def test_a_file_of_another_model_shares_no_layer(product, tmp_path):
    path = small_models.onnx_file(tmp_path / "other.onnx", [("Relu", ["x"], ["y"], {})])
    part = product[0].dataset().validation
    with pytest.raises(UnsupportedError, match="shares no layer"):
        compared.layer_errors(models.get("tiny-cnn"), Path(path), part)


def test_what_cannot_be_analysed_says_why(product, tmp_path):
    model, _ = product
    with pytest.raises(UnsupportedError, match="scheme=static"):
        sensitivity.layer_noise(model, Quantization("dynamic"))
    with pytest.raises(ModelError, match="no data"):
        sensitivity.layer_noise(dataclasses.replace(model, dataset=None), STATIC)
    with pytest.raises(ModelError, match="no labelled data"):
        sensitivity.group_scores(dataclasses.replace(model, metric=None), STATIC)
    relu = models.get(small_models.onnx_file(tmp_path / "relu.onnx", [("Relu", ["x"], ["y"], {})]))
    with pytest.raises(ModelError, match="nothing to quantize"):
        sensitivity.layer_noise(dataclasses.replace(relu, dataset=model.dataset), STATIC)
    few = Split({"x": np.zeros((3, 4), np.float32)}, None)
    with pytest.raises(ModelError, match="holds 3 samples"):
        sensitivity.ranges(dataclasses.replace(model, dataset=lambda: Dataset(few, few)), STATIC)

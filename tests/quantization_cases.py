"""Quantized models with one known fault each, and healthy ones that look suspicious: small ONNX graphs, quantized by hand.

Every builder takes an empty folder and answers a Case. Files, census, weights and activations are real; the processor is simulated
(:class:`Processor`), so that a case is the same on every machine.
"""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from machines import AMX, GRAVITON3, OLD_LAPTOP
from onnx import helper, numpy_helper

from accel_helpers import models
from accel_helpers.engines import _onnx_census, onnx_runtime
from accel_helpers.models import Dataset, Model, Split
from accel_helpers.quantize import Evidence, Rate, examine
from accel_helpers.records import Census, Environment, Plan, Quantization, Verdict

RELU = ("Relu", {})


@dataclass
class Case:
    """``evidence`` holds no verdict; ``fault`` is what goes wrong, as a figure, ``limit`` what it would be at most without the fault."""

    evidence: Evidence
    fault: float
    limit: float
    files: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Processor:
    """Multiplications a second in each kind, and what a call of an integer kernel costs on top."""

    environment: Environment
    fp32: float = 45e9
    unsigned: float = 130e9
    signed: float = 130e9
    call: float = 12e-6
    value: float = 1e-9  # seconds to quantize or dequantize one value
    saturates: bool = False

    def rate(self, layer, operations, values):
        def series(seconds):  # the same 1 % of noise in every series
            return tuple(seconds * (1 + 0.01 * (index % 3)) for index in range(7))

        boundary = 4e-6 + values * self.value
        unsigned = self.call + operations / self.unsigned
        return Rate(
            layer,
            1,
            fp32=series(3e-6 + operations / self.fp32),
            unsigned=series(unsigned),
            signed=series(self.call + operations / self.signed),
            dynamic=series(unsigned + 2 * boundary + 4 * values * self.value),
            boundary=series(boundary),
        )


VNNI = Processor(AMX)
NO_CALL = replace(VNNI, call=0.0)  # the same with layers as large as one likes
AVX2 = Processor(OLD_LAPTOP, unsigned=85e9, signed=15e9, saturates=True)  # ratios as ONNX Runtime 1.32 has them on Zen 3
PLAIN = Processor(replace(OLD_LAPTOP, isa=()), unsigned=42e9, signed=40e9)
ARM = Processor(GRAVITON3, signed=130e9)


def weights(*shape, seed=0):
    fan = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
    return (np.random.default_rng(seed).normal(size=shape) * (2 / fan) ** 0.5).astype(np.float32)


SPREAD = np.geomspace(1, 1 / 60, 32).astype(np.float32)


def network(path, layers, shape):
    """Save an ONNX graph from ``x`` (batch, *shape) to ``y``.

    A layer is a four-dimensional weight (a convolution, padded to keep the size, grouped where its second axis says so), a matrix (a linear
    layer), or the name of an operator with its attributes.
    """
    nodes, constants, value, channels = [], [], "x", shape[0]
    for index, layer in enumerate(layers):
        answer = "y" if index == len(layers) - 1 else f"v{index}"
        if isinstance(layer, tuple):
            nodes.append(helper.make_node(layer[0], [value, *layer[2:]], [answer], f"{layer[0].lower()}{index}", **layer[1]))
        else:
            constants.append(numpy_helper.from_array(layer, f"w{index}"))
            convolution = layer.ndim == 4
            options = {"pads": [layer.shape[2] // 2] * 4, "group": channels // layer.shape[1]} if convolution else {}
            name = f"conv{index}" if convolution else f"linear{index}"
            nodes.append(helper.make_node("Conv" if convolution else "MatMul", [value, f"w{index}"], [answer], name, **options))
            channels = len(layer)
        value = answer
    return save(path, nodes, constants, [("x", 1, ["batch", *shape])])


def save(path, nodes, constants, inputs):
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info("y", 1, None)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def normal(shape, count=8, seed=0, scale=1.0):
    draw = np.random.default_rng(seed)
    return [{"x": (scale * draw.normal(size=(1, *shape))).astype(np.float32)} for _ in range(count)]


def static(source, data, quantization, operator_format=False, operators=None):
    """The file beside ``source``, quantized by ONNX Runtime."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.samples = iter(data)

        def get_next(self):
            return next(self.samples, None)

    target = source.with_name("int8.onnx")
    quantize_static(
        source,
        target,
        Reader(),
        quant_format=QuantFormat.QOperator if operator_format else QuantFormat.QDQ,
        op_types_to_quantize=operators or ["Conv", "MatMul", "Relu"],
        per_channel=quantization.per_channel,
        reduce_range=quantization.reduce_range,
        activation_type=QuantType.QInt8 if quantization.symmetric else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": quantization.symmetric},
    )
    return target


def dynamic(source, operators, quantization):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = source.with_name("int8.onnx")
    kind = QuantType.QUInt8 if "Conv" in operators else QuantType.QInt8  # ConvInteger has no kernel for signed weights
    quantize_dynamic(source, target, operators, quantization.per_channel, quantization.reduce_range, kind)
    return target


def census_of(reference, built, plan):
    """As the engine takes it from a profiled call; of a file in which nothing is quantized too."""
    model = models.get(str(reference))
    found = _onnx_census.products(reference, model.example(1, plan.sequence, 0))
    return onnx_runtime.inspect(model, plan, built, found)[1]


def looked_at(reference, built, samples, quantization, processor, *, precision="int8", **known):
    """The evidence of a pair of files on a simulated processor."""
    plan = Plan("onnx_runtime", precision, threads=1, quantization=quantization)
    census = known.pop("census", None) or census_of(reference, built or reference, plan)
    evidence = Evidence(str(reference), plan, processor.environment, census, **known)
    evidence = examine(evidence, reference, samples, built, timed=False)
    values = samples[0]["x"].size
    rates = [processor.rate(one.name, one.operations, values * max(1, len(census.layers) // 2)) for one in census.layers if one.parameters]
    large = replace(processor.rate("", 256**3, 256**2), layer="")
    return replace(evidence, rates=(*rates, large), saturates=processor.saturates) if quantization else evidence


def error(evidence):
    assert evidence.error is not None
    return evidence.error


def seconds(evidence, kind):
    return sum(one.count * min(getattr(one, kind)) for one in evidence.measured)


STATIC = Quantization("static", calibration=8)
REDUCED = replace(STATIC, reduce_range=True)
IMAGE = (3, 32, 32)


def convolutions(folder, channels, size=3):
    layers = [
        weights(channels, 3, size, size),
        RELU,
        *(part for seed in (1, 2) for part in (weights(channels, channels, size, size, seed=seed), RELU)),
    ]
    return network(folder / "fp32.onnx", [*layers, weights(channels, channels, size, size, seed=3)], IMAGE)


def linear_layers(folder, width=256):
    layers = [weights(128, width), weights(width, width, seed=1), weights(width, 16, seed=2)]
    return network(folder / "fp32.onnx", layers, (32, 128))


def inverted(folder):
    """A pointwise, a depthwise and a pointwise convolution. The depthwise weights' ranges differ by a factor of 60.

    The layers around it share the difference out, so that every channel matters and no range of activations differs as much.
    """
    even = SPREAD**-0.5
    layers = [
        weights(32, 3, 1, 1) * even.reshape(-1, 1, 1, 1),
        RELU,
        weights(32, 1, 3, 3, seed=1) * SPREAD.reshape(-1, 1, 1, 1),
        RELU,
        weights(16, 32, 1, 1, seed=2) * even.reshape(1, -1, 1, 1),
    ]
    return network(folder / "fp32.onnx", layers, IMAGE)


# Twelve with a fault


def no_integer_instructions(folder):
    source, data = linear_layers(folder), normal((32, 128))
    evidence = looked_at(source, static(source, data, REDUCED), data, REDUCED, PLAIN)
    return Case(evidence, seconds(evidence, "unsigned") / seconds(evidence, "fp32"), 0.9)


def small_channels(folder):
    source, data = convolutions(folder, 8), normal(IMAGE)
    evidence = looked_at(source, static(source, data, REDUCED), data, REDUCED, replace(VNNI, call=20e-6))
    return Case(evidence, seconds(evidence, "unsigned") / seconds(evidence, "fp32"), 0.9)


def dynamic_convolutions(folder):
    asked = Quantization("dynamic", per_channel=False)
    source, data = convolutions(folder, 48), normal(IMAGE)
    evidence = looked_at(source, dynamic(source, ["Conv"], asked), data, asked, VNNI)
    return Case(evidence, sum(one.operator == "ConvInteger" for one in evidence.census.layers), 0)


def signed_activations(folder):
    asked = replace(STATIC, symmetric=True)
    source, data = linear_layers(folder), normal((32, 128))
    evidence = looked_at(source, static(source, data, asked, operator_format=True), data, asked, AVX2)
    return Case(evidence, seconds(evidence, "signed") / seconds(evidence, "unsigned"), 1.5)


def unfused(folder):
    """Every operator quantized, those too that have no integer kernel."""
    between = [("Softplus", {}), ("Tanh", {})]
    layers = [weights(32, 3, 3, 3), *between, weights(32, 32, 3, 3, seed=1), *between, weights(32, 32, 3, 3, seed=2)]
    source, data = network(folder / "fp32.onnx", layers, IMAGE), normal(IMAGE)
    built = static(source, data, REDUCED, operators=["Conv", "Softplus", "Tanh"])
    evidence = looked_at(source, built, data, REDUCED, VNNI)
    return Case(evidence, evidence.census.unfused, 2 + evidence.boundaries)


def not_quantized(folder):
    """K3: dynamic quantization of linear layers, asked of a network that has none."""
    asked = Quantization("dynamic")
    source, data = convolutions(folder, 48), normal(IMAGE)
    built = dynamic(source, ["MatMul"], asked)
    census = census_of(source, built, Plan("onnx_runtime", threads=1))
    evidence = looked_at(source, built, data, asked, VNNI, census=census)
    return Case(evidence, 1 - evidence.census.share(), 0.5)


def bright(folder):
    """Images without dark places, and weights that agree in sign: neighbouring products are large and add up."""
    draw = np.random.default_rng(0)
    signs = draw.choice([-1.0, 1.0], size=(32, 1, 1, 1))
    first = (signs * draw.uniform(0.7, 1, size=(32, 3, 3, 3)) / 10).astype(np.float32)
    source = network(folder / "fp32.onnx", [first, RELU, weights(16, 32, 3, 3, seed=1)], IMAGE)
    return source, [{"x": draw.uniform(0.7, 1, size=(1, *IMAGE)).astype(np.float32)} for _ in range(8)]


def saturation(folder):
    """K10: right with VNNI, wrong without."""
    source, data = bright(folder)
    evidence = replace(looked_at(source, static(source, data, STATIC), data, STATIC, AVX2), error=None)
    return Case(evidence, max(one.overflow_error for one in evidence.layers), 0.05)


def per_tensor_depthwise(folder):
    asked = replace(REDUCED, per_channel=False)
    source, data = inverted(folder), normal(IMAGE)
    evidence = looked_at(source, static(source, data, asked), data, asked, NO_CALL)
    return Case(evidence, error(evidence), 0.1)


def per_tensor_linear(folder):
    """The same fault in linear layers: one channel's weights forty times the others'."""
    asked = replace(REDUCED, per_channel=False)
    first = weights(128, 64)
    first[:, 5] *= 40
    second = weights(64, 16, seed=1)
    second[5] = 0
    source, data = network(folder / "fp32.onnx", [first, second], (32, 128)), normal((32, 128))
    evidence = looked_at(source, static(source, data, asked), data, asked, NO_CALL)
    return Case(evidence, error(evidence), 0.1)


def unlike_calibration(folder):
    """Calibrated on images scaled to [0, 1] in place of normalised ones."""
    source = convolutions(folder, 48)
    built = static(source, normal(IMAGE, scale=1 / 16), REDUCED)
    evidence = looked_at(source, built, normal(IMAGE), REDUCED, VNNI)
    return Case(evidence, error(evidence), 0.1)


def too_wide_calibration(folder):
    """Calibrated on raw pixels in place of normalised ones."""
    source = convolutions(folder, 48)
    evidence = looked_at(source, static(source, normal(IMAGE, scale=60.0), REDUCED), normal(IMAGE), REDUCED, VNNI)
    return Case(evidence, error(evidence), 0.1)


def outliers(folder):
    """One channel of activations sixty times the others, whose weights are as much smaller, as transformers have them."""
    first, second = weights(128, 256), weights(256, 64, seed=1)
    first[:, 7], second[7] = 60 * first[:, 7], second[7] / 60
    source, data = network(folder / "fp32.onnx", [first, second], (32, 128)), normal((32, 128))
    evidence = looked_at(source, static(source, data, REDUCED), data, REDUCED, VNNI)
    return Case(evidence, error(evidence), 0.05)


def training_mode(folder):
    """K7: exported without eval(): batch norm takes mean and variance from the batch."""
    nodes = [
        helper.make_node("BatchNormalization", ["x", "one", "zero", "zero", "one"], ["a", "mean", "variance"], "norm0", training_mode=1),
        helper.make_node("Conv", ["a", "w1"], ["b"], "conv1", pads=[1] * 4),
        helper.make_node("Conv", ["b", "w2"], ["y"], "conv2", pads=[1] * 4),
    ]
    constants = {"w1": weights(32, 3, 3, 3), "w2": weights(16, 32, 3, 3), "one": np.ones(3, np.float32), "zero": np.zeros(3, np.float32)}
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    source, data = save(folder / "fp32.onnx", nodes, tensors, [("x", 1, ["batch", *IMAGE])]), normal(IMAGE)
    evidence = looked_at(source, static(source, data, REDUCED), data, REDUCED, NO_CALL)
    return Case(evidence, evidence.batches, 1e-3)


def pooled(folder, masked):
    """Token embeddings, a linear layer, and the mean over tokens: over those that the mask keeps, or over all."""
    table = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["e"], "embed"),
        helper.make_node("MatMul", ["e", "w0"], ["h"], "linear0"),
        helper.make_node("Cast", ["attention_mask"], ["m"], "mask", to=1),
        helper.make_node("Unsqueeze", ["m", "last"], ["u"], "column"),
        helper.make_node("Mul", ["h", "u"], ["k"], "kept"),
        helper.make_node("ReduceSum", ["k" if masked else "h", "one"], ["s"], "sum", keepdims=0),
        helper.make_node("ReduceSum", ["m", "one"], ["n"], "tokens", keepdims=1),
        helper.make_node("Div", ["s", "n"], ["p"], "mean"),
        helper.make_node("MatMul", ["p", "w1"], ["y"], "linear1"),
    ]
    constants = {"table": table, "w0": weights(32, 128), "w1": weights(128, 4), "one": np.array([1]), "last": np.array([2])}
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    return save(folder / "fp32.onnx", nodes, tensors, [(name, 7, ["batch", "sequence"]) for name in ("input_ids", "attention_mask")])


def read_tokens(folder, masked):
    from accel_helpers.quantize import probes

    asked = Quantization("dynamic", reduce_range=True)
    source = pooled(folder, masked)
    ids = np.random.default_rng(1).integers(1, 64, size=(1, 24))
    samples = [{"input_ids": ids, "attention_mask": np.ones_like(ids)}]
    difference = probes.padded(probes.answer_of(source), samples[0], "attention_mask", 16)
    plan = Plan("onnx_runtime", "int8", threads=1, quantization=asked)
    built = dynamic(source, ["MatMul"], asked)
    known = Evidence(str(source), plan, AMX, census_of(source, built, plan), padded=difference, padding=0.4, saturates=False)
    return Case(examine(known, source, samples, built, timed=False), difference, 1e-3)


def padding(folder):
    """K18: the mean is taken over the padding too."""
    return read_tokens(folder, masked=False)


FAULTY = {
    "no_integer_instructions": no_integer_instructions,
    "small_channels": small_channels,
    "dynamic_convolutions": dynamic_convolutions,
    "signed_activations": signed_activations,
    "unfused": unfused,
    "not_quantized": not_quantized,
    "saturation": saturation,
    "per_tensor_weights": per_tensor_depthwise,
    "calibration": unlike_calibration,
    "outliers": outliers,
    "training_mode": training_mode,
    "padding": padding,
}

MORE = {"too wide a range": too_wide_calibration, "per tensor on linear layers": per_tensor_linear}
CAUSE = {"too wide a range": "calibration", "per tensor on linear layers": "per_tensor_weights"}


# Eight without


def good_convolutions(folder):
    source, data = convolutions(folder, 64), normal(IMAGE)
    return looked_at(source, static(source, data, REDUCED), data, REDUCED, AVX2)


def good_linear(folder):
    source, data = linear_layers(folder), normal((32, 128))
    return looked_at(source, static(source, data, REDUCED), data, REDUCED, VNNI)


def good_dynamic(folder):
    asked = Quantization("dynamic")
    source, data = linear_layers(folder, 512), normal((32, 128))
    return looked_at(source, dynamic(source, ["MatMul"], asked), data, asked, VNNI)


def plain_fp32(folder):
    return looked_at(convolutions(folder, 8), None, normal(IMAGE), None, AVX2, precision="fp32")


def plain_bf16(folder):
    """Files of FP32 that an engine runs in BF16: nothing in it is an integer, and nothing should be."""
    evidence = looked_at(linear_layers(folder), None, normal((32, 128)), None, VNNI, precision="fp32")
    layers = tuple(replace(one, precision="bf16") for one in evidence.census.layers)
    return replace(evidence, plan=replace(evidence.plan, engine="openvino", precision="bf16"), census=Census(layers))


def per_channel_depthwise(folder):
    """The very network whose weights break with one scale."""
    source, data = inverted(folder), normal(IMAGE)
    return looked_at(source, static(source, data, REDUCED), data, REDUCED, NO_CALL)


def masked_padding(folder):
    return read_tokens(folder, masked=True).evidence


def full_range_with_vnni(folder):
    """K10: the very file that saturates elsewhere; small, yet measured to be faster."""
    source, data = bright(folder)
    evidence = looked_at(source, static(source, data, STATIC), data, STATIC, VNNI)
    return replace(evidence, error=None, verdict=Verdict("a", "b", wall=(1.4,) * 7, cpu=(1.4,) * 7))


def signed_on_arm(folder):
    """Signed activations on a processor that multiplies signed bytes at full speed."""
    asked = replace(STATIC, symmetric=True)
    source, data = linear_layers(folder), normal((32, 128))
    return looked_at(source, static(source, data, asked, operator_format=True), data, asked, ARM)


def bright_model():
    """``bright`` as a Model with data, for the road; its file lies in the test's own store."""
    folder = Path(os.environ["ACCEL_STORE"]) / "bright"
    if not (folder / "fp32.onnx").exists():
        folder.mkdir()
        bright(folder)

    def images(count, seed):
        return {"x": np.random.default_rng(seed).uniform(0.7, 1, size=(count, *IMAGE)).astype(np.float32)}

    return Model(
        name="quantization_cases:bright_model",
        example=lambda count, _, seed: images(count, seed),
        axes={"x": {0: "batch"}, "y": {0: "batch"}},
        outputs=("y",),
        fingerprint="bright",
        onnx=folder / "fp32.onnx",
        dataset=lambda: Dataset(Split(images(16, 1), None), Split(images(16, 2), None)),
    )


HEALTHY = {
    "convolutions per channel": good_convolutions,
    "static linear layers": good_linear,
    "dynamic linear layers": good_dynamic,
    "fp32": plain_fp32,
    "bf16": plain_bf16,
    "depthwise per channel": per_channel_depthwise,
    "masked padding": masked_padding,
    "full range with VNNI, small but fast": full_range_with_vnni,
    "signed activations on ARM": signed_on_arm,
}

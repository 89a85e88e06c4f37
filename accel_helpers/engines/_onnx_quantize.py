"""An exported ONNX graph in integers: static QDQ, dynamic, and weights alone."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from accel_helpers import calibration
from accel_helpers.engines import _onnx_calibrate, _onnx_export
from accel_helpers.errors import UnknownNameError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Quantization

BLOCK = 32
"""Values of a weight that share a scale and a zero point, in weight-only quantization."""
ACCURACY_LEVEL = 4
"""MatMulNBits rounds its input to INT8 too, block by block, and so multiplies bytes, for which processors with VNNI have an instruction."""
PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
_STATIC = ("MatMul", "Gemm", "Conv")  # the CPU provider has no integer ConvTranspose
_FLOAT_OUTPUT = ("MatMul", "Gemm")
_SHAPES = ("Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze")
_FOLLOWERS = ("Relu", "Clip", "Add", "MaxPool", "AveragePool", "GlobalAveragePool", "Concat", "Pad", *_SHAPES)
"""What stays in integers between two convolutions; ONNX Runtime has integer kernels for all of them."""


def quantize(model: Model, quantization: Quantization, bits: int, folder: Path) -> tuple[str, ...]:
    """Replace the graph in ``folder`` by its quantized form; the names of the files there.

    Raises:
        UnsupportedError: the scheme would leave everything in float, be slower than FP32, or not fit the memory; the message says why.
        UnknownNameError: ``keep`` names a layer that is not there.
        ModelError: the model has no data, or its activations have no range.
    """
    import onnx

    source = folder / _onnx_export.FILE
    if quantization.scheme == "static":
        split = calibration.samples(model, quantization)
        quantized = static(source, quantization, lambda: (inputs for inputs, _ in split.batches(1)))
    elif quantization.scheme == "dynamic":
        quantized = dynamic(source, quantization)
    else:
        quantized = weight_only(source, quantization, bits)
    for file in folder.iterdir():
        file.unlink()
    onnx.save(quantized, source)
    return (source.name,)


def static(source: Path, quantization: Quantization, batches: _onnx_calibrate.Batches) -> Any:
    """The graph as an ``onnx.ModelProto`` with QuantizeLinear and DequantizeLinear around its quantized nodes.

    Quantized are the products with a constant weight, and between convolutions what follows them. A MatMul's or Gemm's output stays
    float: what comes after it (a bias, a residual sum, a normalisation) is float anyway, and rounding it would only lose accuracy.

    Args:
        source: the FP32 graph.
        quantization: ``keep`` holds names of nodes in it.
        batches: gives the calibration inputs anew each time.
    """
    from onnxruntime.quantization import QDQQuantizer, QuantType
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorsData
    from onnxruntime.quantization.quant_utils import load_model_with_shape_infer

    with tempfile.NamedTemporaryFile(dir=source.parent, suffix=".onnx") as file:  # beside its weights
        prepared = Path(file.name)
        _fold(source, prepared)
        loaded = load_model_with_shape_infer(prepared)
        chosen = _chosen(loaded, quantization)
        rectified = _rectified(loaded, chosen, quantization.symmetric)
        tensors = dict.fromkeys((*_activations(loaded, chosen), *rectified))
        found = _onnx_calibrate.ranges(prepared, tensors, batches, quantization.calibrator)
    kinds = sorted({node.op_type for node in loaded.graph.node if node.name in chosen})
    activation = QuantType.QInt8 if quantization.symmetric else QuantType.QUInt8
    options = {"ActivationSymmetric": quantization.symmetric, "OpTypesToExcludeOutputQuantization": list(_FLOAT_OUTPUT)}
    data = TensorsData(CalibrationMethod.MinMax, found)
    with _onnx_export.quiet():
        quantizer = QDQQuantizer(
            loaded, quantization.per_channel, quantization.reduce_range, QuantType.QInt8, activation, data, chosen, [], kinds, options
        )
        for name in rectified:
            quantizer.quantize_activation_tensor(name)
        quantizer.quantize_model()
    return quantizer.model.model


def dynamic(source: Path, quantization: Quantization) -> Any:
    """The graph as an ``onnx.ModelProto`` whose products with a constant weight round their input as they meet it.

    Convolutions and embeddings stay float: a ConvInteger is slower than the convolution that it replaces, and an embedding multiplies
    nothing, so that rounding it would save memory but lose accuracy for no speed.

    Raises:
        UnsupportedError: most of the graph's products are convolutions.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    loaded = named(onnx.load(source, load_external_data=False))
    _refuse_convolutions(loaded)
    chosen = _products(loaded, quantization, ("MatMul", "Gemm"))
    with _onnx_export.quiet(), tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / source.name
        quantize_dynamic(
            named(onnx.load(source)),
            written,
            ["MatMul"],
            quantization.per_channel,
            quantization.reduce_range,
            QuantType.QInt8,
            nodes_to_quantize=[*chosen, *(f"{name}_MatMul" for name in chosen)],  # it first splits each Gemm into a MatMul and an Add
        )
        return onnx.load(written)


def weight_only(source: Path, quantization: Quantization, bits: int) -> Any:
    """The graph as an ``onnx.ModelProto`` whose constant weights have 4 or 8 bits, a scale and a zero point for each block of them."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    loaded = named(onnx.load(source))
    _products(loaded, quantization, ("MatMul", "Gemm"))
    kept = [name for keep in quantization.keep for name in (keep, f"{keep}_MatMul")]
    split = ONNXModel(loaded)
    split.replace_gemm_with_matmul()  # MatMulNBits knows no Gemm
    with _onnx_export.quiet():
        quantizer = MatMulNBitsQuantizer(
            split.model, bits=bits, block_size=BLOCK, is_symmetric=False, accuracy_level=ACCURACY_LEVEL, nodes_to_exclude=kept
        )
        quantizer.process()
    return quantizer.model.model


def _fold(source: Path, out: Path) -> None:
    """Write the graph with its batch norms in the convolutions before them and biases in the matrix products, as ONNX Runtime does it.

    Where a QuantizeLinear came between, they could not join any more. The products keep their names.
    """
    import onnx
    import onnxruntime

    onnx.save(named(onnx.load(source, load_external_data=False)), out)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it would log is raised
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(out)
    onnxruntime.InferenceSession(out, options, providers=["CPUExecutionProvider"])
    folded = onnx.load(out, load_external_data=False)
    for node in folded.graph.node:
        node.name = node.name.removesuffix("/MatMulAddFusion")
    onnx.save(folded, out)


def named(loaded: Any) -> Any:
    """The graph (changed in place) with a name of its own for every node, and Constant nodes as initializers, where quantizers look."""
    import onnx

    constants = [node for node in loaded.graph.node if node.op_type == "Constant" and node.attribute[0].name == "value"]
    for node in constants:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(node.attribute[0].t)
        tensor.name = node.output[0]
        loaded.graph.initializer.append(tensor)
        loaded.graph.node.remove(node)
    taken: set[str] = set()
    for index, node in enumerate(loaded.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.name or node.op_type}_{index}"
        taken.add(node.name)
    return loaded


def weighted(loaded: Any) -> list[Any]:
    """The nodes that multiply by a constant weight; of matrix products those with one matrix for the whole batch."""
    ranks = {one.name: len(one.dims) for one in loaded.graph.initializer}
    found = [node for node in loaded.graph.node if node.op_type in PRODUCTS and node.input[1] in ranks]
    return [node for node in found if node.op_type != "MatMul" or ranks[node.input[1]] == 2]


def _products(loaded: Any, quantization: Quantization, operators: tuple[str, ...]) -> list[str]:
    """Names of the products to quantize.

    Raises:
        UnknownNameError: ``keep`` names a node that is not there.
        UnsupportedError: there is none.
    """
    every = {node.name for node in loaded.graph.node}
    for name in quantization.keep:
        if name not in every:
            raise UnknownNameError("layer", name, [node.name for node in loaded.graph.node if node.op_type in PRODUCTS])
    chosen = [node.name for node in weighted(loaded) if node.op_type in operators and node.name not in quantization.keep]
    if not chosen:
        counts = Counter(node.op_type for node in loaded.graph.node if node.op_type in PRODUCTS)
        there = ", ".join(f"{count} {operator}" for operator, count in sorted(counts.items())) or "no product at all"
        raise UnsupportedError(
            f"scheme={quantization.scheme} would quantize 0 % of this model: it takes {', '.join(operators)} with a constant weight "
            f"that keep does not name, and the model holds {there}.",
            "Choose another scheme, name fewer layers in keep, or stay with a floating-point precision.",
        )
    return chosen


def _chosen(loaded: Any, quantization: Quantization) -> list[str]:
    """Names of the nodes that static quantization takes: products, and what follows convolutions from integers to integers."""
    chosen = set(_products(loaded, quantization, _STATIC))
    constants = {one.name for one in loaded.graph.initializer}
    integers: set[str] = set()
    for node in loaded.graph.node:
        values = [name for name in node.input if name and name not in constants]
        if node.op_type in _FOLLOWERS and node.name not in quantization.keep and values and set(values) <= integers:
            chosen.add(node.name)
        if node.name in chosen and node.op_type not in _FLOAT_OUTPUT:
            integers.update(node.output)
    return sorted(chosen)


def _activations(loaded: Any, chosen: list[str]) -> list[str]:
    """The float tensors that the chosen nodes read and write."""
    import onnx

    values = (*loaded.graph.value_info, *loaded.graph.input, *loaded.graph.output)
    floats = {one.name for one in values if one.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    floats -= {one.name for one in loaded.graph.initializer}
    found: dict[str, None] = {}
    for node in loaded.graph.node:
        if node.name in set(chosen):
            written = () if node.op_type in _FLOAT_OUTPUT else node.output
            found |= dict.fromkeys(name for name in (*node.input, *written) if name in floats)
    return list(found)


def _rectified(loaded: Any, chosen: list[str], symmetric: bool) -> list[str]:
    """The tensors to quantize between a matrix product and the float operators after it, where a rectifier comes first.

    ONNX Runtime fuses a product with its DequantizeLinear where it answers floats to anything but Relu and Clip, for which it wants a
    QuantizeLinear behind them. Signed bytes do not cut at zero, so that the product's own answer must be rounded.
    """
    found = []
    readers = Counter(name for node in loaded.graph.node for name in node.input)
    answers = {node.output[0] for node in loaded.graph.node if node.name in set(chosen) and node.op_type in _FLOAT_OUTPUT}
    for node in loaded.graph.node:
        if node.op_type in ("Relu", "Clip") and node.input[0] in answers and readers[node.input[0]] == 1:
            found.append(node.input[0] if symmetric else node.output[0])
    return found


def _refuse_convolutions(loaded: Any) -> None:
    """Dynamic quantization of a convolutional network makes it slower: onnxruntime#12854 and #16009."""
    counts = Counter(node.op_type for node in weighted(loaded))
    convolutions = counts["Conv"] + counts["ConvTranspose"]
    if 2 * convolutions > counts.total():
        raise UnsupportedError(
            f"scheme=dynamic would not help this model: {convolutions} of its {counts.total()} layers with weights are convolutions. "
            "Dynamically quantized, each becomes a ConvInteger, which is several times slower than the FP32 convolution.",
            "Choose scheme=static.",
        )

"""An exported graph in the types of a plan. TensorRT's networks are strongly typed: what the graph says is what runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers import calibration
from accel_helpers.engine import Array
from accel_helpers.engines import _explicit_qdq, _onnx_check, _onnx_quantize
from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import ModelError
from accel_helpers.models import Model
from accel_helpers.records import Plan

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8", "fp8")
_BY = "ONNX Runtime on a CPU: sums in FP32, rounded after each operator; not TensorRT's own kernels"
_LARGEST = (2 - 2**-7) * 2.0**127  # of BF16: seven stored bits, and FP32's exponents
_EXACT = {"Resize": (1, 2)}
"""Operators with inputs that are FP32 whatever else is: the region and the scales of a Resize."""


def typed(model: Model, plan: Plan, source: Path) -> dict[str, Any]:
    """Give the graph in ``source`` the plan's types, in place.

    FP32 and TF32 are the exported graph. FP16 is ONNX Runtime's converter's. In BF16 every FP32 value is rounded, inputs and outputs
    apart. INT8 and FP8 have pairs of QuantizeLinear and DequantizeLinear, and the rest in ``Quantization.rest``.

    Returns:
        ``types``: how many products are in which type; and where the graph was changed ``compared``: the largest relative error of an
        output against the FP32 graph's, and on what.

    Raises:
        ModelError: the new graph does not run in ONNX Runtime, or answers infinities or no numbers.
        UnsupportedError: no product has a constant weight to quantize.
        UnknownNameError: ``keep`` names a layer that is not there.
    """
    import onnx

    if plan.precision in ("fp32", "tf32"):
        return {"types": _counted(plan.precision for node in onnx.load(source, load_external_data=False).graph.node if _multiplies(node))}
    sample = model.example(_onnx_check.CHECKED_BATCHES[1], _onnx_check.CHECKED_SEQUENCES[0], 0)
    expected = _onnx_check.runner(model, source)(sample)
    if plan.quantization:
        loaded, kinds = _quantized(model, plan, source)
    else:
        loaded = onnx.load(source)
        kinds = [plan.precision for node in loaded.graph.node if _multiplies(node)]
    rest = plan.quantization.rest if plan.quantization else plan.precision
    if rest in _NARROW:
        loaded = _NARROW[rest](loaded)
    onnx.save(loaded, source)
    return {"types": _counted(kinds), "compared": _compared(model, plan, rounding(loaded), sample, expected)}


def _quantized(model: Model, plan: Plan, source: Path) -> tuple[Any, list[str]]:
    assert plan.quantization is not None
    split = calibration.samples(model, plan.quantization)
    loaded, found = _explicit_qdq.explicit(source, plan.precision, plan.quantization, lambda: (inputs for inputs, _ in split.batches(1)))
    return loaded, [kind or plan.quantization.rest for kind in found.values()]


def _multiplies(node: Any) -> bool:
    return node.op_type in _onnx_quantize.PRODUCTS


def _counted(kinds: Iterable[str]) -> dict[str, int]:
    found = list(kinds)
    return {kind: found.count(kind) for kind in sorted(set(found))}


def to_fp16(loaded: Any) -> Any:
    """A graph, which is changed, in FP16 as ONNX Runtime converts it. Its inputs and outputs stay FP32, with a Cast at the door."""
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    narrow = convert_float_to_float16(loaded, keep_io_types=True)
    del narrow.graph.value_info[:]  # it leaves some that are wrong,
    OnnxModel.graph_topological_sort(narrow.graph)  # and writes the casts of the inputs behind what reads them
    return narrow


def to_bf16(loaded: Any) -> Any:
    """A graph, changed in place, with every FP32 value in BF16. Its inputs and outputs stay FP32, with a Cast at the door.

    A finite value beyond BF16's range becomes its largest: the least FP32 number, which masks attention, would round to an infinity.
    """
    import onnx

    graph, (floats, narrow) = _onnx_quantize.named(loaded).graph, (onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16)
    del graph.value_info[:]
    doors = {one.name: f"{one.name}_bf16" for one in (*graph.input, *graph.output) if one.type.tensor_type.elem_type == floats}
    _narrow(graph, doors)
    cast = onnx.helper.make_node
    come = [cast("Cast", [one.name], [doors[one.name]], f"{one.name}_to_bf16", to=narrow) for one in graph.input if one.name in doors]
    gone = [cast("Cast", [doors[one.name]], [one.name], f"{one.name}_to_fp32", to=floats) for one in graph.output if one.name in doors]
    nodes = [*come, *graph.node, *gone]
    del graph.node[:]
    graph.node.extend(nodes)
    return loaded


_NARROW = {"fp16": to_fp16, "bf16": to_bf16}


def _narrow(graph: Any, renamed: Mapping[str, str]) -> None:
    """FP32 constants, casts and fills of a graph in BF16, subgraphs too; tensors take their new names."""
    import onnx

    floats, narrow = onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16
    exact = {node.input[place] for node in graph.node for place in _EXACT.get(node.op_type, ()) if place < len(node.input)}
    for one in graph.initializer:
        if one.data_type == floats and one.name not in exact:
            one.CopyFrom(_rounded(one))
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == floats:
                attribute.i = narrow
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == floats:
                attribute.t.CopyFrom(_rounded(attribute.t))
            if attribute.type == onnx.AttributeProto.GRAPH:
                del attribute.g.value_info[:]
                _narrow(attribute.g, renamed)


def _rounded(tensor: Any) -> Any:
    import ml_dtypes
    import onnx

    values = onnx.numpy_helper.to_array(tensor)
    clipped = np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), values)
    return onnx.numpy_helper.from_array(clipped.astype(ml_dtypes.bfloat16), tensor.name)


def rounding(typed: Any) -> Any:
    """A graph in FP16 or BF16 as an FP32 graph that rounds after each operator, for ONNX Runtime on a CPU.

    Its CPU provider has no BF16 kernels, and of FP16 it computes chains of operators in FP32 without rounding in between, so that nothing
    overflows. A GPU adds up products in FP32 and rounds their sum: this is what it computes, up to the order of the sums.
    """
    import onnx

    inferred = onnx.shape_inference.infer_shapes(typed)
    graph, floats = inferred.graph, onnx.TensorProto.FLOAT
    short = {one.name: one.type.tensor_type.elem_type for one in graph.value_info if one.type.tensor_type.elem_type in _short()}
    del graph.value_info[:]
    for tensor in graph.initializer:
        _widen(tensor)
    nodes = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i in _short():
                attribute.i = floats
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in short:
                node.output[place] = f"{name}_exact"
                nodes.append(onnx.helper.make_node("Cast", [f"{name}_exact"], [f"{name}_short"], to=short[name]))
                nodes.append(onnx.helper.make_node("Cast", [f"{name}_short"], [name], to=floats))
    del graph.node[:]
    graph.node.extend(nodes)
    return inferred


def _short() -> tuple[int, int]:
    import onnx

    return onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16


def _widen(tensor: Any) -> None:
    """A constant of 16 bits as the same numbers in FP32, in place."""
    import onnx

    if tensor.data_type in _short():
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name))


def _compared(model: Model, plan: Plan, ran: Any, sample: dict[str, Array], expected: Mapping[str, Array]) -> dict[str, Any]:
    """The largest relative error of an output, as ONNX Runtime computes the graph operator by operator."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it would log is raised
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # no rounding is optimised away
    try:
        session = onnxruntime.InferenceSession(ran.SerializeToString(), options, providers=["CPUExecutionProvider"])
        answers = dict(zip(model.outputs, session.run(list(model.outputs), sample), strict=True))
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise ModelError(
            f"The {plan.precision.upper()} graph of {model.name} does not run: {first_line(error)}.", "Choose another precision."
        ) from error
    worst = max(_error(model, plan, name, answers[name], expected[name]) for name in model.outputs)
    return {"worst_error": worst, "inputs": {name: list(array.shape) for name, array in sample.items()}, "by": _BY}


def _error(model: Model, plan: Plan, name: str, actual: Array, expected: Array) -> float:
    if not np.isfinite(actual).all() and np.isfinite(expected).all():
        raise ModelError(
            f"Output {name!r} of {model.name} overflows in {plan.precision.upper()}: it holds infinities or no numbers, not so in FP32.",
            "Choose precision=bf16, which has FP32's range, or fp32.",
        )
    return _onnx_check.relative(actual, expected)

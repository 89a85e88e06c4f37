"""One layer in each type, run in an engine's own kernels on one thread: what the timings of ``probes`` call.

ONNX Runtime and OpenVINO get the layer as an ONNX graph; ``compiled`` is asked by the oneDNN operators that TorchInductor calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.engine import Array
from accel_helpers.quantize._session import open_graph
from accel_helpers.quantize.evidence import Kind

ENGINES = ("onnx_runtime", "openvino", "compiled")
"""The engines whose kernels can be run by themselves."""
_OPSET = 20
_SCALE = 0.02
Call = Callable[[], Any]
Nodes = Sequence[tuple[str, list[str], list[str], dict[str, Any]]]  # operator, inputs, outputs, attributes


def layer(operator: str, weight: Array, shape: Sequence[int], options: dict[str, Any], engine: str) -> dict[str, Call]:
    """The calls that run one layer in each kind that the engine knows, and its input's way into integers and back.

    Args:
        operator: Conv, or another name for a matrix product.
        weight: as the operator takes it; of a product, (depth, columns).
        shape: of the input, batch first.
        options: the operator's attributes; a product has none.
        engine: one of :data:`ENGINES`.
    """
    convolution = operator == "Conv"
    operator, options = ("Conv", options) if convolution else ("MatMul", {})
    axis = 0 if convolution else weight.ndim - 1
    scale = np.full(weight.shape[axis], max(float(np.abs(weight).max()), 1e-6) / 127, np.float32)
    integers = np.round(weight / scale[0]).astype(np.int8)
    real = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    constants = {
        **{"s": np.array(_SCALE, np.float32), "u": np.array(128, np.uint8), "i": np.array(0, np.int8)},
        **{"w": integers, "ws": scale, "wz": np.zeros(len(scale), np.int8)},
    }
    if engine == "compiled":
        return _onednn(convolution, weight, integers, scale, real, options)
    graphs: dict[Kind, tuple[Nodes, Mapping[str, Array], Array]] = {
        "fp32": ([(operator, ["x", "w"], ["y"], options)], {"w": weight}, real),
        "boundary": ([("QuantizeLinear", ["x", "s", "u"], ["q"], {}), ("DequantizeLinear", ["q", "s", "u"], ["y"], {})], {}, real),
    }
    if engine == "onnx_runtime":
        graphs |= _operators(operator, options, integers, real)
    else:
        graphs |= {kind: (_around(operator, options, zero, axis), {}, real) for kind, zero in (("unsigned", "u"), ("signed", "i"))}  # type: ignore[misc]
    return {kind: opened(_model(nodes, {**constants, **more}, values), values, engine) for kind, (nodes, more, values) in graphs.items()}


def _operators(
    operator: str, options: dict[str, Any], integers: Array, real: Array
) -> dict[Kind, tuple[Nodes, Mapping[str, Array], Array]]:
    """Operators that multiply integers, as ONNX Runtime runs them once it has fused a graph; and the dynamic form."""
    short = np.clip(np.round(real / _SCALE), -128, 127)
    # ConvInteger has kernels for unsigned weights only
    weights = (integers.astype(np.int16) + 128).astype(np.uint8) if operator == "Conv" else integers

    def product(zero: str) -> Nodes:
        return [(f"QLinear{operator}", ["x", "s", zero, "w", "ws", "wz", "s", zero], ["y"], options)]

    dynamic: Nodes = [
        ("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"], {}),
        (f"{operator}Integer", ["q", "w", "qz"], ["p"], options),
        ("Cast", ["p"], ["f"], {"to": 1}),
        ("Mul", ["qs", "s"], ["m"], {}),
        ("Mul", ["f", "m"], ["y"], {}),
    ]
    return {
        "unsigned": (product("u"), {}, (short + 128).astype(np.uint8)),
        "signed": (product("i"), {}, short.astype(np.int8)),
        "dynamic": (dynamic, {"w": weights}, real),
    }


def _around(operator: str, options: dict[str, Any], zero: str, axis: int) -> Nodes:
    """A layer between quantize and dequantize operators, for engines that fuse these themselves."""
    return [
        ("QuantizeLinear", ["x", "s", zero], ["q"], {}),
        ("DequantizeLinear", ["q", "s", zero], ["d"], {}),
        ("DequantizeLinear", ["w", "ws", "wz"], ["v"], {"axis": axis}),
        (operator, ["d", "v"], ["y"], options),
    ]


def _onednn(convolution: bool, weight: Array, integers: Array, scale: Array, real: Array, options: dict[str, Any]) -> dict[str, Call]:
    """The operators that TorchInductor's quantized code calls, on unsigned inputs always; rounding, which it writes itself, is left out."""
    import torch

    values, scales, zeros = torch.from_numpy(real), torch.from_numpy(scale), torch.zeros(len(scale), dtype=torch.int64)
    onednn = torch.ops.onednn
    rest: tuple[Any, ...] = (1.0, 0, torch.float32, "none", [], "")
    kernel = list(weight.shape[2:])
    where = (
        list(options.get("strides", [1] * len(kernel))),
        list(options.get("pads", [0] * 2 * len(kernel)))[: len(kernel)],
        list(options.get("dilations", [1] * len(kernel))),
        options.get("group", 1),
    )

    given = torch.from_numpy((np.clip(np.round(real / _SCALE), -128, 127) + 128).astype(np.uint8))
    if convolution:
        plain = torch.tensor(weight)
        packed = onednn.qconv_prepack(torch.from_numpy(integers), scales, _SCALE, 128, *where, list(real.shape))
        return {
            "fp32": lambda: torch.nn.functional.conv2d(values, plain, None, *where),
            "unsigned": lambda: onednn.qconv_pointwise(given, _SCALE, 128, packed, scales, zeros, None, *where, *rest),
        }
    plain = torch.tensor(np.ascontiguousarray(weight.T))
    packed = onednn.qlinear_prepack(torch.from_numpy(np.ascontiguousarray(integers.T)), list(real.shape))
    return {
        "fp32": lambda: torch.nn.functional.linear(values, plain),
        "unsigned": lambda: onednn.qlinear_pointwise(given, _SCALE, 128, packed, scales, zeros, None, *rest),
    }


@contextmanager
def one_thread(engine: str) -> Iterator[None]:
    """PyTorch on one thread for a while, where the engine is made of it; the others are given their thread when they are opened."""
    if engine != "compiled":
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


def product(data: Array, weight: Array, engine: str) -> Array:
    """The product of unsigned data (rows, depth) and signed weights (depth, columns) in an engine's integers, scales one."""
    columns = weight.shape[1]
    if engine == "compiled":
        import torch

        packed = torch.ops.onednn.qlinear_prepack(torch.from_numpy(np.ascontiguousarray(weight.T)), list(data.shape))
        scales, zeros = torch.ones(columns), torch.zeros(columns, dtype=torch.int64)
        given = torch.from_numpy(data.astype(np.uint8))
        answer = torch.ops.onednn.qlinear_pointwise(given, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], "")
        return np.asarray(answer.numpy())
    one = np.array(1, np.float32)
    constants: dict[str, Array] = {"s": one, "u": np.array(0, np.uint8), "w": weight, "ws": np.ones(columns, np.float32)}
    constants["wz"] = np.zeros(columns, np.int8)
    values = data.astype(np.float32)
    return np.asarray(opened(_model(_around("MatMul", {}, "u", 1), constants, values), values, engine)()[0])


def idle(engine: str) -> Call:
    """A call that computes next to nothing: what an engine takes for a call whatever is in it."""
    if engine == "compiled":
        return lambda: None  # its operators are called from code that does without a session
    value = np.zeros(1, np.float32)
    return opened(_model([("Relu", ["x"], ["y"], {})], {}, value), value, engine)


def opened(graph: Any, values: Array | dict[str, Array], engine: str) -> Call:
    """A function that runs an ONNX graph, a file or in memory, on the values and answers its outputs; by ONNX Runtime for "compiled"."""
    given = values if isinstance(values, dict) else {"x": values}
    if engine != "openvino":
        session = open_graph(graph)
        return lambda: session.run(None, given)
    import openvino

    core = openvino.Core()
    read = core.read_model(graph if isinstance(graph, Path) else graph.SerializeToString())
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(read, "CPU", settings).create_infer_request()
    return lambda: list(request.infer(given).values())


def _model(nodes: Nodes, constants: Mapping[str, Array], values: Array) -> Any:
    """A graph from ``x``, of the values' shape and type, to ``y``; with the constants that it uses."""
    from onnx import helper, numpy_helper

    used = {name for _, inputs, _, _ in nodes for name in inputs}
    answer = values.dtype if nodes[-1][0].startswith("QLinear") else np.dtype(np.float32)
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, outputs, **options) for operator, inputs, outputs, options in nodes],
        "probe",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(values.dtype), list(values.shape))],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(answer), None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)

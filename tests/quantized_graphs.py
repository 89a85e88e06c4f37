"""Plans, graphs and censuses that the tests of ONNX Runtime's quantization share."""

from dataclasses import replace

import numpy as np

from accel_helpers import engines, models
from accel_helpers.models import Dataset, Split
from accel_helpers.records import Census, Plan, Quantization

ENGINE = engines.get("onnx_runtime")
FP32 = Plan("onnx_runtime", sequence=16)
RANDOM = np.random.default_rng(0)


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

"""Models of a few numbers, made on the spot, for what the built-in ones do not show."""

import hashlib

import numpy as np

from accel_helpers.models import Model


def of(build, name="small", shape=(8,), axes=None, outputs=("y",), **more):
    """A Model with one input ``x`` (batch, *shape) float32 around a function that makes a torch module."""
    return Model(
        name=name,
        example=lambda batch, _, seed: {"x": np.random.default_rng(seed).normal(size=(batch, *shape)).astype(np.float32)},
        axes=axes or {key: {0: "batch"} for key in ("x", *outputs)},
        outputs=outputs,
        fingerprint=hashlib.sha256(name.encode()).hexdigest(),
        build=build,
        **more,
    )


def linear():
    """Two linear layers with a rectifier between."""
    return network(lambda self, x: self.b(self.a(x).relu()), "linear", hidden=64)


def network(forward, name="network", hidden=0, **more):
    """A Model whose ``forward(self, x)`` is the given function. ``self.a`` is a Linear(8, 4), or with ``hidden`` a Linear(8, hidden)
    and ``self.b`` a Linear(hidden, 4).
    """

    def build():
        import torch

        torch.manual_seed(0)
        module = type(name, (torch.nn.Module,), {"forward": forward})()
        module.a = torch.nn.Linear(8, hidden or 4)
        if hidden:
            module.b = torch.nn.Linear(hidden, 4)
        return module

    return of(build, name, **more)


def onnx_file(path, nodes, constants=(), opset=20, domains=(), dtype=1):
    """Save an ONNX graph from ``x`` to ``y``, both (batch, 4) of ``dtype``; nodes are (operator, inputs, outputs, options)."""
    import onnx
    from onnx import helper

    graph = helper.make_graph(
        [helper.make_node(operator, inputs, outputs, **options) for operator, inputs, outputs, options in nodes],
        "graph",
        [helper.make_tensor_value_info("x", dtype, ["batch", 4])],
        [helper.make_tensor_value_info("y", dtype, ["batch", 4])],
        [onnx.numpy_helper.from_array(values, name) for name, values in constants],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return str(path)

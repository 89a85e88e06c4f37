"""Chains of operators with one fault in them, for the tests that look for it."""

import numpy as np
from small_models import onnx_file

WIDTH = 4


def chain(path, count=40, **faults):
    """``count`` operators n0 … from ``x`` to ``y`` through t0 …: MatMul, Add, Gelu and Softmax in turn. Saved to ``path``.

    ``faults`` replaces single ones: ``n20=("Relu", {})``, or ``w8=array`` for a weight.
    """
    draw = np.random.default_rng(0)
    nodes, constants, domains = [], {}, set()
    for place in range(count):
        reads, writes = [f"t{place - 1}" if place else "x"], ["y" if place == count - 1 else f"t{place}"]
        operator, options = (("MatMul", {}), ("Add", {}), ("Gelu", {}), ("Softmax", {"axis": -1}))[place % 4]
        if place % 4 < 2:
            constants[f"w{place}"] = draw.normal(size=(WIDTH, WIDTH) if place % 4 == 0 else WIDTH).astype(np.float32)
        operator, options = faults.get(f"n{place}", (operator, options))
        if operator in ("MatMul", "Add", "Reshape"):
            reads.append(f"w{place}")
        if domain := options.get("domain"):
            domains.add(domain)
        nodes.append((operator, reads, writes, {"name": f"n{place}", **options}))
    constants |= {name: value for name, value in faults.items() if name.startswith("w")}
    onnx_file(path, nodes, constants.items(), domains=tuple(domains))
    return path


UNKNOWN = ("Frobnicate", {"domain": "ai.example"})

"""Whether a small graph still answers the same: inputs made for it, its outputs in ONNX Runtime, and how far they moved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from accel_helpers.compilation.builds._trial import Asked
from accel_helpers.compilation.graphs import _onnx_session
from accel_helpers.engine import Array
from accel_helpers.engines import _onnx_check


def sample(path: Path, asked: Asked, seed: int = 0) -> dict[str, Array]:
    """Inputs for a graph: its fixed sizes, and the usual ones of the first profile for open axes; seeded."""
    import onnx

    usual = {name: shapes[1] for sizes in asked.profiles[:1] for name, shapes in sizes.items()}
    generator, made = np.random.default_rng(seed), {}
    for one in onnx.load(path, load_external_data=False).graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type)
        shape = usual.get(one.name) or tuple(dim.dim_value or 2 for dim in one.type.tensor_type.shape.dim)
        values = asked.values[one.name][1] if one.name in asked.values else generator.normal(size=shape)
        made[one.name] = np.asarray(values).astype(kind)
    return made


def answers(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a graph by name, in ONNX Runtime on the CPU.

    Raises:
        ModelError: it does not load there.
    """
    session = _onnx_session.opened(path, "BASIC")
    names = [one.name for one in session.get_outputs()]
    halves = {one.name for one in session.get_inputs() if one.type == "tensor(float16)"}
    read = {one.name: inputs[one.name] for one in session.get_inputs()}
    read = {name: array.astype(np.float16) if name in halves else array for name, array in read.items()}
    return dict(zip(names, session.run(names, read), strict=True))


def inputs(path: Path, asked: Asked) -> dict[str, Array]:
    """What :func:`sample` makes, or nothing for a file that is no graph."""
    try:
        return sample(path, asked)
    except Exception:  # protobuf's and the file system's errors share no base class
        return {}


def tried(path: Path, given: Mapping[str, Array]) -> dict[str, Array]:
    """What :func:`answers` gives, or nothing where the graph does not run in ONNX Runtime either."""
    try:
        return answers(path, given) if given else {}
    except Exception:  # ONNX Runtime's errors share no base class
        return {}


def moved(before: Mapping[str, Array], after: Mapping[str, Array]) -> float | None:
    """The largest relative error of an output; None where one of the graphs did not run, infinite where an output is gone."""
    if not before or not after:
        return None
    return max(_onnx_check.relative(after[name], array) if name in after else float("inf") for name, array in before.items())

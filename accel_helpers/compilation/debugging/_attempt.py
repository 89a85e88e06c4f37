"""One attempt at a graph in a process of its own: ``python -m accel_helpers.compilation.debugging._attempt KIND MODEL INPUTS [OUT]``.

It ends with 0 where the graph passes, and with 1 and a complaint as the last line of standard output where it does not. A native crash ends
this process and no other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.compilation.graphs._onnx_session import opened
from accel_helpers.engine import Array
from accel_helpers.errors import ModelError

_LONGEST = 8000  # letters of a complaint: OpenVINO names what it lacks after all that failed for the lack of it


class RefusedError(Exception):
    """What a runtime says of a graph that it refuses."""


def marked(model: Any) -> Any:
    """A copy of an ONNX ``ModelProto`` whose every tensor is an output."""
    from polygraphy import constants
    from polygraphy.backend.onnx import ModifyOutputs
    from polygraphy.logger import G_LOGGER

    with G_LOGGER.verbosity():
        return ModifyOutputs(model, outputs=constants.MARK_ALL, copy=True)()


def values(source: Path | bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every output of a :func:`marked` graph, a file or its bytes, by ONNX Runtime on the CPU with nothing fused.

    So each tensor is rounded to its type as the graph is written. Without the marks ONNX Runtime's CPU provider leaves the casts between
    the operators of an FP16 graph out, computes in FP32, and shows no overflow.

    Raises:
        ModelError: ONNX Runtime does not load the graph.
    """
    session = opened(source, "DISABLE_ALL")
    names = [one.name for one in session.get_outputs() if one.name]
    found = dict(zip(names, session.run(names, _needed(session, inputs)), strict=True))
    return {name: array for name, array in found.items() if isinstance(array, np.ndarray) and array.dtype.kind in "fiub"}


def _needed(session: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {one.name: inputs[one.name] for one in session.get_inputs()}


def _onnx_runtime(path: Path, inputs: Mapping[str, Array]) -> None:
    """Load, and run where the value of every input is known."""
    session = opened(path, "ALL")
    if all(one.name in inputs for one in session.get_inputs()):
        session.run(None, _needed(session, inputs))


def _openvino(path: Path, inputs: Mapping[str, Array]) -> None:
    import openvino

    openvino.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": 1})


def _tensorrt(path: Path, inputs: Mapping[str, Array]) -> None:
    """Parse, and build ahead of time for the sizes of the inputs, and for the values of those that may be read as shapes."""
    from accel_helpers.compilation.builds import _trial

    sizes = {name: (array.shape,) * 3 for name, array in inputs.items()}
    read = {name: (tuple(array.ravel().tolist()),) * 3 for name, array in inputs.items() if array.dtype.kind == "i" and array.ndim < 2}
    complaints: list[str] = []
    if _trial._attempt(path, _trial.Asked((sizes,), read), complaints):
        raise RefusedError("\n".join(complaints))


LOADS: Mapping[str, Callable[[Path, Mapping[str, Array]], None]] = {
    "onnx_runtime": _onnx_runtime,
    "openvino": _openvino,
    "tensorrt": _tensorrt,
}


def said(text: str) -> str:
    """A runtime's complaint in one line, without the places in its own source files that it names."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Exception from ")]
    return re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", " ".join(lines))[:_LONGEST].rstrip(" .:") or "no message"


def main(kind: str, model: str, inputs: str, out: str = "") -> int:
    """Try the graph in the file ``model`` with the arrays of the safetensors file ``inputs``.

    ``kind`` is one of :data:`LOADS`, or "values", which writes the outputs of a marked graph to the safetensors file ``out``. Nothing here
    imports onnx, which alone takes longer than all the rest.
    """
    from safetensors.numpy import load_file, save_file

    arrays = load_file(inputs)
    try:
        if kind == "values":
            save_file({name: np.ascontiguousarray(array) for name, array in values(Path(model), arrays).items()}, out)
        else:
            LOADS[kind](Path(model), arrays)
    except Exception as error:  # runtimes' errors share no base class
        text = error.what if isinstance(error, ModelError) else str(error)
        print(said(text.replace(f"Load model from {model} failed:", "")))  # noqa: T201 - the process's answer
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

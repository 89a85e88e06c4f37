"""Two programs that rewrite an ONNX graph into fewer nodes, and the proof that what they wrote still means the same."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accel_helpers.engines import _onnx_check
from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import MissingPackageError, ModelError, UnknownNameError
from accel_helpers.models import Model

Shapes = Mapping[str, tuple[int, ...]]


def _onnxsim(graph: Any, shapes: Shapes) -> Any:
    import onnxsim

    told = {name: list(shape) for name, shape in shapes.items()}
    return onnxsim.simplify(graph, overwrite_input_shapes=told or None)[0]  # its own check draws inputs at sizes of its own, so it is off


def _onnxslim(graph: Any, shapes: Shapes) -> Any:
    import onnxslim

    told = [f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items()]
    return onnxslim.slim(graph, input_shapes=told or None)


TOOLS: Mapping[str, Callable[[Any, Shapes], Any]] = MappingProxyType({"onnxsim": _onnxsim, "onnxslim": _onnxslim})
"""Name of a simplifier, which is that of its package -> what rewrites an ``onnx.ModelProto``, told shapes of inputs or none."""


def key(tool: str) -> str:
    """The tool and its version, which decide what it writes.

    Raises:
        UnknownNameError: there is no such simplifier.
        MissingPackageError: it is not installed.
    """
    if tool not in TOOLS:
        raise UnknownNameError("simplifier", tool, TOOLS)
    try:
        return f"{tool}{version(tool)}"
    except PackageNotFoundError:
        raise MissingPackageError(f"The simplifier {tool} is not installed here.", f"Run: pip install {tool}") from None


def simplified(model: Model, source: Path, tool: str, out: Path) -> dict[str, Any]:
    """Write what ``tool`` makes of the graph ``source`` to the file ``out``, its weights beside it, and check it.

    Returns:
        What :func:`rewritten` returns, with ``worst_error``: the largest relative error against the graph it was made from.

    Raises:
        ModelError: the tool failed, or its graph is not the same: an input, an output, an open axis or the opset changed, or an output
            differs at one of the sizes that an export is checked at. The file stays, for whoever wants to look.
        MissingPackageError: the tool is not installed.
    """
    return {**rewritten(model, source, tool, out), "worst_error": check(model, source, tool, out)}


def rewritten(model: Model, source: Path, tool: str, out: Path, shapes: Shapes = MappingProxyType({})) -> dict[str, Any]:
    """Write what ``tool`` makes of the graph ``source`` to the file ``out``, unchecked.

    Args:
        model: whose graph it is.
        source: the graph.
        tool: onnxsim or onnxslim.
        out: the file to write; weights go beside it.
        shapes: shapes to tell the tool that inputs have, as many pages advise. They freeze the graph to these sizes: :func:`check`
            refuses it.

    Returns:
        ``tool`` and ``version``; ``before`` and ``after``: how many nodes of each operator; ``seconds``: what the rewriting took.

    Raises:
        ModelError: the tool failed.
        MissingPackageError: the tool is not installed.
    """
    import onnx

    key(tool)
    with _onnx_check.quiet():
        importlib.import_module(tool)  # takes longer than most graphs, and is no part of the rewriting
    graph = onnx.load(source)
    before = operators(graph)
    try:
        with _onnx_check.quiet(), _no_stderr():
            started = time.perf_counter()
            made = TOOLS[tool](graph, shapes)
            seconds = time.perf_counter() - started
    except Exception as error:  # each tool raises what its passes raise
        raise ModelError(f"{tool} failed on the graph of {model.name}: {first_line(error)}.", "Choose simplifier=off.") from error
    after = operators(made)
    onnx.save(made, out, save_as_external_data=True, location=f"{out.name}.data")
    return {"tool": tool, "version": version(tool), "before": before, "after": after, "seconds": seconds}


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Close standard error to C++ code as well: onnxsim's writes there what it could not fold."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def operators(graph: Any) -> dict[str, int]:
    """How many nodes of each operator an ``onnx.ModelProto`` holds at its top level, the most frequent first."""
    return dict(Counter(node.op_type for node in graph.graph.node).most_common())


def check(model: Model, source: Path, tool: str, out: Path) -> float:
    """Whether the graph ``out`` means what ``source`` means: the largest relative error of an output over all sizes.

    Raises:
        ModelError: see :func:`simplified`.
    """
    import onnx

    graphs = [onnx.load(path, load_external_data=False).graph for path in (source, out)]
    if (was := _onnx_check.opset(source)) != (now := _onnx_check.opset(out)):
        raise _refused(model, tool, f"the opset was {was} and is {now}")
    for kind in ("input", "output"):
        values = [{one.name: one for one in getattr(graph, kind)} for graph in graphs]
        if list(values[0]) != list(values[1]):
            raise _refused(model, tool, f"the {kind}s were {', '.join(values[0])} and are {', '.join(values[1])}")
        for name, value in values[0].items():
            if told := _changed(value, values[1][name], model.axes.get(name, {})):
                raise _refused(model, tool, f"{told} of {kind} {name!r}")
    try:
        return _onnx_check.compared(model, out, _onnx_check.runner(model, source), "the graph before it")
    except ModelError as error:
        raise _refused(model, tool, error.what.rstrip(".")) from error


def _changed(was: Any, now: Any, roles: Mapping[int, str]) -> str:
    """What differs between two declared values: the type, the rank or an axis; empty where nothing does.

    What was not declared may be filled in, but no number for a batch or a length.
    """
    import onnx

    first, second = was.type.tensor_type, now.type.tensor_type
    if first.elem_type != second.elem_type:
        names = [onnx.TensorProto.DataType.Name(one.elem_type).lower() for one in (first, second)]
        return f"the type was {names[0]} and is {names[1]}"
    before, after = ([dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in one.shape.dim] for one in (first, second))
    if first.HasField("shape") and len(before) != len(after):
        return f"the number of axes was {len(before)} and is {len(after)}"
    for axis, (one, other) in enumerate(zip(before, after, strict=False)):
        filled = one == "" and (isinstance(other, str) or roles.get(axis) not in ("batch", "sequence"))
        if one != other and not filled:
            what = f"was open ({one or 'unnamed'}) and is fixed to {other}" if isinstance(other, int) else f"was {one} and is {other}"
            return f"axis {axis} {what}"
    return ""


def _refused(model: Model, tool: str, why: str) -> ModelError:
    return ModelError(f"{tool} changed the meaning of {model.name}, and its graph is refused: {why}.", "Choose simplifier=off.")

"""An operator that a runtime lacks, replaced by standard ones: only where the outputs stay the same.

A replacement is an ONNX function: a name for a piece of graph. Each node of the operator becomes a call of it, and the call is inlined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.accuracy import TOLERANCE
from accel_helpers.compilation.builds._rewrites import REWRITES, Rewrite
from accel_helpers.compilation.graphs import _onnx_session
from accel_helpers.engine import Array
from accel_helpers.engines import _onnx_check
from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import ModelError, UnsupportedError

_DOMAIN = "replaced"
Answer = Callable[[dict[str, Array]], Mapping[str, Array]]


@dataclass(frozen=True)
class Replacement:
    """What was replaced, by what, and how much the outputs moved."""

    operator: str
    nodes: tuple[str, ...]  # the names of those replaced
    by: tuple[str, ...]  # the operators that stand there now, in order
    error: float  # the largest relative error of an output
    against: str  # what the outputs were compared with


def replace_operator(
    source: Path,
    operator: str,
    out: Path,
    inputs: Mapping[str, Array],
    body: str | Rewrite = "",
    answer: Answer | None = None,
) -> Replacement:
    """Write the graph ``source`` without ``operator`` to the file ``out``, once its outputs are known to be the same.

    Args:
        source: an ONNX file.
        operator: as ONNX spells it; its nodes are replaced wherever their domain.
        out: the file to write.
        inputs: named arrays to compare with.
        body: an ONNX function in ONNX's text syntax, with the operator's inputs and outputs, whatever its name and domain; or what makes
            one of a node. Empty takes the one of :data:`REWRITES`.
        answer: what answers for the original (a PyTorch model, a Python function) where ONNX Runtime lacks the operator too.

    Raises:
        UnsupportedError: no replacement is known, or not for a node that is set in this way.
        ModelError: the graph holds no such node, or an output differs; nothing is written.
    """
    import onnx
    from onnx import inliner

    loaded = onnx.load(source)
    typed = onnx.shape_inference.infer_shapes(onnx.load(source))
    found = [node for node in loaded.graph.node if node.op_type == operator]
    if not found:
        raise ModelError(f"The graph {source.name} holds no node {operator}.", "Name an operator of the graph, as ONNX spells it.")
    functions = [_function(operator, body, node, typed) for node in found]
    for place, (node, function) in enumerate(zip(found, functions, strict=True)):
        _call(loaded, node, function, place)
    made = inliner.inline_local_functions(loaded)
    error = _error(source, made, dict(inputs), answer)
    onnx.save(made, out)
    by = tuple(node.op_type for node in functions[0].node if node.op_type != "Constant")
    return Replacement(operator, tuple(node.name for node in found), by, error, "the given function" if answer else "ONNX Runtime")


def _function(operator: str, body: str | Rewrite, node: Any, typed: Any) -> Any:
    from onnx import parser

    if isinstance(body, str) and body:
        return parser.parse_function(body)
    rewrite = body if callable(body) else REWRITES.get(operator)
    if rewrite is None:
        known = ", ".join(REWRITES)
        raise UnsupportedError(f"No replacement of {operator} is known here.", f"Give its body as an ONNX function; known are {known}.")
    return rewrite(node, typed)


def _call(loaded: Any, node: Any, function: Any, place: int) -> None:
    """Make ``node`` a call of ``function``, which gets a name of its own."""
    import onnx

    function.domain, function.name = _DOMAIN, f"{node.op_type}_{place}"
    node.domain, node.op_type = _DOMAIN, function.name
    del node.input[len(function.input) :], node.attribute[:]
    loaded.functions.append(function)
    if not any(one.domain == _DOMAIN for one in loaded.opset_import):
        loaded.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))


def _error(source: Path, made: Any, inputs: dict[str, Array], answer: Answer | None) -> float:
    """The largest relative error of an output of ``made``."""

    def run(graph: Path | bytes) -> dict[str, Array]:
        session = _onnx_session.opened(graph, "BASIC")
        names = [one.name for one in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))

    try:
        expected = dict(answer(inputs)) if answer else run(source)
    except Exception as error:  # a session's, or whatever a given function raises
        raise ModelError(
            f"The original of {source.name} does not run, so its replacement cannot be compared: {first_line(error)}.",
            "Give what answers for it (answer=): the PyTorch model, or a function.",
        ) from error
    actual = run(made.SerializeToString())
    worst = max(_onnx_check.relative(np.asarray(actual[name]), np.asarray(array)) for name, array in expected.items())
    if not worst <= TOLERANCE["fp32"]:
        raise ModelError(
            f"The replacement changes an output of {source.name} by {worst:.2g}, at most {TOLERANCE['fp32']:g} was expected.",
            "Correct the body: it is another function.",
        )
    return worst

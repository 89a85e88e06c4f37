"""The line of a PyTorch network that fixes a size: where its calls with two sizes part, or where the second size fails."""

from __future__ import annotations

import linecache
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from accel_helpers.engine import Array
from accel_helpers.engines._onnx_check import quiet


@dataclass(frozen=True)
class Call:
    """One call of a PyTorch function that gave a tensor, or failed."""

    function: str
    file: str
    line: int
    reads: tuple[int, ...]  # numbers of the calls that gave its arguments
    shape: tuple[int, ...]  # of what it gave; empty where it failed
    failed: bool = False


def culprit(network: Any, few: Mapping[str, Array], many: Mapping[str, Array]) -> str:
    """The call that fixes a size, in words: its line, and the node of the exported graph that it becomes; empty where none is found.

    Args:
        network: a ``torch.nn.Module``.
        few: inputs that it was exported with.
        many: inputs of another size.
    """
    first, second = _calls(network, few), _calls(network, many)
    found = _parting(first, second)
    if found is None:
        return ""
    code = linecache.getline(found.file, found.line).strip()
    node = _node(_exported(network, few), [one.function for one in first], found.function, first.index(found) if found in first else -1)
    return f"{Path(found.file).name}, line {found.line}{f', `{code}`' if code else ''}, calls {found.function}{node and f', {node}'}"


def _parting(first: list[Call], second: list[Call]) -> Call | None:
    """What fixes a size: the argument of a failed call whose shape did not follow, the failed call, or the first not made twice."""
    for one, other in zip_longest(first, second):
        if one is None or other is None or (one.function, one.line) != (other.function, other.line):
            return other or one
        if other.failed:
            stuck = [first[number] for number in other.reads if first[number].shape == second[number].shape]
            return stuck[-1] if stuck else other
    return None


def _calls(network: Any, sample: Mapping[str, Array]) -> list[Call]:
    import torch

    made: list[Call] = []
    givers: dict[int, int] = {}
    alive: list[Any] = []  # so that no two tensors share an id

    class Recorder(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            reads = tuple(givers[id(one)] for one in _flat((args, kwargs or {})) if id(one) in givers)
            name = getattr(function, "__name__", str(function))
            try:
                result = function(*args, **(kwargs or {}))
            except Exception:
                made.append(Call(name, *_place(), reads, (), failed=True))
                raise
            if isinstance(result, torch.Tensor):
                givers[id(result)] = len(made)
                alive.append(result)
                made.append(Call(name, *_place(), reads, tuple(result.shape)))
            return result

    inputs = {name: torch.from_numpy(array) for name, array in sample.items()}
    try:
        with torch.inference_mode(), Recorder():
            network(**inputs)
    except Exception:  # noqa: S110 - a network may raise anything; the calls up to there tell where
        pass
    return made


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [one for part in value.values() for one in _flat(part)]
    return [one for part in value for one in _flat(part)] if isinstance(value, list | tuple) else [value]


def _place() -> tuple[str, int]:
    """File and line of the innermost caller outside PyTorch and this module."""
    import torch

    own = (f"{Path(torch.__file__).parent}{os.sep}", __file__)
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _exported(network: Any, sample: Mapping[str, Array]) -> list[Any]:
    """The nodes of the graph that a network gives for this sample's sizes alone; none where it gives none."""
    import onnx
    import torch

    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder) / "fixed.onnx"
        inputs = {name: torch.from_numpy(array) for name, array in sample.items()}
        try:
            torch.onnx.export(network, kwargs=inputs, f=path, dynamo=True, verbose=False, optimize=False)
        except Exception:  # the exporter wraps whatever the network and its own passes raise
            return []
        return list(onnx.load(path, load_external_data=False).graph.node)


def _node(nodes: list[Any], calls: list[str], function: str, place: int) -> str:
    """The node that a call became, matched by its order among calls of its kind; empty where their numbers differ.

    Args:
        nodes: of the exported graph.
        calls: the functions that were called, in order.
        function: the one that was called.
        place: its number among ``calls``; -1 for a call that came after them.
    """
    became: dict[str, tuple[str, Any]] = {}  # operation of the exported program -> its kind and its last node
    for node in nodes:
        origin = next((one.value for one in node.metadata_props if one.key == "pkg.torch.onnx.fx_node"), "")
        target = re.match(r"%(\w+) .*?target=torch\.ops\.aten\.(\w+)", origin)
        if target and node.op_type != "Constant":
            became[target[1]] = (_SAME.get(target[2], target[2]), node)
    kind = _SAME.get(function, function)
    found = [node for own, node in became.values() if own == kind]
    made = [number for number, one in enumerate(calls) if _SAME.get(one, one) == kind]
    if not found or len(found) != len(made):
        return ""
    node = found[made.index(place) if place in made else -1]
    return f"node {node.name!r} ({node.op_type})"


_SAME = {
    **{
        "__add__": "add",
        "__radd__": "add",
        "__iadd__": "add",
        "__mul__": "mul",
        "__rmul__": "mul",
        "__sub__": "sub",
        "__matmul__": "matmul",
    },
    **dict.fromkeys(("__getitem__", "select", "slice"), "index"),
    **dict.fromkeys(("reshape", "flatten", "unflatten", "view_as"), "view"),
}
"""Names that PyTorch's functions and the operations of an exported program have for the same thing."""

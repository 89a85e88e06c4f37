"""Which operator of an ONNX graph is to blame, for a runtime that refuses it or crashes, a number that is not finite, or a wrong answer.

A runtime only says yes or no, so the graph is halved until the smallest part is left that still fails, in as many attempts as the logarithm
of its operators. Each attempt has a process of its own: a crash or a hang of the runtime counts as a failure and ends nothing else.
Numbers say more: they are computed once for every tensor, and followed back from a wrong output to the first operator that answers wrongly
though all that it reads is right.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers import engines, models
from accel_helpers.accuracy import TOLERANCE
from accel_helpers.compilation.debugging import _attempt
from accel_helpers.compilation.debugging._attempts import Attempts
from accel_helpers.compilation.debugging._numbers import Numbers, blamed
from accel_helpers.compilation.debugging._parts import Node, Parts, read
from accel_helpers.engine import Array
from accel_helpers.errors import AccelError, MissingPackageError, ModelError, ParameterError, UnknownNameError

LOADS = tuple(_attempt.LOADS)
CHECKS = (*LOADS, "finite", "differs")
"""What a graph can be asked: whether an engine loads it (ONNX Runtime: and runs it; TensorRT: builds it), whether every number is finite
where the graph runs as it is written, and whether its values are those of a reference."""
SECONDS = 120.0
"""The longest that one attempt may take before it counts as a failure."""
_ALIKE = 0.8  # the share of the shorter complaint's words in the longer, from which on they are of one fault
_INPUTS = ".inputs.safetensors"  # in place of .onnx: what the part that fails is given
_SHOWN = 400  # letters of a complaint
_EXAMPLE = (2, 16)  # batch and sequence length of the inputs that are made where none are given


@dataclass(frozen=True)
class Culprit:
    """The operator to blame, and the smallest part of the graph that still fails."""

    check: str
    node: str  # its name, or its first output's where it has none
    operator: str  # with its domain, where that is not ONNX's own
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    place: int  # in the graph's order, from 0
    operators: int  # of the whole graph
    left: int  # operators of the part that still fails
    tries: int  # attempts in a process of their own
    complaint: str  # about that part
    subgraph: Path | None = None  # that part as an ONNX file, where it was asked for; its inputs lie beside it, as .inputs.safetensors


def failing_node(
    graph: Path | Any,
    check: str | Sequence[str],
    *,
    inputs: Mapping[str, Array] | None = None,
    reference: Path | Any = None,
    tolerance: float = TOLERANCE["fp32"],
    save: Path | None = None,
    seconds: float = SECONDS,
) -> Culprit:
    """Find the operator for which a graph fails a check.

    Args:
        graph: an ONNX file or ``ModelProto``.
        check: one of :data:`CHECKS`; or a command that is given the path of a graph and ends with 0 where that passes.
        inputs: named arrays to run the graph with; made up where they are not given and the graph's inputs tell what they are.
        reference: of "differs": the graph whose values are right, with the same names for the same tensors.
        tolerance: of "differs": the largest relative error of a tensor that is not wrong.
        save: where to write the smallest part that still fails, and beside it the inputs that it fails with.
        seconds: the longest that one attempt may take; longer is a failure.

    Raises:
        UnknownNameError: no such check.
        ParameterError: a reference is missing, or ``save`` cannot be written.
        MissingPackageError: the engine that is asked is not installed.
        ModelError: the file is not an ONNX file, the graph has no fault, or none that is in a part of it.
    """
    _known(check, reference)
    _writable(save, graph)
    parts = Parts(read(graph))
    if reference is not None:
        read(reference)
    with tempfile.TemporaryDirectory(prefix="accel-bisect-") as folder:
        attempts = Attempts(Path(folder), check, seconds)
        whole = _file(graph, attempts.folder / "graph.onnx")
        feeds = dict(inputs) if inputs is not None else _example(parts, attempts.folder / whole.name, check in ("finite", "differs"))
        if check in ("finite", "differs"):
            right = None if reference is None else _file(reference, attempts.folder / "reference.onnx")
            found = _walk(parts, Numbers.of(attempts, feeds, whole, right, tolerance))
        else:
            found = _halve(parts, attempts, whole, feeds)
        return found.culprit(attempts, save)


def _known(check: str | Sequence[str], reference: Any) -> None:
    if isinstance(check, str):
        if check not in CHECKS:
            raise UnknownNameError("check", check, CHECKS)
        if check in LOADS and (missing := engines.get(check).missing()):
            raise MissingPackageError(
                f"Check {check} needs {', '.join(missing)}, not installed here.", f"Run: {engines.get(check).install}"
            )
        if (check == "differs") != (reference is not None):
            raise ParameterError("A reference and check=differs go together.", "Give both the graph whose values are right and the check.")


def _writable(save: Path | None, graph: Path | Any) -> None:
    if save is None:
        return
    if save.suffix != ".onnx" or (isinstance(graph, Path) and save.resolve() == graph.resolve()):
        raise ParameterError(f"The part that fails cannot be saved as {save}.", "Name another file, ending in .onnx.")
    if not save.parent.is_dir() or not os.access(save.parent, os.W_OK):
        raise ParameterError(f"{save.parent} is no folder that can be written to.", "Name a file in one that is.")


def _file(graph: Path | Any, path: Path) -> Path:
    """The graph's own file, or one written to ``path``."""
    import onnx

    if not isinstance(graph, Path):
        onnx.save(graph, path)
    return graph if isinstance(graph, Path) else path


def _example(parts: Parts, path: Path, needed: bool) -> dict[str, Array]:
    """Inputs as the graph's own inputs tell them; nothing where they do not and the check can do without."""
    try:
        return models.get(str(parts.beginning(len(parts.nodes), path))).example(*_EXAMPLE, 0)
    except AccelError:
        if needed:
            raise
    return {}


@dataclass(frozen=True)
class _Found:
    """The node, how its smallest failing part is written, and what that was given and said."""

    parts: Parts
    node: Node
    write: Callable[[Path], Path]
    inputs: Mapping[str, Array]
    complaint: str

    def culprit(self, attempts: Attempts, save: Path | None) -> Culprit:
        import onnx
        from safetensors.numpy import save_file

        kept = save or attempts.folder / "smallest.onnx"
        graph = onnx.load(self.write(kept), load_external_data=False).graph
        given = {one.name: np.ascontiguousarray(self.inputs[one.name]) for one in graph.input if one.name in self.inputs}
        if given:
            save_file(given, kept.with_suffix(_INPUTS))
        node, check = self.node, attempts.name
        sizes = {"operators": len(self.parts.nodes), "left": len(graph.node), "tries": attempts.count}
        return Culprit(
            check, node.name, node.operator, node.inputs, node.outputs, node.place, complaint=_cut(self.complaint), subgraph=save, **sizes
        )


def _cut(complaint: str) -> str:
    return complaint if len(complaint) <= _SHOWN else f"{complaint[:_SHOWN]}…"


def _nothing(attempts: Attempts) -> ModelError:
    return ModelError(
        f"Nothing fails: the graph passes the check {attempts.name}.", "Ask another check, or give the inputs that it failed with."
    )


def _walk(parts: Parts, numbers: Numbers) -> _Found:
    """From the wrong outputs back to the first operator that answers wrongly though all that it reads is right."""
    wrong = numbers.wrong(numbers.values)
    if numbers.right is not None and not numbers.judged & set(parts.outputs):
        raise ModelError("The graph and its reference share no output.", "Give a reference with the same names for the same tensors.")
    if not wrong.keys() & set(parts.outputs):
        raise _nothing(numbers.attempts)
    node = blamed(parts, wrong, numbers)
    right = numbers.judged - wrong.keys()
    part, given = numbers.attempts.folder / "part.onnx", {**numbers.feeds, **numbers.values}
    for known in (right, frozenset[str]()):
        write = partial(parts.up_to, node, known)
        values, _ = numbers.attempts.values(write(part), given)
        if still := numbers.wrong({name: values[name] for name in node.outputs if name in values}):
            return _Found(parts, node, write, given, "; ".join(still.values()))
    raise ModelError(
        f"{node.name} answers wrongly in the graph and rightly in a part of it.", "Its runtime is not repeatable; run it again."
    )


def _halve(parts: Parts, attempts: Attempts, whole: Path, feeds: dict[str, Array]) -> _Found:
    """The last operator of the shortest beginning that fails, and then of that the shortest end."""
    part = attempts.folder / "part.onnx"
    if not (fault := attempts(whole, feeds)):
        raise _nothing(attempts)

    def fails(path: Path, given: Mapping[str, Array]) -> str:
        """The complaint, where it is the whole graph's: cutting a graph can break it in ways of its own."""
        complaint = attempts(path, given)
        return complaint if _alike(complaint, fault) else ""

    passes, high, complaint = 0, len(parts.nodes), fault
    while high - passes > 1:
        middle = (passes + high) // 2
        if said := fails(parts.beginning(middle, part), feeds):
            high, complaint = middle, said
        else:
            passes = middle
    node = parts.nodes[high - 1]
    given = {**feeds, **_recorded(parts, node, attempts, feeds)}

    def shortened(place: int, path: Path) -> Path:
        return parts.up_to(node, (name for one in parts.nodes[:place] for name in one.outputs), path)

    place, said = _latest(node.place, lambda place: fails(shortened(place, part), given))
    if said:
        return _Found(parts, node, lambda path: shortened(place, path), given, said)
    if high == len(parts.nodes) and not fails(parts.beginning(high, part), feeds):
        raise ModelError(
            f"The graph fails as a whole, and no part of it does: {_cut(fault)}.", "Look at its inputs, outputs and opset version."
        )
    return _Found(parts, node, lambda path: parts.beginning(high, path), feeds, complaint)


def _latest(place: int, fails: Callable[[int], str]) -> tuple[int, str]:
    """The latest cut at or before ``place`` after which the rest still fails, and its complaint; nothing where none does."""
    if said := fails(place):
        return place, said
    first, passes = 0, place
    complaint = fails(0) if place else ""
    while complaint and passes - first > 1:
        middle = (first + passes) // 2
        if said := fails(middle):
            first, complaint = middle, said
        else:
            passes = middle
    return first, complaint


def _recorded(parts: Parts, node: Node, attempts: Attempts, feeds: dict[str, Array]) -> dict[str, Array]:
    """What the operators before ``node`` compute, for the checks that read values, where ONNX Runtime runs them."""
    if not feeds or not node.place or attempts.check not in ("onnx_runtime", "tensorrt"):
        return {}
    return attempts.values(parts.beginning(node.place, attempts.folder / "part.onnx"), feeds)[0]


def _alike(complaint: str, fault: str) -> bool:
    """Whether two complaints are of one kind: most words of the shorter in the longer; names with digits and paths apart."""
    one, other = (re.findall(r"[A-Za-z]+", re.sub(r"\S*[\d/]\S*", " ", text)) for text in (complaint, fault))
    shorter = min(len(one), len(other))
    if not complaint or not shorter:
        return complaint != "" and complaint == fault
    same = sum(block.size for block in difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks())
    return same / shorter >= _ALIKE

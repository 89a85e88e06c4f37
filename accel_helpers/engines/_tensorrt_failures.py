"""Why TensorRT refused a graph: from its own messages to one cause, one cure and, where it can be told, the node that is to blame.

The patterns are of TensorRT-RTX 1.7 and its ONNX parser; every rule has been seen to fit a failure of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_helpers.engines._tensorrt_rules import NOISE, RULES, UNKNOWN, Rule
from accel_helpers.errors import ModelError

_LONGEST = 300  # letters of a message that is passed on
_NODE = (
    r"In node (?P<place>\d+) with name: (?P<name>.*?) and operator: (?P<operator>\w*) \(",
    r"While parsing node number (?P<place>\d+) \[(?P<operator>\w+) -> ",
    r"Cannot compile operation '(?P<name>[^']+)'",
    r"(?P<name>\S+) has no runners that implement",
    r"Invalid Node - (?P<name>\S+)",
)
"""How TensorRT names a node: the first two from the parser, by its place in the graph; the others by the name of the layer."""


@dataclass(frozen=True)
class Failure:
    """One cause of a refusal."""

    kind: str  # a Rule's, or "unknown"
    cause: str  # a clause without a full stop
    cure: str  # a sentence: what to do
    node: str = ""  # the name of the node to blame; empty where none is, or none can be told
    operator: str = ""  # of that node, as ONNX spells it
    complaint: str = ""  # the message of TensorRT's that says so, its first line


class RefusedError(ModelError):
    """TensorRT did not read a graph, or did not build it."""

    failure = Failure("unknown", "", "")


def complaints(parser: Any) -> list[str]:
    """What an ``OnnxParser`` found, each with the place, name and operator of its node."""
    return [str(parser.get_error(place)) for place in range(parser.num_errors)]


def misread(model_name: str, source: Path) -> RefusedError | None:
    """The error to raise where TensorRT would build another operator than the graph says, and say nothing; None where it would not.

    Its parser looks at the name of an operator alone: ``my.ops::Relu`` becomes the standard Relu. ``com.microsoft`` is left
    to it, for it reads some of that domain's operators as they are meant (Gelu).
    """
    import onnx

    try:
        loaded = onnx.load(source, load_external_data=False)
    except Exception:  # protobuf's errors share no base class; TensorRT is asked about such a file, and its answer explained
        return None
    own = {(one.domain, one.name) for one in loaded.functions}
    for node in loaded.graph.node:
        stranger = node.domain not in ("", "ai.onnx", "com.microsoft") and (node.domain, node.op_type) not in own
        if stranger and onnx.defs.has(node.op_type):
            who = _who(node.name, f"{node.domain}::{node.op_type}")
            cause = f"{who} has the name of a standard operator, and it builds that one in its place"
            cure = "Rename the operator, or replace it by standard operators that mean the same."
            error = RefusedError(f"TensorRT would misread the graph of {model_name}: {cause}.", cure)
            error.failure = Failure("domain_ignored", cause, cure, node.name, node.op_type)
            return error
    return None


def explained(model_name: str, stage: str, complaints: Sequence[str], source: Path | None = None) -> RefusedError:
    """The error to raise where TensorRT refused a graph; its ``failure`` holds the parts.

    Args:
        model_name: whose graph.
        stage: what it could not do, up to "of": "read the graph", "build for compute capability 8.9".
        complaints: TensorRT's messages: those of the parser (:func:`complaints`) and of the log, and of an exception of its binding.
        source: the ONNX file, which tells a node's domain, a tensor's type and whether its weights are there.
    """
    failure = diagnosed(complaints, source)
    error = RefusedError(f"TensorRT cannot {stage} of {model_name}: {failure.cause}.", failure.cure)
    error.failure = failure
    return error


def diagnosed(complaints: Sequence[str], source: Path | None = None) -> Failure:
    """The first rule that fits a message, or the first message whole with the kind "unknown"."""
    said = [one for one in map(_telling, complaints) if one] or ["it gave no reason"]
    graph = _graph(source)
    for rule in RULES:
        for complaint in said:
            if found := re.search(rule.pattern, complaint, re.DOTALL):
                node, operator, domain = _blamed([complaint, *said], graph)
                facts = {**found.groupdict(""), "operator": operator, "who": _who(node, operator)}
                if _fits(rule, facts, domain, graph, source):
                    return Failure(rule.kind, rule.cause.format(**facts), rule.cure, node, operator, _first(complaint))
    node, operator, _ = _blamed(said, graph)
    return Failure("unknown", _first(said[0]).rstrip("."), UNKNOWN, node, operator, _first(said[0]))


def _telling(complaint: str) -> str:
    """A message without the lines that say nothing of the graph."""
    return "\n".join(line for line in complaint.strip().splitlines() if not re.search(NOISE, line))


def _first(complaint: str) -> str:
    """The first line that says something: the parser may name the node in one, and the reason in the next."""
    lines = complaint.splitlines()
    return lines[1 if len(lines) > 1 and "Invalid Node - " in lines[0] else 0][:_LONGEST]


def _who(node: str, operator: str) -> str:
    if node and operator:
        return f"node {node!r} ({operator})"
    return f"node {node!r}" if node else f"a nameless {operator or ''} node"


def _graph(source: Path | None) -> Any:
    """The graph without its weights, or None where there is none that can be read."""
    if source is None or not source.is_file():
        return None
    import onnx

    try:
        return onnx.load(source, load_external_data=False).graph
    except Exception:  # protobuf's errors share no base class; a broken file is diagnosed from the complaint
        return None


def _blamed(said: Sequence[str], graph: Any) -> tuple[str, str, str]:
    """Name, operator and domain of the node that the first message which names one speaks of."""
    for pattern in _NODE:
        for complaint in said:
            if found := re.search(pattern, complaint):
                facts = found.groupdict()
                return _completed(facts.get("name") or "", facts.get("operator") or "", facts.get("place"), graph)
    return "", "", ""


def _completed(name: str, operator: str, place: str | None, graph: Any) -> tuple[str, str, str]:
    nodes = list(graph.node) if graph else []
    by_place = [node for node in nodes[int(place) : int(place) + 1] if node.op_type == operator] if place else []
    by_name = [node for node in nodes if name and node.name and name.startswith(node.name)]  # a layer's name may go on after the node's
    for node in [*by_place, *sorted(by_name, key=lambda one: -len(one.name))]:
        return node.name or name, node.op_type, node.domain
    return name, operator, ""


def _fits(rule: Rule, facts: dict[str, Any], domain: str, graph: Any, source: Path | None) -> bool:
    """Whether what only the graph can tell fits the rule too."""
    if rule.operators and not re.fullmatch(rule.operators, facts["operator"]):
        return False
    if rule.domain is not None:
        return bool(re.fullmatch(rule.domain, domain or _presumed(facts["operator"])))
    if rule.weights and graph and source:
        return _weights(facts["tensor"], graph, source) == rule.weights
    return True


def _presumed(operator: str) -> str:
    """The domain of an operator where no graph tells: the standard one if that has it, else a stranger's."""
    from onnx import defs

    return "" if defs.has(operator) else "unknown"


def _weights(name: str, graph: Any, source: Path) -> str:
    """What is wrong with a tensor of the graph: its file is "missing" or too "short", or its "type" is the trouble."""
    for one in graph.initializer:
        if one.name == name and one.external_data:
            facts = {entry.key: entry.value for entry in one.external_data}
            path = source.parent / facts.get("location", "")
            if not path.is_file():
                return "missing"
            if path.stat().st_size < int(facts.get("offset", 0)) + int(facts.get("length", 0)):
                return "short"
    return "type"

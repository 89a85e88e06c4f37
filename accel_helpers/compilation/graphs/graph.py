"""A model's graph as plain records: its nodes, which of them feed which, and which of them a compiler made into one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

_MOVES = frozenset(
    re.findall(
        r"\S+",
        """
        constant const constantofshape identity input output parameter result assertion shape shapeof size
        reshape view transpose permute t squeeze unsqueeze flatten expand broadcast fill full scalar_tensor range iota arange
        concat concatenation cat slice strided_slice select split split_with_sizes getitem alias clone lift_fresh_copy
        gather gathernd gatherelements embedding index cast convert convert_element_type _to_copy
        shuffle reorder reorderinput reorderoutput force_stride_order inductor_force_stride_order
        """,
    )
)
"""Operators that hold, move, look up, convert or describe values and compute none, as ONNX, OpenVINO, PyTorch and TensorRT spell them."""


@dataclass(frozen=True)
class Node:
    """One node: an operator of a graph, or a layer or kernel that a compiler made."""

    name: str  # unique in its graph
    operator: str
    inputs: tuple[str, ...] = ()  # names of the nodes that feed it; weights and the model's own inputs are left out

    @property
    def computes(self) -> bool:
        """Whether it computes values, rather than hold, move, look up, convert or describe them."""
        return self.operator.lower() not in _MOVES


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can run."""

    nodes: tuple[Node, ...]

    @cached_property
    def operators(self) -> Counter[str]:
        """How many nodes of each operator."""
        return Counter(node.operator for node in self.nodes)

    @property
    def total(self) -> int:
        """Nodes of every kind."""
        return len(self.nodes)

    @property
    def computing(self) -> int:
        """Nodes that compute."""
        return sum(node.computes for node in self.nodes)

    def kept(self, keep: Iterable[str]) -> Graph:
        """The nodes named, each fed by the nearest of them: what lay between is left out."""
        wanted, reached, nodes = set(keep), dict[str, tuple[str, ...]](), []
        for node in self.nodes:
            feeding = tuple(dict.fromkeys(source for name in node.inputs for source in reached.get(name, ())))
            reached[node.name] = (node.name,) if node.name in wanted else feeding
            if node.name in wanted:
                nodes.append(Node(node.name, node.operator, feeding))
        return Graph(tuple(nodes))


@dataclass(frozen=True)
class Stage:
    """A graph at one point of one compiler's way; without a graph, why there is none."""

    engine: str  # "exported", "onnx_runtime", "openvino", "compiled" or "tensorrt"
    stage: str
    graph: Graph | None
    source: str = ""  # the stage whose nodes ``groups`` names, as Stage.name gives it; empty where it was compiled from none
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # node -> the nodes of ``source`` that it does the work of
    seconds: float | None = None  # to compile, once
    reason: str = ""

    @property
    def name(self) -> str:
        """The engine and the stage."""
        return f"{self.engine}, {self.stage}"


def linked(nodes: Sequence[tuple[str, str, Iterable[str], Iterable[str]]]) -> Graph:
    """A graph from (name, operator, values read, values written), in an order in which they can run."""
    made: dict[str, str] = {}
    linked = []
    for name, operator, reads, writes in nodes:
        linked.append(Node(name, operator, tuple(dict.fromkeys(made[value] for value in reads if value in made))))
        made.update(dict.fromkeys(writes, name))
    return Graph(tuple(linked))


def grouped(before: Graph, after: Graph, claims: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Which nodes of a graph became which layer.

    Args:
        before: the graph that was compiled.
        after: the layers that its compiler made of it.
        claims: layer -> the nodes of ``before`` that the compiler names for it, or whose values it answers.

    Returns:
        Each layer's nodes, in the order of ``before``. A node that no layer claims belongs to the layer without a claim that stands in its
        place, else to the layer that it feeds, or, where it feeds none (an addition that a compiler merged into the product before it), to
        the last layer that feeds it. One that neither feeds nor is fed by any layer was removed.
    """
    order = {layer.name: place for place, layer in enumerate(after.nodes)}
    owner: dict[str, str] = {}
    for layer in order:
        for name in claims.get(layer, ()):
            owner.setdefault(name, layer)
    _place(before, after, owner)
    takers: dict[str, set[str]] = {}
    for node in reversed(before.nodes):
        if node.name not in owner and node.name in takers:
            owner[node.name] = min(takers[node.name], key=order.__getitem__)
        for source in node.inputs if node.name in owner else ():
            takers.setdefault(source, set()).add(owner[node.name])
    for node in before.nodes:
        if node.name not in owner and (feeding := [owner[source] for source in node.inputs if source in owner]):
            owner[node.name] = max(feeding, key=order.__getitem__)
    groups: dict[str, list[str]] = {}
    for node in before.nodes:
        if node.name in owner:
            groups.setdefault(owner[node.name], []).append(node.name)
    return {layer: tuple(groups[layer]) for layer in order if layer in groups}


def _place(before: Graph, after: Graph, owner: dict[str, str]) -> None:
    """Give computing nodes without an owner the computing layer without a claim that has their neighbours above and below."""
    claimed = set(owner.values())
    free = {layer.name for layer in after.nodes if layer.computes} - claimed
    layers = after.kept(free | claimed)
    for name in [node.name for node in before.nodes if node.computes and node.name not in owner] if free else []:
        near = before.kept({*owner, name})
        feeding = {owner[source] for node in near.nodes if node.name == name for source in node.inputs}
        fed = {owner[node.name] for node in near.nodes if name in node.inputs}
        taken = {source for layer in layers.nodes if layer.name in fed for source in layer.inputs}
        if found := [layer.name for layer in layers.nodes if layer.name in free & taken and feeding & set(layer.inputs)]:
            owner[name] = found[0]
            free.discard(found[0])


def onnx_nodes(graph: Any) -> list[tuple[str, str, list[str], list[str]]]:
    """The nodes of a ``GraphProto`` for :func:`linked`; one without a name of its own gets that of its first output."""
    seen: Counter[str] = Counter()
    nodes = []
    for node in graph.node:
        name = node.name or node.output[0]
        seen[name] += 1
        unique = name if seen[name] == 1 else f"{name} #{seen[name]}"
        nodes.append((unique, str(node.op_type), list(node.input), [one for one in node.output if one]))
    return nodes

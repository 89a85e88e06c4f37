"""Wrong numbers in a graph, followed back to the operator that made them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from accel_helpers.accuracy import Difference, compare_outputs
from accel_helpers.compilation.debugging._attempts import Attempts
from accel_helpers.compilation.debugging._parts import Node, Parts
from accel_helpers.engine import Array
from accel_helpers.errors import ModelError


@dataclass
class Numbers:
    """Which tensors of a graph are wrong, by their values."""

    attempts: Attempts
    feeds: dict[str, Array]
    tolerance: float
    right: dict[str, Array] | None = None  # the reference's values; None where a number only has to be finite
    values: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, attempts: Attempts, feeds: dict[str, Array], graph: Path, reference: Path | None, tolerance: float) -> Numbers:
        """Run the graph, and the reference where there is one.

        Raises:
            ModelError: one of them does not run.
        """
        found = []
        for path in (graph, *([reference] if reference else [])):
            values, complaint = attempts.values(path, feeds)
            if complaint:
                raise ModelError(f"{path.name} does not run: {complaint[:400]}.", "Find the operator with check=onnx_runtime first.")
            found.append(values)
        return cls(attempts, feeds, tolerance, found[1] if reference else None, found[0])

    @property
    def judged(self) -> frozenset[str]:
        """The tensors that can be told right from wrong."""
        return frozenset(self.values if self.right is None else self.values.keys() & self.right.keys())

    def wrong(self, values: Mapping[str, Array]) -> dict[str, str]:
        """What is wrong with each tensor that is."""
        found = {name: self._fault(array, name) for name, array in values.items() if name in self.judged}
        return {name: fault for name, fault in found.items() if fault}

    def _fault(self, array: Array, name: str) -> str:
        if self.right is None:
            if np.isfinite(array).all():
                return ""
            nan, inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
            return f"{name} holds {nan:,} NaN and {inf:,} Inf among {array.size:,} {array.dtype} numbers"
        relative = apart(array, self.right[name]).relative
        return f"{name} is off by {relative:.3g} of its norm, {self.tolerance:g} is allowed" if relative > self.tolerance else ""


def apart(array: Array, reference: Array) -> Difference:
    """:func:`accuracy.compare_outputs` of one tensor; what is infinite or NaN in both alike, as a mask is, counts as equal."""
    if array.shape == reference.shape:
        same = ~np.isfinite(reference) & ((array == reference) | (np.isnan(array) & np.isnan(reference)))
        array, reference = np.where(same, 0, array), np.where(same, 0, reference)
    return compare_outputs({"": array}, {"": reference})[""]


def blamed(parts: Parts, wrong: Mapping[str, str], numbers: Numbers) -> Node:
    """The first operator that answers wrongly though all that it reads is right, on the way back from a wrong output of the graph."""
    makers = {name: node for node in parts.nodes for name in node.outputs}

    def upstream(node: Node) -> set[str]:
        """The wrong tensors that it reads, seen through those that cannot be judged."""
        found, seen, todo = set(), set(), list(node.inputs)
        while todo:
            name = todo.pop()
            if name in wrong and name in makers:
                found.add(name)
            elif name not in seen and name not in numbers.judged and name in makers:
                todo += makers[name].inputs
            seen.add(name)
        return found

    to_see, seen, blamed = [name for name in parts.outputs if name in wrong], set[str](), list[Node]()
    while to_see:
        name = to_see.pop()
        if name in seen:
            continue
        seen.add(name)
        node = makers[name]
        to_see += (causes := upstream(node))
        blamed += [] if causes else [node]
    return min(blamed, key=lambda node: (_masks(node, numbers), node.place))


def _masks(node: Node, numbers: Numbers) -> bool:
    """Whether all that is not finite of its answers is minus infinity: attention masks are written so, and do no harm."""
    arrays = [numbers.values[name] for name in node.outputs if name in numbers.values]
    return numbers.right is None and all((array[~np.isfinite(array)] == -np.inf).all() for array in arrays)

"""Where to draw the nodes of a small graph: in rows from top to bottom, edges short and seldom crossing (Sugiyama's method)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8


@dataclass(frozen=True)
class Layout:
    """Places in units of one node: x to the right, y downwards by rows."""

    places: Mapping[str, tuple[float, float]]
    paths: tuple[tuple[tuple[float, float], ...], ...]  # of each edge: its source, where it passes other rows, its target

    @property
    def span(self) -> tuple[float, float, float]:
        """The least and the greatest x, and the greatest y."""
        xs = [x for path in (*self.paths, tuple(self.places.values())) for x, _ in path]
        return min(xs), max(xs), max(y for _, y in self.places.values())


def layered(inputs: Mapping[str, Sequence[str]]) -> Layout:
    """Lay out a graph without cycles.

    Args:
        inputs: node -> the nodes that feed it; in an order in which they can run.
    """
    row = _rows(inputs)
    rows: list[list[str]] = [[] for _ in range(max(row.values()) + 1)]
    for name in inputs:
        rows[row[name]].append(name)
    above: dict[str, list[str]] = {name: [] for name in inputs}
    chains = []
    for target, sources in inputs.items():
        for source in sources:  # an edge past a row has a place of its own there
            passed = [f"{source}\n{target}\n{number}" for number in range(row[source] + 1, row[target])]
            for number, name in enumerate(passed, row[source] + 1):
                rows[number].append(name)
            chain = [source, *passed, target]
            for upper, lower in pairwise(chain):
                above.setdefault(lower, []).append(upper)
            chains.append(chain)
    across = _across(rows, above)
    depth = {name: float(number) for number, names in enumerate(rows) for name in names}
    paths = tuple(tuple((across[name], depth[name]) for name in chain) for chain in chains)
    return Layout({name: (across[name], depth[name]) for name in inputs}, paths)


def _rows(inputs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The row of each node: below all that feeds it, and as near as can be to what it feeds."""
    row: dict[str, int] = {}
    for name, sources in inputs.items():
        row[name] = 1 + max((row[source] for source in sources), default=-1)
    for name in reversed(list(inputs)):
        fed = [row[other] for other, sources in inputs.items() if name in sources]
        row[name] = min(fed) - 1 if fed else row[name]
    return row


def _across(rows: list[list[str]], above: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The x of each node: rows sorted by the middle of their neighbours above and below in turn, then drawn towards them."""
    below: dict[str, list[str]] = {}
    for lower, uppers in above.items():
        for upper in uppers:
            below.setdefault(upper, []).append(lower)
    across = {name: place - (len(names) - 1) / 2 for names in rows for place, name in enumerate(names)}
    for sweep in range(_SWEEPS):
        near = below if sweep % 2 else above
        for names in reversed(rows) if sweep % 2 else rows:
            wished = {name: _mean([across[other] for other in near.get(name, ())], across[name]) for name in names}
            names.sort(key=wished.__getitem__)
            across.update(_apart(names, wished))
    return across


def _apart(names: Sequence[str], wished: Mapping[str, float]) -> dict[str, float]:
    """Places at least one apart, in order, as near as can be to those wished for: neighbours that collide share their mean."""
    blocks: list[list[float]] = []  # of each run of neighbours: the sum of their wishes, each less its place in the run; and how many
    for name in names:
        blocks.append([wished[name], 1])
        while len(blocks) > 1 and _end(blocks[-2]) > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total - count * blocks[-1][1]
            blocks[-1][1] += count
    places = [total / count + offset for total, count in blocks for offset in range(int(count))]
    return dict(zip(names, places, strict=True))


def _end(block: Sequence[float]) -> float:
    return block[0] / block[1] + block[1]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise

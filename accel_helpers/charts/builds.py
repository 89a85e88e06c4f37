"""Builds that failed, as tables: why, what cured them, and what wrong shapes and simplifying change."""

from __future__ import annotations

from collections.abc import Sequence

from accel_helpers.charts.chart import Table
from accel_helpers.charts.units import seconds
from accel_helpers.compilation.builds.attempts import ABSENT, After, Attempt, ShapeTrials, SimplifyTrial, SimplifyTrials
from accel_helpers.compilation.builds.shape_trials import RUN
from accel_helpers.compilation.builds.simplify import Simplification

_STAGES = {"build": "builds", "run": f"runs batch {RUN}", "admit": f"would give batch {RUN} to the GPU"}


def attempts_table(attempts: Sequence[Attempt]) -> Table:
    """One row for each refused build: why, the node to blame, the cure, whether it builds after it, and how far its outputs moved."""
    rows = [["What was built", "It was refused because", "Node", "Cure", "What was done", "After it", "Outputs moved"]]
    for one in attempts:
        if one.kind == ABSENT:
            rows.append([_sentence(one.title), _sentence(one.cause), "", one.cure, "", "", ""])
            continue
        after = f"built in {seconds(one.cured_seconds)}" if one.cured else f"refused: {one.after}"
        cause = "nothing: it was built" if one.ok else one.cause
        moved = "not comparable" if one.error is None else f"{one.error:.1g}"
        done = ["", "", ""] if one.cured is None else [_sentence(one.done), _sentence(after), moved]
        rows.append([_sentence(one.title), _sentence(cause), one.node, one.cure, *done])
    return rows


def shapes_table(found: ShapeTrials) -> Table:
    """One row for each declaration of the batch and each runtime that met it, in the order tried."""
    rows = [["The batch is declared", "It is", "Runtime", "Question", "Answer", "Said"]]
    for one in found.trials:
        answer = "yes" if one.ok else "no"
        rows.append([_sentence(one.declared), "wrong" if one.wrong else "right", one.runtime, _STAGES[one.stage], answer, one.said])
    if found.missing:
        rows.append(["All", "", "TensorRT", "builds", "not tried", found.missing])
    return rows


def simplified_table(found: SimplifyTrials) -> Table:
    """One row for each graph: whether it is built as it is, and after each simplifier."""
    tools = [after.tool for after in found.trials[0].after] if found.trials else []
    rows = [["Graph", "As it is", "To blame", "Trouble", *(f"After {tool}" for tool in tools)]]
    for one in found.trials:
        trouble = "none" if one.ok else "constant, or never read" if one.foldable else "what TensorRT lacks"
        after = [_after(one, each) for each in one.after]
        rows.append(
            [one.title if one.ok else _sentence(one.title), "built" if one.ok else f"refused ({one.kind})", one.operator, trouble, *after]
        )
    if found.missing:
        rows.append(["All", "not tried", "", found.missing])
    return rows


def _after(before: SimplifyTrial, after: After) -> str:
    if after.ok:
        return "built, outputs not comparable" if after.error is None else f"built, outputs moved {after.error:.1g}"
    return "refused as before" if after.said == before.said else f"refused: {after.said}"


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def simplifications(found: Sequence[Simplification], told: Sequence[Simplification] = ()) -> Table:
    """One row for each simplifier: nodes before and after, what changed most, and whether its graph is used.

    Args:
        found: on the graph as it is.
        told: the same with the batch told to the tools.
    """
    rows = [["Simplifier", "Nodes", "What changed most", "Largest relative error", "Its graph"]]
    for one in [*found, *told]:
        name = f"{one.tool} {one.version}{', told the batch' if one in told else ''}"
        changes = ", ".join(f"{by:+d} {operator}" for operator, by in list(one.changes.items())[:4]) or "nothing"
        error = "not compared" if one.error is None else f"{one.error:.1g}"
        rows.append([name, f"{one.nodes[0]} to {one.nodes[1]}", changes, error, f"refused: {one.refused}" if one.refused else "used"])
    return rows

"""What compilers do to a graph, where they fail, and how to find the operator that is to blame: experiments on a CPU and a GPU."""

from accel_helpers.compilation.bisect import CHECKS, Culprit, failing_node
from accel_helpers.compilation.builds import Attempt, Replacement, dynamic_shapes, failures, replace_operator, simplifying
from accel_helpers.compilation.commands import Commands, commands_for, installed_version, intent_of
from accel_helpers.compilation.fusion import Fusion, fused
from accel_helpers.compilation.launch import Overhead, cold_start, formats, overhead
from accel_helpers.compilation.lunches import Lunch, rank
from accel_helpers.compilation.memory import Peaks, peaks
from accel_helpers.compilation.outputs import OutputDifference, along, compare, first_jump
from accel_helpers.compilation.recompiling import Recompilations, recompilations
from accel_helpers.compilation.reuse import Reuse, reuse
from accel_helpers.compilation.simplify import Simplification, simplifications
from accel_helpers.compilation.spoilt import wrong_operator

__all__ = [
    "CHECKS",
    "Attempt",
    "Commands",
    "Culprit",
    "Fusion",
    "Lunch",
    "OutputDifference",
    "Overhead",
    "Peaks",
    "Recompilations",
    "Replacement",
    "Reuse",
    "Simplification",
    "along",
    "cold_start",
    "commands_for",
    "compare",
    "dynamic_shapes",
    "failing_node",
    "failures",
    "first_jump",
    "formats",
    "fused",
    "installed_version",
    "intent_of",
    "overhead",
    "peaks",
    "rank",
    "recompilations",
    "replace_operator",
    "reuse",
    "simplifications",
    "simplifying",
    "wrong_operator",
]

"""What compilers do to a graph, where they fail, and how to find the operator that is to blame: experiments on a CPU and a GPU."""

from accel_helpers.compilation.builds.attempts import Attempt, Replacement, dynamic_shapes, failures, replace_operator, simplifying
from accel_helpers.compilation.builds.simplify import Simplification, simplifications
from accel_helpers.compilation.commands.fitting import Commands, commands_for, installed_version, intent_of
from accel_helpers.compilation.costs.launch import Overhead, cold_start, formats, overhead
from accel_helpers.compilation.costs.lunches import Lunch, rank
from accel_helpers.compilation.costs.memory import SWITCHES, Peaks, peaks
from accel_helpers.compilation.costs.recompiling import Recompilations, recompilations
from accel_helpers.compilation.costs.reusing import Reuse, reuse
from accel_helpers.compilation.debugging.bisect import CHECKS, Culprit, failing_node
from accel_helpers.compilation.debugging.outputs import OutputDifference, along, compare, first_jump
from accel_helpers.compilation.debugging.spoilt import wrong_operator
from accel_helpers.compilation.graphs.fusion import Fusion, fused

__all__ = [
    "CHECKS",
    "SWITCHES",
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

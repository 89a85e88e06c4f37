"""C4 and C5: compiled engines against PyTorch, and what building them costs."""

from __future__ import annotations

from accel_helpers.bench import Comparison
from accel_helpers.charts import labels, ratio, seconds
from accel_helpers.claims.judging import judge, made
from accel_helpers.records import Claim, Finding

FASTER = 1.5
"""Where "1.5 to several times faster" begins."""
FREE = 0.1
"""Using a built engine again is called free when it takes at most this share of building it."""


def faster_engine(comparison: Comparison) -> Claim:
    """C4: the best compiled engine of a comparison against PyTorch. TensorRT itself counts only where it ran."""
    candidates = zip(comparison.measurements[1:], comparison.verdicts, strict=True)
    best, verdict = max((pair for pair in candidates if pair[0].plan.engine != "pytorch"), key=lambda pair: pair[1].speedup.value)
    ran = any(one.plan.engine == "tensorrt" for one in comparison.measurements)
    evidence = (
        f"The fastest engine here, {best.plan.label}, is {ratio(verdict.speedup)} as fast by wall time, {ratio(verdict.cpu_speedup)} by "
        f"CPU time.{'' if ran else ' TensorRT itself: not yet run on a GPU.'}"
    )
    statement = "TensorRT, or the compiled engine for this machine, is 1.5 to several times faster than PyTorch"
    return made("C4", statement, judge(verdict.speedup, at_least=FASTER), evidence, [comparison.measurements[0], best, verdict])


def build_once(comparison: Comparison) -> Claim:
    """C5: what each engine took to build, once, and what it takes until the second call each time its files are loaded."""
    built = [one for one in comparison.measurements[1:] if one.plan.engine != "pytorch"]
    ready = [one.load_seconds + one.first_call for one in built]
    costs = [
        f"{name} {seconds(one.build_seconds)} and {seconds(again)}" for name, one, again in zip(labels(built), built, ready, strict=True)
    ]
    free = all(again <= FREE * one.build_seconds for one, again in zip(built, ready, strict=True))
    evidence = (
        f"To build once, and then to load and make the first call (one try each, so no interval): {'; '.join(costs)}. "
        f"Free means at most {FREE:.0%} of the build, for every engine."
    )
    verdict: Finding = "holds" if free else "does not hold here"
    return made("C5", "An engine is slow to build the first time and free afterwards", verdict, evidence, built)

"""C4, C5 and C6: compiled engines against PyTorch, what building them costs, and what they do to peak memory."""

from __future__ import annotations

from accel_helpers.bench import Comparison
from accel_helpers.charts import labels, ratio, seconds, size
from accel_helpers.charts.words import counted
from accel_helpers.claims.judging import WORST_FIRST, judge, made
from accel_helpers.compilation.costs.memory import FREED, FUSED, KEPT, UNFUSED, Peaks, Way
from accel_helpers.compilation.costs.reusing import Cost, Reuse
from accel_helpers.intervals import Estimate
from accel_helpers.records import Claim, Environment, Finding

FASTER = 1.5
"""Where "1.5 to several times faster" begins."""
FREE = 0.1
"""Using a built engine again is called free when it takes at most this share of building it."""
FOUND = 0.02
"""What finding an engine built may take of building it."""
LOWER = 1.05
"""A peak is lower where the other is this many times as large."""


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


def build_once(comparison: Comparison, again: Reuse | None = None) -> Claim:
    """C5: what each engine took to build, once, and what it takes until the second call each time its files are loaded.

    Args:
        comparison: PyTorch and engines with files of their own.
        again: engines built several times into empty stores and found there again; each must be found in :data:`FOUND` of its building.
    """
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
    found: list[Finding] = ["holds" if free else "does not hold here"]
    if again:
        found += [_below(one.share, FOUND) for one in again.costs]
        told = "; ".join(_cost(one) for one in again.costs)
        evidence += (
            f" Built into empty stores and found there again, every file's SHA-256 compared: {told}. At most {FOUND:.0%} counts as free."
        )
    statement = "An engine is slow to build the first time and free afterwards"
    return made("C5", statement, min(found, key=WORST_FIRST.index), evidence, built)


def _below(share: Estimate, limit: float) -> Finding:
    if share.high <= limit:
        return "holds"
    return "does not hold here" if share.low > limit else "too noisy to say"


def _cost(one: Cost) -> str:
    """An engine's seconds, with the range of the share over its tries."""
    share = f"{one.share.value:.2%} [{one.share.low:.2%}, {one.share.high:.2%}], the range of {counted(len(one.built), 'build')}"
    ready = f"loaded and called in {seconds(max(one.ready))}" if one.ready else one.reason
    return f"{one.plan.engine} {seconds(max(one.built))} and {seconds(max(one.found))} at most ({share}; {ready})"


def memory_falls(peaks: Peaks, here: Environment) -> Claim:
    """C6: fused against unfused, values freed against kept to the end, and an arena with planned blocks against single allocations."""
    pairs = {
        "without fusion": (UNFUSED, FUSED),
        "with every value kept to the end": (KEPT, UNFUSED),
        "without an arena and planned blocks": (FREED, UNFUSED),
    }
    times = {name: peaks.times(*ways) for name, ways in pairs.items()}
    finding = min((judge(one, at_least=LOWER) for one in times.values()), key=WORST_FIRST.index)
    measured = "; ".join(f"{ratio(one)} as large {name} ({_sizes(peaks, *pairs[name])})" for name, one in times.items())
    others = ", ".join(f"{way.name} {size(peaks.of(way).value)}" for way in peaks.added if not any(way in pair for pair in pairs.values()))
    exact = [size(one) for one in (peaks.unfused.total, peaks.unfused.peak, peaks.fused.peak)]
    in_place = [size(one.peak) for one in (peaks.unfused_in_place, peaks.fused_in_place)]
    beside = f" Beside them: {others}." if others else ""
    evidence = (
        f"At batch {peaks.plan.batch} the memory that calls of ONNX Runtime take at their peak is {measured}; lower means "
        f"{LOWER:g}\u00d7 or more, in all three (n = {len(peaks.added[FUSED])} fresh processes each).{beside} "
        f"By the graph, exactly: {exact[0]} of values, of which {exact[1]} are alive at a time without fusion and {exact[2]} with it, or "
        f"{in_place[0]} and {in_place[1]} where operators write over their inputs. On a GPU: not yet run on a GPU."
    )
    return made("C6", "Fusion and memory reuse lower peak memory", finding, evidence, environment=here, model=peaks.model)


def _sizes(peaks: Peaks, way: Way, other: Way) -> str:
    return f"{size(peaks.of(way).value)} against {size(peaks.of(other).value)}"

"""C3, C7, C18 and C21: the baseline and the machine."""

from __future__ import annotations

from collections.abc import Sequence

from accel_helpers.bench import Comparison
from accel_helpers.charts import Ceiling, rate, ratio, seconds
from accel_helpers.claims.judging import WORST_FIRST, judge, made, percent
from accel_helpers.environment import Ceilings
from accel_helpers.instructions import Effect
from accel_helpers.intervals import Estimate
from accel_helpers.records import Claim, Finding, Measurement

WIDE = 1.5
"""What the widest vector instructions must gain to decide."""
SLOW = 1.5
"""A first call that takes this many times the median is called slow."""
ALMOST = 0.75
"""The share of linear growth that still counts as almost linear."""
BUSY = WELL = 0.7
"""The utilisation that the claim speaks of, and the share of the ceiling that would deserve "well optimised"."""
DECIDES = 0.5
"""A matrix times a vector that reaches this share of the memory bandwidth is bound by it."""


def first_call(measurement: Measurement) -> Claim:
    """C3: the first call against the median."""
    p50, first = measurement.p50, measurement.first_call
    slower = Estimate(first / p50.value, first / p50.high, first / p50.low)
    evidence = (
        f"It took {seconds(first)}, {ratio(slower)} the median of {seconds(p50)}; left in, it would change the mean of the "
        f"first 100 calls by {(first / p50.value - 1) / 100:+.1%}."
    )
    return made("C3", "The first call is slow and must be left out", judge(slower, at_least=SLOW), evidence, [measurement])


def batch_growth(comparison: Comparison) -> Claim:
    """C7: a sweep over the batch size, smallest batch first."""
    small, large = comparison.measurements[0], comparison.measurements[-1]
    step, whole = comparison.verdicts[0], comparison.verdicts[-1]
    times, most = comparison.measurements[1].plan.batch / small.plan.batch, large.plan.batch / small.plan.batch
    rises = Estimate(large.p50.value / small.p50.value, large.p50.low / small.p50.high, large.p50.high / small.p50.low)
    linear, slower = judge(step.speedup, at_least=ALMOST * times), judge(rises, at_least=1.0)
    verdict: Finding = linear if linear != "holds" else slower
    evidence = (
        f"{times:.3g} times the batch gives {ratio(step.speedup)} the items a second, {most:.3g} times gives {ratio(whole.speedup)}; "
        f"the call time grows {ratio(rises)} over the sweep."
    )
    statement = "Throughput rises almost linearly with the batch up to a knee, and latency rises with it"
    return made("C7", statement, verdict, evidence, [*comparison.measurements, *comparison.verdicts])


def utilisation(measurement: Measurement) -> Estimate:
    """The share of its threads' time that a call keeps busy: CPU time over wall time and threads."""
    cpu, wall, threads = measurement.cpu_time, measurement.p50, measurement.plan.threads
    return Estimate(cpu.value / wall.value / threads, cpu.low / wall.high / threads, cpu.high / wall.low / threads)


def busy_is_not_fast(measurement: Measurement, ceilings: Sequence[Ceiling]) -> Claim:
    """C21: the utilisation beside the largest share of a ceiling that the model reaches."""
    busy, p50 = utilisation(measurement), measurement.p50
    binding = max(ceilings, key=lambda one: one.work / one.limit)
    floor = binding.work / binding.limit
    share = Estimate(floor / p50.value, floor / p50.high, floor / p50.low)
    verdict = judge(share, at_least=WELL) if busy.low > BUSY else "too noisy to say"
    evidence = f"Utilisation {percent(busy)}, and {percent(share)} of {binding.name}."
    if busy.low <= BUSY:
        evidence += f" The claim speaks of more than {BUSY:.0%}, so this run cannot test it."
    return made("C21", f"Utilisation above {BUSY:.0%} means well optimised", verdict, evidence, [measurement])


def vectors_and_bandwidth(effect: Effect, ceilings: Ceilings) -> Claim:
    """C18: what the widest instructions gain in a matrix product, and how near a matrix times a vector comes to the memory's rate."""
    limit, reached = ceilings.bandwidth(threads=1), effect.bandwidth
    share = Estimate(reached.value / limit, reached.low / limit, reached.high / limit)
    verdict: Finding = "too noisy to say"
    gains = "this processor has no vector instructions that could be held back"
    if effect.held:
        widest = judge(effect.speedup(next(iter(effect.held))), at_least=WIDE)
        verdict = min(widest, judge(share, at_least=DECIDES), key=WORST_FIRST.index)
        gained = " and ".join(f"{ratio(effect.speedup(level))} over {level}" for level in effect.held)
        gains = f"the processor's own instructions gain {gained}"
    evidence = (
        f"In an FP32 matrix product {gains}. A matrix times a vector reads {rate(reached, 'B')}, {percent(share)} of the memory's "
        f"{rate(limit, 'B')} (one thread, CPU time)."
    )
    statement = "On a CPU, memory bandwidth and AVX-512 (now AMX) decide"
    return made("C18", statement, verdict, evidence, environment=ceilings.environment)

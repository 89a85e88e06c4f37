"""What the records say of the claims that people repeat: pure functions from measurements to a :class:`~accel_helpers.records.Claim`.

A claim about a quantity holds when its whole 95 % interval lies on the claimed side of a bound, does not hold here when the whole interval
lies on the other side, and is too noisy to say in between, or where a measurement behind it is INVALID.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from accel_helpers import bench
from accel_helpers.accuracy import compare_scores
from accel_helpers.bench import Comparison
from accel_helpers.charts import Ceiling, labels, rate, ratio, seconds
from accel_helpers.environment import Ceilings
from accel_helpers.instructions import Effect
from accel_helpers.intervals import Estimate
from accel_helpers.quantize import BitWidth, SensitivePart, Trials
from accel_helpers.records import Census, Claim, Environment, Finding, Measurement, Verdict

SLOW = 1.5
"""A first call that takes this many times the median is called slow."""
ALMOST = 0.75
"""The share of linear growth that still counts as almost linear."""
FASTER = 1.5
"""Where "1.5 to several times faster" begins."""
BUSY = WELL = 0.7
"""The utilisation that the claim speaks of, and the share of the ceiling that would deserve "well optimised"."""
DECIDES = 0.5
"""A matrix times a vector that reaches this share of the memory bandwidth is bound by it."""
SMALLER = 3.5
"""Where "about 4 times smaller" begins."""
HALF = 0.5
"""The share of the noise that makes a part of a network the sensitive one."""
FREE = 0.1
"""Using a built engine again is called free when it takes at most this share of building it."""


def judge(estimate: Estimate, *, at_least: float) -> Finding:
    """Whether a quantity reaches a bound, in the words of a claim."""
    if estimate.low >= at_least:
        return "holds"
    return "does not hold here" if estimate.high < at_least else "too noisy to say"


def first_call(measurement: Measurement) -> Claim:
    """C3: the first call against the median."""
    p50, first = measurement.p50, measurement.first_call
    slower = Estimate(first / p50.value, first / p50.high, first / p50.low)
    evidence = (
        f"It took {seconds(first)}, {ratio(slower)} the median of {seconds(p50)}; left in, it would change the mean of the "
        f"first 100 calls by {(first / p50.value - 1) / 100:+.1%}."
    )
    return _claim("C3", "The first call is slow and must be left out", judge(slower, at_least=SLOW), evidence, [measurement])


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
    return _claim("C7", statement, verdict, evidence, [*comparison.measurements, *comparison.verdicts])


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
    evidence = f"Utilisation {_percent(busy)}, and {_percent(share)} of {binding.name}."
    if busy.low <= BUSY:
        evidence += f" The claim speaks of more than {BUSY:.0%}, so this run cannot test it."
    return _claim("C21", f"Utilisation above {BUSY:.0%} means well optimised", verdict, evidence, [measurement])


def vectors_and_bandwidth(effect: Effect, ceilings: Ceilings) -> Claim:
    """C18: what the widest instructions gain in a matrix product, and how near a matrix times a vector comes to the memory's rate."""
    limit, reached = ceilings.bandwidth(threads=1), effect.bandwidth
    share = Estimate(reached.value / limit, reached.low / limit, reached.high / limit)
    verdict: Finding = "too noisy to say"
    gains = "this processor has no vector instructions that could be held back"
    if effect.held:
        widest = judge(effect.speedup(next(iter(effect.held))), at_least=FASTER)
        order: tuple[Finding, ...] = ("does not hold here", "too noisy to say", "holds")
        verdict = min(widest, judge(share, at_least=DECIDES), key=order.index)
        gained = " and ".join(f"{ratio(effect.speedup(level))} over {level}" for level in effect.held)
        gains = f"the processor's own instructions gain {gained}"
    evidence = (
        f"In an FP32 matrix product {gains}. A matrix times a vector reads {rate(reached, 'B')}, {_percent(share)} of the memory's "
        f"{rate(limit, 'B')} (one thread, CPU time)."
    )
    statement = "On a CPU, memory bandwidth and AVX-512 (now AMX) decide"
    return _claim("C18", statement, verdict, evidence, environment=ceilings.environment)


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
    return _claim("C4", statement, judge(verdict.speedup, at_least=FASTER), evidence, [comparison.measurements[0], best, verdict])


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
    return _claim("C5", "An engine is slow to build the first time and free afterwards", verdict, evidence, built)


def smaller(comparison: Comparison) -> Claim:
    """C1: the files of every INT8 plan against those of the FP32 plan of its engine. Sizes are exact, so there is no interval."""
    pairs = [(one, plain) for one, plain in _against(comparison, "fp32") if one.plan.precision == "int8"]
    times = [plain.size_bytes / one.size_bytes for one, plain in pairs]
    found = ", ".join(f"{name} {ratio(value)}" for name, value in zip(labels([one for one, _ in pairs]), times, strict=True))
    shares = [Census.from_dict(one.report["census"]).share("parameters") for one, _ in pairs]
    evidence = (
        f"Smaller than FP32 of the same engine: {found}; at least {SMALLER:g} for every plan would be about 4. "
        f"Of the counted parameters, {min(shares):.0%} to {max(shares):.0%} are integers."
    )
    verdict: Finding = "holds" if min(times) >= SMALLER else "does not hold here"
    return _claim("C1", "An INT8 model is about 4 times smaller than FP32", verdict, evidence, [one for pair in pairs for one in pair])


def quantized_is_faster(comparison: Comparison) -> Claim:
    """C2: every quantized plan against FP32 and, beside it, BF16 of the same engine; it holds if each is faster than its FP32."""
    quantized = [(one, plain) for one, plain in _against(comparison, "fp32") if one.plan.quantization]
    found: list[Finding] = []
    said = []
    for name, (one, plain) in zip(labels([one for one, _ in quantized]), quantized, strict=True):
        verdict = bench.judge(plain, one)
        found.append(judge(verdict.speedup, at_least=1.0))
        said.append(f"{name} {ratio(verdict.speedup)}")
    halves = [
        f"{name} {ratio(bench.judge(half, one).speedup)}"
        for name, (one, half) in ((labels([pair[0]])[0], pair) for pair in _against(comparison, "bf16") if pair[0].plan.quantization)
    ]
    evidence = f"Wall time against FP32 of the same engine: {', '.join(said)}."
    evidence += f" Against BF16: {', '.join(halves)}." if halves else " No engine here ran BF16 beside it."
    order: tuple[Finding, ...] = ("does not hold here", "too noisy to say", "holds")
    records = [one for pair in quantized for one in pair]
    return _claim("C2", "Quantization makes inference faster", min(found, key=order.index), evidence, records)


def calibration_data(trials: Trials, here: Environment) -> Claim:
    """C11: one plan calibrated with wrong kinds of data and with the model's own, each judged against FP32 on the same samples."""
    own = [one for one in trials.trials if one.data == "representative"]
    wrong = [one for one in trials.trials if one.data != "representative"]
    words = {one.data: trials.verdict(one).score_word for one in wrong}
    repaired = all(trials.verdict(one).score_word in ("no worse", "better") for one in own)
    verdict: Finding = "too noisy to say"
    if repaired and all(word == "worse" for word in words.values()):
        verdict = "holds"
    elif any(word in ("no worse", "better") for word in words.values()) or any(trials.verdict(one).score_word == "worse" for one in own):
        verdict = "does not hold here"
    said = []
    for one in [*own, *wrong]:
        caught = ", detected beforehand" if one.symptoms else ""
        said.append(f"{one.data} {one.score.value:.4f} ({trials.verdict(one).score_word}{caught})")
    evidence = f"FP32 {trials.baseline.value:.4f} on {trials.baseline.samples} samples; calibrated with {', '.join(said)}."
    statement = "Unrepresentative calibration data ruins accuracy, varied data repairs it"
    return _claim("C11", statement, verdict, evidence, environment=here, model=trials.model)


def attention_is_sensitive(part: SensitivePart, model: str, here: Environment) -> Claim:
    """C12: the share of the noise that softmax and attention cause, and the share that goes when they return to float."""
    found = [judge(part.attention, at_least=HALF), judge(part.attention_repaired, at_least=HALF)]
    order: tuple[Finding, ...] = ("does not hold here", "too noisy to say", "holds")
    evidence = (
        f"Softmax and the products of attention cause {_percent(part.attention)} of the quantization noise (they are "
        f"{part.operations:.0%} of the multiplications); in float they take {_percent(part.attention_repaired)} of it away. The part whose "
        f"return to float takes the most away is {part.worst}: {_percent(part.repaired[part.worst])}."
    )
    statement = "Softmax and attention are the sensitive part; keeping them in 16 bits repairs accuracy"
    return _claim("C12", statement, min(found, key=order.index), evidence, environment=here, model=model)


def training_recovers(widths: Sequence[BitWidth], here: Environment, model: str) -> Claim:
    """C13: at the width at which PTQ loses most, if more than a point for certain, how much QAT wins back, on the same held-out samples."""
    said = [f"at {one.bits} bits PTQ {one.ptq.value:.4f}, QAT {one.qat.value:.4f}" for one in widths]
    evidence = f"FP32 {widths[0].fp32.value:.4f} on {widths[0].fp32.samples:,} held-out samples; {'; '.join(said)}."
    hardest = min(widths, key=lambda one: one.ptq.value - one.fp32.value)
    lost, won = compare_scores(hardest.fp32, hardest.ptq), compare_scores(hardest.ptq, hardest.qat).score_interval
    verdict: Finding = "too noisy to say"
    if lost.score_word == "worse" and lost.score_change and won:
        share = Estimate(*(bound / -lost.score_change for bound in (won.value, won.low, won.high)))
        verdict = judge(share, at_least=HALF)
        evidence += f" At {hardest.bits} bits QAT wins {_percent(share)} of the loss back."
    else:
        evidence += " PTQ lost nothing for certain, so there was nothing to recover."
    return _claim("C13", "QAT recovers what PTQ loses", verdict, evidence, environment=here, model=model)


def _against(comparison: Comparison, precision: str) -> list[tuple[Measurement, Measurement]]:
    """Each measurement of a comparison with the one of the same engine in that precision, where there is one."""
    plain = {one.plan.engine: one for one in comparison.measurements if one.plan.precision == precision}
    return [(one, plain[one.plan.engine]) for one in comparison.measurements if one.plan.engine in plain]


def _percent(share: Estimate) -> str:
    return f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"


def _claim(
    name: str,
    statement: str,
    verdict: Finding,
    evidence: str,
    records: Sequence[Measurement | Verdict] = (),
    environment: Environment | None = None,
    model: str = "",
) -> Claim:
    if any(one.status == "INVALID" for one in records):
        verdict, evidence = "too noisy to say", f"{evidence} A measurement behind this is INVALID."
    measured = [one for one in records if isinstance(one, Measurement)]
    here = environment or measured[0].environment
    return Claim(
        id=name,
        statement=statement,
        verdict=verdict,
        evidence=evidence,
        hardware=here.hardware,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        model=measured[0].model if measured else model,
        records=tuple(one.digest for one in records),
    )

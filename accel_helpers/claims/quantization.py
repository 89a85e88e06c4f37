"""C1, C2, C11, C12 and C13: quantization."""

from __future__ import annotations

from collections.abc import Sequence

from accel_helpers import bench
from accel_helpers.accuracy import compare_scores
from accel_helpers.bench import Comparison
from accel_helpers.charts import labels, ratio
from accel_helpers.claims.judging import WORST_FIRST, judge, made, percent
from accel_helpers.intervals import Estimate
from accel_helpers.quantize import BitWidth, SensitivePart, Trials
from accel_helpers.records import Census, Claim, Environment, Finding, Measurement

SMALLER = 3.5
"""Where "about 4 times smaller" begins."""
HALF = 0.5
"""The share of the noise that makes a part of a network the sensitive one."""


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
    return made("C1", "An INT8 model is about 4 times smaller than FP32", verdict, evidence, [one for pair in pairs for one in pair])


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
    records = [one for pair in quantized for one in pair]
    return made("C2", "Quantization makes inference faster", min(found, key=WORST_FIRST.index), evidence, records)


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
    return made("C11", statement, verdict, evidence, environment=here, model=trials.model)


def attention_is_sensitive(part: SensitivePart, model: str, here: Environment) -> Claim:
    """C12: the share of the noise that softmax and attention cause, and the share that goes when they return to float."""
    found = [judge(part.attention, at_least=HALF), judge(part.attention_repaired, at_least=HALF)]
    evidence = (
        f"Softmax and the products of attention cause {percent(part.attention)} of the quantization noise (they are "
        f"{part.operations:.0%} of the multiplications); in float they take {percent(part.attention_repaired)} of it away. The part whose "
        f"return to float takes the most away is {part.worst}: {percent(part.repaired[part.worst])}."
    )
    statement = "Softmax and attention are the sensitive part; keeping them in 16 bits repairs accuracy"
    return made("C12", statement, min(found, key=WORST_FIRST.index), evidence, environment=here, model=model)


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
        evidence += f" At {hardest.bits} bits QAT wins {percent(share)} of the loss back."
    else:
        evidence += " PTQ lost nothing for certain, so there was nothing to recover."
    return made("C13", "QAT recovers what PTQ loses", verdict, evidence, environment=here, model=model)


def _against(comparison: Comparison, precision: str) -> list[tuple[Measurement, Measurement]]:
    """Each measurement of a comparison with the one of the same engine in that precision, where there is one."""
    plain = {one.plan.engine: one for one in comparison.measurements if one.plan.precision == precision}
    return [(one, plain[one.plan.engine]) for one in comparison.measurements if one.plan.engine in plain]

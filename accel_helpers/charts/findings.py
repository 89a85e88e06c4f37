"""What quantization found, as tables: accuracy with paired intervals, calibration trials, mixed precision, causes and cures."""

from __future__ import annotations

from collections.abc import Sequence

from accel_helpers.accuracy import compare_scores
from accel_helpers.charts.chart import Chart, Table
from accel_helpers.charts.layers import layer_bars
from accel_helpers.charts.units import ratio, seconds
from accel_helpers.charts.words import compared, counted, labels, plan_labels
from accel_helpers.intervals import Estimate
from accel_helpers.quantize import BitWidth, Cause, Mixed, Sensitivity, Trials
from accel_helpers.records import Measurement, Plan, Score, Verdict


def accuracy(measurements: Sequence[Measurement], verdicts: Sequence[Verdict]) -> Table:
    """The task metric of every plan, its change against the baseline with the paired interval, and the metrics beside it."""
    others = list(dict.fromkeys(name for one in measurements if one.score for name in one.score.others))
    rows = [["Plan", "Task metric", "Change [95 %]", "In a word", "Lost, won", *others]]
    judged = {verdict.candidate: verdict for verdict in verdicts if compared(verdict, measurements)}
    for name, one in zip(labels(measurements), measurements, strict=True):
        verdict = judged.get(one.digest)
        figures = [f"{one.score.others[other]:.4f}" if one.score and other in one.score.others else "" for other in others]
        rows.append([name, _metric(one.score), *(_change(verdict) if verdict else ["baseline", "", ""]), *figures])
    return rows


def _metric(score: Score | None) -> str:
    return f"{score.value:.4f} (n = {score.samples:,})" if score else "not measured"


def _change(verdict: Verdict) -> list[str]:
    """The change of the metric, its word, and how many samples were lost and won where each is right or wrong."""
    if verdict.score_change is None:
        return ["not measured", "", ""]
    interval = verdict.score_interval
    counts = verdict.changes and set(verdict.changes) <= {-1, 0, 1}
    moved = f"{sum(one < 0 for one in verdict.changes)}, {sum(one > 0 for one in verdict.changes)}" if counts else ""
    return [points(interval) if interval else f"{verdict.score_change:+.4f}", verdict.score_word or "no interval", moved]


def points(change: Estimate) -> str:
    """A change of a metric with its interval: ``+0.0012 [-0.0040, +0.0060]``."""
    return f"{change.value:+.4f} [{change.low:+.4f}, {change.high:+.4f}]"


def trials(found: Trials) -> Table:
    """One row for each set of calibration samples: the metric, its change against FP32, the noise, and what the detector said before."""
    rows = [["Calibrated with", "Draw", "Samples", "Task metric", "Change [95 %]", "In a word", "Signal to noise", "The detector says"]]
    for one in found.trials:
        change, word, _ = _change(found.verdict(one))
        said = "; ".join(symptom.evidence for symptom in one.symptoms) or "nothing"
        rows.append([one.data, str(one.seed), str(one.samples), _metric(one.score), change, word, f"{one.snr_db:.1f} dB", said])
    rows.append(["FP32", "", "", _metric(found.baseline), "baseline", "", "", ""])
    return rows


def layer_noise(found: Sensitivity) -> Chart:
    """The signal-to-noise ratio that each layer leaves in the model's outputs when it alone is quantized, lowest first."""
    return layer_bars(
        [one.name for one in found.layers],
        [one.alone_snr for one in found.layers],
        [one.group for one in found.layers],
        quantity="Signal-to-noise ratio of the outputs",
        unit="dB",
        title=f"One layer quantized at a time: {found.model}",
        evidence=f"n = {counted(len(found.everything), 'sample')}; all layers together leave {found.snr:.1f} dB",
    )


def mixed(found: Mixed) -> Table:
    """The path of the search: what was kept in float, how much stayed INT8, and whether the budget was met."""
    rows = [["Layers in float", "The last of them", "Multiplications in INT8", "Signal to noise", "Task metric", "How", "Budget"]]
    for step in found.path:
        rows.append(
            [
                str(len(step.keep)),
                step.layer or "none",
                f"{step.share:.0%}",
                "refused" if step.snr is None else f"{step.snr:.1f} dB",
                _metric(step.score),
                "built" if step.built else "simulated",
                f"{'within' if step.check.passed else 'over' if step.check.passed is False else 'not sure'}: {step.check.detail}",
            ]
        )
    return rows


def bit_widths(found: Sequence[BitWidth]) -> Table:
    """One row for each number of bits: the metric in FP32, quantized after training and with training, and what each step changes."""
    rows = [["Bits", "FP32", "PTQ", "PTQ against FP32 [95 %]", "QAT", "QAT against PTQ [95 %]", "PTQ, QAT took"]]
    for one in found:
        lost, won = _change(compare_scores(one.fp32, one.ptq))[0], _change(compare_scores(one.ptq, one.qat))[0]
        took = f"{seconds(one.ptq_seconds)}, {seconds(one.qat_seconds)}"
        rows.append([str(one.bits), _metric(one.fp32), f"{one.ptq.value:.4f}", lost, f"{one.qat.value:.4f}", won, took])
    return rows


def causes(found: Sequence[tuple[Plan, Sequence[Cause]]]) -> Table:
    """What the explainer says of each plan, the most telling cause first."""
    rows = [["Plan", "It is", "Because", "Evidence", "Cure", "Predicted gain"]]
    for name, (_, named) in zip(plan_labels([plan for plan, _ in found]), found, strict=True):
        if not named:
            rows.append([name, "neither slow nor wrong for a reason that is known", "", "", "", ""])
        for one in named:
            gained = f"{ratio(one.predicted)} {'faster' if one.symptom == 'slow' else 'less error'}"
            rows.append([name, one.symptom, one.statement, one.evidence, one.cure, gained])
    return rows

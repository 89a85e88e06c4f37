"""Two measurements of one interleaved run, judged against each other."""

from __future__ import annotations

from dataclasses import replace

from accel_helpers.accuracy import compare_scores
from accel_helpers.records import Measurement, Verdict


def judge(baseline: Measurement, candidate: Measurement) -> Verdict:
    """Paired per round: seconds per item of the baseline over those of the candidate. Paired per sample: the task metric.

    The rounds of both must come from the same comparison: only then do round and round belong together.
    """
    pairs = list(zip(baseline.rounds, candidate.rounds, strict=True))
    items = candidate.plan.batch / baseline.plan.batch
    verdict = Verdict(
        baseline=baseline.digest,
        candidate=candidate.digest,
        wall=tuple(items * a.wall_median / b.wall_median for a, b in pairs),
        cpu=tuple(items * max(a.cpu_per_call, 1e-9) / max(b.cpu_per_call, 1e-9) for a, b in pairs),
        status=max((baseline.status, candidate.status), key=("VALID", "INDICATIVE", "INVALID").index),
    )
    if candidate.score and baseline.score:
        scores = compare_scores(baseline.score, candidate.score)
        return replace(verdict, **{name: getattr(scores, name) for name in ("score_change", "changes", "higher_is_better")})
    return verdict

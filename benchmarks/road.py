"""What the built-in models reach on this machine, through the road: every plan that can run here against PyTorch eager FP32.

One interleaved run per model and thread count. Writes ``benchmarks/results/road-<hardware>.json`` with the environment and every record,
and prints one line a plan. CPU time on one thread is the figure to compare between machines; wall clock with all CPUs stands beside it.

    python benchmarks/road.py [seconds per plan [thread counts [engines]]]     e.g. 2 1 onnx_runtime,openvino
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from accel_helpers import bench, charts, engines, models
from accel_helpers.config import RunConfig
from accel_helpers.device import usable_cpus
from accel_helpers.records import Measurement, Verdict

RESULTS = Path(__file__).parent / "results"
MODELS = ("text-encoder", "vision-classifier")
ALLOWED_LOSS = 0.005


def plans(model: str, threads: int, seconds: float, names: Sequence[str]) -> list[RunConfig]:
    """The baseline first, then everything else that can run here."""
    base = RunConfig(model=model, threads=threads, seconds=seconds)
    others = [base.replace(engine=engine, precision=precision) for engine in names for precision in ("fp32", "bf16")]
    schemes = ("static", "dynamic") if models.get(model).has_sequence else ("static",)
    others += [base.replace(engine=engine, precision="int8", scheme=scheme) for engine in names for scheme in schemes]
    return [base] + [config for config in others if config != base and config.engine != "null" and bench.support(config)]


def best(result: bench.Comparison) -> tuple[Measurement, Verdict]:
    """The largest CPU speed-up among right plans whose task metric stays within ALLOWED_LOSS of the baseline's."""
    allowed = [one for one in result.verdicts if one.status != "INVALID" and (one.score_change or 0) >= -ALLOWED_LOSS]
    verdict = max(allowed, key=lambda one: one.cpu_speedup.value)
    return next(one for one in result.measurements if one.digest == verdict.candidate), verdict


def quantized(result: bench.Comparison) -> list[list[str]]:
    """Every INT8 plan against FP32 and BF16 of its own engine, from the same interleaved run."""
    rows = [["Plan", "Against", "Wall time", "CPU time", "Metric change [95 %]", "In a word"]]
    for one in result.measurements:
        for other in result.measurements:
            if one.plan.quantization and other.plan.engine == one.plan.engine and other.plan.precision in ("fp32", "bf16"):
                verdict = bench.judge(other, one)
                change = verdict.score_interval
                shown = f"{change.value:+.4f} [{change.low:+.4f}, {change.high:+.4f}]" if change else "unknown"
                speeds = [f"{verdict.word} {charts.ratio(verdict.speedup)}", f"{verdict.cpu_word} {charts.ratio(verdict.cpu_speedup)}"]
                rows.append([one.plan.label, other.plan.precision, *speeds, shown, verdict.score_word or ""])
    return rows


def main() -> None:
    """Measure, print and keep."""
    given = dict(enumerate(sys.argv))
    seconds = float(given.get(1, 6.0))
    counts = [int(one) for one in given[2].split(",")] if 2 in given else sorted({1, usable_cpus()})
    names = given[3].split(",") if 3 in given else engines.names()
    kept: dict[str, object] = {}
    for model in MODELS:
        for threads in counts:
            result = bench.compare(plans(model, threads, seconds, names))
            print(f"\n{model}, batch 1, {threads} thread(s)")
            print(charts.as_text(charts.table(result.measurements, result.verdicts), 200))
            print(charts.as_text(quantized(result), 200))
            winner, verdict = best(result)
            print(f"best within {ALLOWED_LOSS:.1%} of FP32: {winner.plan.label}, {len(verdict.wall)} rounds, {winner.status}")
            print(f"CPU time {charts.ratio(verdict.cpu_speedup)}, wall {charts.ratio(verdict.speedup)}")
            kept[f"{model}/{threads}"] = {
                "measurements": [one.to_dict() for one in result.measurements],
                "verdicts": [one.to_dict() for one in result.verdicts],
            }
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"road-{result.measurements[0].environment.hardware}.json"
    target.write_text(json.dumps(kept))
    print(f"\nrecords: {target}")


if __name__ == "__main__":
    main()

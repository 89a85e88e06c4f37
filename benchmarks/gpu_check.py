"""Everything that needs a GPU, in one command: the `gpu` tests, and every engine and precision on CUDA against PyTorch eager FP32.

    python benchmarks/gpu_check.py [--models tiny-cnn,tiny-attention] [--seconds 3] [--minutes 7]

Writes ``benchmarks/results/gpu-<hardware>.json``: the environment, what fits together, the ceilings, every record, and for each plan
that did not run the reason in its own words. Starts no new plan when the minutes are spent. Exit code 1 when a test or a plan fails.
On a machine without a package index, name the tiny models: they need no files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from accel_helpers import bench, charts, engines, environment
from accel_helpers.config import PRECISIONS, RunConfig
from accel_helpers.errors import AccelError

RESULTS = Path(__file__).parent / "results"


def gpu_tests() -> dict[str, Any]:
    """Run the tests that only a GPU can run."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "gpu"], capture_output=True, text=True, cwd=RESULTS.parent.parent)
    return {"exit_code": done.returncode, "summary": done.stdout.strip().splitlines()[-1:]}


def against_eager(base: RunConfig, config: RunConfig) -> dict[str, Any]:
    """One plan against the baseline in one interleaved run, or why not."""
    if not (answer := bench.support(config)):
        return {"plan": bench.plan_of(config).label, "cannot_run": answer.reason}
    try:
        result = bench.compare([base, config])
    except AccelError as error:
        return {"plan": bench.plan_of(config).label, "failed": str(error)}
    print(charts.as_text(charts.table(result.measurements, result.verdicts)))
    return {
        "plan": bench.plan_of(config).label,
        "measurements": [one.to_dict() for one in result.measurements],
        "verdicts": [one.to_dict() for one in result.verdicts],
    }


def main() -> int:
    """Check, measure, write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--models", default="text-encoder,vision-classifier")
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--minutes", type=float, default=7.0)
    chosen = options.parse_args()
    end = time.monotonic() + 60 * chosen.minutes
    here = environment.describe()
    if not here.gpus:
        print("No NVIDIA GPU answers here, so there is nothing to check. On a machine with one: nvidia-smi must list it.")
        return 2
    kept: dict[str, Any] = {
        "environment": here.to_dict(),
        "findings": [one.to_dict() for one in environment.findings(here)],
        "ceilings": environment.ceilings().to_dict(),
        "tests": gpu_tests(),
        "plans": [],
    }
    for model in chosen.models.split(","):
        base = RunConfig(model=model, device="cuda", seconds=chosen.seconds)
        plans = [(engine, precision) for engine in engines.names() if engine != "null" for precision in PRECISIONS]
        for engine, precision in plans:
            config = base.replace(engine=engine, precision=precision)
            if config != base and time.monotonic() < end:
                kept["plans"].append({"model": model, **against_eager(base, config)})
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"gpu-{here.hardware}.json"
    target.write_text(json.dumps(kept))
    print(f"record: {target}")
    failed = [plan for plan in kept["plans"] if "failed" in plan]
    return 1 if failed or kept["tests"]["exit_code"] != 0 else 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether measuring through this package costs anything: our sessions against each library's own tool, in one interleaved run.

    python benchmarks/no_overhead.py [--models text-encoder,vision-classifier] [--batches 1,32] [--engines openvino,onnx_runtime,compiled]
                                     [--rounds 6] [--seconds 0.4] [--threads 0] [--out FILE]

Both sides open the same files with the same threads, precision hint, inputs and batch. The tools:

- OpenVINO: ``benchmark_app``, which comes with it. It reports the median latency of its own calls, copying left out, in 0.01 ms.
- ONNX Runtime: a loop around ``InferenceSession.run`` as its documentation writes it. Its ``onnxruntime_perf_test`` was found in
  no package of PyPI, npm or Debian, and the ``bert_perf_test`` in its wheel makes its own inputs and reads text models alone.
- torch.compile: a loop around ``torch.compile(network)``, with freezing as the engine has it.

benchmark_app is a process for each run, and where a process's memory lies can be worth a percent or two for as long as it lives. So for
OpenVINO and ONNX Runtime both sides start a new process each round, make two calls that do not count, and time the same number of calls;
every round draws that luck anew on both sides. torch.compile takes most of a minute to start, so there both sides keep one process each.

The figure is the tool's time over ours, paired by round: below 1, the tool is faster. PASS: the interval's worst side is within 5 %.
Where a call takes microseconds (``digits``), what shows is the price of any call from Python, which benchmark_app leaves out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers import bench, charts, environment, models
from accel_helpers.bench import reference
from accel_helpers.bench.process import WorkerProcess
from accel_helpers.config import RunConfig
from accel_helpers.device import Conditions, measuring, quiet, usable_cpus
from accel_helpers.engine import Array
from accel_helpers.errors import AccelError, MeasurementError
from accel_helpers.intervals import Estimate, log_centre, median
from accel_helpers.measure import WARMUP_SECONDS, calls_per_round, interleave
from accel_helpers.records import Artifact, Plan, Round, Scope
from accel_helpers.store import Store

RESULTS = Path(__file__).parent / "results"
ALLOWED = 0.05
FEWEST_CALLS = 3
SCOPES: tuple[Scope, ...] = ("compute", "end to end")
TOOLS: dict[str, tuple[str, tuple[Scope, ...]]] = {
    "openvino": ("benchmark_app", ("compute",)),
    "onnx_runtime": ("InferenceSession loop", SCOPES),
    "compiled": ("torch.compile loop", ("compute",)),
}
"""Engine -> its tool, and the scopes of ours that hold the same work: two tools leave the copying out."""
_HINTS = {"fp32": "f32", "bf16": "bf16"}
_TYPES = {"float32": "f32", "int64": "i64", "int32": "i32"}


@dataclass(frozen=True)
class Case:
    """One model, engine, precision and batch, with its built files and the inputs that both sides read."""

    config: RunConfig
    plan: Plan
    artifact: Artifact
    files: Path  # the artifact's folder
    inputs: Path  # set_0.npz …: an array for each input, by name

    @property
    def first(self) -> dict[str, Array]:
        """The first input set."""
        return dict(np.load(self.inputs / "set_0.npz"))


# Our side


class Ours:
    """Our session in a worker process, timed as ``bench`` times it: a new process each round, or one that ``start`` keeps."""

    def __init__(self, case: Case, scope: Scope, keep: contextlib.ExitStack | None) -> None:
        self.case, self.scope = case, scope
        self.kept = keep.enter_context(self.start(WARMUP_SECONDS)) if keep else None

    @contextlib.contextmanager
    def start(self, warmup: float) -> Iterator[WorkerProcess]:
        """A worker with the session loaded and called once, and longer where ``warmup`` seconds are given."""
        plan, config = self.case.plan, self.case.config
        with WorkerProcess(plan.threads) as worker:
            worker.ask("load", model=config.model, artifact=self.case.artifact.to_dict(), scope=self.scope, seed=config.seed)
            self.typical = float(worker.ask("warm_up", seconds=warmup)["typical"])
            yield worker

    def round(self, calls: int) -> Round:
        """Time some calls."""
        with contextlib.nullcontext(self.kept) if self.kept else self.start(0.0) as worker:
            return worker.round(calls)


# The tools


class BenchmarkApp:
    """OpenVINO's benchmark_app; a round holds one sample, the median that it reports."""

    def __init__(self, case: Case) -> None:
        self.case = case
        given = []
        for place, (name, array) in enumerate(case.first.items()):
            np.save(path := case.inputs / f"{place}.npy", array)
            given.append(f"{name}:{path}")
        types = ",".join(f"{name}:{_TYPES[array.dtype.name]}" for name, array in case.first.items())  # else it makes images of bytes
        shapes = ",".join(f"{name}[{','.join(map(str, array.shape))}]" for name, array in case.first.items())
        self.arguments = [
            sys.executable,
            "-c",
            "from openvino.tools.benchmark.main import main; main()",
            "-m",
            str(case.files / "model.xml"),
        ]
        self.arguments += ["-shape", shapes, "-iop", types, "-i", *given, "-api", "sync", "-hint", "none", "-nstreams", "1"]
        self.arguments += ["-nthreads", str(case.plan.threads), "-infer_precision", _HINTS[case.plan.precision]]

    def round(self, calls: int) -> Round:
        """One run of the tool.

        Raises:
            MeasurementError: it failed, or filled an input with numbers of its own.
        """
        with tempfile.TemporaryDirectory() as folder:
            report = ["-report_type", "no_counters", "-report_folder", folder, "-json_stats"]
            done = subprocess.run(
                [*self.arguments, "-niter", str(calls), *report], capture_output=True, text=True, env=_environment(self.case)
            )
            if done.returncode or "random values" in done.stdout:
                last = " ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
                raise MeasurementError(f"benchmark_app did not run as asked: {last}", "Run it by hand: benchmark_app -h.")
            said = json.loads((Path(folder) / "benchmark_report.json").read_text())["execution_results"]
        return Round((float(said["latency (ms)"]) / 1e3,), 0.0)  # it says nothing of CPU time


class Loop:
    """A loop as a library's documentation writes it, in a process of its own: ``bare_loop.py``."""

    def __init__(self, case: Case, keep: contextlib.ExitStack | None) -> None:
        self.case = case
        self.kept = keep.enter_context(self.start()) if keep else None

    @contextlib.contextmanager
    def start(self) -> Iterator[subprocess.Popen[str]]:
        """The process; it answers a line of seconds for a line with the number of calls."""
        plan = self.case.plan
        what = str(self.case.files / "model.onnx") if plan.engine == "onnx_runtime" else self.case.config.model
        script = str(Path(__file__).with_name("bare_loop.py"))
        arguments = [sys.executable, script, plan.engine, what, str(self.case.inputs), str(plan.threads), plan.precision]
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(self.case))
        with process:  # closes its standard input at the end, which ends it
            yield process

    def round(self, calls: int) -> Round:
        """Time some calls.

        Raises:
            MeasurementError: the process ended.
        """
        with contextlib.nullcontext(self.kept) if self.kept else self.start() as process:
            assert process.stdin
            assert process.stdout
            process.stdin.write(f"{calls}\n")
            process.stdin.flush()
            if not (line := process.stdout.readline()):
                raise MeasurementError("The hand-written loop ended before it answered.", "Its own error stands above.")
            return Round(tuple(json.loads(line)), 0.0)


def _environment(case: Case) -> dict[str, str]:
    """What the worker process of our side gets, too."""
    return {**os.environ, "OMP_NUM_THREADS": str(case.plan.threads), "TOKENIZERS_PARALLELISM": "false"}


# Both


def cases(options: argparse.Namespace, folder: Path) -> Iterator[Case]:
    """Every case, built when its turn comes; each engine in BF16 where the processor and the engine have it, else in FP32."""
    for model, batch, engine in product(*(text.split(",") for text in (options.models, options.batches, options.engines))):
        base = RunConfig(model=model, engine=engine, batch=int(batch), threads=options.threads)
        bf16 = base.replace(precision="bf16")
        inputs = folder / f"{model}-{engine}-{batch}"
        inputs.mkdir()
        yield built(bf16 if bench.support(bf16) else base, inputs)


def built(config: RunConfig, inputs: Path) -> Case:
    """The case with its artifact built, or found built, and its inputs written to ``inputs``."""
    model, plan = models.get(config.model), bench.plan_of(config)
    with WorkerProcess(usable_cpus()) as worker:
        artifact = Artifact.from_dict(worker.ask("build", model=model.name, plan=plan.to_dict())["artifact"]).with_plan(plan)
        worker.ask("refer", model=model.name, plan=plan.to_dict(), seed=config.seed)
    for number, one in enumerate(reference.inputs(model, plan, config.seed)):
        arrays: dict[str, Any] = dict(one)
        np.savez(inputs / f"set_{number}.npz", **arrays)
    return Case(config, plan, artifact, Store().open(artifact, environment.describe()), inputs)


def word(ratio: Estimate) -> str:
    """What an interval of the tool's time over ours says of ALLOWED."""
    if ratio.low >= 1 / (1 + ALLOWED):
        return "PASS"
    return "FAIL" if ratio.high < 1 / (1 + ALLOWED) else "too noisy"


def compare(case: Case, rounds: int, seconds: float) -> dict[str, Any]:
    """Run both sides of a case, interleaved; what came of it in JSON values and the ratios as estimates. Times in seconds."""
    tool, same = TOOLS[case.plan.engine]
    with contextlib.ExitStack() as stack:
        keep = stack if case.plan.engine == "compiled" else None
        ours = [Ours(case, one, keep) for one in SCOPES]
        if not keep:
            with ours[0].start(0.5):
                pass  # how long a call takes
        calls = max(FEWEST_CALLS, calls_per_round(ours[0].typical, seconds * rounds, rounds))
        subjects: list[Any] = [*ours, BenchmarkApp(case) if tool == "benchmark_app" else Loop(case, keep)]
        kept = tuple(one.kept.pid for one in subjects if getattr(one, "kept", None))
        before = Conditions.now(kept)
        found = interleave(subjects, [calls] * len(subjects), rounds, case.config.seed)
        noise = quiet(before, Conditions.now(kept))
    rows = []
    for one, measured in zip(SCOPES, found, strict=False):
        ratio = log_centre([theirs.wall_median / own.wall_median for own, theirs in zip(measured, found[-1], strict=True)])
        rows.append({"scope": one, "same_work": one in same, "ratio": ratio, "word": word(ratio)})
    walls = {name: [one.wall for one in series] for name, series in zip([*SCOPES, tool], found, strict=True)}
    return {
        "model": case.config.model,
        "plan": case.plan.to_dict(),
        "artifact": case.artifact.content,
        "tool": tool,
        "calls": calls,
        "fresh_process_each_round": keep is None,
        "quiet": noise.to_dict(),
        "rounds": walls,
        "rows": rows,
    }


def table(kept: list[dict[str, Any]]) -> list[list[str]]:
    """One line for each case and scope."""
    lines = [["Model", "Batch", "Engine", "Tool", "Our scope", "Ours", "Tool's", "Tool / ours [95 %]", "In a word"]]
    for one in kept:
        theirs = log_centre([median(wall) for wall in one["rounds"][one["tool"]]]).value
        for row in one["rows"]:
            own = log_centre([median(wall) for wall in one["rounds"][row["scope"]]]).value
            said = row["word"] if row["same_work"] else "not judged: ours copies, too"
            plan = one["plan"]
            name = f"{plan['engine']} {plan['precision']}, {plan['threads']} thread(s)"
            times = [charts.seconds(own), charts.seconds(theirs), charts.ratio(row["ratio"])]
            lines.append([one["model"], str(plan["batch"]), name, one["tool"], row["scope"], *times, said])
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and keep. Exit code 1 where a tool is faster than our session by more than ALLOWED at the same work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="text-encoder,vision-classifier")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--engines", default=",".join(TOOLS))
    parser.add_argument("--rounds", type=int, default=6, help="six are the fewest that have an interval")
    parser.add_argument("--seconds", type=float, default=0.4, help="of timed calls a round, for each side")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    here = environment.describe()
    kept: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(options, Path(folder)):
            with measuring(f"no overhead: {case.config.model} {case.plan.label}"):
                kept.append(compare(case, options.rounds, options.seconds))
            print(charts.as_text(table(kept[-1:]), 200), kept[-1]["quiet"]["detail"], sep="\n", flush=True)
    print(charts.as_text(table(kept), 200))
    target = options.out or RESULTS / f"no-overhead-{here.hardware}.json"
    target.parent.mkdir(exist_ok=True)
    record = {"environment": here.to_dict(), "allowed": ALLOWED, "cases": kept}
    target.write_text(json.dumps(record, default=lambda ratio: asdict(ratio) if isfinite(ratio.high) else None))
    print(f"record: {target}")
    return int(any(row["word"] == "FAIL" for one in kept for row in one["rows"] if row["same_work"]))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AccelError as error:
        sys.exit(str(error))

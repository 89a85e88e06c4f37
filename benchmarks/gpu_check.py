"""Everything that needs a GPU, in one command and under eight minutes. Not yet run on a GPU.

    python benchmarks/gpu_check.py [--models tiny-cnn,tiny-attention] [--batch 8] [--seconds 1] [--minutes 7.5] [--out FOLDER]

Runs the ``gpu`` tests; measures the ceilings; copies through pycuda; times launches; runs every engine, mode and precision against PyTorch
eager FP32 and against FP64 on the CPU. Writes ``gpu-<hardware>.json`` after each step: the environment, what fits together, the ceilings
and the share of them that each plan reaches, every record, and for what did not run the reason in its own words. When the minutes are over
it writes what it has and ends. Exit code 0: all that can run here ran and was right; 1: something failed; 2: there is no GPU.

A machine without a package index needs PyTorch for CUDA, transformers, onnx, numpy, psutil, filelock, safetensors, torchmetrics and pytest,
and pydantic as wheels. Where there is an index, for that machine's Python (here 3.12):

    pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64
        -d wheels pydantic==2.14.* pydantic-core annotated-types typing-inspection nvidia-ml-py==13.615.*

and on that machine, from the repository:

    pip install --no-index --no-deps --target /tmp/site wheels/*.whl
    PYTHONPATH=/tmp/site python benchmarks/gpu_check.py --out "$OUT"

pydantic-core must be the version that the pydantic wheel asks for. pycuda is built there from its source archive and needs nvcc, curand.h,
and pytools, mako, siphash24 and platformdirs as wheels. onnxruntime-gpu is 256 MB and TensorRT more: carry them where there is room.
What is missing is a reason in the record, never a crash. ``--device cpu --dry`` runs the same steps in a small form without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers import bench, engines, environment, models
from accel_helpers.accuracy import TOLERANCE, relative_error
from accel_helpers.config import PRECISIONS, RunConfig
from accel_helpers.environment import Ceilings
from accel_helpers.errors import AccelError

RESULTS = Path(__file__).parent / "results"
ORDER = ("default", "cuda_graph", "reduce_overhead", "tensorrt")
"""Modes, the telling ones first; those that take minutes to compile come after them, if there is time."""
MODULES = (
    "torch",
    "transformers",
    "onnxruntime",
    "tensorrt",
    "tensorrt_rtx",
    "pycuda.driver",
    "cuda.bindings.driver",
    "torchao",
    "openvino",
)


class Record:
    """What is known so far, on disk after each step; ends the process when the time is over.

    Args:
        target: the file.
        minutes: until the end.
    """

    def __init__(self, target: Path, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes
        self.target, self.kept, self.lock = target, dict[str, Any](), threading.Lock()
        self.step = "start"
        watch = threading.Timer(60 * minutes, self._give_up)
        watch.daemon = True
        watch.start()

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.end - time.monotonic()

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """Run one step and write its answer, or how it failed."""
        self.step, begin = name, time.monotonic()
        print(f"{name} …", flush=True)
        try:
            answer = make()
        except Exception as error:  # the other steps must run whatever one of them does
            answer = {"failed": str(error) if isinstance(error, AccelError) else traceback.format_exc()}
        with self.lock:
            self.kept[name] = answer
            self.kept.setdefault("seconds", {})[name] = time.monotonic() - begin
            self._write()
        return answer

    def _write(self) -> None:
        part = self.target.with_suffix(".part")
        part.write_text(json.dumps(self.kept, default=str))
        part.replace(self.target)

    def _give_up(self) -> None:
        with self.lock:
            self.kept["out of time"] = f"during {self.step}"
            self._write()
        print(f"Out of time during {self.step}. Record so far: {self.target}", flush=True)
        os._exit(1)


def loads() -> dict[str, str]:
    """What each library says when it is imported, in a process of its own: its version, or why it does not load."""
    code = "import importlib, sys; m = importlib.import_module(sys.argv[1]); print('version', getattr(m, '__version__', 'unknown'))"
    found = {}
    for name in MODULES:
        done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, timeout=120)
        lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        found[name] = lines[-1] if lines else f"ended with code {done.returncode}"
    return found


def copy_through_pycuda() -> dict[str, Any]:
    """A buffer to the GPU and back."""
    from accel_helpers.engines import _cuda_buffers

    sent = np.arange(2**20, dtype=np.float32)
    with _cuda_buffers.current() as cuda:
        pair, stream = _cuda_buffers.Pair(cuda, sent.size, sent.dtype), cuda.Stream()
        pair.upload(sent, stream)
        stream.synchronize()
        pair.download(1, stream)[:] = 0  # the host's copy is spoilt: what is compared comes from the device
        back = pair.download(sent.size, stream)
        stream.synchronize()
        same = bool(np.array_equal(back, sent))
        pair.free()
    return {"same": same, "gpu": _cuda_buffers.gpu()}


def gpu_tests(seconds: float) -> dict[str, Any]:
    """The tests that only a GPU can run; plain pytest, so that its plugins need not be there."""
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-m", "gpu", "-rs", "tests/test_gpu.py"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=RESULTS.parent.parent, timeout=max(seconds, 1.0))
    except subprocess.TimeoutExpired as error:
        return {"failed": f"did not end within {seconds:.0f} s", "output": str(error.stdout)[-4000:]}
    tail = done.stdout.strip().splitlines()[-200:]
    return {"exit_code": done.returncode, "output": tail, **({"failed": tail[-1:]} if done.returncode else {})}


def plans(base: RunConfig, dry: bool) -> Iterator[RunConfig]:
    """Every engine, mode and precision but the baseline, the telling ones first."""
    if dry:
        yield from (base.replace(batch=1), base.replace(mode="cuda_graph"), base.replace(engine="openvino"), base.replace(precision="tf32"))
        return
    names = [name for name in engines.names() if name != "null"]
    modes = {name: ("default", *engines.get(name).modes) for name in names}
    known = sorted({mode for found in modes.values() for mode in found}, key=lambda mode: (mode not in ORDER, mode))
    for mode in (*ORDER, *(one for one in known if one not in ORDER)):
        for name in (one for one in names if mode in modes[one]):
            for precision in PRECISIONS:
                config = base.replace(engine=name, mode=mode, precision=precision, symmetric=name == "tensorrt")
                if config != base:
                    yield config


def against(base: RunConfig, config: RunConfig, measured: Any) -> dict[str, Any]:
    """One plan beside the baseline in one interleaved run, and its error against FP64; or why not."""
    label = bench.plan_of(config).label
    if not (answer := bench.support(config)):
        return {"plan": label, "cannot_run": answer.reason}
    try:
        result = bench.compare([base, config], scope="compute")
        error = error_in_fp64(config)
    except AccelError as refused:
        return {"plan": label, "failed": str(refused)}
    single, verdict = result.measurements[1], result.verdicts[0]
    kept = {
        "plan": label,
        "seconds": single.p50.value,
        "status": single.status,
        "speedup": verdict.speedup.value,
        "verdict": str(verdict.word),
        "error_against_fp64": error,
        "share_of_ceiling": share(config, single.p50.value, measured),
        "measurements": [one.to_dict() for one in result.measurements],
        "verdicts": [one.to_dict() for one in result.verdicts],
    }
    if error > TOLERANCE[config.precision]:
        kept["failed"] = f"relative error {error:.2g} against FP64, tolerance {TOLERANCE[config.precision]:g}"
    print(
        f"  {label}: {kept['seconds'] * 1e3:.3f} ms, {kept['speedup']:.2f} times eager FP32, error {error:.1e}, {single.status}", flush=True
    )
    return kept


def error_in_fp64(config: RunConfig) -> float:
    """The plan's relative error against the same network in FP64 on the CPU, on inputs of its own."""
    import torch

    from accel_helpers.engines.pytorch import named
    from accel_helpers.store import Store

    model, plan, here = models.get(config.model), bench.plan_of(config), environment.describe()
    engine, inputs = engines.get(config.engine), model.example(config.batch, config.sequence, 999)
    with torch.inference_mode():
        exact = model.build().eval().double()
        tensors = {name: torch.from_numpy(one) for name, one in inputs.items()}
        answer = exact(**{name: one.double() if one.is_floating_point() else one for name, one in tensors.items()})
    right = {name: value.numpy() for name, value in named(answer, model).items()}
    versions = {name: here.packages[name] for name in engine.packages if name in here.packages}
    artifact, folder, _ = Store().artifact(model, plan, here, versions, lambda out: engine.build(model, plan, out))
    with engine.load(model, artifact.with_plan(plan).plan, folder) as session:
        return max(relative_error(session(inputs), right) for _ in range(3))  # later calls may come from a recorded graph


def share(config: RunConfig, seconds: float, measured: Any) -> float | str:
    """Which part of the roofline's ceiling a call reaches, or why that cannot be said."""
    if not isinstance(measured, Ceilings):
        return "the ceilings were not measured"
    try:
        needed = environment.cost(models.get(config.model), config.batch, config.sequence)
        moved = needed.least_bytes(config.precision)
        return environment.share(measured, needed.flops, moved, config.precision, seconds, config.device)
    except (AccelError, KeyError) as error:
        return str(error)


def launches(base: RunConfig, calls: int = 50) -> dict[str, Any]:
    """Median seconds until a call returns and until its work is done: what it costs to start a call, eager and as a CUDA graph."""
    from statistics import median

    found: dict[str, Any] = {}
    for config in (base, base.replace(mode="cuda_graph")):
        plan, model = bench.plan_of(config), models.get(config.model)
        if not (answer := bench.support(config)):
            found[plan.label] = {"cannot_run": answer.reason}
            continue
        from accel_helpers.engines._torch_graph import GraphSession
        from accel_helpers.engines.pytorch import TorchSession, network_of

        kind = GraphSession if config.mode == "cuda_graph" else TorchSession
        with kind(model, plan, network_of(model, plan)) as session:
            placed, started, finished = session.place(model.example(plan.batch, plan.sequence, 0)), [], []
            for number in range(calls + 10):
                begin = time.perf_counter()
                session.run(placed)
                between = time.perf_counter()
                session.synchronise()
                if number >= 10:
                    started.append(between - begin)
                    finished.append(time.perf_counter() - begin)
        found[plan.label] = {"started": median(started), "finished": median(finished)}
    return found


def main() -> int:
    """Check, measure, write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--models", default="tiny-cnn,tiny-attention")
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--minutes", type=float, default=7.5)
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--dry", action="store_true", help="the same steps in a small form")
    chosen = options.parse_args()
    here = environment.describe()
    if chosen.device == "cuda" and not here.gpus:
        print("No NVIDIA GPU answers here, so there is nothing to check. On a machine with one: nvidia-smi must list it.")
        return 2
    chosen.out.mkdir(parents=True, exist_ok=True)
    record = Record(chosen.out / f"gpu-{here.hardware}.json", chosen.minutes)
    record.keep("environment", here.to_dict)
    record.keep("findings", lambda: [one.to_dict() for one in environment.findings(here)])
    record.keep("loads", loads)
    record.keep("pycuda", copy_through_pycuda)
    measured: list[Ceilings] = []
    record.keep("ceilings", lambda: (measured.append(environment.ceilings(0.1 if chosen.dry else 6.0)), measured[0].to_dict())[1])
    if not chosen.dry:
        record.keep("tests", lambda: gpu_tests(min(150.0, record.left / 2)))
    done: list[dict[str, Any]] = []
    for model in chosen.models.split(","):
        base = RunConfig(model=model, device=chosen.device, batch=chosen.batch, sequence=32, seconds=chosen.seconds, rounds=6)
        record.keep(f"launches of {model}", lambda base=base: launches(base, 5 if chosen.dry else 50))
        for config in plans(base, chosen.dry):
            label = f"{model}: {bench.plan_of(config).label}"
            done.append(record.keep(label, lambda base=base, config=config: against(base, config, next(iter(measured), None))))
    print(f"record: {record.target}")
    return judged(record.kept, done)


def judged(kept: dict[str, Any], done: list[dict[str, Any]]) -> int:
    """The exit code, with what failed and what could not run told on the way."""
    failed = [name for name, answer in kept.items() if isinstance(answer, dict) and "failed" in answer and name != "pycuda"]
    for name in failed:
        print(f"FAILED {name}: {str(kept[name]['failed']).strip().splitlines()[-1]}")
    ran = sum("seconds" in one for one in done)
    print(f"{ran} plans ran, {sum('cannot_run' in one for one in done)} cannot run here, {len(failed)} steps failed")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())

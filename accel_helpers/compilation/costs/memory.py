"""What fusing and reusing memory save: the peak memory of a model's calls, each way of running it in a fresh process."""

from __future__ import annotations

import contextlib
import ctypes
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from accel_helpers import bench, engines, models
from accel_helpers.bench.process import Stop, WorkerProcess
from accel_helpers.bench.worker import serve
from accel_helpers.compilation.graphs._onnx_session import opened
from accel_helpers.compilation.graphs.liveness import Liveness, liveness
from accel_helpers.config import RunConfig
from accel_helpers.device import measuring, peak_memory, reset_peak_memory, usable_cpus, usable_memory
from accel_helpers.engines import _onnx_export
from accel_helpers.errors import ParameterError
from accel_helpers.intervals import Estimate, centre, log_centre
from accel_helpers.records import Artifact, Plan
from accel_helpers.store import Store

CALLS = 3
"""Of each process: ONNX Runtime plans its memory from the first, and glibc changes how it serves a process after that."""
TRIES = 6
"""The fewest that give a 95 % interval."""


@dataclass(frozen=True)
class Way:
    """One way to run a model; ``level`` and ``memory`` are ONNX Runtime's alone."""

    engine: str
    level: str = ""  # of graph optimisation: DISABLE_ALL fuses nothing, EXTENDED fuses, ALL chooses layouts too
    memory: str = (
        ""  # "kept": every value to the end; "freed": after its last use; "arena": to an arena, the next time in one planned block
    )

    @property
    def name(self) -> str:
        """What tables call it."""
        return ", ".join(filter(None, (self.engine, self.level, self.memory)))


KEPT, FREED, UNFUSED = (Way("onnx_runtime", "DISABLE_ALL", memory) for memory in ("kept", "freed", "arena"))
FUSED = Way("onnx_runtime", "ALL", "arena")
SWITCHES = (KEPT, FREED, UNFUSED, FUSED)
"""ONNX Runtime's switches alone: what the claim about fusion and reuse rests on."""
WAYS = (
    *(KEPT, FREED, UNFUSED, Way("onnx_runtime", "EXTENDED", "arena"), Way("onnx_runtime", "ALL", "freed"), FUSED),
    *(Way("pytorch"), Way("openvino")),
)
"""All of them: each switch of ONNX Runtime turned by itself, and two other engines as they are."""


@dataclass(frozen=True)
class Peaks:
    """The bytes that the calls of a model added to a process at its peak, for each way and try, and what the graph says they must be.

    Tries of the same number stood side by side in time.
    """

    model: str
    plan: Plan
    added: Mapping[Way, tuple[int, ...]]
    unfused: Liveness  # values freed after their last use, each in memory of its own
    fused: Liveness
    unfused_in_place: Liveness  # where an operator writes over an input that dies with it
    fused_in_place: Liveness

    def of(self, way: Way) -> Estimate:
        """The peak of one way, in bytes."""
        return centre(self.added[way])

    def times(self, way: Way, other: Way) -> Estimate:
        """How many times the peak of ``other`` that of ``way`` is."""
        return log_centre([max(a, 1) / max(b, 1) for a, b in zip(self.added[way], self.added[other], strict=True)])


def peaks(config: RunConfig, tries: int = TRIES, ways: tuple[Way, ...] = WAYS, stop: Stop | None = None) -> Peaks:
    """Measure the peak memory of each way to run a model in FP32 on a CPU, in an order drawn anew for each try.

    What counts is what :data:`CALLS` calls add to a process that has loaded the model: activations and scratch memory, no weights.

    Args:
        config: the model and its sizes; a batch at which activations weigh something tells the most.
        tries: fresh processes for each way; six give an interval.
        ways: of :data:`WAYS`.
        stop: asked ten times a second; true ends the process that runs.

    Raises:
        ParameterError: another precision or device was asked for, or so large a batch that the values of one call would not fit.
        BusyError: another measurement does not end.
        MeasurementError: a process died.
        StoppedError: ``stop`` said so.
    """
    if (config.precision, config.device) != ("fp32", "cpu"):
        raise ParameterError("Peak memory is compared in FP32 on a CPU.", "Choose precision=fp32 and device=cpu.")
    model, plan = models.get(config.model), bench.plan_of(config)
    artifacts = _built(model.name, plan, dict.fromkeys(("onnx_runtime", *(one.engine for one in ways))), stop)
    graph = Store().open(artifacts["onnx_runtime"]) / _onnx_export.FILE
    example = model.example(plan.batch, plan.sequence, config.seed)
    unfused, fused, *in_place = (liveness(graph, example, level, place) for place in (False, True) for level in ("DISABLE_ALL", "ALL"))
    if any(way.memory == "kept" for way in ways) and unfused.total > usable_memory() / 3:
        raise ParameterError(
            f"The values of one call at batch {plan.batch} take {unfused.total} bytes, more than a third of this machine's memory.",
            "Choose a smaller batch.",
        )
    added: dict[Way, list[int]] = {way: [] for way in ways}
    order = random.Random(config.seed)  # noqa: S311 - an order, not a secret
    with measuring(f"peak memory of {model.name}", stop=stop or (lambda: False)):
        for _ in range(tries):
            for way in order.sample(ways, len(ways)):
                request = {"way": asdict(way), "artifact": artifacts[way.engine].to_dict(), "seed": config.seed}
                with WorkerProcess(plan.threads, stop, module=__name__) as process:
                    added[way].append(process.ask("added", **request)["bytes"])
    return Peaks(model.name, plan, {way: tuple(found) for way, found in added.items()}, unfused, fused, *in_place)


def _built(model: str, plan: Plan, names: Iterable[str], stop: Stop | None) -> dict[str, Artifact]:
    """The artifact of each engine, built in one process that measures nothing."""
    with WorkerProcess(usable_cpus(), stop) as worker:
        plans = {name: replace(plan, engine=name) for name in names}
        asked = {name: worker.ask("build", model=model, plan=one.to_dict()) for name, one in plans.items()}
    return {name: Artifact.from_dict(one["artifact"]).with_plan(plans[name]) for name, one in asked.items()}


def _call(way: Way, artifact: Artifact, seed: int) -> Callable[[], object]:
    """A function that makes one call; the model is loaded when this returns."""
    model, plan, folder = models.get(artifact.model), artifact.plan, Store().open(artifact)
    example = model.example(plan.batch, plan.sequence, seed)
    if not way.level:
        session = engines.get(way.engine).load(model, plan, folder)
        return lambda: session(example)
    import onnxruntime

    arena = way.memory == "arena"
    settings = {"intra_op_num_threads": plan.threads, "enable_cpu_mem_arena": arena, "enable_mem_pattern": arena}
    graph = folder / _onnx_export.FILE
    opened_graph = opened(_every_value(graph) if way.memory == "kept" else graph, way.level, settings)
    wanted = [one.name for one in opened_graph.get_outputs()]
    given = {name: onnxruntime.OrtValue.ortvalue_from_numpy(values) for name, values in example.items()}
    return lambda: opened_graph.run_with_ort_values(wanted, given)  # which copies no output, as NumPy arrays would


def _every_value(path: Path) -> bytes:
    """The graph with every value inside it an output, so that none is freed or overwritten."""
    import onnx

    loaded = onnx.load(path)
    known = {one.name for one in loaded.graph.output}
    loaded.graph.output.extend(
        onnx.ValueInfoProto(name=name) for node in loaded.graph.node for name in node.output if name and name not in known
    )
    return bytes(loaded.SerializeToString())


class _Caller:
    """The fresh process's one request."""

    def added(self, way: dict[str, Any], artifact: dict[str, Any], seed: int) -> dict[str, int]:
        """The bytes that :data:`CALLS` calls add to this process at its peak."""
        call = _call(Way(**way), Artifact.from_dict(artifact), seed)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # what loading has freed would hide what the calls take
        reset_peak_memory()
        before = peak_memory()
        for _ in range(CALLS):
            call()
        return {"bytes": peak_memory() - before}


if __name__ == "__main__":
    serve(_Caller())

"""The fresh process in which one plan is built, loaded, measured and scored.

A process of its own keeps the thread pools of two engines apart, gives each plan an honest peak memory, survives a crash of the engine,
and can be stopped at any moment. It answers one JSON line on its real standard output for each JSON line on standard input; whatever
libraries print goes to standard error. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from accel_helpers import device, engines, environment, models
from accel_helpers.accuracy import compare_outputs, evaluate
from accel_helpers.bench import reference
from accel_helpers.bench.artifacts import built
from accel_helpers.engine import Session
from accel_helpers.errors import AccelError
from accel_helpers.measure import Subject
from accel_helpers.models import Model
from accel_helpers.records import Artifact, Plan
from accel_helpers.store import Store


class Worker:
    """Holds at most one session; each public method is one request."""

    def __init__(self) -> None:
        self.model: Model | None = None
        self.session: Session | None = None
        self.subject: Subject | None = None

    def build(self, model: str, plan: dict[str, Any]) -> dict[str, Any]:
        """Build the plan's artifact, or find it built."""
        artifact, _, reused = built(models.get(model), Plan.from_dict(plan))
        return {"artifact": artifact.to_dict(), "reused": reused}

    def refer(self, model: str, plan: dict[str, Any], seed: int) -> dict[str, Any]:
        """Compute the reference outputs of the inputs that a measurement will use, or find them computed."""
        reference.ensure(models.get(model), Plan.from_dict(plan), seed)
        return {}

    def load(self, model: str, artifact: dict[str, Any], scope: Any, seed: int) -> dict[str, Any]:
        """Verify the artifact's files, then load them."""
        self.model, built = models.get(model), Artifact.from_dict(artifact)
        folder = Store().open(built, environment.describe())
        begin = time.perf_counter()
        self.session = engines.get(built.plan.engine).load(self.model, built.plan, folder)
        seconds = time.perf_counter() - begin
        inputs = reference.inputs(self.model, built.plan, seed)
        references = reference.read(self.model, built.plan, seed)
        self.subject = Subject(self.session, inputs, references, built.plan.precision, scope)
        return {"load_seconds": seconds}

    def warm_up(self, seconds: float) -> dict[str, Any]:
        """First call, then warm-up."""
        assert self.subject
        device.reset_peak_memory()
        typical = self.subject.warm_up(seconds)
        return {"first_call": self.subject.first_call, "warmup": self.subject.warmup, "typical": typical}

    def round(self, calls: int) -> dict[str, Any]:
        """One round."""
        assert self.subject
        return self.subject.round(calls).to_dict()

    def finish(self) -> dict[str, Any]:
        """Peaks first, then the checks, which make a few more calls."""
        assert self.subject
        assert self.session
        peaks = {"memory": device.peak_memory(), "device": device.device_memory()}
        checks = [check.to_dict() for check in self.subject.checks()]
        return {"peaks": peaks, "checks": checks, "errors": self.subject.errors, "report": dict(self.session.report)}

    def differ(self) -> dict[str, Any]:
        """Each output against its reference: over all inputs of the measurement at once, the batches one after another."""
        assert self.subject
        found = [self.subject.session(one) for one in self.subject.inputs]
        whole, references = (
            {name: np.concatenate([one[name] for one in sets]) for name in sets[0]} for sets in (found, self.subject.references)
        )
        return {name: asdict(one) for name, one in compare_outputs(whole, references).items()}

    def score(self) -> dict[str, Any]:
        """The task metric."""
        assert self.model
        assert self.session
        return evaluate(self.session, self.model).to_dict()


def answer(worker: object, request: dict[str, Any]) -> dict[str, Any]:
    """One request, answered: its result, a user's error with its next step, or a crash with its traceback."""
    call: Callable[..., dict[str, Any]] = getattr(worker, request.pop("call"))
    try:
        return {"result": call(**request)}
    except AccelError as error:
        return {"error": type(error).__name__, "what": error.what, "next_step": error.next_step}
    except MemoryError:
        return {"error": "MeasurementError", "what": "Out of memory.", "next_step": "Take a smaller batch, or a smaller type."}
    except Exception as error:
        return {"crash": traceback.format_exc(), "what": f"{type(error).__name__}: {error}"}


def _end_with(parent: int) -> None:
    """Leave at once when the parent is gone, even in the middle of a long call."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def serve(worker: object) -> None:
    """Answer requests, each of which names a method of ``worker`` and its arguments, until standard input ends."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        channel.write(json.dumps(answer(worker, json.loads(line))) + "\n")
        channel.flush()


def main() -> None:
    """Serve as a :class:`Worker`."""
    worker = Worker()
    serve(worker)
    if worker.session:
        worker.session.close()


if __name__ == "__main__":
    main()

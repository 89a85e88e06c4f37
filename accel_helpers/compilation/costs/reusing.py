"""Building an engine for the first time against finding it built: into empty stores, in fresh processes, several times."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accel_helpers import bench, engines, environment, models
from accel_helpers.bench.process import Stop, WorkerProcess
from accel_helpers.bench.worker import serve
from accel_helpers.config import RunConfig
from accel_helpers.device import measuring, store_root, usable_cpus
from accel_helpers.errors import ParameterError
from accel_helpers.intervals import Estimate, median
from accel_helpers.records import Plan
from accel_helpers.store import Store

ENGINES = ("onnx_runtime", "openvino", "tensorrt")
"""Those whose files a compiler makes; tensorrt's are made ahead of time where there is no GPU."""
_FINDS = 3  # of each built engine
_NO_GPU = "loading it takes a GPU: not yet run on a GPU"


@dataclass(frozen=True)
class Cost:
    """The seconds that one engine takes."""

    plan: Plan
    built: tuple[float, ...]  # for the first time, one in each empty store: the export of the model to ONNX too
    found: tuple[float, ...]  # built already: its manifest read and every file's SHA-256 compared
    ready: tuple[float, ...]  # to load the files and make a first call, in the process that built them; empty where that takes a GPU
    reason: str = ""  # why ``ready`` is empty

    @property
    def share(self) -> Estimate:
        """Finding it over building it: the medians, and the least and greatest that any two of the tries give."""
        built, found = self.built, self.found
        return Estimate(median(found) / median(built), min(found) / max(built), max(found) / min(built))


@dataclass(frozen=True)
class Reuse:
    """What building each engine of a model costs, and what having it again does."""

    model: str
    costs: tuple[Cost, ...]


def reuse(config: RunConfig, tries: int = 3, names: tuple[str, ...] = ENGINES, stop: Stop | None = None) -> Reuse:
    """Build each engine for real in ``tries`` empty stores, and find it there again.

    Args:
        config: the model, its precision and sizes.
        tries: stores for each engine.
        names: of :data:`ENGINES`.
        stop: asked ten times a second; true ends the process that runs.

    Raises:
        ParameterError: ``tries`` is no positive number.
        UnsupportedError: an engine cannot build this plan.
        BusyError: another measurement does not end.
        StoppedError: ``stop`` said so.
    """
    if tries < 1:
        raise ParameterError(f"{tries} tries were asked for.", "Ask for one or more.")
    plan, model = bench.plan_of(config), models.get(config.model)
    with measuring(f"building {model.name}", stop=stop or (lambda: False)):
        return Reuse(model.name, tuple(_cost(model.name, _planned(plan, name), tries, stop) for name in names))


def _planned(plan: Plan, name: str) -> Plan:
    made = replace(plan, engine=name, device="cuda" if name == "tensorrt" else plan.device)
    if name != "tensorrt":  # which builds ahead of time on any machine, and says itself what it cannot build
        engines.get(name).require(made, environment.describe())
    return made


def _cost(model: str, plan: Plan, tries: int, stop: Stop | None) -> Cost:
    built, found, ready = [], [], []
    for _ in range(tries):
        with tempfile.TemporaryDirectory(prefix="accel-reuse-") as folder:
            (Path(folder) / "assets").symlink_to((store_root() / "assets").absolute())  # fetched weights are no part of building
            with WorkerProcess(usable_cpus(), stop, __name__, {"ACCEL_STORE": folder}) as process:
                built.append(process.ask("build", model=model, plan=plan.to_dict())["seconds"])
                found += [process.ask("build", model=model, plan=plan.to_dict())["seconds"] for _ in range(_FINDS)]
                if plan.device == "cpu":
                    ready.append(process.ask("load", model=model, plan=plan.to_dict())["seconds"])
    return Cost(plan, tuple(built), tuple(found), tuple(ready), "" if ready else _NO_GPU)


class _Builder:
    """The fresh process's requests."""

    folder: Path | None = None

    def build(self, model: str, plan: dict[str, Any]) -> dict[str, float]:
        """The seconds until the artifact is there: built the first time, found from then on."""
        the_model, the_plan, here = models.get(model), Plan.from_dict(plan), environment.describe()
        engine, store = engines.get(the_plan.engine), Store()
        versions = engine.versions(the_plan, here)
        begin = time.perf_counter()
        _, place, reused = store.artifact(the_model, the_plan, here, versions, lambda out: engine.build(the_model, the_plan, out))
        seconds = time.perf_counter() - begin
        assert reused == (self.folder is not None)
        self.folder = place
        return {"seconds": seconds}

    def load(self, model: str, plan: dict[str, Any]) -> dict[str, float]:
        """The seconds until the first call has answered."""
        assert self.folder
        the_model, the_plan = models.get(model), Plan.from_dict(plan)
        example = the_model.example(the_plan.batch, the_plan.sequence, 0)
        begin = time.perf_counter()
        with engines.get(the_plan.engine).load(the_model, the_plan, self.folder) as session:
            session(example)
            return {"seconds": time.perf_counter() - begin}


if __name__ == "__main__":
    serve(_Builder())

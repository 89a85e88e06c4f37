"""A plan's artifact: built by its engine, or found built, and loaded in this process."""

from __future__ import annotations

from pathlib import Path

from accel_helpers import engines, environment, models
from accel_helpers.bench.road import plan_of, require
from accel_helpers.config import RunConfig
from accel_helpers.engine import Session
from accel_helpers.models import Model
from accel_helpers.records import Artifact, Plan
from accel_helpers.store import Store


def built(model: Model, plan: Plan) -> tuple[Artifact, Path, bool]:
    """The artifact, the folder of its files, and whether it was built before.

    Raises:
        UnsupportedError: the plan cannot run here.
    """
    engine, here = engines.get(plan.engine), environment.describe()
    engine.require(plan, here)
    return Store().artifact(model, plan, here, engine.versions(plan, here), lambda out: engine.build(model, plan, out))


def loaded(config: RunConfig) -> Session:
    """A session of a configuration in this process; whoever asks closes it.

    Raises:
        UnsupportedError: the plan cannot run here.
    """
    require(config)
    model, plan = models.get(config.model), plan_of(config)
    artifact, folder, _ = built(model, plan)
    return engines.get(plan.engine).load(model, artifact.with_plan(plan).plan, folder)

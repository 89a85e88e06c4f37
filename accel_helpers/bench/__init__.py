"""The road: model, artifact, session, measurement, verdict. Notebook, papermill job and command line all walk it here."""

from accel_helpers.bench.artifacts import built, loaded
from accel_helpers.bench.judging import judge
from accel_helpers.bench.road import Comparison, Progress, compare, measure, plan_of, require, support

__all__ = ["Comparison", "Progress", "built", "compare", "judge", "loaded", "measure", "plan_of", "require", "support"]

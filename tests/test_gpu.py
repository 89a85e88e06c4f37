"""What only a GPU can show: every engine and precision on CUDA, right and really finished. Not yet run on a GPU.

Without a GPU these tests are deselected and the header says so; ``benchmarks/gpu_check.py`` runs them where there is one.
"""

import pytest

from accel_helpers import engines, environment, models
from accel_helpers.accuracy import TOLERANCE, relative_error
from accel_helpers.bench import plan_of, reference
from accel_helpers.config import PRECISIONS, RunConfig
from accel_helpers.measure import Subject

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
ENGINES = [name for name in engines.names() if name != "null"]


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path / "store"))


@pytest.mark.parametrize("model_name", ["tiny-cnn", "tiny-attention"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("engine_name", ENGINES)
def test_an_engine_on_the_gpu_is_right_and_waits(engine_name, precision, model_name, tmp_path):
    engine, model = engines.get(engine_name), models.get(model_name)
    plan = plan_of(
        RunConfig(model=model_name, engine=engine_name, precision=precision, device=DEVICE, batch=3, sequence=16, calibration=32)
    )
    answer = engine.supports(plan, environment.describe())
    if not answer:
        pytest.skip(answer.reason)  # the engine's own reason: this GPU or this build lacks the type
    reference.ensure(model, plan, seed=0)
    inputs, right = reference.inputs(model, plan, seed=0), reference.read(model, plan, seed=0)
    folder = tmp_path / "artifact"
    folder.mkdir()
    engine.build(model, plan, folder)
    with engine.load(model, plan, folder) as session:
        for one, expected in zip(inputs, right, strict=True):
            assert relative_error(session(one), expected) <= TOLERANCE[precision]
        subject = Subject(session, inputs, right, precision, "compute")
        subject.warm_up(1.0)
        subject.round(20)
        assert {check.name: check.passed for check in subject.checks() if check.fatal} == {
            "outputs": True,
            "no result cache": True,
            "device finished": True,
        }

"""Every engine on the built-in models: outputs within the type's tolerance of PyTorch FP32."""

import pytest

from accel_helpers import engines, environment, models
from accel_helpers.accuracy import TOLERANCE, relative_error
from accel_helpers.config import PRECISIONS, QUANTIZED
from accel_helpers.records import Plan

HERE = environment.describe()
# torch.compile takes a quarter of a minute for each of these: one stands for all, the tiny models see the rest.
CASES = [
    (name, precision, model)
    for name in engines.names()
    for precision in PRECISIONS
    if precision not in QUANTIZED
    for model in models.names()
    if name != "null" and engines.get(name).supports(Plan(name, precision), HERE)
    if name != "compiled" or (precision, model) == ("bf16", "text-encoder")
]


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    answers = {}

    def get(name):
        if name not in answers:
            model, plan, folder = models.get(name), Plan("pytorch"), tmp_path_factory.mktemp("right")
            engines.get("pytorch").build(model, plan, folder)
            with engines.get("pytorch").load(model, plan, folder) as session:
                answers[name] = session(model.example(2, 128, 7))
        return answers[name]

    return get


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_outputs_are_within_tolerance(case, right, tmp_path):
    name, precision, model = case[0], case[1], models.get(case[2])
    engine, plan = engines.get(name), Plan(name, precision, batch=2)
    engine.build(model, plan, tmp_path)
    with engine.load(model, plan, tmp_path) as session:
        assert relative_error(session(model.example(2, 128, 7)), right(case[2])) <= TOLERANCE[precision]

"""The built-in models as TensorRT engines with three profiles each, built ahead of time. None is run: that takes a GPU."""

import time
from collections import Counter

import numpy as np
import pytest

from accel_helpers import engines, models
from accel_helpers.accuracy import TOLERANCE
from accel_helpers.device import store_root
from accel_helpers.engines import _onnx_export, _tensorrt_plan
from accel_helpers.records import Compilation, Plan, Profile, Quantization

ENGINE = engines.get("tensorrt")
STATIC = Quantization("static", calibration=8, symmetric=True)
BATCHES = ((1, 1, 1), (1, 4, 8), (8, 16, 32))
LENGTHS = ((1, 32, 64), (1, 64, 128), (16, 128, 256))
PRODUCTS = {"text-encoder": {"fp32": 12, "int8": 37}, "vision-classifier": {"int8": 50}, "digits": {"int8": 6}}
"""How many products of each model are in which type where INT8 was asked for: those of two activations stay."""
pytestmark = pytest.mark.skipif("tensorrt_rtx" not in ENGINE.needs, reason="TensorRT builds on a GPU only")


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    """A store without engines; the models' files and exported graphs are those of the usual one."""
    usual, own = store_root().absolute(), tmp_path_factory.mktemp("store")
    for name in ("assets", "onnx"):
        (usual / name).mkdir(parents=True, exist_ok=True)
        (own / name).symlink_to(usual / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(own))
        yield


def plan_of(name, precision):
    lengths = LENGTHS if models.get(name).has_sequence else (None,) * 3
    profiles = tuple(Profile(batch, length) for batch, length in zip(BATCHES, lengths, strict=True))
    quantization = STATIC if precision == "int8" else None
    return Plan("tensorrt", precision, "cuda", quantization=quantization, compilation=Compilation(profiles=profiles))


def now():
    return np.array([time.perf_counter(), time.process_time()])


@pytest.fixture(scope="module")
def made(store, tmp_path_factory):
    """Builds on demand, each once: of a name and a precision what was built, its folder and the seconds of the clock and of processors."""
    known = {}

    def get(name, precision):
        if (name, precision) not in known:
            model, folder = models.get(name), tmp_path_factory.mktemp("built")
            _onnx_export.export(model, tmp_path_factory.mktemp("exported"))  # kept, so that no build has to
            begun = now()
            built = ENGINE.build(model, plan_of(name, precision), folder)
            known[name, precision] = built, folder, now() - begun
        return known[name, precision]

    return get


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("name", ["text-encoder", "vision-classifier", "digits"])
def test_a_built_in_model_builds_with_three_profiles(name, precision, made):
    built, folder, _ = made(name, precision)
    assert built.report["engine_cache"] == "built"
    header = _tensorrt_plan.header((folder / "model.plan").read_bytes())
    assert header.size == (folder / "model.plan").stat().st_size
    first = next(iter(models.get(name).example(1, 32, 0)))
    assert [tuple(size[0] for size in profile[first]) for profile in built.report["profiles"]] == list(BATCHES)
    assert built.report["types"] == (PRODUCTS[name] if precision == "int8" else {precision: sum(PRODUCTS[name].values())})
    heavy = [built.report["layers"].get(operator, {}) for operator in ("CONVOLUTION", "MATRIX_MULTIPLY")]
    multiplied = Counter({kind: sum(one.get(kind, 0) for one in heavy) for one in heavy for kind in one})
    assert multiplied == {"HALF" if precision == "fp16" else "FLOAT": sum(PRODUCTS[name].values())}
    if precision != "fp32":
        assert 0 < built.report["compared"]["worst_error"] < TOLERANCE[precision]


@pytest.mark.slow
def test_a_second_build_takes_under_two_percent_of_the_first(made, tmp_path):
    """With calibration and without the export, which is kept too. Of five second builds the best; other processes slow the clock alone."""
    model, plan, seconds = models.get("text-encoder"), plan_of("text-encoder", "int8"), []
    _, _, first = made("text-encoder", "int8")
    for number in range(5):
        (folder := tmp_path / str(number)).mkdir()
        begun = now()
        built = ENGINE.build(model, plan, folder)
        seconds.append(now() - begun)
        assert built.report["engine_cache"] == "found"
    clock, processors = np.min(seconds, axis=0) / first
    assert processors < 0.02, (first, seconds)
    assert clock < 0.05, (first, seconds)

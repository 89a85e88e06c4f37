"""Calibration of ONNX Runtime's static scheme: which samples it reads, which ranges it finds, and that it fits the memory."""

import json
import os
import subprocess
import sys

import numpy as np
import psutil
import pytest
import small_models
from quantized_graphs import build, constants, convolutions, plan, with_data

from accel_helpers.engines import _onnx_calibrate, _onnx_quantize
from accel_helpers.errors import ModelError, UnsupportedError
from accel_helpers.models import Split
from accel_helpers.records import Quantization


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path / "store"))


def test_calibration_reads_its_own_part_and_no_other(tmp_path):
    class Untouchable(Split):
        def __getattribute__(self, name):
            raise AssertionError("the validation part was read")

    model = with_data(small_models.linear(), validation=Untouchable({}, None))
    graph, _, _ = build(model, plan("static"), tmp_path / "int8")
    held, inputs = constants(graph), model.dataset().calibration.inputs["x"]
    least, greatest = min(inputs.min(), 0), max(inputs.max(), 0)
    assert held["x_scale"] == pytest.approx((greatest - least) / 255, rel=1e-5)


def test_a_model_without_data_is_told_which_schemes_need_none(tmp_path):
    with pytest.raises(ModelError, match="scheme=dynamic or weight_only"):
        build(small_models.linear(), plan("static"), tmp_path / "static")
    build(small_models.linear(), plan("dynamic"), tmp_path / "dynamic")


MEMORY = """
import json, sys
from pathlib import Path
import numpy as np, onnx
from onnx import helper
from accel_helpers.device import peak_memory
from accel_helpers.device import store_root
from accel_helpers.engines import _onnx_calibrate

count, how, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
source = folder / f"{count}-{how}.onnx"
wide = 2**16
weights = [np.full((4, wide), 0.5, np.float32), np.full((wide, 4), 0.5, np.float32)]
nodes = [("MatMul", ["x", "0"], ["a"]), ("Relu", ["a"], ["b"]), ("MatMul", ["b", "1"], ["y"])]
ends = [[helper.make_tensor_value_info(name, 1, ["batch", 4])] for name in "xy"]
graph = helper.make_graph([helper.make_node(*node) for node in nodes], "graph", *ends,
                          [onnx.numpy_helper.from_array(one, str(index)) for index, one in enumerate(weights)])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), source)
samples = np.random.default_rng(0).normal(size=(count, 1, 4)).astype(np.float32)
found = None
if how.startswith("library"):
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator

    class Reader(CalibrationDataReader):
        left = iter(samples)
        def get_next(self):
            return next(({"x": one} for one in self.left), None)

    calibrator = create_calibrator(source, ["MatMul"], str(folder / f"augmented-{count}.onnx"), CalibrationMethod.Percentile)
    calibrator.collect_data(Reader())
else:
    batches = lambda: ({"x": one} for one in samples)
    predicted = _onnx_calibrate.predicted(source, ["x", "b"], {"x": samples[0]}, how)
    found = {name: [float(one) for one in both] for name, both in _onnx_calibrate.ranges(source, ["x", "b"], batches, how).items()}
print(json.dumps([peak_memory(), found]), file=sys.stderr)
"""


def peak(count, how, folder):
    """Peak memory in bytes of a fresh process that calibrates with so many samples, and the ranges that it found."""
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", MEMORY, str(count), how, str(folder)], capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("calibrator", ["minmax", "entropy", "percentile"])
def test_k9_the_memory_of_calibration_does_not_grow_with_the_samples(calibrator, tmp_path):
    (few, _), (many, found) = peak(64, calibrator, tmp_path), peak(512, calibrator, tmp_path)
    assert many <= 1.5 * few
    least, greatest = found["b"]
    assert least == 0
    assert 1 < greatest < 6


def test_k9_the_librarys_own_calibrator_keeps_every_activation(tmp_path):
    """What the bound above is worth: the same graph and samples, a quarter of a mebibyte of activations each."""
    few, many = (peak(count, "library", tmp_path)[0] for count in (64, 512))
    assert many > 1.5 * few


def test_k9_calibration_is_refused_before_it_starts_where_it_would_not_fit(tmp_path, monkeypatch):
    model = convolutions(tmp_path / "own.onnx", 16)
    split = model.dataset().calibration
    need = _onnx_calibrate.predicted(tmp_path / "own.onnx", ["x", "r0", "r1"], next(split.batches(1))[0], "percentile")
    activations, histograms = 4 * 32 * 32 * (3 + 16 + 16), 3 * 2048 * 12
    assert need == activations + histograms + 4 * 32 * 32 * 16
    monkeypatch.setattr(_onnx_calibrate, "_extremes", lambda *_: pytest.fail("it started"))
    monkeypatch.setattr(_onnx_calibrate, "usable_memory", lambda: psutil.Process().memory_info().rss + 2**18)
    with pytest.raises(UnsupportedError, match=r"would need [\d,]+ KiB .* [\d,]+ KiB are free"):
        build(model, plan("static", calibrator="percentile"), tmp_path / "int8")


def test_an_infinite_activation_is_named(tmp_path):
    nodes = [("Log", ["x"], ["logarithm"], {}), ("MatMul", ["logarithm", "w"], ["y"], {})]
    path = small_models.onnx_file(tmp_path / "own.onnx", nodes, [("w", np.eye(4, dtype=np.float32))])
    with pytest.raises(ModelError, match="'logarithm' goes from -inf"):
        _onnx_quantize.static(tmp_path / "own.onnx", Quantization("static"), lambda: [{"x": np.zeros((1, 4), np.float32)}])
    assert path


def test_ranges_from_one_sample_at_a_time_are_those_of_the_library_from_all_at_once(tmp_path):
    from onnxruntime.quantization.calibrate import HistogramCollector

    small_models.onnx_file(tmp_path / "own.onnx", [("MatMul", ["x", "w"], ["y"], {})], [("w", np.eye(4, dtype=np.float32))])
    values = np.random.default_rng(0).laplace(size=(16, 20000, 4)).astype(np.float32)
    values[3, 7, 2] = 50

    def found(calibrator):
        return _onnx_calibrate.ranges(tmp_path / "own.onnx", ["x"], lambda: ({"x": one} for one in values), calibrator)["x"]

    assert found("minmax") == (values.min(), 50)
    for calibrator, bins in _onnx_calibrate.BINS.items():
        whole = HistogramCollector(calibrator, False, bins, _onnx_calibrate.LEVELS, _onnx_calibrate.PERCENTILE, "same")
        whole.collect({"x": values})
        expected = whole.compute_collection_result()["x"]
        assert list(found(calibrator)) == pytest.approx([float(one) for one in expected[:2]], rel=1e-5)
    assert found("percentile")[1] < 20, "the outlier is cut"

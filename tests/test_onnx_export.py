"""Exported graphs have open axes and right answers, or the error names what is wrong."""

import json

import numpy as np
import pytest
import small_models

from accel_helpers import engines, models
from accel_helpers.accuracy import relative_error
from accel_helpers.engines import _onnx_export
from accel_helpers.errors import ModelError, UnsupportedError
from accel_helpers.records import Plan

RELU = ("Relu", ["x"], ["y"], {})


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path / "store"))


def test_the_report_says_what_was_checked(out, capfd):
    report = _onnx_export.export(small_models.linear(), out)
    assert report["files"] == sorted(one.name for one in out.iterdir())
    assert report["opset"] == _onnx_export.OPSET
    assert [batch for batch, _ in report["checked"]] == [1, 2, 3, 7]
    assert report["worst_error"] < 1e-5
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_models_with_sequences_are_checked_at_a_second_length(out):
    assert len({sequence for _, sequence in _onnx_export.export(models.get("tiny-attention"), out)["checked"]}) == 2


def test_k5_a_batch_fixed_in_the_network_is_an_error_that_names_the_axis(out):
    for name, forward in {
        "view": lambda self, x: self.a(x).view(2, 4),
        "loop": lambda self, x: sum((self.a(x) for _ in range(x.shape[0])), x[:, :4]),
    }.items():
        with pytest.raises(ModelError, match=r"Axis 0 \(batch\) of 'x' in " + name):
            _onnx_export.export(small_models.network(forward, name), out)
    assert not list(out.iterdir())


def test_k5_a_batch_fixed_inside_an_onnx_file_is_an_error_that_names_the_node(tmp_path, out):
    path = small_models.onnx_file(
        tmp_path / "fixed.onnx",
        [("Reshape", ["x", "shape"], ["flat"], {"name": "the_culprit"}), ("Relu", ["flat"], ["y"], {})],
        [("shape", np.array([2, 4]))],
    )
    with pytest.raises(ModelError, match=r"x \(1, 4\).*the_culprit"):
        _onnx_export.export(models.get(path), out)


@pytest.mark.parametrize(
    ("axes", "told"),
    [
        ({"x": {0: "batch"}, "y": {0: "batch"}, "X": {0: "batch"}}, "'X', which is no input or output"),
        ({"y": {0: "batch"}}, "axis 0 of 'x'"),
        ({"x": {0: "batch"}}, "axis 0 of 'y'"),
        ({"x": {0: "batch"}, "y": {0: "batch", 1: "classes"}}, r"Axis 1 \(classes\) of 'y'.*came out fixed"),
    ],
)
def test_k6_a_mistyped_axis_is_an_error_that_names_it(axes, told, out):
    with pytest.raises(ModelError, match=told):
        _onnx_export.export(small_models.network(lambda self, x: self.a(x), axes=axes), out)


def test_k7_eval_is_forced_in_every_engine(tmp_path):
    """A network left in training mode: dropout would zero half of it, and batch norm would mix the batch."""

    def forward(self, x):
        import torch

        assert not self.training
        return torch.nn.functional.dropout(self.a(x), 0.5, training=self.training)

    trained = small_models.network(forward, "in-training")
    model = small_models.of(lambda: trained.build().train(), "in-training")
    inputs, answers = model.example(3, 1, 0), []
    for name in ("pytorch", "onnx_runtime", "openvino"):
        folder = tmp_path / name
        folder.mkdir()
        engines.get(name).build(model, Plan(name), folder)
        with engines.get(name).load(model, Plan(name), folder) as session:
            answers += [session(inputs), session(inputs)]
    assert max(relative_error(answer, answers[0]) for answer in answers) < 1e-5
    assert np.count_nonzero(answers[0]["y"]) == answers[0]["y"].size


@pytest.mark.parametrize(
    "forward",
    [lambda self, x: self.a(x) + __import__("torch").rand_like(x[:, :4]), lambda self, x: self.a(x) * getattr(self, "calls", 1)],
    ids=["draws random numbers", "changes with each call"],
)
def test_a_graph_that_answers_differently_is_an_error(forward, out):
    def unsteady(self, x):
        answer = forward(self, x)
        self.calls = getattr(self, "calls", 1) + 1
        return answer

    with pytest.raises(ModelError, match="differs from PyTorch"):
        _onnx_export.export(small_models.network(unsteady), out)


def test_an_onnx_file_that_mixes_its_samples_is_an_error(tmp_path, out):
    nodes = [("ReduceMean", ["x", "first"], ["mean"], {}), ("Sub", ["x", "mean"], ["y"], {})]
    path = small_models.onnx_file(tmp_path / "mixing.onnx", nodes, [("first", np.array([0]))])
    with pytest.raises(ModelError, match=r"one at a time.*batch 2"):
        _onnx_export.export(models.get(path), out)


def test_a_network_that_cannot_be_traced_is_an_error_without_noise(out, capfd):
    with pytest.raises(ModelError, match=r"cannot be exported to ONNX.*[Dd]ata-dependent") as caught:
        _onnx_export.export(small_models.network(lambda self, x: self.a(x) if x.sum() > 0 else self.a(-x)), out)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_a_network_with_other_outputs_than_named_is_an_error(out):
    with pytest.raises(ModelError, match="answered 2 values"):
        _onnx_export.export(small_models.network(lambda self, x: (self.a(x), x)), out)


def test_the_second_export_is_a_verified_copy(out, tmp_path, monkeypatch):
    model = small_models.linear()
    first = _onnx_export.export(model, out)
    exported = {one.name: one.read_bytes() for one in out.iterdir()}
    monkeypatch.setattr(_onnx_export, "_from_network", lambda *_: pytest.fail("exported twice"))
    assert _onnx_export.export(model, out) == first
    assert {one.name: one.read_bytes() for one in out.iterdir()} == exported
    monkeypatch.undo()
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path / "store"))
    (kept,) = (tmp_path / "store/onnx").glob("*/model.onnx")
    damaged = bytearray(kept.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    kept.write_bytes(damaged)
    _onnx_export.export(model, out)
    assert kept.read_bytes() != damaged, "a damaged copy is made anew"
    assert sorted(one.name for one in out.iterdir()) == first["files"]
    digests = json.loads((kept.parent / "digests.json").read_text())["digests"]
    assert set(digests) == set(first["files"])
    assert not [one for one in kept.parent.parent.iterdir() if one.name.startswith("part-")]


def test_a_failed_export_leaves_nothing_in_the_store(out, tmp_path):
    with pytest.raises(ModelError):
        _onnx_export.export(small_models.network(lambda self, x: self.a(x).view(2, 4)), out)
    assert [one.name for one in (tmp_path / "store/onnx").iterdir() if one.suffix != ".lock"] == []


def test_weights_in_files_of_their_own_travel_with_an_onnx_file(tmp_path, out):
    import onnx

    path = tmp_path / "large.onnx"
    weights = np.arange(4096, dtype=np.float32).reshape(4, 1024) / 4096
    nodes = [("MatMul", ["x", "w"], ["wide"], {}), ("MatMul", ["wide", "v"], ["y"], {})]
    small_models.onnx_file(path, nodes, [("w", weights), ("v", weights.T.copy())])
    (tmp_path / "below").mkdir()
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="below/large.bin", size_threshold=0)
    assert (tmp_path / "below/large.bin").stat().st_size > weights.nbytes
    model = models.get(str(path))
    assert _onnx_export.export(model, out)["files"] == ["model.onnx", "model.onnx.data"]
    engine, inputs = engines.get("onnx_runtime"), model.example(2, 1, 0)
    engine.build(model, Plan("onnx_runtime"), out)
    with engine.load(model, Plan("onnx_runtime"), out) as session:
        assert np.allclose(session(inputs)["y"], inputs["x"] @ weights @ weights.T, rtol=1e-4)


def test_an_onnx_file_that_vanished_is_an_error(tmp_path, out):
    path = tmp_path / "own.onnx"
    model = models.get(small_models.onnx_file(path, [RELU]))
    path.unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        _onnx_export.export(model, out)


@pytest.mark.parametrize("engine", ["onnx_runtime", "openvino"])
def test_an_operator_that_nobody_knows_is_named(engine, tmp_path, out):
    path = small_models.onnx_file(tmp_path / "odd.onnx", [("Frobnicate", ["x"], ["y"], {"domain": "my.domain"})], domains=["my.domain"])
    with pytest.raises(UnsupportedError, match=r"no operator my\.domain:Frobnicate, which .*odd\.onnx holds"):
        engines.get(engine).build(models.get(path), Plan(engine), out)


def test_openvino_names_the_operator_that_only_onnx_runtime_has(tmp_path, out):
    nodes = [("Binarizer", ["x"], ["y"], {"domain": "ai.onnx.ml", "threshold": 0.5})]
    model = models.get(small_models.onnx_file(tmp_path / "ml.onnx", nodes, domains=["ai.onnx.ml"]))
    with pytest.raises(UnsupportedError, match=r"OpenVINO has no operator ai\.onnx\.ml\.Binarizer"):
        engines.get("openvino").build(model, Plan("openvino"), out)
    engines.get("onnx_runtime").build(model, Plan("onnx_runtime"), out)


@pytest.mark.parametrize("engine", ["onnx_runtime", "openvino"])
def test_the_readers_own_file_runs(engine, tmp_path, out):
    model = models.get(small_models.onnx_file(tmp_path / "own.onnx", [RELU]))
    inputs = model.example(3, 1, 0)
    engines.get(engine).build(model, Plan(engine), out)
    with engines.get(engine).load(model, Plan(engine), out) as session:
        assert np.array_equal(session(inputs)["y"], np.maximum(inputs["x"], 0))


@pytest.mark.parametrize("engine", ["pytorch", "compiled"])
def test_pytorch_does_not_read_onnx_files_and_says_so(engine, tmp_path, out):
    model = models.get(small_models.onnx_file(tmp_path / "own.onnx", [RELU]))
    with pytest.raises(UnsupportedError, match=r"ONNX file, which PyTorch does not read.*onnx_runtime"):
        engines.get(engine).build(model, Plan(engine), out)

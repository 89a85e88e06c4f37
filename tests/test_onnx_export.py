"""Exported graphs have open axes and right answers, or the error names what is wrong."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import small_models

from accel_helpers import engines, models
from accel_helpers.accuracy import relative_error
from accel_helpers.engines import _onnx_check, _onnx_export
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


def _reshape(self, x):
    return self.a(x).view(x.shape[0], 2, 2).flatten(1).reshape(2, 4)


def _expand(self, x):
    return self.a(x) + self.a.bias.expand(2, 4)


def _stack(self, x):
    import torch

    return torch.stack([self.a(x[row]) for row in range(x.shape[0])])


def _sum(self, x):
    return sum((self.a(x) for _ in range(x.shape[0])), x[:, :4])


@pytest.mark.parametrize(
    ("forward", "axis", "told"),
    [
        (lambda self, x: self.a(x).view(2, -1), "y", r"came out fixed at node 'node_view' \(Reshape to \[2, -1\]\)"),
        (lambda self, x: self.a(x).sum(0, keepdim=True).expand(2, 4), "y", r"came out fixed at node 'node_expand' \(Expand to \[2, 4\]\)"),
        (_reshape, "x", r"test_onnx_export\.py, line \d+, `return .*reshape\(2, 4\)`, calls reshape, node '\w*view\w*' \(Reshape\)"),
        (_expand, "x", r"`return self\.a\(x\) \+ .*`, calls expand, node '\w*expand\w*' \(Expand\)"),
        (_stack, "x", r"`return torch\.stack.*`, calls __getitem__, node '\w*select\w*' \(Gather\)"),
        (_sum, "x", r"`return sum\(\(self\.a\(x\) .*`, calls linear, node '\w*linear\w*' \((Gemm|MatMul|Add)\)"),
    ],
    ids=["view", "expand of a sum", "reshape", "expand", "loop over the batch", "loop that sums"],
)
def test_k5_a_batch_fixed_in_the_network_is_an_error_that_names_the_node(forward, axis, told, out):
    with pytest.raises(ModelError, match=rf"Axis 0 \(batch\) of '{axis}' in small .*{told}") as caught:
        _onnx_export.export(small_models.network(forward, "small"), out)
    assert "\n" not in str(caught.value)
    assert not list(out.iterdir())


def test_k5_a_length_fixed_in_the_network_is_an_error_that_names_the_node(out):
    def forward(self, x):
        return self.a(x.view(x.shape[0], 2, 8).sum(1))

    model = dataclasses.replace(
        small_models.network(forward, "length"),
        example=lambda batch, sequence, seed: {"x": np.random.default_rng(seed).normal(size=(batch, sequence)).astype(np.float32)},
        axes={"x": {0: "batch", 1: "sequence"}, "y": {0: "batch"}},
        has_sequence=True,
    )
    with pytest.raises(ModelError, match=r"Axis 1 \(sequence\) of 'x' in length .*`return .*`, calls view, node '\w*view\w*' \(Reshape\)"):
        _onnx_export.export(model, out)


FOUR = ("four", np.array([2, 4]))


@pytest.mark.parametrize(
    ("nodes", "constants", "told"),
    [
        (
            [("Reshape", ["x", "four"], ["flat"], {"name": "culprit"}), ("Relu", ["flat"], ["y"], {})],
            [FOUR],
            r"node 'culprit' \(Reshape to \[2, 4\]\)",
        ),
        ([("Reshape", ["x", "four"], ["y"], {})], [FOUR], r"the Reshape to \[2, 4\] that gives 'y'"),
        (
            [("Expand", ["one", "four"], ["many"], {"name": "wide"}), ("Add", ["x", "many"], ["sum"], {}), ("Relu", ["sum"], ["y"], {})],
            [FOUR, ("one", np.ones((1, 4), np.float32))],
            r"batch 1, where .* answered|node 'wide' \(Expand to \[2, 4\]\)",
        ),
        (
            [("Add", ["x", "two"], ["sum"], {"name": "plus"}), ("Relu", ["sum"], ["y"], {})],
            [("two", np.ones((2, 4), np.float32))],
            r"node 'plus' \(Add with a constant of \[2, 4\]\)",
        ),
        (
            [
                ("Shape", ["x"], ["size"], {}),
                ("Reshape", ["x", "size"], ["same"], {}),
                ("Gather", ["same", "rows"], ["y"], {"name": "rows of two"}),
            ],
            [("rows", np.array([0, 1]))],
            r"node 'rows of two' \(Gather with a constant of \[2\]\)",
        ),
        (
            [
                ("Shape", ["x"], ["size"], {"start": 1}),
                ("Concat", ["two", "size"], ["fixed"], {"axis": 0}),
                ("ConstantOfShape", ["fixed"], ["zeros"], {}),
                ("Add", ["x", "zeros"], ["sum"], {"name": "plus"}),
                ("Relu", ["sum"], ["y"], {}),
            ],
            [("two", np.array([2]))],
            r"node 'plus' \(Add\)",
        ),
    ],
    ids=["reshape", "a node without a name", "expand", "a constant", "rows by number", "a shape half written"],
)
def test_k5_a_batch_fixed_inside_an_onnx_file_is_an_error_that_names_the_node(nodes, constants, told, tmp_path, out):
    path = small_models.onnx_file(tmp_path / "fixed.onnx", nodes, constants)
    with pytest.raises(ModelError, match=told) as caught:
        _onnx_export.export(models.get(path), out)
    assert "\n" not in str(caught.value)


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


def _dropping(train, dropout):
    """A network with batch norm and dropout, and which of its parts was left in training mode."""
    import torch

    network = small_models.network(lambda self, x: self.layers(x)).build().train(train)
    network.layers = torch.nn.Sequential(network.a, torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)).train(train)
    network.layers[2].train(dropout)
    return network


@pytest.mark.parametrize(
    ("train", "dropout", "forced"), [(True, True, True), (False, True, True), (False, False, False)], ids=["all", "one layer", "eval"]
)
def test_k7_the_report_says_that_eval_was_forced(train, dropout, forced, out):
    import onnx
    import torch

    model = small_models.of(lambda: _dropping(train, dropout))
    assert _onnx_export.export(model, out)["eval_forced"] is forced
    inputs = model.example(7, 1, 0)
    right, wrong = (
        {"y": network(torch.from_numpy(inputs["x"])).detach().numpy()} for network in (_dropping(False, False), _dropping(True, True))
    )
    assert relative_error(wrong, right) > 0.1, "what would be exported otherwise is far off"
    assert relative_error(_onnx_check.runner(model, out / "model.onnx")(inputs), right) < 1e-5
    assert "Dropout" not in {node.op_type for node in onnx.load(out / "model.onnx").graph.node}


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


def test_a_call_that_fails_for_its_values_is_not_blamed_on_a_size(tmp_path, out):
    nodes = [("Cast", ["x"], ["whole"], {"to": 7}), ("Add", ["whole", "far"], ["rows"], {}), ("Gather", ["table", "rows"], ["y"], {})]
    constants = [("far", np.array(100)), ("table", np.ones(4, np.float32))]
    with pytest.raises(ModelError, match=r"does not run with x \(1, 4\): .*Gather") as caught:
        _onnx_export.export(models.get(small_models.onnx_file(tmp_path / "far.onnx", nodes, constants)), out)
    assert "fixes" not in str(caught.value)


def test_another_opset_than_asked_for_is_an_error(out, monkeypatch):
    monkeypatch.setattr(_onnx_export, "OPSET", 12)  # PyTorch's exporter writes 18 and converts where it can
    with pytest.raises(ModelError, match="exported with opset 18 in place of 12"):
        _onnx_export.export(small_models.linear(), out)


@pytest.mark.parametrize(("change", "told"), [("opset", r"opset 99; .* up to \d+"), ("ir_version", r"IR version 99; .* up to \d+")])
def test_a_file_that_is_newer_than_onnx_runtime_says_so(change, told, tmp_path, out):
    import onnx

    path = small_models.onnx_file(tmp_path / "new.onnx", [RELU])
    model, graph = models.get(path), onnx.load(path)
    if change == "opset":
        graph.opset_import[0].version = 99
    else:
        graph.ir_version = 99
    onnx.save(graph, path)
    with pytest.raises(UnsupportedError, match=told):
        _onnx_export.export(model, out)


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


@pytest.fixture
def large(tmp_path):
    """An ONNX file that keeps tensor ``w`` in a file of its own, in a folder of its own."""
    import onnx

    folder = tmp_path / "own"
    folder.mkdir()
    path = small_models.onnx_file(folder / "own.onnx", [("MatMul", ["x", "w"], ["y"], {})], [("w", np.eye(4, dtype=np.float32))])
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return folder / "own.onnx"


def _moved(path, location):
    import onnx

    graph = onnx.load(path, load_external_data=False)
    for entry in graph.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = str(location)
    path.write_bytes(graph.SerializeToString())


def _outside(path):
    (path.parent.parent / "secret").write_bytes((path.parent / "w.bin").read_bytes())
    _moved(path, "../secret")


def _absolute(path):
    _moved(path, path.parent / "w.bin")


def _link(path):
    secret = path.parent.parent / "secret"
    (path.parent / "w.bin").rename(secret)
    (path.parent / "w.bin").symlink_to(secret)


def _linked_folder(path):
    (path.parent.parent / "elsewhere").mkdir()
    (path.parent / "w.bin").rename(path.parent.parent / "elsewhere" / "w.bin")
    (path.parent / "here").symlink_to(path.parent.parent / "elsewhere")
    _moved(path, "here/w.bin")


def _cut(path):
    (path.parent / "w.bin").write_bytes((path.parent / "w.bin").read_bytes()[:60])


REFUSED_WEIGHTS = [
    (_outside, r"outside its own folder, in \.\./secret \(tensor 'w'\)"),
    (_absolute, r"outside its own folder, in /.*w\.bin \(tensor 'w'\)"),
    (_link, r"outside its own folder, in w\.bin \(tensor 'w'\)"),
    (_linked_folder, r"outside its own folder, in here/w\.bin \(tensor 'w'\)"),
    (lambda path: (path.parent / "w.bin").unlink(), r"in w\.bin, which is missing \(tensor 'w'\)"),
    (_cut, r"in w\.bin, which holds 60 bytes where 64 are needed \(tensor 'w'\)"),
]


@pytest.mark.parametrize(("harm", "told"), REFUSED_WEIGHTS, ids=["above", "absolute", "link", "linked folder", "missing", "cut short"])
@pytest.mark.parametrize("when", ["named", "exported"])
def test_weights_outside_the_folder_or_not_whole_are_refused_before_they_are_read(harm, told, when, large, out, monkeypatch):
    model = models.get(str(large))
    harm(large)
    opened = []
    monkeypatch.setattr(Path, "open", lambda self, *_, **__: opened.append(self) or pytest.fail(f"{self} was opened"))
    monkeypatch.setattr("onnx.load_external_data_for_model", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(ModelError, match=told) as caught:
        models.get(str(large)) if when == "named" else _onnx_export._from_file(model, out / "model.onnx")
    assert "\n" not in str(caught.value)


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

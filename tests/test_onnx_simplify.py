"""A simplified graph is used only where it means the same; what froze, went missing or changed is refused by name."""

import os
from typing import get_args

import numpy as np
import onnx
import pytest
import small_models

from accel_helpers import engines, models
from accel_helpers.compilation.builds import simplify
from accel_helpers.config import Simplifier
from accel_helpers.engines import _onnx_export, _onnx_simplify
from accel_helpers.errors import MissingPackageError, ModelError, UnknownNameError
from accel_helpers.records import Compilation, Plan

TOOLS = tuple(_onnx_simplify.TOOLS)
MODEL = models.get("tiny-attention")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(autouse=True)
def one_store(store, monkeypatch):
    monkeypatch.setenv("ACCEL_STORE", str(store))


@pytest.fixture
def exported(tmp_path):
    (tmp_path / "exported").mkdir()
    _onnx_export.export(MODEL, tmp_path / "exported")
    return tmp_path / "exported" / _onnx_export.FILE


def test_the_configuration_knows_the_same_simplifiers():
    assert set(get_args(Simplifier)) == {"off", *TOOLS}


@pytest.mark.parametrize("tool", TOOLS)
def test_an_accepted_graph_is_exported_kept_and_says_what_made_it(tool, out, store, monkeypatch, capfd):
    report = _onnx_export.export(MODEL, out, tool)
    assert report["files"] == sorted(one.name for one in out.iterdir())
    done = report["simplified"]
    graph = onnx.load(out / _onnx_export.FILE)
    assert done["after"] == _onnx_simplify.operators(graph) != done["before"]
    assert (done["tool"], done["version"]) == (tool, _onnx_simplify.key(tool).removeprefix(tool))
    assert 0 <= done["worst_error"] < 1e-5
    assert done["seconds"] > 0
    assert [one.name for one in (store / "onnx").iterdir() if one.name.endswith(_onnx_simplify.key(tool))]
    monkeypatch.setattr(_onnx_simplify, "simplified", lambda *_: pytest.fail("simplified twice"))
    assert _onnx_export.export(MODEL, out, tool) == report
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


@pytest.mark.parametrize("engine", ["onnx_runtime", "openvino"])
def test_engines_build_from_the_simplified_graph(engine, out, tmp_path):
    plain, simple = Plan(engine), Plan(engine, compilation=Compilation(simplifier="onnxsim"))
    (tmp_path / "plain").mkdir()
    one, inputs = engines.get(engine), MODEL.example(3, 21, 5)
    assert "simplified" not in one.build(MODEL, plain, tmp_path / "plain").report["export"]
    assert one.build(MODEL, simple, out).report["export"]["simplified"]["tool"] == "onnxsim"
    with one.load(MODEL, plain, tmp_path / "plain") as first, one.load(MODEL, simple, out) as second:
        assert np.allclose(first(inputs)["logits"], second(inputs)["logits"], atol=1e-4)


@pytest.mark.parametrize("tool", TOOLS)
def test_k8_a_simplifier_that_froze_the_batch_is_refused(tool, exported, tmp_path):
    told = {name: array.shape for name, array in MODEL.example(2, 16, 0).items()}
    _onnx_simplify.rewritten(MODEL, exported, tool, tmp_path / "frozen.onnx", told)
    with pytest.raises(ModelError, match=rf"{tool} changed .*axis 0 was open \(batch\) and is fixed to 2 of input 'input_ids'"):
        _onnx_simplify.check(MODEL, exported, tool, tmp_path / "frozen.onnx")


@pytest.mark.parametrize("tool", TOOLS)
def test_k8_a_batch_frozen_behind_open_inputs_is_refused_at_its_node(tool, exported, tmp_path):
    """What many scripts do: simplify for one size, then write the open axes back. The tool's own check passes at that size."""
    out = tmp_path / "frozen.onnx"
    _onnx_simplify.rewritten(MODEL, exported, tool, out, {name: array.shape for name, array in MODEL.example(2, 16, 0).items()})
    frozen, source = onnx.load(out), onnx.load(exported)
    for kind in ("input", "output"):
        del getattr(frozen.graph, kind)[:]
        getattr(frozen.graph, kind).extend(getattr(source.graph, kind))
    del frozen.graph.value_info[:]
    onnx.save(frozen, out)
    with pytest.raises(ModelError, match=rf"{tool} changed .*(does not run|the shape) .*(node '[^']+'|the) \(?\w+ .*\[.*2.*\]") as caught:
        _onnx_simplify.check(MODEL, exported, tool, out)
    assert "\n" not in str(caught.value)


def test_k8_the_lesson_sees_both_tools_refused_when_told_a_batch():
    found = simplify.simplifications("tiny-attention", told_batch=2)
    assert [one.tool for one in found] == list(TOOLS)
    assert all("fixed to 2" in one.refused and one.error is None for one in found)
    assert all(one.nodes[1] < one.nodes[0] for one in found), "a frozen graph is the smaller one, which is why people do it"


def test_the_lesson_sees_what_each_tool_did():
    for one in simplify.simplifications("tiny-attention"):
        assert not one.refused
        assert one.error is not None
        assert one.error < 1e-5
        assert sum(one.changes.values()) == one.nodes[1] - one.nodes[0] != 0
        assert one.seconds > 0
        assert one.version


def changed(how):
    """A simplifier that does one thing wrong after the real tool has done its work."""

    def tool(graph, shapes):
        made = _onnx_simplify._onnxsim(graph, shapes)
        return how(made) or made

    return tool


def _weights(graph):
    head = next(one for one in graph.graph.initializer if len(one.dims) == 2)
    values = onnx.numpy_helper.to_array(head) * 1.01
    head.CopyFrom(onnx.numpy_helper.from_array(values, head.name))


def _opset(graph):
    return onnx.version_converter.convert_version(graph, 21)


def _rename(graph):
    graph.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"


def _type(graph):
    graph.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.INT32


def _second_output(graph):
    graph.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info("more", 1, ["batch"]))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (_weights, r"Output 'logits' .* differs from the graph before it by [\d.e-]+ at batch 1"),
        (_opset, "the opset was 20 and is 21"),
        (_rename, r"axis 0 was batch and is rows of output 'logits'"),
        (_type, r"the type was int64 and is int32 of input 'attention_mask'"),
        (_second_output, "the outputs were logits and are logits, more"),
        (lambda graph: 1 / 0, r"onnxsim failed on the graph of tiny-attention: ZeroDivisionError"),
    ],
    ids=["numbers", "opset", "name of an axis", "type", "outputs", "failure"],
)
def test_a_changed_graph_is_refused_and_not_kept(how, told, out, store, monkeypatch):
    monkeypatch.setattr(_onnx_simplify, "TOOLS", {"onnxsim": changed(how)})
    monkeypatch.setattr(_onnx_simplify, "key", lambda tool: "onnxsim-changed")
    with pytest.raises(ModelError, match=told) as caught:
        _onnx_export.export(MODEL, out, "onnxsim")
    assert "\n" not in str(caught.value)
    assert list(out.iterdir()) == []
    assert not list((store / "onnx").glob("*changed*"))


def test_what_a_tool_writes_past_python_stays_unseen(exported, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(_onnx_simplify, "TOOLS", {"onnxsim": lambda graph, shapes: os.write(2, b"WARNING") and graph})
    _onnx_simplify.rewritten(MODEL, exported, "onnxsim", tmp_path / "same.onnx")
    assert capfd.readouterr().err == ""
    os.write(2, b"seen again")
    assert capfd.readouterr().err == "seen again"


def test_what_a_file_left_undeclared_may_be_filled_in(tmp_path, out):
    path = small_models.onnx_file(tmp_path / "own.onnx", [("Relu", ["x"], ["y"], {})])
    graph = onnx.load(path)
    for dim in graph.graph.output[0].type.tensor_type.shape.dim:
        dim.Clear()
    onnx.save(graph, path)
    for tool in TOOLS:
        assert _onnx_export.export(models.get(path), out, tool)["simplified"]["worst_error"] == 0
        assert onnx.load(out / _onnx_export.FILE).graph.output[0].type.tensor_type.shape.dim[1].dim_value == 4


def test_a_simplifier_that_is_not_there_says_how_to_get_it(out, monkeypatch):
    with pytest.raises(UnknownNameError, match=r"no simplifier 'onnxsam'.*onnxsim"):
        _onnx_export.export(MODEL, out, "onnxsam")

    def none(name):
        raise _onnx_simplify.PackageNotFoundError(name)

    monkeypatch.setattr(_onnx_simplify, "version", none)
    with pytest.raises(MissingPackageError, match=r"onnxslim is not installed here\. Run: pip install onnxslim"):
        _onnx_export.export(MODEL, out, "onnxslim")

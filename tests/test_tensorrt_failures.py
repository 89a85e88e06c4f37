"""Every refusal is TensorRT's own, made on the spot: each must be explained as what it is, cured, and built after the cure."""

import pickle

import numpy as np
import pytest

from accel_helpers import environment
from accel_helpers.compilation.builds import _sampled, faulty
from accel_helpers.compilation.builds import attempts as builds
from accel_helpers.compilation.builds._remedies import written
from accel_helpers.compilation.builds._trial import Asked, absent, trial
from accel_helpers.engines import _tensorrt_failures as failures
from accel_helpers.engines.tensorrt import TensorRt
from accel_helpers.errors import ModelError

pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "TensorRT is here")
NAMES = [f"{place}-{case.kind}" for place, case in enumerate(faulty.CASES)]
UNKNOWN = "(int64[3] i, float depth, float[2] v) => (float[3,k] y) { y = OneHot(i, depth, v) }"
CUSTOM = "(float[n,4] x) => (float[n,4] y) { a = Relu(x) [squared] y = my.ops.SquaredRelu(a) }"
NODES = {"turing_fp32": "product", "unsupported_operator": ("fold", "spectrum"), "custom_operator": "squared", "not_constant": "mean"}


@pytest.fixture(scope="module")
def attempts():
    cases = {name: case for name, case in zip(NAMES, faulty.CASES, strict=True) if case in faulty.here()}
    return dict(zip(cases, builds.failures(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_refusal_is_reproduced_explained_and_cured(name, attempts):
    if name not in attempts:
        assert environment.describe().gpus or TensorRt.needs[0] != "tensorrt_rtx", "without a GPU, TensorRT-RTX refuses every case"
        pytest.skip("a GPU, or TensorRT itself, builds what TensorRT-RTX refuses without one")
    one = attempts[name]
    assert not one.ok, "the graph should be refused"
    assert one.failure.kind == name.split("-", 1)[1], one.failure
    assert one.cured, one.after
    assert one.right
    for sentence in (one.cause, one.cure):
        assert 20 < len(sentence) < 260
        assert "\n" not in sentence
        assert "{" not in sentence, "a group that was not filled in"
    assert one.cure.endswith(".")
    if one.kind in NODES:
        assert one.node in NODES[one.kind]


def test_cures_keep_what_the_graph_means(attempts):
    moved = {name: one.error for name, one in attempts.items() if one.error is not None}
    assert len(moved) > 20
    rounded = ("zero_points", "integer_operators", "turing_fp32")
    exact = {name: error for name, error in moved.items() if name.split("-", 1)[1] not in rounded}
    assert all(error < 1e-3 for error in exact.values()), exact
    assert all(error < 0.05 for error in moved.values()), "other scales, or FP16"


def test_every_rule_has_a_case_and_every_case_a_rule():
    from accel_helpers.engines._tensorrt_rules import RULES

    assert {one.kind for one in faulty.CASES} - {"domain_ignored"} == {rule.kind for rule in RULES}


def test_a_healthy_graph_is_explained_by_nothing(tmp_path):
    path = faulty.SETTINGS[0].write(tmp_path)
    assert trial(path, faulty.RIGHT, "mine").error is None
    assert failures.misread("mine", path) is None


def test_an_unknown_message_is_passed_on_with_how_to_bisect(tmp_path):
    error = trial(written(UNKNOWN, tmp_path / "a.onnx", 20), Asked(), "mine").error
    assert error.failure.kind == "unknown"
    assert error.failure.operator == "OneHot"
    assert "isInFlight" in error.what, "TensorRT's own words"
    assert "polygraphy debug reduce" in error.next_step
    assert len(error.what) < 360


def test_a_message_alone_names_the_node_and_a_graph_adds_the_domain(tmp_path):
    said = ['In node 1 with name: squared and operator: SquaredRelu (check): INVALID_NODE: creator && "Plugin not found, are …"']
    source = written(CUSTOM, tmp_path / "a.onnx", 20)
    for one in (failures.diagnosed(said), failures.diagnosed(said, source)):
        assert (one.kind, one.node, one.operator) == ("custom_operator", "squared", "SquaredRelu")
    fused = [said[0].replace("SquaredRelu", "FusedConv")]
    assert failures.diagnosed(fused).kind == "custom_operator", "no graph tells whose it is"
    dft = [said[0].replace("SquaredRelu", "DFT")]
    assert failures.diagnosed(dft).kind == "unsupported_operator", "the standard has it"


def test_noise_of_a_machine_without_a_driver_is_no_cause():
    noise = "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (cudaError 35: CUDA driver version is insufficient)"
    assert failures.diagnosed([noise]).cause == "it gave no reason"
    assert failures.diagnosed([noise, f"Network must have at least one output\n{noise}"]).kind == "empty_graph"


def test_the_error_is_one_paragraph_and_survives_another_process():
    error = failures.explained("mine", "read the graph", ["MODEL_DESERIALIZE_FAILED: …"])
    assert isinstance(error, ModelError)
    assert error.what == "TensorRT cannot read the graph of mine: the file is no ONNX graph, or only a part of one."
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.failure == error.failure


def test_weights_are_looked_for_where_the_log_is_silent(tmp_path):
    """The parser's error is the same for a lost file, a short one and a type that TensorRT lacks."""
    kinds = []
    for case in (*faulty.FILES[:2], next(one for one in faulty.GRAPHS if one.title == "a table of INT16")):
        folder = tmp_path / str(len(kinds))
        folder.mkdir()
        path = case.write(folder)
        name = "t" if case.kind == "data_type" else "w"
        kinds.append(failures.diagnosed([f"Failed to import initializer: {name}"], path).kind)
    assert kinds == ["weights_missing", "weights_short", "data_type"]


def test_an_operator_of_ones_own_with_a_standard_name_is_not_built_as_another(tmp_path):
    path = written("(float[n,4] x) => (float[n,4] y) { [own] y = my.ops.Relu(x) }", tmp_path / "a.onnx", 20)
    error = failures.misread("mine", path)
    assert error.failure.kind == "domain_ignored"
    assert "'own' (my.ops::Relu)" in error.what


def test_answers_are_those_of_the_graph(tmp_path):
    path = written("(float[2,4] x) => (float[2,4] y) { y = Relu(x) }", tmp_path / "a.onnx", 20)
    given = _sampled.inputs(path, Asked())
    assert np.array_equal(_sampled.tried(path, given)["y"], np.maximum(given["x"], 0))

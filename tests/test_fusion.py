"""The graph before and after fusion: what each compiler leaves, and which nodes became which layer."""

import pytest

from accel_helpers.compilation.graphs import fusion
from accel_helpers.compilation.graphs.graph import Graph, Node, grouped, linked
from accel_helpers.config import RunConfig
from accel_helpers.errors import ParameterError

OPTIMISED = "onnx_runtime, ALL"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.mktemp("store")))
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        yield


@pytest.fixture(scope="module")
def cnn(store):
    return fusion.fused(RunConfig(model="tiny-cnn", threads=1), inductor=False)


@pytest.fixture(scope="module")
def attention(store):
    return fusion.fused(RunConfig(model="tiny-attention", threads=1, sequence=16))


def operators(found, stage):
    """Each fused layer's operator, and those of the nodes whose work it does."""
    one = found.stage(stage)
    was = {node.name: node.operator for node in found.stage(one.source).graph.nodes}
    made = {node.name: node.operator for node in one.graph.nodes}
    return [(made[layer], *(was[name] for name in names)) for layer, names in found.fused(stage).items()]


def test_every_stage_has_a_graph_or_a_reason(cnn):
    assert [one.name for one in cnn.stages] == [
        *("exported, ONNX", "onnx_runtime, DISABLE_ALL", "onnx_runtime, BASIC", "onnx_runtime, EXTENDED", OPTIMISED),
        *("openvino, runtime graph", "compiled, PyTorch's operators", "compiled, rewritten", "compiled, kernels"),
        *("tensorrt, network", "tensorrt, engine"),
    ]
    assert all((one.graph is None) == bool(one.reason) for one in cnn.stages)
    assert cnn.stage("compiled, kernels").reason == "left out by request"
    assert "not yet run on a GPU" in cnn.stage("tensorrt, engine").reason
    assert cnn.stage("exported, ONNX").graph.operators == {"Conv": 2, "Relu": 2, "AveragePool": 1, "Reshape": 1, "Gemm": 1}
    assert (cnn.stages[0].graph.total, cnn.stages[0].graph.computing) == (7, 6)


def test_a_level_that_changes_nothing_fuses_nothing(cnn):
    assert cnn.fused("onnx_runtime, DISABLE_ALL") == {}
    assert cnn.stage("onnx_runtime, DISABLE_ALL").graph.operators == cnn.stages[0].graph.operators


@pytest.mark.parametrize(
    ("stage", "operator"), [("onnx_runtime, EXTENDED", "FusedConv"), (OPTIMISED, None), ("openvino, runtime graph", "Convolution")]
)
def test_a_convolution_takes_its_activation_in(cnn, stage, operator):
    found = operators(cnn, stage)
    assert [one[1:] for one in found] == [("Conv", "Relu")] * 2
    assert operator is None or {one[0] for one in found} == {operator}
    assert cnn.stage(stage).graph.computing == 4


def test_the_attention_of_a_transformer_is_fused_in_part(attention):
    found = operators(attention, "onnx_runtime, EXTENDED")
    assert found.count(("FusedMatMul", "Mul", "Mul", "MatMul")) == 2
    assert found.count(("BiasGelu", "Add", "Gelu")) == 2
    wide = operators(attention, "openvino, runtime graph")
    assert wide.count(("FullyConnected", "MatMul", "Add", "Gelu")) == 2
    assert all("LayerNormalization" not in one for one in wide)  # it stands for itself, as MVN
    for one in attention.stages:
        if one.source:
            before = [node.name for node in attention.stage(one.source).graph.nodes]
            owned = [name for names in one.groups.values() for name in names]
            assert len(owned) == len(set(owned))
            assert set(owned) <= set(before)
            assert set(one.groups) <= {node.name for node in one.graph.nodes}


def test_inductor_joins_a_normalization_into_one_loop_and_leaves_products_to_libraries(attention):
    kernels = attention.stage("compiled, kernels")
    if kernels.graph is None:
        pytest.skip(kernels.reason)
    before = attention.stage("compiled, PyTorch's operators").graph
    assert before.operators["addmm"] == 9
    assert kernels.graph.computing < before.computing / 2
    loops = [set(one[1:]) for one in operators(attention, "compiled, kernels") if one[0] == "generated loop"]
    assert any({"var_mean", "rsqrt", "sub", "mul", "add"} <= one for one in loops)
    rewritten = {node.name: node.operator for node in attention.stage(kernels.source).graph.nodes}
    called = [node for node in kernels.graph.nodes if node.operator != "generated loop"]
    assert called
    assert all(node.operator in {rewritten[name] for name in kernels.groups[node.name]} for node in called)
    assert not any("addmm" in one or "_mkl_linear" in one for one in loops)


def test_what_cannot_be_shown_is_refused(cnn):
    with pytest.raises(ParameterError, match="FP32 on a CPU"):
        fusion.fused(RunConfig(model="tiny-cnn", precision="bf16"))
    with pytest.raises(ParameterError, match="no stage 'other'"):
        cnn.stage("other")


def graph(**nodes):
    return Graph(tuple(Node(name, operator, tuple(inputs)) for name, (operator, *inputs) in nodes.items()))


CHAIN = graph(a=("MatMul",), b=("Add", "a"), c=("Relu", "b"), d=("MatMul", "c"), e=("Add", "d"))


def test_a_node_without_a_claim_joins_what_it_feeds_or_else_what_feeds_it():
    after = graph(x=("Fused",), y=("Gemm", "x"))
    assert grouped(CHAIN, after, {"x": ["c"], "y": ["d"]}) == {"x": ("a", "b", "c"), "y": ("d", "e")}
    forked = graph(a=("Mul",), b=("MatMul", "a"), c=("MatMul", "a"))
    assert grouped(forked, graph(x=("Gemm",), y=("Gemm",)), {"x": ["b"], "y": ["c"]}) == {
        "x": ("a", "b"),
        "y": ("c",),
    }  # the first that runs


def test_a_layer_without_a_claim_takes_the_node_in_its_place():
    after = graph(x=("Gemm",), y=("Relu", "x"), z=("Gemm", "y"))
    assert grouped(CHAIN, after, {"x": ["b"], "z": ["e"]}) == {"x": ("a", "b"), "y": ("c",), "z": ("d", "e")}
    unlike = graph(x=("Gemm",), y=("Relu",), z=("Gemm", "x", "y"))  # fed by nothing that feeds the node
    assert grouped(CHAIN, unlike, {"x": ["b"], "z": ["e"]}) == {"x": ("a", "b"), "z": ("c", "d", "e")}


def test_a_node_that_nothing_needs_was_removed():
    assert grouped(graph(a=("Relu",), b=("Relu",)), graph(x=("Relu",)), {"x": ["b"]}) == {"x": ("b",)}


def test_what_lies_between_kept_nodes_is_passed_through():
    whole = linked([("a", "MatMul", ["in"], ["1"]), ("b", "Reshape", ["1"], ["2"]), ("c", "Add", ["2", "1"], ["3"])])
    assert whole.kept(["a", "c"]).nodes == (Node("a", "MatMul"), Node("c", "Add", ("a",)))
    assert [node.computes for node in whole.nodes] == [True, False, True]

"""Graphs with one fault each: refused by a runtime, crashing it, not finite, or wrong; the operator to blame is named."""

import contextlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from faulty_graphs import UNKNOWN, WIDTH, chain
from safetensors.numpy import load_file
from small_models import onnx_file

from accel_helpers import models
from accel_helpers.charts import culprit_table
from accel_helpers.compilation.debugging._attempt import values
from accel_helpers.compilation.debugging._attempts import Attempts
from accel_helpers.compilation.debugging.bisect import LOADS, failing_node
from accel_helpers.engines import _onnx_export
from accel_helpers.errors import ModelError, ParameterError, UnknownNameError

MOST = 4 + 2 * math.ceil(math.log2(40))
"""Attempts at 40 operators: the whole, two bisections, what they run in between, and the operator alone."""


def command(code):
    """A check in a process of its own, without any runtime: ``graph`` is the file as text."""
    return [sys.executable, "-S", "-c", f"import os, signal, sys\ngraph = open(sys.argv[1], errors='replace').read()\n{code}"]


def operators(path):
    import onnx

    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize("check", LOADS)
def test_an_operator_that_a_runtime_lacks_is_found_in_the_middle_of_forty(check, tmp_path):
    found = failing_node(chain(tmp_path / "g.onnx", n21=UNKNOWN), check, save=tmp_path / "small.onnx")
    assert (found.node, found.operator, found.inputs, found.outputs) == ("n21", "ai.example.Frobnicate", ("t20",), ("t21",))
    assert (found.place, found.operators, found.left) == (21, 40, 1)
    assert found.tries <= MOST
    assert "Frobnicate" in found.complaint
    assert operators(found.subgraph) == ["Frobnicate"]
    assert "Frobnicate" in Attempts(tmp_path, check, 60)(found.subgraph, {})  # what is attached to a bug report fails by itself


def test_an_operator_that_tensorrt_would_take_for_another_is_found_without_asking_it(tmp_path):
    found = failing_node(chain(tmp_path / "g.onnx", 5, n2=("Relu", {"domain": "ai.example"})), "tensorrt")
    assert (found.node, found.operator, found.left) == ("n2", "ai.example.Relu", 1)
    assert "would misread" in found.complaint


def test_a_graph_that_loads_and_does_not_run_is_followed_to_the_operator(tmp_path):
    """The operator alone fails with the values that it read in the graph, and with no made-up ones."""
    path = chain(tmp_path / "g.onnx", 9, n5=("Reshape", {}), w5=np.array([3, WIDTH]))
    found = failing_node(path, "onnx_runtime", inputs={"x": np.ones((2, WIDTH), np.float32)}, save=tmp_path / "small.onnx")
    assert (found.node, found.operator, found.left) == ("n5", "Reshape", 1)
    assert "cannot be reshaped" in found.complaint
    kept = load_file(tmp_path / "small.inputs.safetensors")
    assert kept.keys() == {"t4"}
    assert kept["t4"].shape == (2, WIDTH)


@pytest.fixture(scope="module")
def overflowing(tmp_path_factory):
    """tiny-attention with one projection's weights scaled up, in FP32 and converted to FP16."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("overflow")
        patch.setenv("ACCEL_STORE", str(folder / "store"))
        _onnx_export.export(models.get("tiny-attention"), folder)
    loaded = onnx.load(folder / _onnx_export.FILE)
    products = [node for node in loaded.graph.node if node.op_type == "MatMul"]
    weights = {one.name: one for one in loaded.graph.initializer}
    node = next(one for one in products[2:] if one.input[1] in weights)
    weights[node.input[1]].CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weights[node.input[1]]) * 3e5, node.input[1]))
    return node, loaded, convert_float_to_float16(loaded, keep_io_types=True)


def test_a_sum_that_overflows_fp16_is_found(overflowing, tmp_path):
    node, wide, half = overflowing
    inputs = models.get("tiny-attention").example(2, 16, 0)
    found = failing_node(half, "finite", inputs=inputs, save=tmp_path / "small.onnx")
    assert (found.node, found.operator, found.left, found.tries) == (node.name, "MatMul", 1, 2)
    assert "Inf" in found.complaint
    assert "float16" in found.complaint
    again = values(found.subgraph, load_file(tmp_path / "small.inputs.safetensors"))
    assert np.isinf(again[found.outputs[0]]).any()
    with pytest.raises(ModelError, match="Nothing fails"):
        failing_node(wide, "finite", inputs=inputs)


def test_a_mask_of_minus_infinity_is_not_to_blame(tmp_path):
    nodes = [
        ("Where", ["keep", "x", "low"], ["masked"], {"name": "mask"}),
        ("Softmax", ["masked"], ["weights"], {"name": "softmax"}),
        ("Exp", ["x"], ["large"], {"name": "exp"}),
        ("Mul", ["large", "masked"], ["mixed"], {"name": "mixed"}),
        ("Add", ["mixed", "weights"], ["y"], {"name": "sum"}),
    ]
    constants = [("keep", np.array([True, True, True, False])), ("low", np.float32(-np.inf).reshape(1))]
    path = Path(onnx_file(tmp_path / "g.onnx", nodes, constants))
    found = failing_node(path, "finite", inputs={"x": np.full((2, WIDTH), 100, np.float32)})
    assert found.node == "exp"


FAULTS = {
    "a weight": ("n0", {"w0": np.full((WIDTH, WIDTH), 0.5, np.float32)}),
    "Gelu by tanh": ("n10", {"n10": ("Gelu", {"approximate": "tanh"})}),
    "a wrong axis": ("n15", {"n15": ("Softmax", {"axis": 0})}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_in_a_graph_is_found_by_another(fault, tmp_path):
    name, changes = FAULTS[fault]
    right, wrong = chain(tmp_path / "right.onnx", 17), chain(tmp_path / "wrong.onnx", 17, **changes)
    found = failing_node(wrong, "differs", reference=right, tolerance=1e-5, save=tmp_path / "small.onnx")
    assert (found.node, found.left, found.tries) == (name, 1, 3)
    assert "1e-05 is allowed" in found.complaint


def test_operators_whose_values_the_reference_lacks_stay_in_the_part(tmp_path):
    import onnx

    right, wrong = chain(tmp_path / "right.onnx", 17), chain(tmp_path / "wrong.onnx", 17, w8=np.ones((WIDTH, WIDTH), np.float32))
    other = onnx.load(right)
    for node in other.graph.node[7:9]:  # as a fusion leaves them: t7 and t8 have other names
        node.output[0] += "/fused"
    for node in other.graph.node[8:10]:
        node.input[0] += "/fused"
    found = failing_node(wrong, "differs", reference=other, tolerance=1e-5)
    assert (found.node, found.left) == ("n9", 3)
    earlier = chain(tmp_path / "earlier.onnx", 17, w5=np.ones(WIDTH, np.float32))
    assert failing_node(earlier, "differs", reference=other, tolerance=1e-5).node == "n5"


def test_a_crash_is_a_failure_and_ends_nothing_else(tmp_path):
    path = chain(tmp_path / "g.onnx", n21=UNKNOWN)
    found = failing_node(path, command("if 'Frobnicate' in graph: os.kill(os.getpid(), signal.SIGKILL)"))
    assert (found.node, found.left, found.complaint) == ("n21", 1, "killed by SIGKILL")
    assert found.tries <= MOST
    group = failing_node(path, command("if 'Frobnicate' in graph: os.killpg(os.getpgid(0), signal.SIGKILL)"))
    assert group.node == "n21"


def test_a_hang_is_a_failure_and_leaves_nothing_running(tmp_path):
    import psutil

    pid = tmp_path / "pid"
    said = Attempts(tmp_path, ["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], 2)
    assert said(tmp_path / "g.onnx", {}) == "did not end within 2 s"
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(int(pid.read_text()))
        psutil.wait_procs([started], timeout=5)
        assert started.status() == psutil.STATUS_ZOMBIE


def test_what_breaks_by_cutting_is_not_the_fault(tmp_path):
    """The check also fails every graph without y, with other words: the beginnings of the graph tell nothing."""
    path = chain(tmp_path / "g.onnx", n21=UNKNOWN)
    code = "if 'Frobnicate' in graph: sys.exit('no kernel for this operator')\nif 'n39' not in graph: sys.exit('the output y is missing')"
    found = failing_node(path, command(code))
    assert (found.node, found.complaint) == ("n21", "no kernel for this operator")


def test_a_graph_whose_operators_are_in_no_order_is_sorted_first(tmp_path):
    """ONNX Runtime's converter to FP16 writes such graphs, and ONNX Runtime loads them."""
    import onnx

    loaded = onnx.load(chain(tmp_path / "g.onnx", 9, n5=UNKNOWN))
    loaded.graph.node.append(loaded.graph.node.pop(3))
    found = failing_node(loaded, command("if 'Frobnicate' in graph: sys.exit('no')"), save=tmp_path / "small.onnx")
    assert (found.node, found.place, found.left) == ("n5", 5, 1)


def test_two_operators_that_fail_together_are_both_kept(tmp_path):
    path = chain(tmp_path / "g.onnx", n10=("Floor", {}), n30=("Ceil", {}))
    found = failing_node(path, command("if 'Floor' in graph and 'Ceil' in graph: sys.exit('these two')"), save=tmp_path / "small.onnx")
    assert (found.node, found.left) == ("n30", 21)
    assert (operators(tmp_path / "small.onnx")[0], operators(tmp_path / "small.onnx")[-1]) == ("Floor", "Ceil")
    assert found.tries <= MOST


def test_a_fault_that_no_part_has_is_said(tmp_path):
    path = chain(tmp_path / "g.onnx", 8)
    with pytest.raises(ModelError, match="fails as a whole, and no part of it does: too long a name"):
        failing_node(path, command("if sys.argv[1].endswith('g.onnx'): sys.exit('too long a name')"))


def test_a_branch_takes_what_it_reads_from_outside_along(tmp_path):
    """The branches of an If read t0, which no input of the If names."""
    import onnx
    from onnx import helper

    inner = [
        helper.make_graph(
            [helper.make_node(operator, ["t0"], [f"in_{operator}"])],
            operator,
            [],
            [helper.make_tensor_value_info(f"in_{operator}", 1, ["batch", WIDTH])],
        )
        for operator in ("Neg", "Abs")
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["t0"], "n0"),
        helper.make_node("If", ["yes"], ["t1"], "n1", then_branch=inner[0], else_branch=inner[1]),
        helper.make_node("Log", ["t1"], ["t2"], "n2"),
        helper.make_node("Relu", ["t2"], ["y"], "n3"),
    ]
    ends = [helper.make_tensor_value_info(name, 1, ["batch", WIDTH]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [onnx.numpy_helper.from_array(np.array(True), "yes")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    inputs = {"x": np.ones((2, WIDTH), np.float32)}
    assert failing_node(model, "finite", inputs=inputs).node == "n2"
    kept = failing_node(
        model, command("if 'Neg' in graph and 'Log' in graph: sys.exit('both')"), inputs=inputs, save=tmp_path / "small.onnx"
    )
    assert (kept.node, operators(tmp_path / "small.onnx")) == ("n2", ["If", "Log"])
    assert onnx.load(tmp_path / "small.onnx").graph.input[0].name == "t0"


@pytest.mark.parametrize("check", ["finite", "tensorrt"])
def test_a_healthy_graph_has_no_culprit(check, tmp_path):
    with pytest.raises(ModelError, match=f"Nothing fails: the graph passes the check {check}"):
        failing_node(chain(tmp_path / "g.onnx", 9), check)


def test_mistakes_are_said_before_anything_runs(tmp_path):
    path = chain(tmp_path / "g.onnx", 3)
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(UnknownNameError, match="Did you mean 'finite'"):
        failing_node(path, "finit")
    with pytest.raises(ParameterError, match="go together"):
        failing_node(path, "differs")
    with pytest.raises(ModelError, match=r"missing.onnx does not exist"):
        failing_node(tmp_path / "missing.onnx", "finite")
    with pytest.raises(ModelError, match=r"text.onnx cannot be read"):
        failing_node(tmp_path / "text.onnx", "finite")
    with pytest.raises(ParameterError, match="there-is-none cannot be run: No such file"):
        failing_node(path, ["there-is-none"])
    for save in (path, tmp_path / "small.txt", tmp_path / "nowhere" / "small.onnx"):
        with pytest.raises(ParameterError):
            failing_node(path, "finite", save=save)


def test_a_row_for_each_culprit(tmp_path):
    found = failing_node(chain(tmp_path / "g.onnx", 3, n1=UNKNOWN), command("if 'Frobnicate' in graph: sys.exit('no')"))
    head, row = culprit_table([found])
    assert len(head) == len(row)
    assert row[1:5] == ["ai.example.Frobnicate", "n1", "2 of 3", "1 operator"]
    assert row[-1] == "no"

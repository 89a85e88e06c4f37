"""``accel diff`` and ``accel bisect``: tables, exit codes, one message for a mistake."""

import re
import sys

import pytest
from faulty_graphs import UNKNOWN, WIDTH, chain

from accel_helpers import cli


@pytest.fixture
def accel(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["accel", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return call


def test_diff_prints_a_row_for_each_output_and_size_and_fails_where_one_differs(accel, tmp_path):
    settings = [f"model={chain(tmp_path / 'g.onnx', 5)}", "threads=1", "--size", "1x16", "--size", "3x16"]
    code, out, _ = accel("diff", "engine=onnx_runtime,openvino", *settings)
    assert code == 0
    rows = [line for line in out.splitlines() if line.strip().startswith("openvino fp32 cpu")]
    assert len(rows) == 2
    assert all("yes, up to 0.001" in row for row in rows)
    code, out, _ = accel("diff", "engine=onnx_runtime,null", *settings)
    assert code == 1
    assert "NO, up to 0.001" in out


def test_bisect_names_the_operator_and_saves_the_part(accel, tmp_path):
    chain(tmp_path / "g.onnx", 5, n2=UNKNOWN)
    code, out, err = accel("bisect", "g.onnx", "--check", "onnx_runtime", "--save", "small.onnx")
    assert (code, err) == (0, "")
    assert "ai.example.Frobnicate" in out
    assert "Load model from" not in out  # what an attempt's own file is called is of no interest
    assert re.search(r"\bn2 +3 of", out)
    assert f"the part that still fails: {tmp_path / 'small.onnx'}" in out
    assert (tmp_path / "small.onnx").is_file()


def test_bisect_against_a_reference_needs_no_check_to_be_named(accel, tmp_path):
    import numpy as np

    chain(tmp_path / "right.onnx", 5)
    chain(tmp_path / "wrong.onnx", 5, w1=np.full(WIDTH, 3, np.float32))
    code, out, _ = accel("bisect", "wrong.onnx", "--reference", "right.onnx")
    assert code == 0
    assert "differs" in out
    assert " n1 " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bisect", "missing.onnx", "--check", "finite"), "missing.onnx does not exist."),
        (("bisect", "text.txt", "--check", "finite"), "text.txt cannot be read"),
        (("bisect", "g.onnx", "--check", "onnxruntime"), "Did you mean 'onnx_runtime'?"),
        (("bisect", "g.onnx"), "There is no check ''."),
        (("bisect", "g.onnx", "--check", "finite", "--reference", "g.onnx"), "A reference and check=differs go together."),
        (("bisect", "g.onnx", "--reference", "g.onnx"), "Nothing fails: the graph passes the check differs."),
        (("bisect", "g.onnx", "--check", "finite", "--save", "g.onnx"), "cannot be saved as g.onnx"),
        (("diff", "model=tiny-cnn"), "needs a reference and a candidate"),
        (("diff", "model=tiny-cnn", "engine=pytorch,null", "--size", "7"), "'7' is no size."),
    ],
)
def test_a_mistake_ends_in_one_message(accel, tmp_path, arguments, message):
    chain(tmp_path / "g.onnx", 3)
    (tmp_path / "text.txt").write_text("no graph")
    code, out, err = accel(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("accel: ")
    assert len(err.splitlines()) == 2

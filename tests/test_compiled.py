"""torch.compile: programs are counted, cut graphs are told, and giving up is an error."""

import os
import subprocess
import sys

import numpy as np
import pytest
import small_models

from accel_helpers import engines, environment
from accel_helpers.accuracy import relative_error
from accel_helpers.errors import UnsupportedError
from accel_helpers.records import Plan

ENGINE = engines.get("compiled")


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        yield


@pytest.fixture
def load(tmp_path):
    """Model -> an open session at batch 2, with PyTorch's eager answer beside it."""
    sessions = []

    def get(model):
        ENGINE.build(model, Plan("compiled", batch=2), tmp_path)
        sessions.append(ENGINE.load(model, Plan("compiled", batch=2), tmp_path))
        sessions.append(engines.get("pytorch").load(model, Plan("pytorch"), tmp_path))
        return sessions[-2:]

    yield get
    for session in sessions:
        session.close()


@pytest.fixture
def limit_of_two():
    import torch

    with torch._dynamo.config.patch(recompile_limit=2):
        yield


def by_batch(self, x):
    """Asks for a program of its own at each batch size, as a Python loop over the samples does."""
    answer = self.a(x)
    for _ in range(x.shape[0]):
        answer = answer + 1
    return answer


@pytest.mark.usefixtures("limit_of_two")
def test_k14_giving_up_is_an_error_that_says_how_many_programs_there_were(load):
    model = small_models.network(by_batch, "by-batch")
    session, eager = load(model)
    for batch in (2, 3, 4):
        inputs = model.example(batch, 1, 0)
        assert relative_error(session(inputs), eager(inputs)) < 1e-5
    with pytest.raises(UnsupportedError, match=r"gave up on by-batch after 3 programs, one before x 5x8; it would run eagerly"):
        session(model.example(5, 1, 0))
    assert session.report["compilations"] == {"x 2x8": 1, "x 3x8": 1, "x 4x8": 1}
    assert session.report["recompilations"] == 2
    with pytest.raises(UnsupportedError, match="gave up"):
        session(model.example(5, 1, 0))
    session(model.example(3, 1, 0))


@pytest.mark.usefixtures("limit_of_two")
def test_k14_torch_by_itself_says_nothing():
    """The fault that the engine turns into an error: past the limit the plain function runs."""
    import torch

    programs = []

    def backend(graph, _):
        programs.append(graph)
        return graph.forward

    network = small_models.network(by_batch).build()
    compiled = torch.compile(lambda x: by_batch(network, x), backend=backend, dynamic=False)
    with torch.inference_mode():
        for batch in range(1, 6):
            assert compiled(torch.ones(batch, 8)).shape == (batch, 4)
    assert len(programs) == 2


def test_open_sizes_share_a_program(load):
    model = small_models.linear()
    session, _ = load(model)
    for batch in (2, 3, 5, 7, 2, 11):
        session(model.example(batch, 1, 0))
    assert session.report["compilations"] == {"x 2x8": 1, "x 3x8": 1}
    assert session.report["graph_breaks"] == 0
    assert session.report["graph_break_reasons"] == []


def test_a_cut_graph_is_counted_with_its_reason_and_still_right(load):
    def forward(self, x):
        import torch

        answer = self.a(x)
        torch._dynamo.graph_break()
        return answer.relu()

    model = small_models.network(forward, "cut")
    session, eager = load(model)
    inputs = model.example(2, 1, 0)
    assert relative_error(session(inputs), eager(inputs)) < 1e-5
    assert session.report["graph_breaks"] == 1
    assert "graph_break()" in session.report["graph_break_reasons"][0]
    assert session.report["compilations"] == {"x 2x8": 2}
    assert session.report["types"]["fp32"] >= 2, "both pieces are counted"


def test_closing_one_session_leaves_another_of_the_same_network_as_it_was(load):
    model = small_models.linear()
    one, _ = load(model)
    two, _ = load(model)
    inputs = model.example(2, 1, 0)
    expected = two(inputs)["y"]
    one(inputs)
    one.close()
    assert np.array_equal(two(inputs)["y"], expected)
    assert two.report["compilations"] == {"x 2x8": 1}


def test_programs_are_kept_in_the_store(load):
    load(small_models.linear())
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == os.environ["ACCEL_STORE"] + "/inductor"


def test_no_compiler_is_no_support_and_says_what_to_install(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    support = ENGINE.supports(Plan("compiled"), environment.describe())
    assert not support
    assert "there is no no-such-compiler; install" in support.reason


def test_warnings_workers_and_threads_do_not_leak_out(tmp_path):
    """In a fresh process, where every warning of PyTorch's imports is still to come."""
    code = f"""
import warnings; warnings.simplefilter("error")
import threading, psutil, small_models
from pathlib import Path
from accel_helpers import engines
from accel_helpers.records import Plan
model, engine, folder = small_models.linear(), engines.get("compiled"), Path({str(tmp_path)!r})
engine.build(model, Plan("compiled"), folder)
with engine.load(model, Plan("compiled"), folder) as session:
    session(model.example(1, 1, 0))
print(len(psutil.Process().children(recursive=True)), *(one.name for one in threading.enumerate()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="tests", env={**os.environ, "PYTHONPATH": ".."})
    assert done.stderr == ""
    # PyTorch's progress bars start tqdm's one monitor, a daemon for the life of the process.
    assert done.stdout.strip().removesuffix(" tqdm_monitor") == "0 MainThread"

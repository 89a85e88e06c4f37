"""Closing a session leaves no thread and no memory behind: many load-run-close cycles in a process of their own."""

import json
import os
import subprocess
import sys

import pytest

from accel_helpers import engines, environment
from accel_helpers.records import Plan

CYCLES = {"compiled": 12}
"""A cycle of torch.compile traces and compiles anew, which takes half a second; a thousand of the others take seconds."""
MANY = 500
GROWTH = {"compiled": 320 * 2**10}
"""Bytes a cycle: PyTorch keeps records of each compilation for ever (source text, guards), whatever the model's size."""
LITTLE = 16 * 2**10
"""Bytes a cycle, against 832 KiB of weights: the heap's own coming and going is 2 MiB over any number of cycles."""

HIDDEN = {"compiled": 2**17}
"""Units of 52 bytes each: weights that a leaked session would hold on to, and that a heap in holes does not give back."""
FEWER_HIDDEN = 2**14

SCRIPT = """
import json, sys, tempfile
from pathlib import Path
import psutil, small_models
from accel_helpers import engines
from accel_helpers.records import Plan

name, cycles, HIDDEN = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model = small_models.network(lambda self, x: self.b(self.a(x)), "wide", hidden=HIDDEN)
engine, plan, process = engines.get(name), Plan(name, threads=2), psutil.Process()
inputs = model.example(1, 1, 0)
sessions = []

def cycle(folder):
    session = engine.load(model, plan, folder)
    session(inputs)
    if "keep" in sys.argv:
        sessions.append(session)
    else:
        session.close()

with tempfile.TemporaryDirectory() as folder:
    engine.build(model, plan, Path(folder))
    seen = []
    for number in range(cycles):
        cycle(Path(folder))
        if number + 1 in (cycles // 4, cycles // 2, cycles):
            seen.append([process.memory_info().rss, process.num_threads(), process.num_fds(), len(process.children())])
print(json.dumps(seen))
"""


def watched(name, cycles, *more, factory):
    env = {**os.environ, "ACCEL_STORE": str(factory.getbasetemp() / "store"), "PYTHONPATH": "..", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, name, str(cycles), str(HIDDEN.get(name, FEWER_HIDDEN)), *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd="tests", env=env, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", [name for name in engines.names() if engines.get(name).supports(Plan(name), environment.describe())])
def test_cycles_do_not_grow(name, tmp_path_factory):
    cycles = CYCLES.get(name, MANY)
    (_, *early), (memory, *middle), (later, *late) = watched(name, cycles, factory=tmp_path_factory)
    assert early == middle == late, "threads, open files and child processes"
    assert (later - memory) / (cycles / 2) <= GROWTH.get(name, LITTLE)


def test_a_session_that_is_not_closed_is_seen(tmp_path_factory):
    """The same watch on sessions that are kept: it must find the weights that each holds."""
    _, (memory, *_), (later, *_) = watched("onnx_runtime", 40, "keep", factory=tmp_path_factory)
    assert (later - memory) / 20 > LITTLE

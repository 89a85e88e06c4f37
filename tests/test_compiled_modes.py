"""The compiled engine's modes: what each does and refuses; a package compiled ahead of time keeps the contract of all engines."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import small_models

from accel_helpers import engines, environment, models
from accel_helpers.accuracy import TOLERANCE, relative_error
from accel_helpers.engines import _aot
from accel_helpers.errors import ArtifactError, ModelError, UnsupportedError
from accel_helpers.records import Plan, Quantization

ENGINE, HERE = engines.get("compiled"), environment.describe()
SEQUENCE = 16
PLAN = Plan("compiled", batch=2, sequence=SEQUENCE, mode="aot")
MODEL = models.get("tiny-attention")


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        yield


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The one package that this file compiles: its folder, and what build said."""
    folder = tmp_path_factory.mktemp("aot")
    return folder, ENGINE.build(MODEL, PLAN, folder)


@pytest.fixture(scope="module")
def session(package):
    with ENGINE.load(MODEL, PLAN, package[0]) as session:
        yield session


@pytest.fixture(scope="module")
def eager(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eager")
    engines.get("pytorch").build(MODEL, Plan("pytorch"), folder)
    with engines.get("pytorch").load(MODEL, Plan("pytorch"), folder) as session:
        yield session


def test_every_mode_says_what_it_does_and_what_cannot_be_had_says_why():
    assert set(ENGINE.modes) == {"reduce_overhead", "max_autotune", "aot"}
    assert all(len(sentence) > 30 for sentence in ENGINE.modes.values())
    refused = {
        Plan("compiled", mode="reduce_overhead"): "a CPU has none",
        Plan("compiled", "int8", mode="aot", quantization=Quantization("static", calibration=8)): "compiles no quantized plans",
        Plan("compiled", mode="cuda_graph"): "has no mode cuda_graph; it has default, reduce_overhead, max_autotune, aot",
        Plan("compiled", mode="torch_tensorrt"): "Torch-TensorRT for this PyTorch pins TensorRT 11.0",
    }
    for plan, reason in refused.items():
        support = ENGINE.supports(plan, HERE)
        assert not support
        assert reason in support.reason
    for mode in ("max_autotune", "aot"):
        assert ENGINE.supports(Plan("compiled", mode=mode), HERE)


def test_a_package_answers_right_at_every_batch_and_another_length(session, eager):
    for batch, sequence in ((1, SEQUENCE), (2, SEQUENCE), (3, SEQUENCE), (7, SEQUENCE), (3, 24), (1, 1), (2, 300)):
        inputs = MODEL.example(batch, sequence, 11)
        outputs = session(inputs)
        assert outputs["logits"].shape == (batch, 4)
        assert relative_error(outputs, eager(inputs)) <= TOLERANCE["fp32"], (batch, sequence)


def test_k18_a_padded_batch_of_a_package_answers_like_single_requests(session):
    lengths = (7, 11, SEQUENCE)
    batch = MODEL.example(len(lengths), SEQUENCE, 5)
    batch["attention_mask"][:] = np.arange(SEQUENCE) < np.array(lengths)[:, None]
    alone = [
        session({name: values[row : row + 1, :length] for name, values in batch.items()})["logits"] for row, length in enumerate(lengths)
    ]
    assert relative_error({"y": session(batch)["logits"]}, {"y": np.concatenate(alone)}) <= TOLERANCE["fp32"]


def test_outputs_of_a_package_stay_when_it_runs_again(session):
    first, second = (session.place(MODEL.example(2, SEQUENCE, seed)) for seed in (1, 2))
    expected = session.fetch(session.run(first))["logits"].copy()
    one, two = session.run(first), session.run(second)
    outputs = session.fetch(one)
    session.fetch(two)["logits"][:] = 0
    assert np.array_equal(outputs["logits"], expected)
    outputs["logits"][:] = 0
    assert np.array_equal(session.fetch(session.run(first))["logits"], expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_wrong_inputs_get_one_error_on_any_number_of_threads_and_the_package_lives_on(package, threads):
    plan = Plan("compiled", batch=2, sequence=SEQUENCE, mode="aot", threads=threads)
    with ENGINE.load(MODEL, plan, package[0]) as session:
        good = MODEL.example(32, SEQUENCE, 0)
        expected = session(good)["logits"]
        for wrong in (
            {**good, "input_ids": good["input_ids"] + 5000},
            {**good, "input_ids": good["input_ids"].astype(np.int32)},
            {name: np.ones((1, 600), np.int64) for name in good},
        ):
            with pytest.raises(ModelError) as caught:
                session(wrong)
            assert caught.value.next_step
            assert "\n" not in str(caught.value)
            assert np.allclose(session(good)["logits"], expected, atol=1e-6)
        assert session.report["threads"] == threads


def test_an_index_beyond_the_table_does_not_end_the_process_on_two_threads(tmp_path):
    """Generated code raises inside a parallel region, which ends the process: so look-ups are not generated there."""
    code = f"""
import dataclasses, numpy as np, small_models
from pathlib import Path
from accel_helpers import engines
from accel_helpers.errors import ModelError
from accel_helpers.records import Plan

def build():
    import torch
    return torch.nn.Embedding(8, 256)

model = small_models.of(build, axes=dict(input={{0: "batch"}}, y={{0: "batch"}}))
model = dataclasses.replace(model, example=lambda batch, _, seed: dict(input=np.zeros((batch, 4), np.int64)))
plan, engine, folder = Plan("compiled", batch=64, threads=2), engines.get("compiled"), Path({str(tmp_path)!r})
engine.build(model, plan, folder)
with engine.load(model, plan, folder) as session:
    try:
        session(dict(input=np.full((64, 4), 9)))
    except ModelError as error:
        print(error.what)
"""
    env = {**os.environ, "PYTHONPATH": ".."}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="tests", env=env)
    assert done.returncode == 0, done.stderr
    assert "IndexError: index out of range" in done.stdout


def test_the_report_of_a_package_says_what_executes(package, session):
    built = package[1].report
    assert built["types"]["fp32"] > 10
    assert built["checked"] == [[1, 16], [2, 16], [3, 16], [7, 16], [2, 21]]
    assert built["worst_error"] <= TOLERANCE["fp32"]
    assert {name: session.report[name] for name in ("types", "kept")} == {name: built[name] for name in ("types", "kept")}
    assert (session.report["compilations"], session.report["recompilations"]) == ({}, 0)


def test_what_ran_in_another_type_than_asked_for_is_an_error(package):
    with (
        ENGINE.load(MODEL, Plan("compiled", "bf16", mode="aot"), package[0]) as session,
        pytest.raises(UnsupportedError, match=r"asked for BF16.*FP32"),
    ):
        _ = session.report


def test_damaged_packages_are_an_artifact_error(package, tmp_path):
    assert package[1].files == (_aot.PACKAGE,)
    assert [one.name for one in package[0].iterdir()] == [_aot.PACKAGE]
    whole = (package[0] / _aot.PACKAGE).read_bytes()
    for damaged in (None, b"", whole[: len(whole) // 2], b"\x93garbage" * 40):
        if damaged is not None:
            (tmp_path / _aot.PACKAGE).write_bytes(damaged)
        with pytest.raises(ArtifactError) as caught:
            ENGINE.load(MODEL, PLAN, tmp_path)
        assert "again" in caught.value.next_step


def test_loading_a_package_compiles_nothing_and_unpickles_nothing(package):
    """In a fresh process without a compiler, in which unpickling anything at all ends it."""
    code = f"""
import os, sys
import torch
from pathlib import Path
from accel_helpers import engines, models
from accel_helpers.records import Plan
def deny(*_, **__): raise SystemExit("unpickled")
torch.load = deny
sys.addaudithook(lambda event, _: deny() if event.startswith("pickle.") else None)
model = models.get("tiny-attention")
with engines.get("compiled").load(model, Plan("compiled", batch=2, sequence=16, mode="aot"), Path({str(package[0])!r})) as session:
    print(session(model.example(5, 16, 0))["logits"].shape)
print(sorted({{"torch._dynamo", "torch._inductor.compile_fx"}} & set(sys.modules)), os.environ.get("TORCHINDUCTOR_CACHE_DIR"))
"""
    env = {**os.environ, "CXX": "no-such-compiler", "PYTHONPATH": str(Path.cwd())}
    env.pop("TORCHINDUCTOR_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.splitlines() == ["(5, 4)", "[] None"], done.stderr


def test_a_package_holds_source_a_library_and_json_alone(package):
    with zipfile.ZipFile(package[0] / _aot.PACKAGE) as archive:
        names = [name.split("/", 1)[1] for name in archive.namelist()]
        assert any(name.endswith(".so") for name in names)
        generated = [name for name in names if name.startswith("data/")]
        marks = {"archive_format", "archive_version", "byteorder", ".data/version", ".data/serialization_id"}
        assert set(names) - set(generated) <= marks
        assert {Path(name).suffix for name in generated} <= {".cpp", ".so", ".json"}
        kernels = archive.read(next(name for name in archive.namelist() if name.endswith(".kernel.cpp"))).decode()
    assert "#pragma omp parallel" in kernels
    assert "parallel num_threads" not in kernels, "one package serves every number of threads"


def test_closing_a_package_removes_what_loading_unpacked(package, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    session = ENGINE.load(MODEL, PLAN, package[0])
    assert len(list(tmp_path.iterdir())) == 1
    session.close()
    session.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ArtifactError, match="closed"):
        session.run({})


def test_a_network_with_a_fixed_batch_cannot_be_compiled_ahead_of_time(tmp_path):
    fixed = small_models.network(lambda self, x: self.a(x).reshape(2, 4), "fixed")
    with pytest.raises(ModelError, match=r"fixed cannot be compiled ahead of time.*mode=default"):
        ENGINE.build(fixed, PLAN, tmp_path)


def test_a_package_that_answers_otherwise_than_the_network_is_not_kept(package, tmp_path, monkeypatch):
    """The package of one network beside another one, whose weights are twice as large."""

    def build():
        import torch

        network = MODEL.build()
        with torch.no_grad():
            network.head.weight *= 2
        return network

    monkeypatch.setattr(_aot, "_compile", lambda *_: shutil.copy(package[0] / _aot.PACKAGE, tmp_path))
    other = type(MODEL)(**{**MODEL.__dict__, "build": build})
    with pytest.raises(ModelError, match=r"differs from itself by 0\.\d+ at batch 1"):
        ENGINE.build(other, PLAN, tmp_path)


def test_reduce_overhead_without_a_graph_is_an_error_every_time(tmp_path):
    """Inductor says nothing: on a CPU, which the engine refuses beforehand, it runs the plain program."""
    model, plan = small_models.linear(), Plan("compiled", batch=2, mode="reduce_overhead")
    ENGINE.build(model, plan, tmp_path)
    with ENGINE.load(model, plan, tmp_path) as session:
        for _ in range(2):
            with pytest.raises(UnsupportedError, match=r"reduce_overhead .* Inductor made no CUDA graph of linear"):
                session(model.example(2, 1, 0))


def test_max_autotune_is_set_for_the_call_that_compiles_and_for_no_other(tmp_path):
    """Up to the graph that code is made from: tuning itself takes ten seconds for each size."""
    import torch._inductor.config

    from accel_helpers.engines.compiled import _Inspection
    from accel_helpers.engines.pytorch import network_of

    seen = {}

    class Watch(_Inspection):
        def _generate(self, graph, inputs, **options):
            seen[self._plan.mode] = (torch._inductor.config.max_autotune, torch._inductor.config.triton.cudagraphs)
            return super()._generate(graph, inputs, **options)

    model = small_models.linear()
    for mode in ("default", "max_autotune"):
        plan = Plan("compiled", batch=2, mode=mode)
        with Watch(model, plan, network_of(model, plan)) as session:
            session(model.example(2, 1, 0))
            assert ("tuned_products" in session.report) == (mode == "max_autotune")
        assert not torch._inductor.config.max_autotune
    assert seen == {"default": (False, False), "max_autotune": (True, False)}

"""What only a GPU can show: every engine and precision on CUDA, right and really finished. Not yet run on a GPU.

Without a GPU these tests are deselected and the header says so; ``benchmarks/gpu_check.py`` runs them where there is one.
"""

from dataclasses import replace

import numpy as np
import pytest
import small_models

from accel_helpers import engines, models
from accel_helpers.accuracy import TOLERANCE, relative_error
from accel_helpers.bench import plan_of, reference, support
from accel_helpers.config import PRECISIONS, RunConfig
from accel_helpers.errors import ModelError
from accel_helpers.measure import Subject
from accel_helpers.records import Compilation

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
ENGINES = [name for name in engines.names() if name != "null"]
SLOW = ("max_autotune",)
"""Modes that take minutes to compile."""
MODES = [(name, mode) for name in ENGINES for mode in ("default", *engines.get(name).modes) if mode not in SLOW]


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path / "store"))


def planned(model_name, engine_name, **more):
    """A plan of batch 3 on the GPU; skips with the engine's own reason where this GPU or this build lacks something."""
    values = {"batch": 3, "sequence": 16, "calibration": 32, "symmetric": engine_name == "tensorrt", **more}
    config = RunConfig(model=model_name, engine=engine_name, device=DEVICE, **values)
    if not (answer := support(config)):
        pytest.skip(answer.reason)
    return plan_of(config)


def opened(model, plan, folder):
    """A session, built in that folder unless it is."""
    engine = engines.get(plan.engine)
    if not folder.exists():
        folder.mkdir()
        engine.build(model, plan, folder)
    return engine.load(model, plan, folder)


@pytest.mark.parametrize("model_name", ["tiny-cnn", "tiny-attention"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("engine_name", "mode"), MODES)
def test_an_engine_on_the_gpu_is_right_and_waits(engine_name, mode, precision, model_name, tmp_path):
    engine, model = engines.get(engine_name), models.get(model_name)
    plan = planned(model_name, engine_name, precision=precision, mode=mode)
    reference.ensure(model, plan, seed=0)
    inputs, right = reference.inputs(model, plan, seed=0), reference.read(model, plan, seed=0)
    folder = tmp_path / "artifact"
    folder.mkdir()
    engine.build(model, plan, folder)
    with engine.load(model, plan, folder) as session:
        for one, expected in zip(inputs, right, strict=True):
            assert relative_error(session(one), expected) <= TOLERANCE[precision]
        subject = Subject(session, inputs, right, precision, "compute")
        subject.warm_up(1.0)
        subject.round(20)
        assert {check.name: check.passed for check in subject.checks() if check.fatal} == {
            "outputs": True,
            "no result cache": True,
            "device finished": True,
        }


@pytest.mark.parametrize("engine_name", ["pytorch", "onnx_runtime", "tensorrt"])
def test_a_cuda_graph_replays_the_plans_shapes_counts_the_others_and_mixes_nothing_up(engine_name, tmp_path):
    model = models.get("tiny-attention")
    graphed, plain = planned(model.name, engine_name, mode="cuda_graph"), planned(model.name, engine_name)
    asked = [model.example(batch, 16, seed) for seed, batch in enumerate((3, 3, 2, 3, 1, 3))]
    with opened(model, plain, tmp_path / "plain") as session:
        right = [session(one) for one in asked]
    with opened(model, graphed, tmp_path / "graphed") as session:
        placed = [session.place(one) for one in asked]
        results = [session.run(one) for one in placed]
        for number in (5, 0, 2, 4, 1, 3):
            assert relative_error(session.fetch(results[number]), right[number]) <= TOLERANCE["fp32"]
        counts = session.report["cuda_graph"]
        if "captured by" not in counts:  # TensorRT-RTX records by itself and does not say how often
            assert counts == {"captured": 1, "replayed": 3, "not captured": 2}


@pytest.mark.parametrize("engine_name", ["pytorch", "onnx_runtime", "tensorrt"])
def test_tf32_is_really_on_and_really_off(engine_name, tmp_path):
    """TF32 keeps ten bits of a factor: its products err a thousand times more than FP32's, or it was not on."""
    import torch

    torch.manual_seed(0)
    weight = torch.randn(256, 256)
    model = small_models.of(lambda: _linear(weight), "wide", shape=(256,))
    inputs = model.example(64, 1, 0)
    exact = inputs["x"].astype(np.float64) @ weight.numpy().astype(np.float64).T
    errors = {}
    for precision in ("fp32", "tf32"):
        plan = replace(planned("tiny-cnn", engine_name, precision=precision), batch=64, compilation=Compilation())
        with opened(model, plan, tmp_path / precision) as session:
            errors[precision] = np.linalg.norm(session(inputs)["y"] - exact) / np.linalg.norm(exact)
    assert errors["fp32"] < 1e-5
    assert 1e-5 < errors["tf32"] < 1e-2


def _linear(weight):
    import torch

    class Wide(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(weight.clone())

        def forward(self, x):
            return torch.nn.functional.linear(x, self.weight)

    return Wide()


@pytest.mark.parametrize(("engine_name", "mode"), [one for one in MODES if one[0] in ("pytorch", "onnx_runtime", "tensorrt")])
def test_two_sessions_at_once_keep_apart(engine_name, mode, tmp_path):
    """On two threads, as a server would: one of FP32 and one of FP16 where there is one, else of TF32."""
    from concurrent.futures import ThreadPoolExecutor

    model = models.get("tiny-attention")
    first = planned(model.name, engine_name, mode=mode, precision="tf32" if mode == "tensorrt" else "fp32")
    second = planned(model.name, engine_name, mode=mode, precision="fp16")
    asked = [model.example(3, 16, seed) for seed in range(8)]
    with opened(model, first, tmp_path / "first") as one, opened(model, second, tmp_path / "second") as other:
        alone = [[session(inputs) for inputs in asked] for session in (one, other)]
        with ThreadPoolExecutor(2) as pool:
            together = list(pool.map(lambda session: [session(inputs) for inputs in asked], (one, other)))
    for before, after in zip(alone, together, strict=True):
        for expected, found in zip(before, after, strict=True):
            assert relative_error(found, expected) <= TOLERANCE["fp32"]


@pytest.mark.parametrize(("engine_name", "mode"), [one for one in MODES if one[0] in ("pytorch", "onnx_runtime", "tensorrt")])
def test_closing_gives_device_memory_back(engine_name, mode, tmp_path):
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    model = models.get("tiny-attention")
    plan = planned(model.name, engine_name, mode=mode, precision="fp16", batch=64)
    inputs, used = model.example(64, 16, 0), []
    for _ in range(12):
        with opened(model, plan, tmp_path / "artifact") as session:
            for _ in range(3):
                session(inputs)
        used.append(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    pynvml.nvmlShutdown()
    assert used[-1] - used[3] <= 8 * 2**20, "libraries take theirs once; eight more cycles take nothing"


def test_tensorrt_says_which_layers_run_in_which_type(tmp_path):
    plan = planned("tiny-cnn", "tensorrt", precision="fp16")
    with opened(models.get("tiny-cnn"), plan, tmp_path / "artifact") as session:
        session(models.get("tiny-cnn").example(3, 1, 0))
        report = session.report
    assert report["profile_calls"] == [1]
    assert report["layers"]
    assert report["layer_types"].get("fp16")


def test_tensorrt_refuses_shapes_of_no_profile(tmp_path):
    model = models.get("tiny-cnn")
    with opened(model, planned("tiny-cnn", "tensorrt"), tmp_path / "artifact") as session:
        with pytest.raises(ModelError, match="has no profile for"):
            session(model.example(9, 1, 0))
        assert session(model.example(2, 1, 0))["logits"].shape == (2, 4)


def test_onnx_runtimes_tensorrt_provider_runs_the_graph(tmp_path):
    model, plan = models.get("tiny-cnn"), planned("tiny-cnn", "onnx_runtime", precision="fp16", mode="tensorrt")
    with opened(model, plan, tmp_path / "artifact") as session:
        assert session.report["providers"]["TensorrtExecutionProvider"] >= 1
    assert list((tmp_path / "artifact").glob("*.engine")), "the engine is part of the artifact"


def test_pycuda_copies_there_and_back():
    pytest.importorskip("pycuda")
    from accel_helpers.engines import _cuda_buffers

    sent = np.arange(1000, dtype=np.float32)
    with _cuda_buffers.current() as cuda:
        pair, stream = _cuda_buffers.Pair(cuda, 1000, sent.dtype), cuda.Stream()
        pair.upload(sent, stream)
        stream.synchronize()
        pair.download(1, stream)[:] = 0
        back = pair.download(1000, stream)
        stream.synchronize()
        assert np.array_equal(back, sent)
        pair.free()

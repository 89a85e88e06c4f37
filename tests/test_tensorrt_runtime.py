"""TensorRT engines opened: every check up to the first call that needs a driver for real, the bookkeeping after it on stand-ins.

What runs on a GPU is in test_gpu.py.
"""

import ast
import contextlib
import hashlib
import json
import re
import sys
import types
from pathlib import Path

import gpu_stand_ins
import numpy as np
import pytest
import small_models

from accel_helpers import engines, environment
from accel_helpers.engines import _cuda_buffers, _static_buffers, _tensorrt_open, _tensorrt_runtime
from accel_helpers.engines._tensorrt_runtime import TensorRtSession
from accel_helpers.errors import ArtifactError, MissingPackageError, ModelError, UnsupportedError
from accel_helpers.records import Plan

SOURCES = [Path(_tensorrt_runtime.__file__).with_name(f"_tensorrt_{part}.py") for part in ("runtime", "open", "jit")]
PLAN = Plan("tensorrt", device="cuda", batch=4)
NO_GPU = pytest.mark.skipif(bool(environment.describe().gpus), reason="a GPU is here, so the driver answers")


@pytest.fixture(scope="module")
def real():
    """An engine of TensorRT-RTX, built ahead of time, and the facts beside it."""
    trt = pytest.importorskip("tensorrt_rtx")
    log = _tensorrt_open.logger(trt)
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    x = network.add_input("x", trt.float32, (-1, 8))
    network.mark_output(network.add_activation(x, trt.ActivationType.RELU).get_output(0))
    profile, config = builder.create_optimization_profile(), builder.create_builder_config()
    profile.set_shape("x", (1, 8), (4, 8), (4, 8))
    config.add_optimization_profile(profile)
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None, log.complaints
    return trt, small_models.of(None, "relu"), bytes(plan)


def written(real, folder, plan=None, **changed):
    trt, model, blob = real
    (folder / "model.plan").write_bytes(blob if plan is None else plan)
    facts = {"library": "tensorrt_rtx", "version": trt.__version__, "cuda": "13.0", "compute_capability": "8.9"}
    (folder / "engine.json").write_text(json.dumps({**facts, "plan_sha256": hashlib.sha256(blob).hexdigest(), **changed}))
    return model, PLAN, folder


@contextlib.contextmanager
def stand_ins(monkeypatch, **modules):
    """These modules in place of what is installed; the GPU is asked for anew before and after."""
    for name, module in modules.items():
        name = name.replace("__", ".")
        if "." in name and (top := name.split(".")[0]) not in sys.modules:
            package = types.ModuleType(top)
            package.__spec__ = types.SimpleNamespace()
            monkeypatch.setitem(sys.modules, top, package)
        monkeypatch.setitem(sys.modules, name, module)
    caches = _cuda_buffers._driver, _cuda_buffers._primary
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


# The files


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda blob: b"\0" + b"xyz" + blob[4:], "is no TensorRT engine: its header is missing"),
        (lambda blob: blob[:40], r"is no TensorRT engine: its header is missing \(40 bytes"),
        (lambda blob: blob[:24] + bytes([9, 9, 9, 9]) + blob[28:], r"was written by TensorRT-RTX 9\.9\.9\.9; .* is installed"),
        (lambda blob: blob[: len(blob) // 2], "is damaged"),
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "is damaged"),
    ],
    ids=["magic", "short", "version", "half", "bit"],
)
def test_a_spoilt_engine_is_told_before_tensorrt_sees_it(real, spoil, told, out):
    with pytest.raises(ArtifactError, match=rf"model\.plan of relu {told}.*Build the artifact again\.$"):
        TensorRtSession(*written(real, out, spoil(real[2])))


def test_the_version_stands_in_the_header_where_it_is_looked_for(real):
    trt, _, blob = real
    assert ".".join(map(str, blob[24:28])) == trt.__version__
    assert int.from_bytes(blob[16:24], "little") == len(blob)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"library": "other"}', '{"library": "tensorrt"}'])
def test_facts_that_cannot_be_read_are_an_artifact_error(text, out):
    (out / "engine.json").write_text(text)
    with pytest.raises(ArtifactError, match=r"engine\.json of relu cannot be read: "):
        TensorRtSession(small_models.of(None, "relu"), PLAN, out)


def test_missing_files_are_an_artifact_error(real, out):
    arguments = written(real, out)
    (out / "model.plan").unlink()
    with pytest.raises(ArtifactError, match=r"model\.plan of relu cannot be read"):
        TensorRtSession(*arguments)


@pytest.mark.skipif("tensorrt" in environment.describe().packages, reason="TensorRT is installed")
def test_the_library_that_built_it_is_asked_for_by_version(real, out):
    with pytest.raises(MissingPackageError, match=r"is for TensorRT 11\.4\.0\.9, which does not load.*pip install tensorrt==11\.4\.0\.9"):
        TensorRtSession(*written(real, out, library="tensorrt", version="11.4.0.9"))


# The driver


@pytest.mark.skipif("pycuda" in environment.describe().packages, reason="pycuda is installed")
def test_without_pycuda_it_says_what_pycuda_needs(real, out):
    with pytest.raises(MissingPackageError, match=r"pycuda is not installed.*CUDA toolkit \(nvcc and curand\.h\).*'\.\[gpu\]'"):
        TensorRtSession(*written(real, out))


def test_pycuda_without_libcuda_says_so(real, out, monkeypatch, tmp_path):
    package = tmp_path / "modules" / "pycuda"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "driver.py").write_text("raise ImportError('libcuda.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(package.parent)
    with stand_ins(monkeypatch), pytest.raises(UnsupportedError, match=r"does not load: ImportError: libcuda\.so\.1.*nvidia-smi"):
        TensorRtSession(*written(real, out))
    for name in ("pycuda", "pycuda.driver"):
        sys.modules.pop(name, None)


def test_a_driver_that_does_not_answer_and_one_without_a_gpu(real, out, monkeypatch):
    cuda = gpu_stand_ins.pycuda_driver(gpu_stand_ins.Gpu())
    cuda.init = lambda: (_ for _ in ()).throw(cuda.Error("cuInit failed: unknown error"))
    with stand_ins(monkeypatch, pycuda__driver=cuda), pytest.raises(UnsupportedError, match=r"does not answer: Error: cuInit failed"):
        TensorRtSession(*written(real, out))
    cuda.init, cuda.Device.count = lambda: None, lambda: 0
    with stand_ins(monkeypatch, pycuda__driver=cuda), pytest.raises(UnsupportedError, match="sees no GPU"):
        TensorRtSession(*written(real, out))


def test_an_old_driver_and_another_gpu_are_told_before_the_engine_is_opened(real, out, monkeypatch):
    cuda = gpu_stand_ins.pycuda_driver(gpu_stand_ins.Gpu())
    with stand_ins(monkeypatch, pycuda__driver=cuda):
        with pytest.raises(UnsupportedError, match=r"built for compute capability 8\.9; a stand-in has 9\.0"):
            TensorRtSession(*written(real, out))
        cuda.get_driver_version = lambda: 12080
        with pytest.raises(UnsupportedError, match=r"is for CUDA 12\.8; the engine of relu needs 13\.0.*Update"):
            TensorRtSession(*written(real, out, compute_capability=["8.9", "9.0"]))


@NO_GPU
def test_the_first_real_call_that_needs_a_driver_is_one_sentence(real, out, monkeypatch):
    """TensorRT-RTX itself is asked; only pycuda is a stand-in."""
    gpu = gpu_stand_ins.Gpu()
    told = r"TensorRT cannot open the engine of relu: .*cudaError 35.*NVIDIA driver"
    with (
        stand_ins(monkeypatch, pycuda__driver=gpu_stand_ins.pycuda_driver(gpu)),
        pytest.raises(UnsupportedError, match=told) as caught,
    ):
        TensorRtSession(*written(real, out, compute_capability="9.0"))
    assert "\n" not in str(caught.value)
    assert gpu.contexts == 0
    assert not gpu.memory


# The bookkeeping, on stand-ins


@pytest.fixture
def gpu():
    return gpu_stand_ins.Gpu()


@pytest.fixture
def opened(gpu, out, monkeypatch):
    """A function that opens a session of the stand-in's engine."""
    with contextlib.ExitStack() as stack:

        def session(mode="default", output="FLOAT", **changed):
            gpu_stand_ins.write(out, **changed)
            modules = {"tensorrt": gpu_stand_ins.tensorrt(gpu, output), "pycuda__driver": gpu_stand_ins.pycuda_driver(gpu)}
            stack.enter_context(stand_ins(monkeypatch, **modules, cuda__bindings__driver=gpu_stand_ins.cuda_driver(gpu)))
            model = small_models.of(None, "doubled")
            return stack.enter_context(TensorRtSession(model, Plan("tensorrt", device="cuda", batch=3, mode=mode), out))

        yield session


def x(batch, seed=0):
    return {"x": np.random.default_rng(seed).normal(size=(batch, 8)).astype(np.float32)}


@pytest.mark.parametrize(("output", "close"), [("FLOAT", 0), ("HALF", 1e-3), ("BF16", 1e-2)])
def test_every_batch_of_every_profile_answers_in_float32(opened, output, close):
    session = opened(output=output)
    for batch in (1, 3, 4, 5, 16):
        answer = session(x(batch))["y"]
        assert answer.dtype == np.float32
        assert np.allclose(answer, 2 * x(batch)["x"], rtol=close, atol=close)
    assert session.report["profile_calls"] == [3, 2]


def test_shapes_of_no_profile_are_refused_with_all_profiles_named(opened):
    with pytest.raises(ModelError, match=r"no profile for x 17x8; its profiles: x 1x8 to 4x8; x 1x8 to 16x8\. .*profiles="):
        opened()(x(17))


@pytest.mark.parametrize("mode", ["default", "cuda_graph"])
def test_inputs_and_answers_keep_to_themselves_in_any_order(opened, mode):
    session = opened(mode)
    placed = [session.place(x(batch, seed)) for seed, batch in enumerate((3, 3, 2, 3))]
    results = [session.run(one) for one in placed]
    for seed, batch in ((2, 2), (0, 3), (3, 3), (1, 3)):
        fetched = session.fetch(results[seed])["y"]
        assert np.array_equal(fetched, 2 * x(batch, seed)["x"])
        fetched[:] = 0
    assert np.array_equal(session.fetch(session.run(placed[0]))["y"], 2 * x(3)["x"])


def test_the_usual_order_copies_nothing_twice(opened, gpu, monkeypatch):
    session, uploads, downloads = opened(), [], []
    monkeypatch.setattr(session._pairs["x"], "upload", lambda *a, f=session._pairs["x"].upload: (uploads.append(1), f(*a)))
    monkeypatch.setattr(session._pairs["y"], "download", lambda *a, f=session._pairs["y"].download: (downloads.append(1), f(*a))[1])
    for seed in range(5):
        session(x(3, seed))
    assert (len(uploads), len(downloads)) == (5, 5)


def test_a_graph_is_captured_once_for_the_plans_shapes_and_others_are_counted(opened, gpu):
    session = opened("cuda_graph")
    for seed, batch in enumerate((3, 3, 2, 3, 16, 3)):
        assert np.array_equal(session(x(batch, seed))["y"], 2 * x(batch, seed)["x"])
    assert session.report["cuda_graph"] == {"captured": 1, "replayed": 3, "not captured": 2}
    assert gpu.log == ["execute", "capture", "replay", "execute", "replay", "execute", "replay"]
    assert session._contexts[-1].shape == (3, 8), "the captured context runs no other shapes"
    session.close()
    assert "graph destroyed" in gpu.log


def test_closing_frees_everything_and_a_closed_session_says_so(opened, gpu):
    session = opened()
    placed = session.place(x(3))
    result = session.run(placed)
    assert gpu.held() == 2 * 16 * 8 * 4, "one buffer of the greatest profile for each tensor"
    session.close()
    session.close()
    assert not gpu.memory
    assert gpu.log.count("unpinned") == 2
    assert gpu.contexts == 0
    for call in (lambda: session.place(x(3)), lambda: session.run(placed), lambda: session.fetch(result), lambda: session.report):
        with pytest.raises(ArtifactError, match="is closed"):
            call()


def test_weights_are_streamed_where_the_engine_was_built_so(opened):
    assert "weight_streaming" not in opened().report
    assert opened(weight_streaming=True).report["weight_streaming"] == {"streamable_bytes": 1000, "budget_bytes": 600}


def test_the_report_counts_layers_by_the_type_of_their_output(opened):
    session = opened()
    assert session.report["layers"] == [
        {"name": "double", "kind": "kgen", "type": "fp32"},
        {"name": "a name alone", "kind": "unknown", "type": "unknown"},
    ]
    assert session.report["layer_types"] == {"fp32": 1, "unknown": 1}
    assert _tensorrt_runtime.layers("no JSON") == []


def test_a_type_that_numpy_lacks_is_refused(opened):
    with pytest.raises(UnsupportedError, match="has y in BOOL"):
        opened(output="BOOL")


def test_static_buffers_save_only_what_somebody_waits_for():
    read = []
    buffers = _static_buffers.StaticBuffers(lambda placed: None, lambda form: read.append(form) or {"y": np.array([form])})
    waiting = buffers.answer(1)
    buffers.make_room()
    buffers.answer(2)  # nobody keeps it
    buffers.make_room()
    assert read == [1]
    for _ in range(2):
        fetched = buffers.fetch(waiting)["y"]
        assert fetched == 1
        fetched[:] = 0
    assert read == [1]


# The names


CLASSES = {
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
    "runtime": "Runtime",
    "inspector": "EngineInspector",
    "config": "IRuntimeConfig",
    "cache": "IRuntimeCache",
}


def used(path):
    """(class or "trt", attributes) that a source uses of TensorRT, by the names that its variables have."""
    for node in ast.walk(ast.parse(path.read_text())):
        chain = []
        while isinstance(node, ast.Attribute):
            chain.insert(0, node.attr)
            node = node.value
        if not chain or not isinstance(node, ast.Name):
            continue
        if node.id != "self":
            chain.insert(0, node.id)
        chain[0] = chain[0].removeprefix("_")
        if chain[0] == "trt" and len(chain) > 1:
            yield "trt", tuple(chain[1:])
        elif chain[0] in CLASSES and len(chain) > 1:
            yield CLASSES[chain[0]], (chain[1],)


def names():
    return sorted({one for path in SOURCES for one in used(path)})


def test_every_name_of_tensorrt_exists_in_tensorrt_rtx():
    trt = pytest.importorskip("tensorrt_rtx")
    found = names()
    assert len(found) > 30
    assert ("ICudaEngine", ("weight_streaming_budget_v2",)) in found
    for owner, chain in found:
        at = trt if owner == "trt" else getattr(trt, owner)
        for part in chain:
            assert hasattr(at, part), f"{owner}.{'.'.join(chain)}"
            at = getattr(at, part)


def test_every_name_of_tensorrt_exists_in_full_tensorrt_too():
    """Its stubs do not parse as Python (a parameter is named ``in``), so they are read as text."""
    stubs = Path(sys.prefix) / "stubs" / "tensorrt_bindings" / "tensorrt.pyi"
    assert stubs.exists(), "TensorRT's stubs are not here: make setup brings them"
    text = stubs.read_text()
    rtx_only = {"IRuntimeConfig", "IRuntimeCache"}
    for owner, chain in names():
        if owner in rtx_only or chain[0] in ("CudaGraphStrategy", "__version__") or chain == ("create_runtime_config",):
            continue
        owner, part = ("trt", chain[0]) if owner == "trt" else (owner, chain[0])
        scope = text if owner == "trt" else re.search(rf"^class {owner}[(:].*?(?=^class )", text, re.M | re.S).group()
        assert re.search(rf"\b(class|def) {part}\b|^ +{part}\b", scope, re.M), f"{owner}.{part}"


@pytest.mark.skipif("pycuda" in environment.describe().packages, reason="pycuda is installed")
def test_the_engine_loads_through_this_runtime(real, out):
    with pytest.raises(MissingPackageError, match="pycuda is not installed"):
        engines.get("tensorrt").load(*written(real, out))

"""What was asked for is what runs: each library's silent fallback, seen here, is an error in its engine."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import machines
import numpy as np
import pytest
import small_models

from accel_helpers import engines, environment, models
from accel_helpers.engines import _onnx_providers, _tensorrt_build
from accel_helpers.engines._executed import executed
from accel_helpers.engines._onnx_census import Ran
from accel_helpers.errors import ModelError, UnsupportedError
from accel_helpers.records import Compilation, Plan, Profile

HERE = environment.describe()


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path / "store"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    engines.get("onnx_runtime").build(small_models.linear(), Plan("onnx_runtime"), folder)
    return folder


@pytest.mark.skipif(bool(HERE.gpus), reason="a GPU is here, so CUDA would load")
@pytest.mark.parametrize("name", ["pytorch", "compiled", "onnx_runtime"])
def test_k11_cuda_asked_for_and_absent_is_an_error_at_build_and_load(name, out):
    engine, model = engines.get(name), small_models.linear()
    with pytest.raises(UnsupportedError, match="CUDA"):
        engine.build(model, Plan(name, device="cuda"), out)
    engine.build(model, Plan(name), out)
    with pytest.raises(UnsupportedError, match="CUDA"):
        engine.load(model, Plan(name, device="cuda"), out)


def test_k11_a_provider_that_onnx_runtime_swapped_is_an_error(exported, monkeypatch):
    """As with onnxruntime-gpu on a machine without CUDA: the provider is listed, and another one loads."""
    import onnxruntime

    model, engine = small_models.linear(), engines.get("onnx_runtime")
    opened = onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda path, options, providers: opened(path, options))
    with pytest.raises(UnsupportedError, match=r"asked for CUDAExecutionProvider; CPUExecutionProvider would have run.*device=cpu"):
        engine.load(model, Plan("onnx_runtime", device="cuda"), exported)


GRAPH = Plan("onnx_runtime", device="cuda", mode="cuda_graph")
TENSORRT = Plan("onnx_runtime", "fp16", "cuda", batch=8, sequence=32, mode="tensorrt")


def test_k11_each_plan_asks_for_its_providers_and_options(tmp_path):
    cnn, attention = models.get("tiny-cnn"), models.get("tiny-attention")
    assert _onnx_providers.providers(cnn, Plan("onnx_runtime")) == [("CPUExecutionProvider", {})]
    for precision, tf32 in (("fp32", "0"), ("tf32", "1"), ("fp16", "0")):
        plan = Plan("onnx_runtime", precision, "cuda")
        assert _onnx_providers.providers(cnn, plan) == [("CUDAExecutionProvider", {"device_id": "0", "use_tf32": tf32})]
    assert _onnx_providers.providers(cnn, GRAPH)[0][1]["enable_cuda_graph"] == "1"
    profiles = (Profile((1, 4, 8), (1, 16, 32)), Profile((1, 1, 1), (1, 64, 64)))
    plan = replace(TENSORRT, compilation=Compilation(profiles=profiles, workspace_bytes=2**20, optimization_level=5))
    (first, options), (second, _) = _onnx_providers.providers(attention, plan, tmp_path)
    assert (first, second) == ("TensorrtExecutionProvider", "CUDAExecutionProvider")
    assert options == {
        "device_id": "0",
        "trt_fp16_enable": "1",
        "trt_builder_optimization_level": "5",
        "trt_max_workspace_size": "1048576",
        "trt_profile_min_shapes": "input_ids:1x1,attention_mask:1x1,input_ids:1x1,attention_mask:1x1",
        "trt_profile_opt_shapes": "input_ids:4x16,attention_mask:4x16,input_ids:1x64,attention_mask:1x64",
        "trt_profile_max_shapes": "input_ids:8x32,attention_mask:8x32,input_ids:1x64,attention_mask:1x64",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(tmp_path),
    }
    assert _onnx_providers.providers(cnn, TENSORRT)[0][1]["trt_profile_max_shapes"] == "pixel_values:8x3x32x32"
    building = _onnx_providers.providers(cnn, TENSORRT, tmp_path, building=True)[0][1]
    assert building["trt_timing_cache_enable"] == "1"
    assert Path(building["trt_timing_cache_path"]).is_dir()


def test_k11_what_a_session_holds_is_compared_with_what_was_asked():
    wanted = _onnx_providers.providers(models.get("tiny-cnn"), TENSORRT)
    names, held = [name for name, _ in wanted] + ["CPUExecutionProvider"], dict(wanted)
    _onnx_providers.loaded(names, held, wanted)
    for spoilt, told in [
        (names[1:], r"asked for TensorrtExecutionProvider; CUDAExecutionProvider would have run.*TensorRT 10"),
        (names[::-1], r"TensorrtExecutionProvider; CPUExecutionProvider"),
        (names[:1], r"CUDAExecutionProvider; none"),
    ]:
        with pytest.raises(UnsupportedError, match=told):
            _onnx_providers.loaded(spoilt, held, wanted)
    for key, value in (("trt_fp16_enable", "0"), ("trt_profile_max_shapes", None)):
        other = {**held, names[0]: {name: one for name, one in held[names[0]].items() if name != key} | ({key: value} if value else {})}
        with pytest.raises(UnsupportedError, match=rf"asked for {key}=.*TensorrtExecutionProvider holds ({value}|no such option)"):
            _onnx_providers.loaded(names, other, wanted)


def ran(**operators):
    return [Ran(name, name.rstrip("_"), f"{provider}ExecutionProvider", "float", "float", 0) for name, provider in operators.items()]


def test_k11_operators_that_stayed_behind_are_counted_and_a_product_on_the_cpu_is_an_error():
    plan = Plan("onnx_runtime", device="cuda")
    assert _onnx_providers.stayed(ran(MatMul="CPU"), Plan("onnx_runtime")) == {"providers": {"CPUExecutionProvider": 1}}
    report = _onnx_providers.stayed(ran(MatMul="CUDA", Shape="CPU", Gather="CPU", Gather_="CPU"), plan)
    assert report["providers"] == {"CUDAExecutionProvider": 1, "CPUExecutionProvider": 3}
    assert report["left"] == {
        "Gather on CPUExecutionProvider": "2 times: it computes shapes, or has no kernel on the GPU",
        "Shape on CPUExecutionProvider": "1 times: it computes shapes, or has no kernel on the GPU",
    }
    with pytest.raises(UnsupportedError, match=r"ConvInteger, MatMul would run on the CPU"):
        _onnx_providers.stayed(ran(MatMul="CPU", ConvInteger="CPU", Relu="CUDA"), plan)


def test_k11_tensorrt_that_took_nothing_is_an_error_and_what_it_refused_is_named():
    report = _onnx_providers.stayed(ran(TRTKernel="Tensorrt", NonMaxSuppression="CUDA"), TENSORRT)
    assert report["left"] == {"NonMaxSuppression on CUDAExecutionProvider": "1 times: the TensorRT provider does not take it"}
    with pytest.raises(UnsupportedError, match=r"TensorRT took none of the graph: 2 operators on CUDAExecutionProvider"):
        _onnx_providers.stayed(ran(MatMul="CUDA", Relu="CUDA"), TENSORRT)


def test_modes_of_onnx_runtime_say_what_they_lack():
    engine, h200 = engines.get("onnx_runtime"), machines.with_gpu(machines.gpu("NVIDIA H200", "9.0"))
    ten = replace(h200, packages={**h200.packages, "tensorrt": "10.13.3", "tensorrt-cu13": "10.13.3"})
    assert engine.supports(GRAPH, h200)
    assert engine.supports(TENSORRT, ten)
    for plan, here, told in [
        (replace(GRAPH, device="cpu"), h200, "choose device=cuda"),
        (replace(TENSORRT, device="cpu"), h200, "choose device=cuda"),
        (TENSORRT, h200, "loads TensorRT 10, and TensorRT 11.4.0 is installed"),
        (TENSORRT, machines.with_gpu(*h200.gpus, without=("tensorrt", "tensorrt-cu13")), "and TensorRT is not installed"),
        (replace(TENSORRT, precision="fp32"), ten, "no switch for TF32"),
        (replace(GRAPH, mode="nothing"), h200, "has no mode nothing; it has default, cuda_graph, tensorrt"),
    ]:
        answer = engine.supports(plan, here)
        assert not answer
        assert told in answer.reason


def test_the_tensorrt_provider_refuses_shapes_that_it_would_build_a_new_engine_for(exported):
    model = small_models.linear()
    with engines.get("onnx_runtime").load(model, Plan("onnx_runtime"), exported) as session:
        session._plan, session._ranges = TENSORRT, _tensorrt_build.shapes(model, TENSORRT)
        with pytest.raises(ModelError, match=r"no profile for x 9x8; its profiles: x 1x8 to 8x8"):
            session.place(model.example(9, 1, 0))


def test_a_graph_that_cannot_be_recorded_is_told_as_that(exported, monkeypatch):
    import onnxruntime

    def refuses(path, options, providers):
        raise RuntimeError("This session cannot use the graph capture feature as requested by the user as all the graph nodes have not …")

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", refuses)
    with pytest.raises(UnsupportedError, match=r"linear cannot be recorded as a CUDA graph.*mode=default"):
        engines.get("onnx_runtime").load(small_models.linear(), GRAPH, exported)


@pytest.mark.skipif("avx512_fp16" in HERE.isa or "amx_fp16" in HERE.isa, reason="this processor computes in FP16")
def test_openvino_asked_for_fp16_runs_another_type_and_that_is_an_error(out):
    with pytest.raises(UnsupportedError, match=r"asked for FP16, but its matrix products and convolutions run in (BF16|FP32)"):
        engines.get("openvino").build(small_models.linear(), Plan("openvino", "fp16"), out)


def test_onnx_runtime_runs_fp16_graphs_in_fp32_on_a_cpu_and_that_is_an_error(out):
    with pytest.raises(UnsupportedError, match="asked for FP16, but its matrix products and convolutions run in FP32"):
        engines.get("onnx_runtime").build(small_models.linear(), Plan("onnx_runtime", "fp16"), out)
    import onnx

    types = {one.data_type for one in onnx.load(out / "model.onnx").graph.initializer}
    assert onnx.TensorProto.FLOAT16 in types, "the graph itself was converted"


def test_onnx_runtime_has_no_bf16_product_on_a_cpu(tmp_path):
    import onnx
    import onnxruntime

    path = small_models.onnx_file(tmp_path / "bf16.onnx", [("MatMul", ["x", "x"], ["y"], {})], dtype=onnx.TensorProto.BFLOAT16)
    with pytest.raises(Exception, match="Could not find an implementation for MatMul"):
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", ["pytorch", "compiled", "openvino"])
def test_a_network_that_computes_in_fp32_whatever_its_weights_is_no_bf16_plan(name, out):
    if not engines.get(name).supports(Plan(name, "bf16"), HERE):
        pytest.skip("this processor has no BF16 instructions, so the plan is refused before it is built: test_engines holds that")

    def forward(self, x):
        import torch

        return torch.nn.functional.linear(x.float(), self.a.weight.float()).to(x.dtype)

    model = small_models.network(forward, "stubborn")
    if name == "openvino":  # sees only the graph, which has no types to be stubborn about
        assert engines.get(name).build(model, Plan(name, "bf16"), out).report["types"]["bf16"]
        return
    with pytest.raises(UnsupportedError, match="asked for BF16, but its matrix products and convolutions run in FP32"):
        engines.get(name).build(model, Plan(name, "bf16"), out)


def test_the_rule_itself():
    def of(precision, *operators):
        return executed(Counter({(name, kind): count for name, kind, count in operators}), Plan("any", precision), "a reason")

    assert of("bf16", ("linear", "bfloat16", 3), ("norm", "float32", 2)) == {
        "types": {"bf16": 3, "fp32": 2},
        "kept": {"norm in fp32": "2 times: a reason"},
    }
    assert of("bf16", ("linear", "bfloat16", 3), ("conv2d", "float32", 1))["types"] == {"bf16": 3, "fp32": 1}
    assert of("tf32", ("addmm", "float32", 2), ("relu", "float32", 1))["types"] == {"fp32": 1, "tf32": 2}
    assert of("fp32", ("relu", "f32", 1), ("Softmax", "double", 1))["types"] == {"fp32": 1, "fp64": 1}
    assert of("fp32", ("MatMul", "float", 1), ("Convert", "bf16", 1))["types"] == {"fp32": 1, "bf16": 1}
    with pytest.raises(UnsupportedError, match=r"run in FP32.*Ask for fp32"):
        of("bf16", ("linear", "float32", 3), ("relu", "bfloat16", 9))
    with pytest.raises(UnsupportedError, match="run in BF16"):
        of("fp32", ("MatMul", "float", 3), ("Convolution", "bf16", 1))
    with pytest.raises(UnsupportedError, match="run in FP32"):
        of("bf16", ("relu", "float32", 3))


def test_threads_are_those_of_the_plan_whatever_ran_before(tmp_path):
    """PyTorch keeps the number per process, so two sessions would otherwise share the last one loaded."""
    import torch

    seen = []

    def forward(self, x):
        seen.append(torch.get_num_threads())
        return self.a(x)

    model, engine, before = small_models.network(forward), engines.get("pytorch"), torch.get_num_threads()
    engine.build(model, Plan("pytorch"), tmp_path)
    seen.clear()
    with engine.load(model, Plan("pytorch", threads=3), tmp_path) as three, engine.load(model, Plan("pytorch", threads=1), tmp_path) as one:
        for session in (three, one, three):
            session(model.example(1, 1, 0))
    assert seen == [3, 1, 3]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", ["onnx_runtime", "openvino"])
def test_k12_the_library_got_the_threads_of_the_plan(name, out):
    model, plan = models.get("tiny-cnn"), Plan(name, threads=2)
    engines.get(name).build(model, plan, out)
    with engines.get(name).load(model, plan, out) as session:
        assert session.report["threads"] == 2


def test_k13_onnx_runtime_threads_do_not_spin(out):
    """Spinning threads keep the CPUs from PyTorch's operators, in the same process or the next."""
    import time

    model, plan = models.get("tiny-cnn"), Plan("onnx_runtime", threads=2)
    engines.get("onnx_runtime").build(model, plan, out)
    with engines.get("onnx_runtime").load(model, plan, out) as session:
        for _ in range(20):
            session(model.example(8, 1, 0))
        before = time.process_time()
        time.sleep(0.05)
        assert time.process_time() - before < 0.02


@pytest.mark.parametrize("hint", ["latency", "throughput"])
def test_openvino_hints_run_and_say_how_many_streams(hint, out):
    model, plan = models.get("tiny-cnn"), Plan("openvino", threads=2, hint=hint)
    engines.get("openvino").build(model, plan, out)
    with engines.get("openvino").load(model, plan, out) as session:
        assert session(model.example(2, 1, 0))["logits"].shape == (2, 4)
        assert session.report["streams"] >= 1
        if hint == "latency":
            assert session.report["streams"] == 1


def test_openvino_reads_nothing_beyond_a_table(tmp_path, out):
    """Left alone it answers zeros for a token id outside the vocabulary; a negative one counts from the end."""
    model = models.get("tiny-attention")
    engines.get("openvino").build(model, Plan("openvino", sequence=16), out)
    with engines.get("openvino").load(model, Plan("openvino", sequence=16), out) as session:
        assert session._rows == {"input_ids": 256}
        good = model.example(1, 16, 0)
        for value in (256, -1):
            ids = good["input_ids"].copy()
            ids[0, 3] = value
            with pytest.raises(Exception, match=rf"holds {value}.*0 to 255"):
                session({**good, "input_ids": ids})
        assert np.isfinite(session(good)["logits"]).all()

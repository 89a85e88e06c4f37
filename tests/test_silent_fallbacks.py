"""What was asked for is what runs: each library's silent fallback, seen here, is an error in its engine."""

from collections import Counter

import numpy as np
import pytest
import small_models

from accel_helpers import engines, environment, models
from accel_helpers.engines._executed import executed
from accel_helpers.errors import UnsupportedError
from accel_helpers.records import Plan

HERE = environment.describe()


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path / "store"))


@pytest.mark.skipif(bool(HERE.gpus), reason="a GPU is here, so CUDA would load")
@pytest.mark.parametrize("name", ["pytorch", "compiled", "onnx_runtime"])
def test_k11_cuda_asked_for_and_absent_is_an_error_at_build_and_load(name, out):
    engine, model = engines.get(name), small_models.linear()
    with pytest.raises(UnsupportedError, match="CUDA"):
        engine.build(model, Plan(name, device="cuda"), out)
    engine.build(model, Plan(name), out)
    with pytest.raises(UnsupportedError, match="CUDA"):
        engine.load(model, Plan(name, device="cuda"), out)


def test_k11_a_provider_that_onnx_runtime_swapped_is_an_error(out, monkeypatch):
    """As with onnxruntime-gpu on a machine without CUDA: the provider is listed, and another one loads."""
    import onnxruntime

    model, engine = small_models.linear(), engines.get("onnx_runtime")
    engine.build(model, Plan("onnx_runtime"), out)
    opened = onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda path, options, providers: opened(path, options))
    with pytest.raises(UnsupportedError, match=r"asked for CUDAExecutionProvider; CPUExecutionProvider would have run.*device=cpu"):
        engine.load(model, Plan("onnx_runtime", device="cuda"), out)


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

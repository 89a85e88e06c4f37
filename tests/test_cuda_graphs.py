"""Fixed buffers, recording and replaying in PyTorch and ONNX Runtime, without a GPU: the sessions' own bookkeeping.

PyTorch's recording is a stand-in; ONNX Runtime's fixed buffers are its own, on its CPU provider, which ignores the graph's settings.
What runs on a GPU is in test_gpu.py.
"""

import contextlib
import weakref
from dataclasses import replace

import numpy as np
import pytest
import small_models

from accel_helpers import engines, models
from accel_helpers.engines import _onnx_graph
from accel_helpers.errors import ArtifactError, UnsupportedError
from accel_helpers.records import Plan

BATCH = 3
PLAN = Plan("pytorch", device="cuda", batch=BATCH, mode="cuda_graph")


class Stream:
    def wait_stream(self, other):
        pass


@pytest.fixture
def torch_graph(monkeypatch):
    """A function that opens a recorded session of a model, on tensors in host memory; recorded work runs again at each replay."""
    import torch

    from accel_helpers.engines._torch_graph import GraphSession

    class Graph:
        work = None

        def replay(self):
            self.work()

        def reset(self):
            self.work = None

    @contextlib.contextmanager
    def record(graph, capture_error_mode):
        recorded = {}
        network, inputs = session._network, session._inputs

        def keep(module, arguments, kwargs, output):
            recorded["output"] = output

        with contextlib.closing(types_of(network.register_forward_hook(keep, with_kwargs=True))):
            yield
        recorded["output"].zero_()  # recording computes nothing

        def work():
            recorded["output"].copy_(network(**inputs))

        graph.work = work

    def types_of(handle):
        handle.close = handle.remove
        return handle

    for name, value in {
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda _: contextlib.nullcontext(),
        "graph": record,
        "CUDAGraph": Graph,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "get_device_name": lambda: "a stand-in",
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())

    def opened(model, plan=PLAN):
        nonlocal session
        session = GraphSession(model, plan, model.build().eval())
        session._device = "cpu"
        return session

    session = None
    yield opened
    session.close()


def x(batch, seed=0):
    return {"x": np.random.default_rng(seed).normal(size=(batch, 8)).astype(np.float32)}


def right(model, inputs):
    import torch

    with torch.inference_mode():
        return model.build().eval()(torch.from_numpy(inputs["x"])).numpy()


def test_pytorch_replays_the_plans_shapes_and_counts_the_others(torch_graph):
    model = small_models.linear()
    with torch_graph(model) as session:
        for seed, batch in enumerate((3, 3, 2, 3, 5)):
            assert np.allclose(session(x(batch, seed))["y"], right(model, x(batch, seed)), atol=1e-6)
        assert session.report["cuda_graph"] == {"captured": 1, "replayed": 2, "not captured": 2}
        assert session.report["types"], "what an eager call runs, which counts as nobody's call"
        assert session.report["cuda_graph"] == {"captured": 1, "replayed": 2, "not captured": 2}


def test_pytorch_inputs_and_answers_keep_to_themselves_in_any_order(torch_graph):
    model = small_models.linear()
    session = torch_graph(model)
    placed = [session.place(x(batch, seed)) for seed, batch in enumerate((3, 3, 2, 3))]
    results = [session.run(one) for one in placed]
    for seed, batch in ((2, 2), (0, 3), (3, 3), (1, 3)):
        fetched = session.fetch(results[seed])["y"]
        assert np.allclose(fetched, right(model, x(batch, seed)), atol=1e-6)
        fetched[:] = 0
    assert np.allclose(session.fetch(session.run(placed[0]))["y"], right(model, x(3)), atol=1e-6)


def test_pytorch_closes_with_nothing_held(torch_graph):
    session = torch_graph(small_models.linear())
    result = session.run(session.place(x(BATCH)))
    graph, network = session._graph, weakref.ref(session._network)
    session.close()
    session.close()
    assert graph.work is None
    assert session._inputs == {}
    assert network() is None
    for call in (lambda: session.place(x(BATCH)), lambda: session.place(x(2)), lambda: session.fetch(result), lambda: session.report):
        with pytest.raises(ArtifactError, match="is closed"):
            session.run(call())


def test_a_network_that_cannot_be_recorded_is_an_error(torch_graph, monkeypatch):
    import torch

    @contextlib.contextmanager
    def refuses(graph, capture_error_mode):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCUDA kernel errors might be …")
        yield

    session = torch_graph(small_models.linear())
    monkeypatch.setattr(torch.cuda, "graph", refuses)
    with pytest.raises(
        UnsupportedError, match=r"linear cannot be recorded as a CUDA graph: .*not permitted when stream.*mode=default"
    ) as caught:
        session(x(BATCH))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_other_parts_of_pytorch_still_read_the_tf32_setting_of_an_open_session(torch_graph, precision, monkeypatch):
    """What torch.export and TorchInductor read raises once it was set through PyTorch's newer interface."""
    import torch

    backends = torch.backends
    before = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
    session = torch_graph(small_models.linear(), replace(PLAN, precision=precision))
    session(x(BATCH))
    on = precision == "tf32"
    assert (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32) == (on, on)
    assert {(one.fp32_precision == "tf32") for one in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)} == {on}
    torch.export.export(torch.nn.Conv2d(1, 1, 1).eval(), (torch.zeros(1, 1, 2, 2),))
    session.close()
    assert (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32) == before


def test_a_cpu_has_no_cuda_graph_whoever_asks(out):
    from accel_helpers import environment

    here, model = environment.describe(), small_models.linear()
    for name in ("pytorch", "onnx_runtime"):
        plan = Plan(name, mode="cuda_graph")
        assert "cuda" in engines.get(name).supports(plan, here).reason.lower()
        assert engines.get(name).modes["cuda_graph"].endswith("not yet run on a GPU")
    engines.get("pytorch").build(model, Plan("pytorch"), out)
    with pytest.raises(UnsupportedError, match=r"a CPU has none.*mode=default"):
        engines.get("pytorch").load(model, Plan("pytorch", mode="cuda_graph"), out)


# ONNX Runtime


@pytest.fixture(scope="module")
def onnx_session(tmp_path_factory):
    import onnxruntime

    path = small_models.onnx_file(tmp_path_factory.mktemp("onnx") / "double.onnx", [("Add", ["x", "x"], ["y"], {})])
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_onnx_runtime_runs_fixed_buffers_in_any_order(onnx_session):
    recorded = _onnx_graph.Recorded(onnx_session, ("y",), on="cpu")
    arrays = [np.full((2, 4), number, np.float32) for number in range(4)]
    placed = [recorded.place(_onnx_graph.Planned(x=array)) for array in arrays]
    results = [recorded.run(one) for one in placed]
    for number in (2, 0, 3, 1):
        fetched = recorded.fetch(results[number])["y"]
        assert np.array_equal(fetched, 2 * arrays[number])
        fetched[:] = -1
    assert [array[0, 0] for array in arrays] == [0, 1, 2, 3], "the callers' arrays are theirs"
    assert np.array_equal(recorded.fetch(recorded.run(placed[1]))["y"], 2 * arrays[1])
    assert recorded.counts == {"captured": 1, "replayed": 4, "not captured": 0}


def test_onnx_runtime_binds_the_same_buffers_each_time(onnx_session):
    recorded = _onnx_graph.Recorded(onnx_session, ("y",), on="cpu")
    addresses = set()
    for number in range(3):
        recorded.run(recorded.place(_onnx_graph.Planned(x=np.full((2, 4), number, np.float32))))
        addresses.add((recorded._inputs["x"].data_ptr(), recorded._outputs["y"].data_ptr(), id(recorded._binding)))
    assert len(addresses) == 1


def test_onnx_runtime_takes_other_shapes_past_the_graph(onnx_session):
    recorded = _onnx_graph.Recorded(onnx_session, ("y",), on="cpu")
    binding = onnx_session.io_binding()
    binding.bind_cpu_input("x", np.ones((5, 4), np.float32))
    binding.bind_output("y", "cpu")
    recorded.run_plainly(binding)
    assert binding.get_outputs()[0].shape() == [5, 4]
    assert recorded.counts == {"captured": 0, "replayed": 0, "not captured": 1}
    assert recorded._plainly.get_run_config_entry("gpu_graph_id") == "-1"


def test_the_session_sends_the_plans_shapes_to_the_fixed_buffers(out, monkeypatch):
    """The whole session, on the CPU provider: only the device's name differs from what a GPU runs."""
    from accel_helpers.engines import onnx_runtime

    model, engine = models.get("tiny-cnn"), engines.get("onnx_runtime")
    engine.build(model, Plan("onnx_runtime"), out)
    with engine.load(model, Plan("onnx_runtime", batch=2), out) as plain:
        expected = {seed: plain(model.example(2, 1, seed))["logits"] for seed in range(3)}
        session = onnx_runtime.OnnxRuntimeSession(model, Plan("onnx_runtime", batch=2), out)
    session._plan = replace(session._plan, device="cuda", mode="cuda_graph")
    session._recorded = _onnx_graph.Recorded(session._session, model.outputs, on="cpu")
    for seed in range(3):
        assert np.array_equal(session(model.example(2, 1, seed))["logits"], expected[seed])
    assert session.report["cuda_graph"] == {"captured": 1, "replayed": 2, "not captured": 0}
    result = session.run(session.place(model.example(2, 1, 0)))
    session.close()
    with pytest.raises(ArtifactError, match="is closed"):
        session.fetch(result)

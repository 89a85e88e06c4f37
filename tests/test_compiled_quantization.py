"""Quantized plans of torch.compile: what is stored is what runs, what stays float says so, and nothing stays float in silence."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import small_models

from accel_helpers import engines, environment, models
from accel_helpers.bench import plan_of
from accel_helpers.config import RunConfig
from accel_helpers.engines import _inductor, _torchao, compiled
from accel_helpers.errors import ArtifactError, ModelError, UnsupportedError
from accel_helpers.models import Dataset, Split
from accel_helpers.quantize import attempts
from accel_helpers.records import Census, Plan, Quantization

ENGINE = engines.get("compiled")
HERE = environment.describe()
ATTENTION, CNN = models.get("tiny-attention"), models.get("tiny-cnn")


def convolution():
    def build():
        import torch

        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))

    part = Split({"input": np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)}, None)
    model = small_models.of(build, "convolution", (3, 8, 8), dataset=lambda: Dataset(part, part))
    return replace(
        model,
        example=lambda batch, _, seed: {"input": np.random.default_rng(seed).normal(size=(batch, 3, 8, 8)).astype(np.float32)},
        axes={"input": {0: "batch"}, "y": {0: "batch"}},
    )


CONVOLUTION = convolution()


def trained(network):
    """A training recipe of two steps."""
    import torch

    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    network.train()
    for seed in range(2):
        inputs = {name: torch.from_numpy(values) for name, values in CONVOLUTION.example(4, 1, seed).items()}
        network(**inputs).square().mean().backward()
        optimiser.step()


def plan(scheme, precision="int8", **more):
    values = {"static": {"calibration": 16}, "dynamic": {"symmetric": True}, "qat": {"seed": 1}}.get(scheme, {})
    return Plan("compiled", precision, sequence=16, quantization=Quantization(scheme, **{**values, **more}))


CASES = {
    "static": (CNN, plan("static")),
    "static attention": (ATTENTION, plan("static")),
    "qat": (replace(CONVOLUTION, train=trained), plan("qat")),
    "dynamic": (ATTENTION, plan("dynamic")),
    "weight_only": (ATTENTION, plan("weight_only")),
    "int4": (ATTENTION, plan("weight_only", "int4")),
}


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def made():
    """Case -> the quantized network and its tensors, made once."""
    found = {}

    def get(case):
        if case not in found:
            found[case] = _torchao.quantized(*CASES[case])
        return found[case]

    return get


def answers(network, model, batch=3, sequence=16):
    import torch

    with torch.no_grad():
        return network(**{name: torch.from_numpy(values) for name, values in model.example(batch, sequence, 5).items()}).numpy()


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_network_answers_as_it_did_when_it_was_built_without_data_or_training(case, made):
    model, asked = CASES[case]
    network, tensors = made(case)
    loaded = _torchao.restored(replace(model, dataset=None, train=None), asked, tensors)
    for batch in (1, 2, 3, 7):
        assert np.array_equal(answers(loaded, model, batch), answers(network, model, batch))


def test_the_tensors_alone_decide_the_answers(made):
    """Else loading would only repeat the quantization of the model's own weights."""
    model, asked = CASES["static"]
    network, tensors = made("static")
    weights = [name for name, value in tensors.items() if str(value.dtype) == "torch.int8"]
    assert len(weights) == 3
    changed = _torchao.restored(model, asked, {**tensors, weights[0]: tensors[weights[0]] * 0})
    assert not np.array_equal(answers(changed, model), answers(network, model))


def test_a_fresh_process_gives_the_same_answers(made, tmp_path):
    from safetensors.torch import save_file

    network, tensors = made("static attention")
    save_file(tensors, str(tmp_path / "model.safetensors"))
    code = f"""
import hashlib, torch
import test_compiled_quantization as here
from safetensors.torch import load_file
torch.set_num_threads(1)
model, plan = here.CASES["static attention"]
network = here._torchao.restored(model, plan, load_file({str(tmp_path / "model.safetensors")!r}))
print(hashlib.sha256(here.answers(network, model).tobytes()).hexdigest())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="tests", env={**os.environ, "PYTHONPATH": ".."})
    assert done.stderr == ""
    assert done.stdout.strip() == hashlib.sha256(answers(network, ATTENTION).tobytes()).hexdigest()


@pytest.mark.parametrize("case", CASES)
def test_integers_are_stored_and_no_copy_in_fp32(case, made):
    model, asked = CASES[case]
    products = {"tiny-attention": 98560, "tiny-cnn": 7088, "convolution": 504}[model.name]  # weights of its products
    tensors = [value for name, value in made(case)[1].items() if not name.startswith("observed.")]
    short = sum(value.nbytes for value in tensors if value.element_size() == 1)
    assert 0 <= short - products / (2 if asked.precision == "int4" else 1) < 1200  # torchao keeps zero points, a byte for each channel
    wide = [value for value in tensors if value.dtype.is_floating_point and value.ndim > 1]
    embeddings = (256 + 512) * 64 if model is ATTENTION else 0
    assert embeddings <= sum(value.numel() for value in wide) <= embeddings + products / 32  # and at most a scale for each group of INT4


def test_what_the_lowered_graph_runs_is_counted_layer_by_layer(made):
    model, asked = CASES["static attention"]
    report = compiled._inspect(model, asked, made("static attention")[0])
    census = Census.from_dict(report["census"])
    by_name = {one.name: one for one in census.layers}
    assert by_name["layers.0.mlp.0"].precision == "int8"
    assert by_name["layers.0.mlp.0"].operations == 16 * 64 * 256
    assert by_name["layers.0.mlp.0"].weight_bytes == by_name["layers.0.mlp.0"].parameters == 64 * 256
    attends = [one for one in census.layers if "attention" in one.operator]
    assert [one.precision for one in attends] == ["fp32", "fp32"]
    assert all(one.operations == 2 * 16 * 16 * 64 and "two activations" in one.reason for one in attends)
    assert 0.9 < census.share() < 1
    assert report["types"]["int8"] == 9


def test_weight_only_stays_in_integers_and_folding_constants_would_undo_it(made, monkeypatch):
    """The freezing that other plans need widens the weights once and for all; then nothing is quantized, and that is an error."""
    model, asked = CASES["weight_only"]
    census = Census.from_dict(compiled._inspect(model, asked, made("weight_only")[0])["census"])
    assert {one.precision for one in census.layers if one.operations and one.parameters} == {"int8 weights"}
    plain = _inductor.compiling
    monkeypatch.setattr(_inductor, "compiling", lambda mode, freezing, breaks: plain(mode, True, breaks))
    with pytest.raises(UnsupportedError, match="0 % of the multiplications of tiny-attention"):
        compiled._inspect(model, asked, made("weight_only")[0])


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
def test_k3_convolutions_that_dynamic_quantization_leaves_in_fp32_are_an_error(tmp_path):
    assert "1 of 1 convolutions is an FP32 Conv2d" in attempts()[0].outcome, "the fault: PyTorch's own call changed nothing"
    with pytest.raises(UnsupportedError, match=r"0 % of its multiplications would be quantized. What holds its weights \(Conv2d\)"):
        ENGINE.build(CONVOLUTION, plan("dynamic"), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_k4_a_converted_network_without_quant_stub_does_not_run_and_ours_needs_none():
    assert "Could not run 'quantized::conv2d.new' with arguments from the 'CPU' backend" in attempts()[1].outcome
    assert "QuantStub" in attempts()[1].cause
    ours, _ = _torchao.quantized(CONVOLUTION, plan("static"))
    exact = answers(CONVOLUTION.build().eval(), CONVOLUTION)
    assert np.linalg.norm(answers(ours, CONVOLUTION) - exact) < 0.05 * np.linalg.norm(exact)


@pytest.mark.parametrize(("case", "kept"), [("static", "head"), ("dynamic", "layers.1.out")])
def test_a_layer_to_keep_stays_in_fp32_and_an_unknown_one_is_refused(case, kept):
    model, asked = CASES[case]
    asked = replace(asked, quantization=replace(asked.quantization, keep=(kept,)))
    census = Census.from_dict(compiled._inspect(model, asked, _torchao.quantized(model, asked)[0])["census"])
    stayed = {one.name: one.reason for one in census.layers if one.precision == "fp32" and one.operations and one.parameters}
    assert stayed == {kept: "kept unquantized, as asked"}
    unknown = replace(asked, quantization=replace(asked.quantization, keep=("hat",)))
    with pytest.raises(UnsupportedError, match="no layer hat to keep"):
        _torchao.quantized(model, unknown)


def test_one_scale_for_a_whole_weight_or_one_for_each_channel(made):
    def scales(tensors):
        return [value.unique().numel() for name, value in tensors.items() if name.startswith("_scale_")]

    assert min(scales(made("static")[1])) > 1
    assert scales(_torchao.quantized(CNN, plan("static", per_channel=False))[1]) == [1, 1, 1]


@pytest.mark.parametrize("reduced", [False, True])
def test_a_reduced_range_keeps_a_sum_of_two_products_within_sixteen_bits(reduced):
    """The instruction of x86 without VNNI adds two products of an unsigned and a signed byte and saturates at 32,767."""
    graph, _ = _torchao.quantized(CNN, plan("static", reduce_range=reduced))
    sums = []
    for node in graph.graph.nodes:
        if str(node.target) in ("aten.conv2d.default", "aten.linear.default"):
            most, weights = node.args[0].args[4], getattr(graph, node.args[1].args[0].target)
            sums.append(2 * most * int(weights.abs().max()))
    assert len(sums) == 3
    assert all(one <= 32767 for one in sums) == reduced


@pytest.mark.parametrize("case", ["static", "dynamic", "int4"])
def test_tensors_of_another_model_are_an_artifact_error(case, made):
    import torch

    model, asked = CASES[case]
    tensors = made(case)[1]
    first = max(tensors)
    missing = {name: value for name, value in tensors.items() if name != first}
    for damaged in (missing, {**tensors, "stranger": torch.ones(1)}, {**tensors, first: torch.ones(3, 5)}):
        with pytest.raises(ArtifactError, match="do not fit its network"):
            _torchao.restored(model, asked, damaged)


def test_qat_of_a_model_that_cannot_train_and_training_that_fails_are_said():
    with pytest.raises(UnsupportedError, match="brings no training recipe"):
        _torchao.quantized(CNN, plan("qat"))
    with pytest.raises(ModelError, match=r"Training tiny-cnn failed: ZeroDivisionError"):
        _torchao.quantized(replace(CNN, train=lambda network: 1 / 0), plan("qat"))


def test_qat_trains_what_is_stored(made):
    """The recipe's two steps move the weights; without them the integers would be those of the model's own weights."""
    import torch

    def shown(network):
        network(**{name: torch.from_numpy(values) for name, values in CONVOLUTION.example(4, 1, 0).items()})

    still = _torchao.quantized(replace(CONVOLUTION, train=shown), plan("qat"))[1]
    integers = [name for name, value in still.items() if value.dtype == torch.int8]
    assert len(integers) == 2
    assert any(not torch.equal(still[name], made("qat")[1][name]) for name in integers)


@pytest.mark.parametrize(
    ("asked", "device", "reason"),
    [
        (Quantization("static", calibrator="percentile"), "cpu", "taken here by minmax, not by percentile"),
        (Quantization("static", rest="bf16"), "cpu", "stays in FP32 here"),
        (Quantization("dynamic"), "cpu", "set symmetric=true"),
        (Quantization("accuracy_control"), "cpu", "by scheme static or dynamic or weight_only or qat, not by accuracy_control"),
        (Quantization("static"), "cuda", "run on a CPU"),
    ],
)
def test_what_is_not_there_is_refused_with_the_reason(asked, device, reason):
    support = ENGINE.supports(Plan("compiled", "int8", device=device, quantization=asked), HERE)
    assert not support
    assert reason in support.reason


def test_a_configuration_of_dynamic_int8_reads_signed_activations_and_eager_pytorch_has_no_int8():
    config = RunConfig(model="tiny-attention", engine="compiled", precision="int8")
    assert plan_of(config).quantization.scheme == "dynamic"
    assert plan_of(config).quantization.symmetric
    assert ENGINE.supports(plan_of(config), HERE)
    assert "pytorch quantizes nothing to INT8" in engines.get("pytorch").supports(plan_of(config.replace(engine="pytorch")), HERE).reason


def test_importing_transformers_and_torchao_prints_nothing():
    code = "import accel_helpers, torchao; from transformers import BertModel"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

"""The built-in models reproduce their published figures; the reader's own need only example inputs and say what is missing."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from accel_helpers.errors import ModelError, UnknownNameError
from accel_helpers.models import Model, Split, get, names, text_encoder, vision

BUILT_IN = ("text-encoder", "vision-classifier", "tiny-cnn", "tiny-attention")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads beside a busy neighbour take ten times as long as one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def outputs(network: Any, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    with torch.inference_mode():
        answer = network(**{name: torch.from_numpy(values) for name, values in inputs.items()})
    return tuple(part.numpy() for part in (answer if isinstance(answer, tuple) else (answer,)))


def score(model: Model, network: Any) -> float:
    validation = model.dataset().validation
    logits = [outputs(network, inputs)[0] for inputs, _ in validation.batches(32)]
    return model.metric.function({"logits": np.concatenate(logits)}, validation.labels)


# The zoo


def test_importing_and_getting_a_built_in_model_loads_no_framework() -> None:
    code = (
        "import sys, accel_helpers.models as m; [m.get(name) for name in m.names()]; "
        "print([name for name in ('torch', 'transformers', 'onnx', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_text_encoder_reproduces_its_accuracy() -> None:
    model = get("text-encoder")
    assert len(model.dataset().validation) == 858
    assert score(model, model.build()) == pytest.approx(model.metric.published, abs=0.5 / 858)
    assert model.metric.published == 0.9033


def test_vision_classifier_reproduces_its_accuracy() -> None:
    model = get("vision-classifier")
    assert len(model.dataset().validation) == 20
    assert score(model, model.build()) == model.metric.published == 0.9


@pytest.mark.parametrize("name", ["tiny-cnn", "tiny-attention"])
def test_tiny_models_tell_their_classes_apart(name: str) -> None:
    model = get(name)
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    assert score(model, model.build()) == model.metric.published == 1.0
    labels = model.dataset().validation.labels
    assert np.bincount(labels).max() / len(labels) < 0.4  # a constant answer would not do
    first, second = (model.build().state_dict() for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("name", BUILT_IN)
def test_examples_fit_the_network_and_repeat_by_seed(name: str) -> None:
    model = get(name)
    network = model.build()
    assert not network.training
    inputs = model.example(3, 48, 1)
    assert list(inputs) == [key for key in model.axes if key not in model.outputs]
    for key, values in inputs.items():
        assert values.dtype == (np.int64 if key in ("input_ids", "attention_mask") else np.float32)
        np.testing.assert_array_equal(values, model.example(3, 48, 1)[key])
        expected = {"batch": 3, "sequence": 48}
        assert all(values.shape[axis] == expected[role] for axis, role in model.axes[key].items())
    first = next(iter(inputs.values()))
    assert len(np.unique(first.reshape(3, -1), axis=0)) == 3
    assert not np.array_equal(first, next(iter(model.example(3, 48, 2).values())))
    answers = outputs(network, inputs)
    assert len(answers) == len(model.outputs)
    assert all(answer.shape[0] == 3 and np.isfinite(answer).all() for answer in answers)


@pytest.mark.parametrize("name", BUILT_IN)
def test_calibration_and_validation_are_disjoint(name: str) -> None:
    data = get(name).dataset()
    parts = []
    for part in (data.calibration, data.validation):
        rows = next(iter(part.inputs.values()))
        parts.append({row.tobytes() for row in rows})
        assert len(part) >= 20
    assert not parts[0] & parts[1]


def test_held_out_tweets_are_those_the_head_was_not_trained_on() -> None:
    from safetensors.numpy import load_file
    from sklearn.model_selection import train_test_split

    labels = text_encoder.tweets()["labels"]
    _, validation = train_test_split(np.arange(len(labels)), test_size=0.25, random_state=0, stratify=labels)
    np.testing.assert_array_equal(np.sort(validation), load_file(text_encoder.HEAD)["validation"])


def test_photographs_and_pictures_share_nothing() -> None:
    data = vision.pictures()
    assert not {one.tobytes() for one in data["photos"]} & {one.tobytes() for one in data["pictures"]}
    assert len(np.unique(data["photos"].reshape(60, -1), axis=0)) == 60


def test_text_examples_are_full_rows_of_real_tokens() -> None:
    inputs = get("text-encoder").example(64, 128, 0)
    ids = inputs["input_ids"]
    assert (inputs["attention_mask"] == 1).all()
    assert ((ids[:, 0] == 101) & (ids[:, -1] == 102)).all()
    assert set(np.unique(ids)) <= set(np.unique(text_encoder.tweets()["ids"]))
    assert not (ids[:, 1:-1] <= 102).any()
    assert len(np.unique(ids, axis=0)) == 64
    for name, sequence in (("text-encoder", 513), ("text-encoder", 2), ("tiny-attention", 513)):
        with pytest.raises(ModelError, match="tokens"):
            get(name).example(1, sequence, 0)


def test_batches_of_sequences_lose_padding_and_nothing_else() -> None:
    validation = get("text-encoder").dataset().validation
    lengths, kept, labels = set(), 0, []
    for inputs, part in validation.batches(32):
        lengths.add(inputs["input_ids"].shape[1])
        kept += int(inputs["attention_mask"].sum())
        assert inputs["input_ids"].flags.c_contiguous
        labels.append(part)
    assert lengths <= {32, 64, 96, 128}
    assert 32 in lengths
    assert kept == validation.inputs["attention_mask"].sum()
    np.testing.assert_array_equal(np.concatenate(labels), validation.labels)
    plain = Split(validation.inputs, None)
    assert {inputs["input_ids"].shape[1] for inputs, _ in plain.batches(100)} == {128}
    assert [part for _, part in plain.batches(400)] == [None, None, None]


# Names


def test_names_lists_the_real_models() -> None:
    assert names() == ("digits", "text-encoder", "vision-classifier")
    assert [get(name).name for name in BUILT_IN] == list(BUILT_IN)
    assert len({get(name).fingerprint for name in BUILT_IN}) == 4
    assert all(get(name).fingerprint == get(name).fingerprint for name in BUILT_IN)


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(UnknownNameError, match=r"no model 'text-encodr'\. Did you mean 'text-encoder'\?"):
        get("text-encodr")
    with pytest.raises(ModelError, match=r"no folder \./nowhere"):
        get("./nowhere")


# ONNX files


def save_onnx(path: Path, shape: list[int | str | None], dtype: int = TensorProto.FLOAT, **options: Any) -> Path:
    """A file that multiplies its input with constant weights."""
    weights = helper.make_tensor("weights", dtype, [1], np.full(1, 2, helper.tensor_dtype_to_np_dtype(dtype)).tobytes(), raw=True)
    source, target = (helper.make_tensor_value_info(name, dtype, shape) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Mul", ["x", "weights"], ["y"])], "g", [source], [target], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path, **options)
    return path


def test_an_onnx_file_tells_its_inputs_and_axes(tmp_path: Path) -> None:
    path = save_onnx(tmp_path / "own.onnx", ["N", 3, 8, 8])
    model = get(str(path))
    assert (model.name, model.onnx, model.outputs) == (str(path), path, ("y",))
    assert model.axes == {"x": {0: "batch"}, "y": {0: "batch"}}
    assert model.build is None
    assert not model.has_sequence
    inputs = model.example(5, 128, 0)
    assert (inputs["x"].shape, inputs["x"].dtype) == ((5, 3, 8, 8), np.float32)
    assert len(np.unique(inputs["x"].reshape(5, -1), axis=0)) == 5
    changed = save_onnx(tmp_path / "own.onnx", ["N", 3, 8, 9])
    assert get(str(changed)).fingerprint != model.fingerprint


def test_an_onnx_file_of_tokens_has_a_sequence(tmp_path: Path) -> None:
    model = get(str(save_onnx(tmp_path / "own.onnx", [None, None], TensorProto.INT64)))
    assert model.axes["x"] == {0: "batch", 1: "sequence"}
    assert model.has_sequence
    ids = model.example(2, 17, 0)["x"]
    assert (ids.shape, ids.dtype) == ((2, 17), np.int64)
    assert ids.min() >= 0
    assert ids.max() < 10


def test_an_onnx_file_with_an_unknown_axis_says_which_and_what_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_onnx(tmp_path / "own.onnx", ["batch", 3, "height", 8])
    with pytest.raises(ModelError, match=r"open axis 'height' of input 'x' cannot be guessed.*dataclasses\.replace\(.*example=lambda"):
        get(str(path)).example(1, 128, 0)
    (tmp_path / "mine_onnx.py").write_text(
        "import dataclasses, numpy, accel_helpers.models\n"
        f"def model(): return dataclasses.replace(accel_helpers.models.get({str(path)!r}), "
        "example=lambda batch, sequence, seed: {'x': numpy.ones((batch, 3, 8, 8), 'float32')})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = get("mine_onnx:model")
    assert (model.name, model.onnx, model.example(2, 1, 0)["x"].shape) == ("mine_onnx:model", path, (2, 3, 8, 8))


def test_an_onnx_file_of_an_exotic_type_or_a_fixed_batch_says_so(tmp_path: Path) -> None:
    exotic = get(str(save_onnx(tmp_path / "exotic.onnx", ["batch", 4], TensorProto.BFLOAT16)))
    with pytest.raises(ModelError, match="input 'x' is of type bfloat16"):
        exotic.example(1, 1, 0)
    fixed = get(str(save_onnx(tmp_path / "fixed.onnx", [4, 4])))
    assert fixed.example(4, 1, 0)["x"].shape == (4, 4)
    with pytest.raises(ModelError, match="takes batches of 4 only; 8"):
        fixed.example(8, 1, 0)


def test_a_missing_or_corrupt_onnx_file_is_one_clear_message(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no file .*none\.onnx"):
        get(str(tmp_path / "none.onnx"))
    good = save_onnx(tmp_path / "own.onnx", ["N", 3]).read_bytes()
    for name, content in {"cut": good[: len(good) // 2], "text": b"<html>not found</html>", "empty": b""}.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(ModelError, match=rf"{name}\.onnx is not a valid ONNX model") as caught:
            get(str(path))
        assert "\n" not in str(caught.value)


def test_external_weights_stay_in_the_folder_of_the_file(tmp_path: Path) -> None:
    path = save_onnx(tmp_path / "own.onnx", ["N", 3], save_as_external_data=True, location="own.data", size_threshold=0)
    fingerprint = get(str(path)).fingerprint
    data = tmp_path / "own.data"
    data.write_bytes(np.full(1, 3, np.float32).tobytes())
    assert get(str(path)).fingerprint != fingerprint
    data.unlink()
    with pytest.raises(ModelError, match=r"keeps weights in own\.data, which is missing"):
        get(str(path))
    outside = tmp_path / "inner"
    outside.mkdir()
    (tmp_path / "secret").write_bytes(b"1234")
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../secret"
    (outside / "own.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"outside its own folder, in \.\./secret"):
        get(str(outside / "own.onnx"))


# Functions


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module of the reader's, of a new name in each test."""
    name = f"mine_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text("""
import numpy, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.head = torch.nn.Linear(8, 3)
    def forward(self, ids):
        states = self.embed(ids)
        return self.head(states.mean(1)), states

def seeded():
    torch.manual_seed(0)
    return Net()

def ids(batch, sequence, seed):
    return {"ids": numpy.random.default_rng(seed).integers(50, size=(batch, sequence))}

def good(): return seeded()
good.example = ids
def bare(): return seeded()
def unseeded(): return Net()
unseeded.example = ids
def misnamed(): return seeded()
misnamed.example = lambda batch, sequence, seed: {"tokens": ids(batch, sequence, seed)["ids"]}
def misshapen(): return seeded()
misshapen.example = lambda batch, sequence, seed: {"ids": numpy.full((batch, sequence), 99)}
def listed(): return seeded()
listed.example = lambda batch, sequence, seed: [1]
def broken(): raise RuntimeError("no weights")
def text(): return "a string"
def sideways(): return torch.nn.Flatten(0)
sideways.example = lambda batch, sequence, seed: {"input": numpy.zeros((4, batch), "float32")}
""")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_a_function_needs_only_example_inputs(mine: str) -> None:
    model = get(f"{mine}:good")
    assert model.name == f"{mine}:good"
    assert model.outputs == ("output_0", "output_1")
    assert model.axes == {
        "ids": {0: "batch", 1: "sequence"},
        "output_0": {0: "batch"},
        "output_1": {0: "batch", 1: "sequence"},
    }
    assert model.has_sequence
    network = model.build()
    assert not network.training
    assert [answer.shape for answer in outputs(network, model.example(2, 9, 0))] == [(2, 3), (2, 9, 8)]
    assert get(f"{mine}:good").fingerprint == model.fingerprint


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("bare", r"without example inputs; forward takes ids\..*`bare\.example = lambda batch, sequence, seed: \{'ids': "),
        ("misnamed", "takes ids; its example inputs are tokens"),
        ("misshapen", "does not run on its example inputs: IndexError"),
        ("listed", "not a dict of NumPy arrays"),
        ("broken", "failed: RuntimeError: no weights"),
        ("text", "answered a str"),
        ("sideways", "not the batch"),
        ("goood", r"has no function goood\. Did you mean good\?"),
    ],
)
def test_a_function_that_cannot_be_used_says_what_is_missing(mine: str, function: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        get(f"{mine}:{function}")


def test_a_function_with_other_weights_each_time_is_refused(mine: str) -> None:
    with pytest.raises(ModelError, match="other weights each time"):
        get(f"{mine}:unseeded").build()


def test_a_module_that_is_missing_is_one_clear_message() -> None:
    with pytest.raises(ModelError, match=r"The module no_such_module cannot be imported: ModuleNotFoundError"):
        get("no_such_module:model")


# Hugging Face folders


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import BertConfig, BertForSequenceClassification

    folder = tmp_path_factory.mktemp("hub") / "bert"
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 40}
    torch.manual_seed(0)
    BertForSequenceClassification(BertConfig(**sizes, max_position_embeddings=64, num_labels=3)).save_pretrained(folder)
    return folder


def test_a_hugging_face_folder_runs_with_its_head(bert: Path) -> None:
    model = get(str(bert))
    assert (model.outputs, model.has_sequence) == (("logits",), True)
    assert model.axes["logits"] == {0: "batch"}
    inputs = model.example(4, 20, 0)
    assert inputs["input_ids"].min() > 0  # the padding token is not drawn
    [logits] = outputs(model.build(), inputs)
    assert logits.shape == (4, 3)
    from transformers import BertForSequenceClassification

    network = BertForSequenceClassification.from_pretrained(bert)
    expected = network(**{name: torch.from_numpy(values) for name, values in inputs.items()}).logits.detach().numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-6)
    with pytest.raises(ModelError, match="at most 64 tokens; 65"):
        model.example(1, 65, 0)


def test_a_hugging_face_body_answers_hidden_states(tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTModel

    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "image_size": 16,
        "patch_size": 8,
    }
    ViTModel(ViTConfig(**sizes), add_pooling_layer=False).save_pretrained(tmp_path)
    model = get(str(tmp_path))
    assert (model.outputs, model.has_sequence) == (("last_hidden_state",), False)
    inputs = model.example(2, 128, 0)
    assert inputs["pixel_values"].shape == (2, 3, 16, 16)
    assert outputs(model.build(), inputs)[0].shape == (2, 5, 16)


def test_a_hugging_face_folder_that_cannot_be_used_says_why(bert: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    config = (bert / "config.json").read_text()
    (tmp_path / "config.json").write_text(config)
    torch.save({"weights": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"holds no \*\.safetensors.*pickled weights are not loaded"):
        get(str(tmp_path))
    weights = load_file(bert / "model.safetensors")
    save_file(
        {key: values for key, values in weights.items() if key != "classifier.weight"}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(ModelError, match=r"lack classifier\.weight"):
        get(str(tmp_path)).build()
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 64)
    with pytest.raises(ModelError, match="cannot be loaded"):
        get(str(tmp_path)).build()
    (tmp_path / "config.json").write_text('{"model_type": "mystery", "auto_map": {"AutoModel": "code.Model"}}')
    with pytest.raises(ModelError, match="cannot be used"):
        get(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "resnet"}')
    with pytest.raises(ModelError, match="neither vocab_size nor image_size"):
        get(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(ModelError, match="encoder-decoder"):
        get(str(tmp_path))


def test_a_hub_id_without_a_network_is_one_clear_message(tmp_path: Path) -> None:
    code = "from accel_helpers.models import get; get('no-such-owner/no-such-model')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    last = done.stderr.splitlines()[-1]
    assert "ModelError: There is no folder no-such-owner/no-such-model, and the Hub's model" in last
    assert "Check the name and the network" in last


def test_models_are_records(tmp_path: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        get("tiny-cnn").name = "other"

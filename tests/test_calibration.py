"""Calibration samples: whose they are, the experiments, the detector that tells them apart, and how much the choice decides."""

import dataclasses
import hashlib

import numpy as np
import pytest
import small_models

from accel_helpers import models
from accel_helpers.calibration import kinds, representative, samples
from accel_helpers.config import RunConfig
from accel_helpers.errors import ModelError, ParameterError
from accel_helpers.models import Dataset, Split
from accel_helpers.quantize.calibrating import Trials, experiment, spread
from accel_helpers.records import Quantization

WITH_DATA = ("text-encoder", "vision-classifier", "tiny-cnn", "tiny-attention")
COUNTS = (8, 16, 32, 64, 128)


class Untouchable:
    """A validation part that nobody may look at."""

    def __getattribute__(self, name):
        raise AssertionError(f"the validation part was asked for its {name}")


@pytest.fixture(scope="module", params=WITH_DATA)
def model(request):
    """A model whose data are read once, and whose validation part fails whoever looks."""
    found = models.get(request.param)
    data = Dataset(found.dataset().calibration, Untouchable())
    return dataclasses.replace(found, dataset=lambda: data)


def drawn(model, count, seed=0, kind="representative"):
    return samples(model, Quantization("static", count, seed=seed, calibration_data=kind))


def digests(split):
    """One hash a sample, over what it says: padding left out."""
    rows = zip(*split.inputs.values(), strict=True)
    masks = split.inputs[split.mask].astype(bool) if split.mask else [...] * len(split)
    return [
        hashlib.sha256(b"|".join(np.ascontiguousarray(value[mask]).tobytes() for value in row)).hexdigest()
        for row, mask in zip(rows, masks, strict=True)
    ]


@pytest.mark.parametrize("name", WITH_DATA)
def test_no_sample_is_in_both_parts(name):
    data = models.get(name).dataset()
    calibration, validation = digests(data.calibration), digests(data.validation)
    assert min(len(calibration), len(validation)) >= 20
    assert not set(calibration) & set(validation)
    twin = dataclasses.replace(data, calibration=data.validation)
    assert set(digests(twin.calibration)) == set(validation)  # the hash does find a sample that is in both


def test_a_draw_is_without_replacement_and_its_seeds(model):
    part = model.dataset().calibration
    first = drawn(model, 16)
    assert len(set(digests(first))) == len(first) == 16
    assert digests(first) == digests(drawn(model, 16))
    assert digests(first) != digests(drawn(model, 16, seed=1))
    assert set(digests(first)) < set(digests(part))
    assert len(drawn(model, 4096)) == len(part)


def test_an_honest_draw_has_no_symptom(model):
    whole = len(model.dataset().calibration)
    for count in COUNTS:
        for seed in range(20 if count < whole else 1):  # of the whole part there is one draw
            assert representative(model, drawn(model, count, seed)) == (), (count, seed)


def test_every_experiment_is_told_by_its_name(model):
    assert kinds(model)[:2] == ("representative", "one_class")
    for kind in kinds(model)[1:]:
        for count in (8, 64):
            for seed in range(3):
                found = representative(model, drawn(model, count, seed, kind))
                assert [one.name for one in found] == [kind], (count, seed, found)


def test_one_class_of_a_labelled_model_is_its_rarest_and_of_an_unlabelled_one_a_single_photograph(model):
    part, found = model.dataset().calibration, drawn(model, 4096, kind="one_class")
    if part.labels is None:
        places = {digest: place for place, digest in enumerate(digests(part))}
        assert len({places[digest] // 6 for digest in digests(found)}) == 1  # six views of each photograph follow one another
        assert len(found) == 6
    else:
        assert len(set(found.labels)) == 1
        assert len(found) == np.bincount(part.labels).min()
        unlabelled = Split(found.inputs, None, found.mask)
        assert [one.name for one in representative(model, unlabelled)] in ([], ["one_class"])  # variety alone may not see a sentiment


def test_floats_that_nobody_normalised_run_to_255_and_keep_their_order():
    model = models.get("tiny-cnn")
    raw, real = drawn(model, 4096, kind="unnormalised"), drawn(model, 4096)
    values = raw.inputs["pixel_values"]
    assert (values.min(), values.max(), values.dtype) == (0, pytest.approx(255), np.float32)
    assert np.corrcoef(values.ravel(), real.inputs["pixel_values"].ravel())[0, 1] == pytest.approx(1)


def test_tokens_have_no_normalisation_to_forget():
    with pytest.raises(ParameterError, match="reads no normalised floats") as caught:
        drawn(models.get("tiny-attention"), 8, kind="unnormalised")
    assert "representative, one_class, noise" in str(caught.value)


def test_noise_keeps_what_is_padding_and_the_vocabulary():
    model = models.get("tiny-attention")
    real, noise = drawn(model, 16), drawn(model, 16, kind="noise")
    mask = real.inputs["attention_mask"]
    assert np.array_equal(noise.inputs["attention_mask"], mask)
    assert not noise.inputs["input_ids"][mask == 0].any()
    assert (noise.inputs["input_ids"] != real.inputs["input_ids"])[mask == 1].mean() > 0.9
    known = set(model.dataset().calibration.inputs["input_ids"].ravel())
    assert set(noise.inputs["input_ids"].ravel()) <= known
    assert noise.labels is None


def test_rows_of_numbers_without_neighbours_are_told_by_their_scale():
    draw = np.random.default_rng(0)
    part = Split({"x": draw.normal(3, 2, size=(100, 8)).astype(np.float32)}, None)
    model = small_models.of(None, dataset=lambda: Dataset(part, Untouchable()))
    assert [one.name for one in representative(model, drawn(model, 32, kind="unnormalised"))] == ["unnormalised"]
    assert not any(representative(model, drawn(model, 32, seed)) for seed in range(20))
    raw = small_models.of(None, dataset=lambda: Dataset(Split({"x": part.inputs["x"] * 100}, None), Untouchable()))
    assert "unnormalised" not in kinds(raw)  # these numbers are as wide as bytes already


def test_a_model_without_data_says_which_schemes_need_none():
    model = small_models.linear()
    for ask in (lambda: drawn(model, 8), lambda: kinds(model), lambda: representative(model, Split({}, None))):
        with pytest.raises(ModelError, match="dynamic or weight_only"):
            ask()


# how much the samples decide, by a real engine

CONFIG = RunConfig(model="tiny-cnn", engine="onnx_runtime", precision="int8", scheme="static", calibration=8, threads=1, seed=3)


def test_c11_unrepresentative_calibration_data_hurts_and_is_told():
    seen = []
    found = experiment(CONFIG, judged=40, watch=seen.append)
    assert [one.data for one in found.trials] == ["representative", "one_class", "unnormalised", "noise"]
    assert [tuple(symptom.name for symptom in one.symptoms) for one in found.trials] == [(), ("one_class",), ("unnormalised",), ("noise",)]
    good, *_, raw, _ = found.trials
    assert good.snr_db > raw.snr_db + 10  # ranges of 255 for values of 6 leave a twentieth of the steps
    assert len(good.score.outcomes) == good.score.samples == found.baseline.samples == 40
    assert found.verdict(good).changes == (0,) * 40
    assert seen == list(found.trials)
    assert Trials.from_json(found.to_json()) == found


def test_the_spread_over_subsets_is_that_of_their_seeds():
    found = spread(CONFIG, subsets=6, judged=20)
    assert [one.seed for one in found.trials] == [3, 4, 5, 6, 7, 8]
    assert len({one.snr_db for one in found.trials}) > 1
    assert found.snr_db.low < found.snr_db.value < found.snr_db.high < np.inf
    assert found.range == (1.0, 1.0)
    again = spread(CONFIG.replace(seed=8), subsets=2, judged=20)
    assert again.trials[0] == found.trials[-1]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CONFIG.replace(precision="fp32"), "calibrates nothing"),
        (CONFIG.replace(scheme="dynamic", model="tiny-attention"), "calibrates nothing"),
    ],
)
def test_a_plan_that_calibrates_nothing_has_no_spread(config, message):
    with pytest.raises(ParameterError, match=message):
        spread(config)
    with pytest.raises(ParameterError, match=message):
        experiment(config, ["noise"])


def test_an_experiment_that_the_inputs_do_not_allow_is_refused_before_anything_is_built(monkeypatch):
    monkeypatch.setattr("accel_helpers.quantize.calibrating._run", None)
    with pytest.raises(ParameterError, match="no normalised floats"):
        experiment(CONFIG.replace(model="tiny-attention"), ["unnormalised"])
    with pytest.raises(ParameterError, match="subsets=1"):
        spread(CONFIG, subsets=1)

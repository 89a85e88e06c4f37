"""Records: frozen, to JSON and back without loss, and every figure derived from raw samples."""

import dataclasses
import json

import pytest

from accel_helpers import records
from accel_helpers.errors import StoreError
from accel_helpers.intervals import Estimate
from accel_helpers.records import Artifact, Check, Environment, Gpu, Measurement, Plan, Round, Score, Verdict


def environment(**changes):
    values = {"cpu": "Test CPU", "isa": ("avx2",), "cpus": 2, "cpus_online": 4, "memory_bytes": 2**33, "os": "Linux", "python": "3.11.7"}
    return Environment(**{**values, "packages": {"torch": "2.13.0"}, **changes})


def measurement(rounds=None, **changes):
    values = {
        "model": "tiny-cnn",
        "plan": Plan("null", batch=2),
        "environment": environment(gpus=(Gpu("GPU", 2**34, "8.9", "580.1"),)),
        "scope": "end to end",
        "first_call": 0.5,
        "warmup": (0.02, 0.011),
        "rounds": tuple(rounds or [Round((0.010, 0.012, 0.011), 0.033 + i / 1e4) for i in range(8)]),
        "errors": 0,
        "checks": (Check("outputs", True, "fine"),),
        "peak_memory_bytes": 10**8,
        "peak_device_bytes": None,
        "artifact": "ab" * 32,
        "size_bytes": 1000,
        "build_seconds": 1.0,
        "load_seconds": 0.1,
        "seed": 0,
        "started": "2026-01-01T00:00:00+00:00",
        "score": Score("accuracy", 0.9, 100),
        "report": {"types": {"fp32": 3}},
    }
    return Measurement(**{**values, **changes})


ARTIFACT = Artifact("tiny-cnn", "f" * 64, Plan("null"), "artifacts/x", {"a": "0" * 64}, 10, 0.1, "hw", {"torch": "2.13.0"}, {"types": {}})
VERDICT = Verdict("a" * 64, "b" * 64, (1.1, 1.2, 1.15, 1.18, 1.12, 1.16), (1.0, 1.0, 1.0, 1.0, 1.0, 1.0), 0.01)


@pytest.mark.parametrize(
    "record", [measurement(), ARTIFACT, VERDICT, environment(), Plan("null"), Round((0.1,), 0.1)], ids=lambda r: type(r).__name__
)
def test_json_both_ways(record):
    assert type(record).from_json(record.to_json()) == record
    assert type(record).from_json(record.to_json()).digest == record.digest


def test_outcomes_survive_json_as_they_are_and_keep_it_small():
    right, errors = Score("accuracy", 0.75, 4, (1, 0, 1, 1), {"F1, macro": 0.7}), Score("MSE", 0.25, 2, (0.0, 0.5), {}, False)
    for score in (right, errors):
        again = Score.from_json(score.to_json())
        assert (again, again.to_json()) == (score, score.to_json())
    assert '"outcomes": [1, 0, 1, 1]' in right.to_json()
    verdict = dataclasses.replace(
        VERDICT, changes=right.changes(dataclasses.replace(right, outcomes=(1, 1, 1, 0))), budget=Check("budget", None, "?")
    )
    assert verdict.changes == (0, -1, 0, 1)
    assert Verdict.from_json(verdict.to_json()).to_json() == verdict.to_json()


@pytest.mark.parametrize("other", [Score("accuracy", 0.5, 2, (1, 0)), Score("top-1", 0.75, 4, (1, 0, 1, 1)), Score("accuracy", 0.75, 4)])
def test_scores_of_other_samples_or_metrics_have_no_changes(other):
    assert other.changes(Score("accuracy", 0.75, 4, (1, 0, 1, 1))) == ()


@pytest.mark.parametrize(
    ("change", "word"),
    [((0.001, 0.03), "better"), ((-0.009, 0.03), "no worse"), ((-0.03, -0.011), "worse"), ((-0.02, 0.0), "not enough samples")],
)
def test_a_word_for_a_change_of_the_metric_in_either_direction(change, word):
    low, high = change
    assert records.score_word(Estimate((low + high) / 2, low, high), 0.01) == word
    assert records.score_word(Estimate((low + high) / -2, -high, -low), 0.01, higher_is_better=False) == word


def test_reading_a_property_does_not_change_the_record():
    record = measurement()
    before = record.to_json()
    assert record.samples
    assert record.digest
    assert record.to_json() == before


@pytest.mark.parametrize("record", [measurement(), ARTIFACT, VERDICT])
def test_records_are_frozen(record):
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.model = "other"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 0}, "schema 0"),
        ({"kind": "Verdict"}, "found Verdict"),
        ({"extra": 1}, "no field 'extra'"),
        ({"seed": "x"}, "cannot be read"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    with pytest.raises(StoreError, match=message):
        Measurement.from_dict({**measurement().to_dict(), **change})
    with pytest.raises(StoreError, match="not JSON"):
        Measurement.from_json("{")


def test_figures_come_from_raw_samples():
    record = measurement([Round((0.010, 0.020), 0.05), *[Round((0.010, 0.020), 0.05)] * 7])
    assert record.p50.value == pytest.approx(0.015)
    assert record.mean == pytest.approx(0.015)
    assert record.throughput.value == pytest.approx(2 / 0.015)
    assert record.cpu_time.value == pytest.approx(0.025)
    assert record.percentile(0.99) is None
    assert not any(name in json.loads(record.to_json()) for name in ("p50", "mean", "throughput", "samples"))


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "VALID"),
        ({"errors": 1}, "INVALID"),
        ({"checks": (Check("outputs", False, "wrong"),)}, "INVALID"),
        ({"checks": (Check("steady", False, "moves", fatal=False),)}, "INDICATIVE"),
        ({"checks": (Check("outputs", None, "no reference"),)}, "VALID"),
    ],
)
def test_status_follows_the_checks(changes, status):
    record = measurement(**changes)
    assert record.status == status
    assert bool(record.reasons) == (status != "VALID")


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ((1.2, 1.3, 1.25, 1.22, 1.28, 1.24), "faster"),
        ((0.8, 0.7, 0.75, 0.78, 0.72, 0.76), "slower"),
        ((1.01, 0.99, 1.0, 1.02, 0.98, 1.0), "no difference"),
    ],
)
def test_a_word_for_an_interval(ratios, word):
    verdict = dataclasses.replace(VERDICT, wall=ratios)
    assert verdict.word == word


def test_too_few_or_scattered_rounds_are_too_noisy():
    assert dataclasses.replace(VERDICT, wall=(1.5, 1.5, 1.5)).word == "too noisy"
    assert dataclasses.replace(VERDICT, wall=(0.5, 2.0, 0.7, 1.4, 0.9, 1.1)).word == "too noisy"


def test_files_have_one_name_whatever_plan_loads_them():
    other = ARTIFACT.with_plan(Plan("null", batch=8, threads=2))
    assert other.content == ARTIFACT.content
    with pytest.raises(ValueError, match="other files"):
        ARTIFACT.with_plan(Plan("null", precision="bf16"))


def test_the_schema_is_pinned():
    """A field that changes meaning needs a new SCHEMA; this list is the reminder."""
    assert records.SCHEMA == 3
    assert [field.name for field in dataclasses.fields(Plan)] == [
        "engine",
        "precision",
        "device",
        "batch",
        "sequence",
        "threads",
        "hint",
        "quantization",
        "mode",
        "compilation",
    ]
    assert [field.name for field in dataclasses.fields(Round)] == ["wall", "cpu"]

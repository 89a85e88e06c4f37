"""The store: what was finished stays, what was half done is never seen, and nothing is loaded unverified."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import logging
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accel_helpers.engine import Built
from accel_helpers.errors import ArtifactError, ModelError, StoreError
from accel_helpers.models import Model
from accel_helpers.records import SCHEMA, Artifact, Check, Environment, Gpu, Measurement, Plan, Record, Round, Score, Verdict
from accel_helpers.store import Store, database, disk, folder

PLAN = Plan("null")
GPU = Gpu("H200", 141 * 10**9, "9.0", "580.1")
HERE = Environment(
    "A CPU", ("avx2", "amx_int8"), 2, 4, 8 * 10**9, "Linux 6", "3.11.7", (GPU,), packages={"openvino": "2026.4.1", "numpy": "2.4.0"}
)
ELSEWHERE = replace(HERE, cpu="Another CPU")
VERSIONS = {"openvino": "2026.4.1"}
FILES = {"model.onnx": b"\x00graph" * 40, "model.onnx.data": b"weights" * 300, "tokens/vocab.json": b'["a", "b"]'}


def model(fingerprint: str = "f" * 64, name: str = "tiny") -> Model:
    return Model(name, lambda batch, sequence, seed: {}, {}, ("y",), fingerprint)


def measurement(seed: int, name: str = "tiny") -> Measurement:
    rounds = tuple(Round((0.001 + seed * 1e-9, 0.1 / 3), 0.03) for _ in range(6))
    return Measurement(
        name, PLAN, HERE, "compute", 0.5, (0.2,), rounds, 0, (Check("quiet machine", None, "no sensor", fatal=False),), 10**8, None,
        "", 10**6, 1.5, 0.25, seed, "2026-12-01T00:00:00+00:00", Score("accuracy", 0.9, 200), {"types": {"fp32": 3}},
    )  # fmt: skip


def build(out: Path) -> Built:
    for name, data in FILES.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(data)
    return Built(tuple(FILES), {"types": {"fp32": 2}, "kept": {}})


def never(out: Path) -> Built:
    raise AssertionError("built again")


def made(store: Store, plan: Plan = PLAN, builder: Callable[[Path], Built] = build) -> tuple[Artifact, Path, bool]:
    return store.artifact(model(), plan, HERE, VERSIONS, builder)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def tidy(store: Store) -> bool:
    """Nothing half-built anywhere, and everything visible verifies."""
    for place in (store.root / "artifacts").iterdir():
        folder.verify(place)
    return not list((store.root / "building").iterdir())


# Records


@pytest.mark.parametrize(
    "record",
    [
        GPU, HERE, PLAN, Round((0.1, 0.2), 0.3), Check("c", True, "d"), Score("s", 0.5, 10), measurement(0),
        Verdict("a" * 64, "b" * 64, (1.5, 1.6), (2.0, 2.1), -0.001, status="INDICATIVE"),
        Artifact("m", "f", PLAN, "artifacts/k", {"x": "0" * 64}, 7, 0.1, "h", VERSIONS, {"types": {"bf16": [1, 2.5, None]}}),
    ],
    ids=lambda record: type(record).__name__,
)  # fmt: skip
def test_each_kind_comes_back_as_it_was(store: Store, record: Record) -> None:
    digest = store.add(record)
    assert digest == record.digest
    again = Store(store.root)
    assert again.get(type(record), digest) == record
    assert again.latest(type(record)) == [record]


def test_adding_twice_keeps_one_and_its_place(store: Store) -> None:
    first, second = measurement(1), measurement(2)
    for one in (first, second, first):
        store.add(one)
    assert store.latest(Measurement) == [second, first]


def test_latest_by_model_kind_and_limit(store: Store) -> None:
    ours = [measurement(n) for n in range(3)]
    theirs = measurement(9, "other")
    for one in (*ours, theirs):
        store.add(one)
    verdict = Verdict(ours[0].digest, ours[1].digest, (1.1,), (1.2,))
    store.add(verdict)
    assert store.latest(Measurement, model="tiny") == ours[::-1]
    assert store.latest(Measurement, limit=2) == [theirs, ours[2]]
    assert store.latest(Verdict, model="tiny") == [verdict]
    assert store.latest(Verdict, model="other") == []


def test_get_by_prefix(store: Store) -> None:
    digests = sorted(store.add(measurement(n)) for n in range(17))  # 17 digests, 16 first digits
    common = next(a[0] for a, b in itertools.pairwise(digests) if a[0] == b[0])
    assert store.get(Measurement, digests[0][:12]).digest == digests[0]
    with pytest.raises(StoreError, match="Several digests"):
        store.get(Measurement, common)
    with pytest.raises(StoreError, match="holds no Plan"):
        store.get(Plan, digests[0])
    for bad in ("", "%", "ABC", "a' OR 1 --", "0" * 65):
        with pytest.raises(StoreError, match="not the beginning of a digest"):
            store.get(Measurement, bad)


# The record database in trouble


def garbled(path: Path, start: int, stop: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    stop = len(data) if stop is None else stop
    data[start:stop] = b"\xa5" * (stop - start)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("not a database, " * 999),
        lambda path: garbled(path, 0, 60),
        lambda path: garbled(path, 4096),
        lambda path: os.truncate(path, 5000),
        lambda path: path.write_bytes(path.read_bytes().replace(b"2026-12-01T00:00:00", b"2026-12-02T00:00:00")),
    ],
    ids=["text", "header", "pages", "truncated", "one digit of a record"],
)
def test_a_damaged_database_is_refused_and_left_alone(store: Store, damage: Callable[[Path], None]) -> None:
    digests = [store.add(measurement(n)) for n in range(20)]
    path = store.root / "records.db"
    whole = path.read_bytes()
    damage(path)
    damaged = path.read_bytes()
    assert damaged != whole
    with pytest.raises(StoreError, match="damaged") as caught:
        Store(store.root).latest(Measurement)
    assert str(path) in caught.value.what
    assert "move it aside" in caught.value.next_step
    assert path.read_bytes() == damaged
    path.write_bytes(whole)
    assert [one.digest for one in Store(store.root).latest(Measurement)] == digests[::-1]


def test_another_schema_is_refused_by_new_and_running_stores(store: Store) -> None:
    store.add(PLAN)
    with sqlite3.connect(store.root / "records.db") as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    for use in (lambda: Store(store.root), lambda: store.add(HERE), lambda: store.latest(Plan)):
        with pytest.raises(StoreError, match="newer version") as caught:
            use()
        assert "Update this package" in caught.value.next_step


def test_somebody_elses_database_is_not_taken_over(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "records.db") as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    with pytest.raises(StoreError, match="not a record database"):
        Store(tmp_path)


def test_a_deleted_database_is_an_error_not_an_empty_one(store: Store) -> None:
    for path in store.root.glob("records.db*"):
        path.unlink()
    with pytest.raises(StoreError, match="unable to open"):
        store.add(PLAN)
    assert not (store.root / "records.db").exists()


def test_a_database_held_by_another_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(store.root / "records.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="Another process"):
        store.add(PLAN)
    holder.execute("ROLLBACK")
    holder.close()
    assert store.add(PLAN) == PLAN.digest


def test_records_survive_a_power_cut_too(store: Store) -> None:
    with store._database._connected() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


# Artifacts


def test_built_once_then_found(store: Store) -> None:
    artifact, place, found = made(store)
    assert not found
    assert {name: (place / name).read_bytes() for name in FILES} == FILES
    assert artifact.files == {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    assert artifact.size_bytes == sum(map(len, FILES.values()))
    assert artifact.build_seconds > 0
    again, same_place, found = made(Store(store.root), builder=never)
    assert (again, same_place, found) == (artifact, place, True)
    assert store.open(artifact, HERE) == place
    assert store.artifacts() == [artifact]
    assert tidy(store)


def test_batch_threads_and_name_share_the_files(store: Store) -> None:
    first, place, _ = made(store)
    other = replace(PLAN, batch=8, threads=2, hint="throughput")
    artifact, _, found = store.artifact(model(name="an alias"), other, HERE, VERSIONS, never)
    assert found
    assert (artifact.model, artifact.plan) == ("an alias", other)
    assert store.open(artifact, HERE) == store.open(first.with_plan(other)) == place


@pytest.mark.parametrize(
    ("fingerprint", "plan", "environment", "versions"),
    [
        ("e" * 64, PLAN, HERE, VERSIONS),
        ("f" * 64, replace(PLAN, precision="bf16"), HERE, VERSIONS),
        ("f" * 64, PLAN, ELSEWHERE, VERSIONS),
        ("f" * 64, PLAN, HERE, {"openvino": "2026.5.0"}),
    ],
    ids=["model", "precision", "hardware", "versions"],
)
def test_what_decides_the_files_decides_the_key(
    store: Store, fingerprint: str, plan: Plan, environment: Environment, versions: dict[str, str]
) -> None:
    made(store)
    assert store.artifact(model(fingerprint), plan, environment, versions, build)[2] is False
    assert len(store.artifacts()) == 2


def test_default_root_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path / "there"))
    assert Store().root == tmp_path / "there"


class Spy:
    """A deserialiser that remembers whether it was ever given bytes."""

    def __init__(self) -> None:
        self.called = 0

    def load(self, store: Store, artifact: Artifact) -> None:
        place = store.open(artifact, HERE)
        self.called += 1
        for name in artifact.files:
            (place / name).read_bytes()


def refused(store: Store, artifact: Artifact, reason: str) -> None:
    spy = Spy()
    with pytest.raises(ArtifactError, match=reason) as caught:
        spy.load(store, artifact)
    assert caught.value.next_step
    assert not spy.called


@contextmanager
def flipped(path: Path, byte: int, bit: int) -> Iterator[None]:
    whole = path.read_bytes()
    data = bytearray(whole)
    data[byte] ^= 1 << bit
    path.write_bytes(data)
    yield
    path.write_bytes(whole)


def test_a_flipped_bit_is_refused_before_anything_is_loaded(store: Store) -> None:
    artifact, place, _ = made(store)
    chance = random.Random(1)
    flips = [(name, chance.randrange(len(data))) for name, data in FILES.items() for _ in range(30)]
    flips += [(folder.MANIFEST, byte) for byte in range((place / folder.MANIFEST).stat().st_size)]  # every byte of the manifest
    spy = Spy()
    for name, byte in flips:
        with flipped(place / name, byte, chance.randrange(8)), pytest.raises(ArtifactError, match=r"manifest|changed"):
            spy.load(store, artifact)
    assert not spy.called
    spy.load(store, artifact)  # restored, it is good again
    assert spy.called == 1


def extra_file(place: Path) -> None:
    (place / "extra.so").write_bytes(b"x")


def extra_in_subfolder(place: Path) -> None:
    (place / "tokens" / "extra.py").write_bytes(b"x")


def hidden_file(place: Path) -> None:
    (place / ".hidden").write_bytes(b"x")


def missing_file(place: Path) -> None:
    (place / "model.onnx").unlink()


def missing_manifest(place: Path) -> None:
    (place / folder.MANIFEST).unlink()


def linked_file(place: Path) -> None:
    original = place / "model.onnx"
    (place.parent / "same.onnx").write_bytes(original.read_bytes())
    original.unlink()
    original.symlink_to(place.parent / "same.onnx")


def linked_subfolder(place: Path) -> None:
    (place / "tokens").rename(place.parent / "tokens")
    (place / "tokens").symlink_to(place.parent / "tokens")


def linked_folder(place: Path) -> None:
    place.rename(place.parent.parent / "moved")
    place.symlink_to(place.parent.parent / "moved")


def linked_manifest(place: Path) -> None:
    (place / folder.MANIFEST).rename(place.parent.parent / "m.json")
    (place / folder.MANIFEST).symlink_to(place.parent.parent / "m.json")


def pipe(place: Path) -> None:
    os.mkfifo(place / "pipe")


def swapped_files(place: Path) -> None:
    (place / "model.onnx").rename(place / "t")
    (place / "model.onnx.data").rename(place / "model.onnx")
    (place / "t").rename(place / "model.onnx.data")


def old_schema(place: Path) -> None:
    values = json.loads((place / folder.MANIFEST).read_text())
    values["artifact"]["schema"] = SCHEMA - 1
    (place / folder.MANIFEST).write_text(json.dumps(values, indent=1, sort_keys=True))


def nested_manifest(place: Path) -> None:
    (place / folder.MANIFEST).write_text("[" * 200_000)


def removed(place: Path) -> None:
    shutil.rmtree(place)


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (extra_file, "'extra.so', which is not in its manifest"),
    (extra_in_subfolder, "'tokens/extra.py', which is not in its manifest"),
    (hidden_file, "'.hidden' is not a plain file name"),
    (missing_file, "'model.onnx' is missing"),
    (missing_manifest, "has no manifest"),
    (linked_file, "'model.onnx' is a link"),
    (linked_subfolder, "'tokens' is a link"),
    (linked_folder, "is a link"),
    (linked_manifest, "is a link, or has no manifest"),
    (pipe, "'pipe' is a link or not a file"),
    (swapped_files, "was changed after it was built"),
    (old_schema, f"another version: .*schema {SCHEMA - 1}"),
    (nested_manifest, "manifest is damaged"),
    (removed, "it is missing"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGE, ids=[damage.__name__ for damage, _ in DAMAGE])
def test_a_damaged_folder_is_refused_and_built_again(
    store: Store, damage: Callable[[Path], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    artifact, place, _ = made(store)
    damage(place)
    refused(store, artifact, reason)
    for number in (1, 2):  # the second time, a damaged folder is aside already
        with caplog.at_level(logging.WARNING):
            rebuilt, _, found = made(store)
        assert not found
        assert {name: (place / name).read_bytes() for name in FILES} == FILES
        if damage is not removed:
            assert len(caplog.records) == number
            assert "built again" in caplog.text
            assert os.path.lexists(store.root / "damaged" / place.name)
        assert made(store, builder=never)[2]
        assert rebuilt.digest != artifact.digest  # another build time at least
        refused(store, artifact, "built again since this record")
        for name in ("same.onnx", "tokens"):
            disk.remove(place.parent / name)
        disk.remove(store.root / "moved")
        damage(place)


def forged(store: Store, **changes: Any) -> Artifact:
    """An artifact whose manifest is right in every way but the changes."""
    artifact, place, _ = made(store)
    forgery = replace(artifact, **changes)
    (place / folder.MANIFEST).write_text(folder.manifest_text(forgery))
    return forgery


@pytest.mark.parametrize(
    "name", ["../canary", "/etc/passwd", "a/../../canary", "..", "", "C:\\x", "a\\b", "a\0b", "./a", "a//b", "é", "a/.b"]
)
def test_a_manifest_that_names_files_elsewhere_is_refused(store: Store, name: str) -> None:
    (store.root / "artifacts" / "canary").write_bytes(b"x")
    forgery = forged(store, files={name: hashlib.sha256(b"x").hexdigest()})
    refused(store, forgery, "not a plain name inside the folder")


@pytest.mark.parametrize("where", ["artifacts/../../evil", "/tmp", "evil", "artifacts/" + "0" * 64])
def test_a_record_that_names_a_folder_elsewhere_is_refused(store: Store, where: str) -> None:
    refused(store, forged(store, folder=where), "names a folder that is not its own")


def test_a_manifest_moved_to_another_key_is_refused(store: Store) -> None:
    artifact, place, _ = made(store)
    other, target, _ = store.artifact(model("e" * 64), PLAN, HERE, VERSIONS, build)
    shutil.copy(place / folder.MANIFEST, target / folder.MANIFEST)
    refused(store, other, "belongs to another folder")
    assert store.artifacts() == [artifact]


def test_another_machine_and_other_versions_are_refused(store: Store) -> None:
    artifact, place, _ = made(store)
    with pytest.raises(ArtifactError, match=r"built for other hardware .*Another CPU") as caught:
        store.open(artifact, ELSEWHERE)
    assert "on this machine" in caught.value.next_step
    for packages, here in (({"openvino": "2026.5.0"}, "2026.5.0"), ({}, "none")):
        with pytest.raises(ArtifactError, match=f"openvino 2026.4.1, and {here} is installed") as caught:
            store.open(artifact, replace(HERE, packages=packages))
        assert "openvino==2026.4.1" in caught.value.next_step
    assert store.open(artifact, replace(HERE, cpus=1, packages={**HERE.packages, "numpy": "9"})) == place  # these decide nothing


# Builders that fail


def liar(out: Path) -> Built:
    build(out)
    (out / "forgotten.data").write_bytes(b"x")
    return Built(tuple(FILES), {})


def thief(out: Path) -> Built:
    (out / folder.MANIFEST).write_text("{}")
    return Built((folder.MANIFEST,), {})


def linker(out: Path) -> Built:
    (out / "model.onnx").symlink_to("/etc/hostname")
    return Built(("model.onnx",), {})


@pytest.mark.parametrize(("builder", "reason"), [(liar, "forgotten.data"), (thief, "manifest.json"), (linker, "is a link")])
def test_files_a_builder_does_not_own_up_to_are_refused(store: Store, builder: Callable[[Path], Built], reason: str) -> None:
    with pytest.raises(ArtifactError, match=reason):
        made(store, builder=builder)
    assert tidy(store)
    assert not store.artifacts()


@pytest.mark.parametrize("error", [ModelError("no such operator"), FileNotFoundError(errno.ENOENT, "no", "x"), KeyboardInterrupt()])
def test_a_builders_error_passes_and_leaves_nothing(store: Store, error: BaseException) -> None:
    def fails(out: Path) -> Built:
        build(out)
        raise error

    with pytest.raises(type(error)) as caught:
        made(store, builder=fails)
    assert caught.value is error
    assert tidy(store)
    assert made(store)[2] is False


def test_a_builder_may_open_the_store_itself(store: Store) -> None:
    def nested(out: Path) -> Built:
        built = build(out)
        Store(store.root).add(PLAN)
        return built

    assert store.open(made(store, builder=nested)[0])

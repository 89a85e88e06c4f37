"""The store when processes die and disks refuse: several writers, kills at every step, no room, no permission."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from test_store import HERE, PLAN, VERSIONS, build, made, measurement, model, tidy

from accel_helpers.engine import Built
from accel_helpers.errors import StoreError
from accel_helpers.records import Artifact, Measurement, Plan
from accel_helpers.store import Store, disk

# Children start from a server that has imported what they need: 25 of them in a second or two, and none inherits pytest's threads.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "accel_helpers.store", "accel_helpers.engine"])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def start(target: Callable[..., None], *arguments: Any) -> multiprocessing.process.BaseProcess:
    process = PROCESSES.Process(target=target, args=arguments)
    process.start()
    return process


def finish(*processes: multiprocessing.process.BaseProcess) -> list[int | None]:
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


def lines(log: Path) -> list[str]:
    """Whole lines only: a killed writer may leave half of one."""
    return log.read_text().split("\n")[:-1] if log.exists() else []


def add_sixty(root: Path, first: int) -> None:
    store = Store(root)
    for n in range(60):
        store.add(measurement(first + n))


def test_eight_processes_of_sixty_records_keep_480(tmp_path: Path) -> None:
    assert finish(*[start(add_sixty, tmp_path, 60 * n) for n in range(8)]) == [0] * 8
    kept = Store(tmp_path).latest(Measurement, limit=1000)
    assert {one.seed for one in kept} == set(range(480))
    assert len(kept) == 480


def build_slowly(root: Path, barrier: Any, log: Path) -> None:
    def slow(out: Path) -> Built:
        with log.open("a") as file:
            file.write("built\n")
        time.sleep(0.2)
        return build(out)

    store = Store(root)
    barrier.wait(30)
    artifact, _, found = made(store, builder=slow)
    store.open(artifact, HERE)
    with log.open("a") as file:
        file.write(f"found {found}\n")


def test_two_processes_build_one_artifact_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    barrier = PROCESSES.Barrier(2)
    assert finish(*[start(build_slowly, tmp_path / "store", barrier, log) for _ in range(2)]) == [0, 0]
    assert sorted(lines(log)) == ["built", "found False", "found True"]


def build_until_told(root: Path, begun: Any, go_on: Any) -> None:
    def waits(out: Path) -> Built:
        built = build(out)
        begun.set()
        go_on.wait(30)
        return built

    made(Store(root), builder=waits)


@pytest.mark.fault
def test_only_a_dead_builders_folder_is_removed(tmp_path: Path) -> None:
    begun, go_on = PROCESSES.Event(), PROCESSES.Event()
    process = start(build_until_told, tmp_path, begun, go_on)
    assert begun.wait(30)
    store = Store(tmp_path)
    assert len(list((tmp_path / "building").iterdir())) == 1  # alive: left alone
    assert not store.artifacts()
    process.kill()
    process.join()
    assert len(list((tmp_path / "building").iterdir())) == 1
    assert tidy(Store(tmp_path))  # dead: removed
    assert not store.artifacts()
    assert store.open(made(store)[0])


def work_forever(root: Path, log: Path, seed: int) -> None:
    def slow(out: Path) -> Built:
        built = build(out)
        time.sleep(0.005)
        return built

    store = Store(root)
    with log.open("ab", buffering=0) as done:
        for n in itertools.count(1000 * seed):
            done.write(f"record {store.add(measurement(n))}\n".encode())
            artifact, _, _ = store.artifact(model(str(n)), PLAN, HERE, VERSIONS, slow)
            done.write(f"artifact {store.add(artifact)}\n".encode())


def check_promises(store: Store, log: Path) -> int:
    """Every record and artifact whose call returned is there and right; returns how many."""
    promised = [line.split() for line in lines(log)]
    for kind, digest in promised:
        if kind == "record":
            store.get(Measurement, digest)
        else:
            store.open(store.get(Artifact, digest), HERE)
    return len(promised)


@pytest.mark.fault
def test_killed_at_random_moments_nothing_finished_is_lost(tmp_path: Path) -> None:
    chance = random.Random(7)
    half_built = finished = 0
    for kill in range(25):
        root, log = tmp_path / f"store{kill // 5}", tmp_path / f"log{kill // 5}"
        known = len(lines(log))
        process = start(work_forever, root, log, kill)
        deadline = time.monotonic() + 30
        while kill % 5 and len(lines(log)) == known and time.monotonic() < deadline:  # every fifth is killed while a store begins
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.15))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        half_built += len(list(root.glob("building/*")))
        store = Store(root)
        promised = check_promises(store, log)
        finished += promised - known
        assert tidy(store)
        assert store.artifact(model(f"after {kill}"), PLAN, HERE, VERSIONS, build)[2] is False
    assert half_built >= 3, "the fault did not happen: no kill met a build"
    assert finished >= 20, "the fault did not happen: no kill met a busy writer"


def die_at(step: int, root: Path, log: Path) -> None:
    seen = itertools.count()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        touches = event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect", "sqlite3.connect/handle")
        if touches and (event.startswith("sqlite3") or str(root) in str(arguments[0])) and next(seen) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    store = Store(root)
    digest = store.add(measurement(1))
    log.write_text(f"record {digest}\n")
    made(store)


@pytest.mark.fault
def test_killed_at_every_step_on_disk(tmp_path: Path) -> None:
    for step in range(200):
        root, log = tmp_path / f"store{step}", tmp_path / f"log{step}"
        (code,) = finish(start(die_at, step, root, log))
        visible = {path.name for path in (root / "artifacts").iterdir()} if (root / "artifacts").exists() else set()
        store = Store(root)
        assert {Path(artifact.folder).name for artifact in store.artifacts()} == visible
        check_promises(store, log)
        assert tidy(store)
        assert store.open(made(store)[0], HERE)
        assert store.get(Measurement, store.add(measurement(1)))
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert code == 0
    assert step > 25, "the fault did not happen: too few steps were met"


# Disks that refuse


def big(out: Path) -> Built:
    (out / "model.onnx").write_bytes(bytes(8_000_000))
    return Built(("model.onnx",), {})


def wrapped(out: Path) -> Built:
    try:
        return big(out)
    except OSError:
        raise RuntimeError("enforce fail at inline_container.cc") from None  # as frameworks do


@contextmanager
def tmpfs(place: Path, size: str) -> Iterator[None]:
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True).returncode:
        pytest.skip("this user may not mount a small disk; the limit on file size and the simulated full disk are tested beside")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def no_room(action: Callable[[], object], root: Path) -> None:
    with pytest.raises(StoreError, match="MB are free there") as caught:
        action()
    assert str(root) in caught.value.what
    assert caught.value.next_step == disk.MAKE_ROOM


@pytest.mark.fault
def test_a_full_disk(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "3m"):
        store = Store(tmp_path / "small" / "store")
        digest = store.add(PLAN)
        for builder in (big, wrapped):
            no_room(lambda builder=builder: made(store, builder=builder), store.root)
            assert tidy(store)
            assert not store.artifacts()
        ballast = tmp_path / "small" / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        no_room(lambda: [store.add(measurement(n)) for n in range(50)], store.root)
        no_room(lambda: made(store), store.root)
        no_room(lambda: Store(tmp_path / "small" / "another"), tmp_path / "small" / "another")
        ballast.unlink()
        assert store.get(Plan, digest) == PLAN
        assert store.get(Measurement, store.add(measurement(1)))
        assert store.open(made(store)[0])


def limited(root: Path, log: Path) -> None:
    store = Store(root)
    digest = store.add(PLAN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    no_room(lambda: made(store, builder=big), root)
    no_room(lambda: [store.add(measurement(n)) for n in range(500)], root)
    log.write_text(digest)


@pytest.mark.fault
def test_a_limit_on_file_size(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    assert finish(start(limited, root, log)) == [0]
    store = Store(root)
    assert tidy(store)
    assert not store.artifacts()
    assert store.get(Plan, log.read_text()) == PLAN
    assert store.add(measurement(900))


@pytest.mark.parametrize("broken", ["os.fsync", "os.rename", "os.mkdir", "pathlib.Path.write_text"])
def test_no_space_at_each_step(store: Store, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def ready(out: Path) -> Built:
        (out / "model.onnx").write_bytes(b"x")
        return Built(("model.onnx",), {})

    with monkeypatch.context() as patch:
        patch.setattr(broken, full)
        with pytest.raises(StoreError, match=r"no space left on device.* MB are free there"):
            made(store, builder=ready)
    assert tidy(store)
    assert not store.artifacts()
    assert made(store, builder=ready)[2] is False


def unprivileged(root: Path, log: Path) -> None:
    if os.getuid() == 0:
        os.setuid(65534)
    for place in (root, root / "below"):
        with pytest.raises(StoreError, match=r"(permission denied|unable to open|readonly).*MB are free there") as caught:
            Store(place).add(PLAN)
        assert caught.value.next_step == disk.MAKE_WRITABLE
        with log.open("a") as file:
            file.write(f"{caught.value}\n")


@pytest.mark.parametrize("filled", [False, True])
def test_a_folder_this_user_may_not_write(filled: bool) -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, whose parents other users may not enter
        root, log = Path(name) / "store", Path(name) / "log"
        Path(name).chmod(0o755)
        log.touch()
        log.chmod(0o666)
        if filled:
            Store(root)
        root.mkdir(exist_ok=True)
        root.chmod(0o555)
        for path in root.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        codes = finish(start(unprivileged, root, log))
        for path in (root, *root.rglob("*")):
            path.chmod(0o755)
        assert codes == [0]
        assert len(log.read_text().splitlines()) == 2

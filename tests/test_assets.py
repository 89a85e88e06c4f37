"""Assets are fetched once, checked before use, and placed whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from accel_helpers.errors import AssetError, UnknownNameError
from accel_helpers.models import assets
from accel_helpers.models.assets import Asset, derived, extract, fetch, obtain, pinned

CONTENT = b"weights" * 1000


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the package index pip can see."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in offline().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def offline() -> dict[str, str]:
    """Settings under which pip reaches no index."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "HF_HUB_OFFLINE": "1",
    }


@pytest.fixture
def demo(index: Path) -> Asset:
    archive = index / "demo_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("demo_weights/model.bin", CONTENT)
        files.writestr("demo_weights/__init__.py", "raise SystemExit('an asset was imported')")
        files.writestr("../../escaped.txt", "out")
        files.writestr("demo_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo-weights\nVersion: 1.0\n")
        files.writestr(
            "demo_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        files.writestr("demo_weights-1.0.dist-info/RECORD", "")
    return Asset("demo-weights", "1.0", "wheel", digest(archive.read_bytes()), "ours", {"demo_weights/model.bin": digest(CONTENT)})


def test_obtain_places_only_the_members_and_needs_the_index_once(
    demo: Asset, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    files = obtain(demo, store)
    assert files == {"model.bin": store / "assets" / "demo-weights-1.0" / "model.bin"}
    assert files["model.bin"].read_bytes() == CONTENT
    placed = sorted(path.name for path in store.rglob("*") if path.is_file())
    assert placed == ["demo-weights-1.0.lock", "model.bin"]
    assert not list(tmp_path.rglob("escaped.txt"))
    (index / "demo_weights-1.0-py3-none-any.whl").unlink()
    assert obtain(demo, store) == files
    files["model.bin"].write_bytes(CONTENT[:-1])
    with pytest.raises(AssetError, match="could not be downloaded"):  # damage is seen, and never handed out
        obtain(demo, store)


def test_a_damaged_file_in_the_store_is_fetched_again(demo: Asset, tmp_path: Path) -> None:
    path = obtain(demo, tmp_path)["model.bin"]
    path.write_bytes(b"rot")
    assert obtain(demo, tmp_path)["model.bin"].read_bytes() == CONTENT


def test_another_archive_is_refused_before_it_is_opened(demo: Asset, index: Path, tmp_path: Path) -> None:
    other = replace(demo, sha256="0" * 64)
    with pytest.raises(AssetError, match=r"demo-weights 1\.0 is not the file that .* pins.*Nothing of it was used"):
        obtain(other, tmp_path / "store")
    assert not (tmp_path / "store/assets/demo-weights-1.0").exists()
    archive = next(index.iterdir())
    archive.write_bytes(b"not even a zip file")
    with pytest.raises(AssetError, match="SHA-256 differs"):  # and not BadZipFile
        extract(demo, archive, tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_another_member_is_refused(demo: Asset, tmp_path: Path) -> None:
    with pytest.raises(AssetError, match=r"model\.bin in .* SHA-256 differs"):
        obtain(replace(demo, members={"demo_weights/model.bin": "0" * 64}), tmp_path)
    assert not (tmp_path / "assets/demo-weights-1.0").exists()


def test_a_member_that_is_missing_or_too_large_is_refused(demo: Asset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssetError, match="no regular file demo_weights/other"):
        obtain(replace(demo, members={"demo_weights/other": "0" * 64}), tmp_path)
    monkeypatch.setattr(assets, "MEMBER_LIMIT", len(CONTENT) - 1)
    with pytest.raises(AssetError, match="larger than"):
        obtain(demo, tmp_path)


@pytest.mark.parametrize("member", ["../model.bin", "/etc/model.bin", "a/../../model.bin", "a//model.bin", ".."])
def test_a_pin_that_leaves_the_folder_is_refused(member: str) -> None:
    with pytest.raises(AssetError, match="cannot be placed safely"):
        Asset("demo", "1.0", "wheel", "0" * 64, "ours", {member: "0" * 64})


def test_two_pins_of_one_file_name_are_refused() -> None:
    with pytest.raises(AssetError, match="occurs twice"):
        Asset("demo", "1.0", "wheel", "0" * 64, "ours", {"a/x": "0" * 64, "b/x": "0" * 64})


def test_a_source_distribution_gives_regular_files_only(tmp_path: Path) -> None:
    archive = tmp_path / "demo-1.0.tar.gz"
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    with tarfile.open(archive, "w:gz") as files:
        info = tarfile.TarInfo("demo-1.0/data.txt")
        info.size = len(CONTENT)
        files.addfile(info, io.BytesIO(CONTENT))
        link = tarfile.TarInfo("demo-1.0/link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        files.addfile(link)
    asset = Asset("demo", "1.0", "sdist", digest(archive.read_bytes()), "ours", {"demo-1.0/data.txt": digest(CONTENT)})
    extract(asset, archive, tmp_path / "good")
    assert (tmp_path / "good/data.txt").read_bytes() == CONTENT
    with pytest.raises(AssetError, match="no regular file"):
        extract(replace(asset, members={"demo-1.0/link.txt": digest(CONTENT)}), archive, tmp_path / "bad")


def test_two_processes_fetch_at_once(demo: Asset, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from accel_helpers.models.assets import Asset, obtain\n"
        f"asset = Asset('demo-weights', '1.0', 'wheel', {demo.sha256!r}, '', {dict(demo.members)!r})\n"
        f"print(obtain(asset, Path({str(tmp_path / 'store')!r}))['model.bin'].stat().st_size)"
    )
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, int(out or 0)) == (0, len(CONTENT)), err.decode()
    assert not list((tmp_path / "store/assets").glob(".fetching-*"))


def test_a_process_that_comes_second_waits_and_takes_what_the_first_fetched(
    demo: Asset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads: list[Asset] = []
    monkeypatch.setattr(assets, "_download", lambda asset, folder: downloads.append(asset))
    folder = tmp_path / "assets" / demo.folder
    folder.mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        with FileLock(f"{folder}.lock"):  # the first one is still fetching
            second = pool.submit(obtain, demo, tmp_path)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.5)
            (folder / "model.bin").write_bytes(CONTENT)
        assert second.result(timeout=30)["model.bin"].read_bytes() == CONTENT
    assert not downloads


def test_no_index_gives_one_clear_message(index: Path, tmp_path: Path) -> None:
    asset = Asset("demo-weights", "1.0", "wheel", "0" * 64, "ours", {"a/x": "0" * 64})
    with pytest.raises(AssetError) as caught:
        obtain(asset, tmp_path)
    assert "demo-weights 1.0 is not in the store and could not be downloaded: No matching distribution" in str(caught.value)
    assert "Connect this machine" in caught.value.next_step
    assert "\n" not in str(caught.value)


def test_a_full_disk_gives_one_clear_message(demo: Asset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(assets, "extract", full)
    with pytest.raises(AssetError, match=r"cannot be written: No space left.*ACCEL_STORE"):
        obtain(demo, tmp_path)
    assert not (tmp_path / "assets/demo-weights-1.0").exists()
    log = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    assert "no space left to download" in str(assets._pip_error(demo, log))


def test_derived_arrays_are_made_once_and_made_again_when_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path))
    calls: list[int] = []

    def make() -> dict[str, np.ndarray]:
        calls.append(1)
        return {"grid": np.arange(6).reshape(2, 3).T, "scalar": np.array(7, np.int64)}

    first, second = (derived("grid", "1" * 64, make) for _ in range(2))
    assert len(calls) == 1
    for key, values in make().items():
        np.testing.assert_array_equal(first[key], values)
        np.testing.assert_array_equal(second[key], values, strict=True)
    [path] = tmp_path.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    derived("grid", "1" * 64, make)
    derived("grid", "2" * 64, make)
    assert len(calls) == 1 + 1 + 2


def test_the_pins_are_complete() -> None:
    assert {"minilm", "tweets", "efficientnet-lite0", "imagenet-20", "photos", "more-photos"} <= set(pinned())
    for asset in pinned().values():
        assert asset.licence
        assert asset.kind in ("wheel", "sdist")
        assert asset.members
        assert all(len(one) == 64 and int(one, 16) >= 0 for one in (asset.sha256, *asset.members.values()))
    with pytest.raises(UnknownNameError, match="Did you mean 'tweets'"):
        fetch("tweet")


def test_a_second_set_up_needs_no_network(tmp_path: Path) -> None:
    for name in pinned():
        fetch(name)
    command = [sys.executable, "-W", "error", "-m", "accel_helpers.models.assets"]
    again = subprocess.run(command, env={**os.environ, **offline()}, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    lines = again.stdout.splitlines()
    assert len(lines) == len(pinned()) + 3
    assert "vision-classifier: ready, 60 calibration and 20 validation samples" in lines
    empty = {**os.environ, **offline(), "ACCEL_STORE": str(tmp_path)}
    first = subprocess.run(command, env=empty, capture_output=True, text=True, timeout=120)
    assert first.returncode == 1
    assert first.stderr.count("\n") == 1
    assert "could not be downloaded" in first.stderr

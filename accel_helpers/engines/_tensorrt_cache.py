"""Built engines and kernel timings kept under the store, for every plan and process that needs the same again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from accel_helpers.device import store_root
from accel_helpers.engines import _onnx_export

if TYPE_CHECKING:
    import tensorrt

FORMAT = 1
"""Counted up when this package makes another engine of the same plan."""


def engine(decides: Mapping[str, Any], out: Path, make: Callable[[Path], dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """Put the engine that was built from these very things into ``out``: found, or made now.

    Of several processes one makes it. The SHA-256 of its files is compared with what was written before any is copied; a damaged entry is
    made again. The store's artifacts are kept by plan, machine and driver; an engine is kept by compute capability, so that plans and
    folders share what would be the same file.

    Args:
        decides: all that decides what is built: the model's fingerprint, profiles, settings, library, versions, compute capabilities.
        out: an existing folder.
        make: writes the files into the empty folder that it is given, and says what is to be known of them.

    Returns:
        What ``make`` said, with ``files``, their names; and whether they were found.
    """
    home, name = store_root() / "tensorrt", key(decides)
    home.mkdir(parents=True, exist_ok=True)
    made = False

    def now(folder: Path) -> dict[str, Any]:
        nonlocal made
        made = True
        return make(folder)

    with FileLock(home / f"{name}.lock"):
        report = _onnx_export.keep(home / name, now)
        for file in report["files"]:
            _give(home / name / file, out / file)
    return report, not made


def _give(source: Path, target: Path) -> None:
    """The same file at another place, without a second copy of what may be gigabytes. Its hash is compared at every use."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def key(decides: Mapping[str, Any]) -> str:
    """SHA-256 of what decides an engine."""
    return hashlib.sha256(json.dumps([FORMAT, decides], sort_keys=True).encode()).hexdigest()


@contextmanager
def timing(version: str, config: tensorrt.IBuilderConfig, library: str, capabilities: Sequence[str]) -> Iterator[str]:
    """Build with the kernel timings of earlier builds, and keep those of this one; gives what is done, in a sentence.

    TensorRT times kernels as it builds. TensorRT-RTX times none: its timing cache does nothing since 1.2, and asking for one forces a GPU.
    NVIDIA, TensorRT-RTX documentation, "Timing Cache Migration". Keeping one for TensorRT is not yet run on a GPU.
    """
    if library != "tensorrt":
        yield "none: TensorRT-RTX times no kernels when it builds"
        return
    path = store_root() / "tensorrt" / f"timing-{version}-{'-'.join(capabilities)}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_suffix(".lock"))
    with lock:
        known = path.read_bytes() if path.exists() else b""
    cache = config.create_timing_cache(known)
    config.set_timing_cache(cache, False)  # False: timings of another library or GPU are not taken
    yield f"kept in {path.name}, {len(known)} bytes from earlier builds"
    with lock:  # others may have built meanwhile
        if path.exists():
            cache.combine(config.create_timing_cache(path.read_bytes()), False)
        part = path.with_suffix(".part")
        part.write_bytes(bytes(cache.serialize()))
        part.replace(path)

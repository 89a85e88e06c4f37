"""What a disk can refuse, said once; and the few steps that make a folder durable."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accel_helpers.errors import StoreError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers that mean there is no room: disk, quota, or the limit on a file's size."""

DENIED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""Error numbers that mean this user may not write here."""

MAKE_ROOM = "Free some space there, or set ACCEL_STORE to a folder on another disk."
MAKE_WRITABLE = "Make the folder writable for this user, or set ACCEL_STORE to one that is."


def free_bytes(folder: Path) -> int:
    """Bytes that this user may still write where ``folder`` lies, or will lie."""
    there = next(path for path in (folder, *folder.parents) if os.access(path, os.F_OK))
    return shutil.disk_usage(there).free


def refused(root: Path, reason: str, next_step: str) -> StoreError:
    """The error for a store that cannot be read or written: why, where, and how much room is left there."""
    return StoreError(f"The store {root} cannot be used: {reason}; {free_bytes(root) / 1e6:.1f} MB are free there.", next_step)


@contextmanager
def explained(root: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a StoreError; a wait that timed out is no refusal and passes."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        at = f" ({error.filename})" if error.filename else ""
        next_step = MAKE_ROOM if error.errno in FULL else MAKE_WRITABLE if error.errno in DENIED else "Check the disk and this path."
        raise refused(root, f"{(error.strerror or str(error)).lower()}{at}", next_step) from error


def remove(path: Path) -> None:
    """Delete a folder with all it holds, a file or a link; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Return once a file's bytes, or a folder's entries, are on the disk and would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(made: Path, folder: Path) -> None:
    """Move a finished folder into its place in one step: others see all of it or nothing, after a power cut too."""
    for path in (*made.rglob("*"), made):
        sync(path)
    made.rename(folder)
    sync(folder.parent)

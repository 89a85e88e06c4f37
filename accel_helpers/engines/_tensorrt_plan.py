"""A serialized TensorRT engine as a file: what its first bytes say, without TensorRT, a driver or a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from accel_helpers.errors import ArtifactError

PLAN, FACTS = "model.plan", "engine.json"
"""The serialized engine, and what was written down about it when it was built."""
NAMES = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT-RTX"}
"""The modules that build and run engines, and what they are called."""
HEADER = 64
"""Bytes of the header: ``Runtime.engine_header_size`` of TensorRT-RTX 1.7."""
_MAGIC = {b"ftrt": "tensorrt", b"vtrt": "tensorrt_rtx"}
_SIZE, _VERSION = slice(16, 24), slice(24, 28)
_REBUILD = "Build the artifact again."


@dataclass(frozen=True)
class Header:
    """Who wrote an engine, and how long it is."""

    writer: str  # the module that wrote it: one of NAMES
    version: str  # of that module, four numbers: "1.7.1.116"
    size: int  # bytes of the whole engine


def header(blob: bytes, name: str = PLAN) -> Header:
    """What the first 64 bytes of an engine say, once they are those of an engine that is whole.

    Four bytes name the library, a number at byte 16 counts the engine's bytes, and the bytes from 24 on are the version. The count was
    seen in engines of TensorRT-RTX 1.7 only and is compared for these alone.

    Args:
        blob: the whole engine.
        name: the file, for the messages.

    Raises:
        ArtifactError: it is empty, foreign, or shorter or longer than its header says.
    """
    library = _MAGIC.get(blob[:4])
    if library is None or len(blob) < HEADER:
        raise ArtifactError(f"{name} is no TensorRT engine: its header is missing ({len(blob)} bytes in all).", _REBUILD)
    size = int.from_bytes(blob[_SIZE], "little")
    if library == "tensorrt_rtx" and size != len(blob):
        raise ArtifactError(f"{name} is damaged: its header says {size} bytes, and it has {len(blob)}.", _REBUILD)
    return Header(library, ".".join(map(str, blob[_VERSION])), size)


def check(blob: bytes, library: str, version: str, name: str = PLAN) -> Header:
    """The header of an engine that this library, of this version, can open.

    Args:
        blob: the whole engine.
        library: one of :data:`NAMES`.
        version: ``__version__`` of that library, of which as many numbers count as both name.
        name: the file, for the messages.

    Raises:
        ArtifactError: what :func:`header` says, or another library or version wrote it: TensorRT opens only its own.
    """
    read = header(blob, name)
    both = zip(read.version.split("."), version.split("+")[0].split("."), strict=False)
    if read.writer != library or any(mine != theirs for mine, theirs in both):
        raise ArtifactError(
            f"{name} was written by {NAMES[read.writer]} {read.version}; {NAMES[library]} {version} is installed, and opens only its own.",
            _REBUILD,
        )
    return read

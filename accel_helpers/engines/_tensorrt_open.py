"""What must be true before a serialized TensorRT engine is run: its files, the library, the driver, the GPU; one message for each."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accel_helpers.engines import _cuda_buffers, _tensorrt_plan
from accel_helpers.engines._inputs import first_line
from accel_helpers.engines._tensorrt_plan import FACTS, NAMES, PLAN
from accel_helpers.errors import ArtifactError, MissingPackageError, UnsupportedError
from accel_helpers.models import Model

_REBUILD = "Build the artifact again."


def facts(model: Model, folder: Path) -> dict[str, Any]:
    """What was written beside the engine when it was built.

    Raises:
        ArtifactError: it cannot be read.
    """
    try:
        read: dict[str, Any] = json.loads((folder / FACTS).read_text())
        if read["library"] in NAMES and {"version", "compute_capability", "plan_sha256"} <= read.keys():
            return read
        said = "it does not say which TensorRT the engine is for"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = first_line(error)
    raise ArtifactError(f"{FACTS} of {model.name} cannot be read: {said}.", _REBUILD)


def opener(model: Model, known: Mapping[str, Any]) -> Any:
    """The TensorRT that built the engine.

    Raises:
        MissingPackageError: it is not installed, or does not load.
    """
    try:
        return importlib.import_module(known["library"])
    except (ImportError, OSError) as error:  # its shared libraries are found when it is imported
        raise MissingPackageError(
            f"The engine of {model.name} is for {NAMES[known['library']]} {known['version']}, which does not load: {first_line(error)}.",
            f"Run: pip install {known['library'].replace('_', '-')}=={known['version']}, or build the artifact again.",
        ) from error


def verified(model: Model, folder: Path, known: Mapping[str, Any], trt: Any) -> bytes:
    """The engine's bytes, once they are known to be what was built and for the TensorRT that is installed.

    Raises:
        ArtifactError: they are not; TensorRT would answer so too, in other words, and only on a GPU.
    """
    try:
        blob = (folder / PLAN).read_bytes()
    except OSError as error:
        raise ArtifactError(f"{PLAN} of {model.name} cannot be read: {error.strerror}.", _REBUILD) from error
    _tensorrt_plan.check(blob, known["library"], trt.__version__, f"{PLAN} of {model.name}")
    if hashlib.sha256(blob).hexdigest() != known["plan_sha256"]:
        raise ArtifactError(f"{PLAN} of {model.name} is damaged: its {len(blob)} bytes are not those that were built.", _REBUILD)
    return blob


def fits(model: Model, known: Mapping[str, Any]) -> tuple[str, str]:
    """The GPU's name and compute capability.

    Raises:
        MissingPackageError: pycuda is not installed.
        UnsupportedError: no GPU answers, its driver is too old, or the engine is for another.
    """
    name, capability, driver = _cuda_buffers.gpu()
    needed = re.match(r"\d+", str(known.get("cuda") or ""))
    if needed and driver // 1000 < int(needed.group()):
        raise UnsupportedError(
            f"The driver of {name} is for CUDA {driver // 1000}.{driver % 1000 // 10}; the engine of {model.name} needs {known['cuda']}.",
            "Update the NVIDIA driver.",
        )
    built = known["compute_capability"]
    built = re.split(r"[,\s]+", built) if isinstance(built, str) else built
    if capability not in built:
        raise UnsupportedError(
            f"The engine of {model.name} is built for compute capability {', '.join(built)}; {name} has {capability}.",
            "Build it on this machine.",
        )
    return name, capability


def unopened(model: Model, complaints: Sequence[str]) -> UnsupportedError:
    """What is said of an engine that TensorRT does not open: its first complaint, and where it is the driver's, what to do about that."""
    said = next((one.strip().splitlines()[0] for one in complaints if one.strip()), "no message")
    next_step = "Free memory on the GPU, or build the artifact again."
    if "cudaError 35" in said or "driver version is insufficient" in said:
        next_step = "Its CUDA needs a newer NVIDIA driver, or there is none: update or install it."
    return UnsupportedError(f"TensorRT cannot open the engine of {model.name}: {said[:300].rstrip('.')}.", next_step)


def logger(trt: Any) -> Any:
    """A logger that keeps errors and prints nothing."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.complaints: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.complaints.append(message)

    return Log()

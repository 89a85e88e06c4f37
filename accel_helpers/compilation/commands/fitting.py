"""One intent as the commands that fit a version of TensorRT, and why they differ.

>>> from accel_helpers.records import Profile
>>> image = Intent("model.onnx", "model.plan", {"pixels": ("batch", 3, 224, 224)}, (Profile((1, 8, 32)),), precision="fp16")
>>> "--fp16" in commands_for(image, "10").trtexec, "--fp16" in commands_for(image, "11").trtexec
(True, False)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from accel_helpers import bench, environment, models
from accel_helpers.compilation.commands._builder_code import builder_code
from accel_helpers.compilation.commands._differences import Difference, differences
from accel_helpers.compilation.commands._intent import VERSIONS, Intent, check
from accel_helpers.compilation.commands._polygraphy import polygraphy
from accel_helpers.compilation.commands._trtexec import trtexec
from accel_helpers.config import RunConfig
from accel_helpers.engines import tensorrt
from accel_helpers.engines._inputs import Signature
from accel_helpers.engines._tensorrt_types import PRECISIONS
from accel_helpers.errors import MissingPackageError, ParameterError
from accel_helpers.records import Environment

__all__ = ["PRECISIONS", "VERSIONS", "Commands", "Difference", "Intent", "commands_for", "installed_version", "intent_of"]

_PACKAGES = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12")


@dataclass(frozen=True)
class Commands:
    """What builds an intent's engine with one version; each text begins with what must be known first, in comments."""

    version: str
    trtexec: str  # for a shell; ``tensorrt_rtx`` in TensorRT-RTX
    python: str  # a whole program against the builder API
    polygraphy: str  # for a shell
    differences: tuple[Difference, ...]


def commands_for(intent: Intent, version: str) -> Commands:
    """The three texts for a version, and how they differ from the other versions'.

    Args:
        intent: what to build.
        version: one of :data:`VERSIONS`.

    Raises:
        UnknownNameError: no such version.
        UnsupportedError: the version cannot build it at all.
        ModelError: a profile lacks an open axis of the model.
    """
    check(intent, version)
    texts = (trtexec(intent, version), builder_code(intent, version), polygraphy(intent, version))
    return Commands(version, *texts, differences(intent, version))


def intent_of(config: RunConfig, *, timing_cache: str = "", calibration_cache: str = "") -> Intent:
    """What a configuration asks of TensorRT. Reads the model's inputs and axes, and builds nothing.

    Raises:
        ParameterError: another engine's configuration, or a precision without TensorRT commands.
        UnknownNameError: no such model.
    """
    if config.engine not in (RunConfig().engine, tensorrt.ENGINE.name):
        raise ParameterError(f"engine={config.engine} has no TensorRT commands.", "Leave engine out.")
    model, plan = models.get(config.model), bench.plan_of(config.replace(engine=tensorrt.ENGINE.name))
    asked = plan.compilation
    stem = config.model.removesuffix(".onnx") if config.model.endswith(".onnx") else re.sub(r"[^\w.-]+", "-", config.model)
    return Intent(
        onnx=f"{stem}.onnx",
        engine=f"{stem}.plan",
        inputs={name: shape for name, (_, shape) in Signature(model, plan).inputs.items()},
        profiles=plan.profiles,
        precision=config.precision,
        workspace_bytes=asked.workspace_bytes,
        timing_cache=timing_cache,
        optimization_level=asked.optimization_level,
        refit=asked.refit,
        weight_streaming=asked.weight_streaming,
        capabilities=(_capability(environment.describe()),),
        calibration_cache=calibration_cache,
    )


def _capability(here: Environment) -> str:
    """The first GPU's, where TensorRT-RTX compiles for it."""
    known = [gpu.compute_capability for gpu in here.gpus if gpu.compute_capability in tensorrt.RTX_CAPABILITIES]
    return known[0] if known else tensorrt.AHEAD


def installed_version(here: Environment | None = None) -> str:
    """Which of :data:`VERSIONS` the installed packages are: TensorRT before TensorRT-RTX, as engine=tensorrt takes them.

    Raises:
        MissingPackageError: neither is installed, or a TensorRT that has no commands here.
    """
    packages = (here or environment.describe()).packages
    found = next((packages[name] for name in _PACKAGES if name in packages), "")
    if (major := found.partition(".")[0]) in VERSIONS:
        return major
    if not found and "tensorrt-rtx" in packages:
        return "rtx"
    what = f"TensorRT {found} has no commands here" if found else "No TensorRT is installed here"
    raise MissingPackageError(f"{what}, so which version is meant is not known.", f"Say --tensorrt {', '.join(VERSIONS)}.")

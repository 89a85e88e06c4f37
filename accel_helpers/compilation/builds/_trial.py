"""One graph given to TensorRT as it is, with any profiles and settings, right or wrong: what the build says."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accel_helpers.engines import _tensorrt_build, _tensorrt_failures, _tensorrt_open
from accel_helpers.engines._tensorrt_failures import RefusedError

Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The least, usual and greatest shape of an input, or its values where it is read as a shape."""
AHEAD = "8.9"
"""The compute capability that trials build for."""


@dataclass(frozen=True)
class Asked:
    """What a graph is built with."""

    profiles: tuple[Mapping[str, Range], ...] = ()
    values: Mapping[str, Range] = field(default_factory=lambda: MappingProxyType({}))  # of inputs that are read as shapes
    capability: str = AHEAD
    flags: tuple[str, ...] = ()  # members of BuilderFlag
    workspace_bytes: int = 0  # 0 leaves TensorRT's own limit


@dataclass(frozen=True)
class Trial:
    """What came of it."""

    seconds: float  # reading the graph and building it
    error: RefusedError | None  # why it was refused, or None where it was built

    @property
    def ok(self) -> bool:
        """Whether it was built."""
        return self.error is None


def absent() -> str:
    """Why nothing can be built here, or nothing where it can."""
    if importlib.util.find_spec(_tensorrt_build.NAME) is None:
        return "TensorRT is not installed here; TensorRT-RTX builds without a GPU on Linux x86-64 (pip install tensorrt-rtx)"
    return ""


def trial(source: Path, asked: Asked, name: str) -> Trial:
    """Read the ONNX file ``source`` and build it; ``name`` is what messages call it."""
    started = time.perf_counter()
    if error := _tensorrt_failures.misread(name, source):
        return Trial(time.perf_counter() - started, error)
    complaints: list[str] = []
    with _quiet():
        stage = _attempt(source, asked, complaints)
    seconds = time.perf_counter() - started
    return Trial(seconds, _tensorrt_failures.explained(name, stage, complaints, source) if stage else None)


def _attempt(source: Path, asked: Asked, complaints: list[str]) -> str:
    """The stage that failed, with what was said in ``complaints``; empty where it was built."""
    trt = _tensorrt_build.installed()
    log = _tensorrt_open.logger(trt)
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(source)):
        complaints.extend([*_tensorrt_failures.complaints(parser), *log.complaints])
        return "read the graph"
    try:
        config = _config(trt, builder, asked)
    except (AttributeError, RuntimeError) as error:  # no such capability; shapes of a profile that do not fit one another
        complaints.extend([str(error), *log.complaints])
        return "take the settings"
    built = builder.build_serialized_network(network, config) is not None if config else False
    complaints.extend(log.complaints)
    return "" if built else f"build for compute capability {asked.capability}"


def _config(trt: Any, builder: Any, asked: Asked) -> Any:
    """The settings, or None where a profile is refused, which the log explains."""
    config = builder.create_builder_config()
    if hasattr(trt, "ComputeCapability"):
        member = asked.capability if asked.capability == "CURRENT" else f"SM{asked.capability.replace('.', '')}"
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, member), 0)
    for flag in asked.flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    if asked.workspace_bytes:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, asked.workspace_bytes)
    for sizes in asked.profiles:
        profile = builder.create_optimization_profile()
        for name, shapes in sizes.items():
            profile.set_shape(name, *shapes)
        for name, shapes in asked.values.items():
            profile.set_shape_input(name, *shapes)
        if config.add_optimization_profile(profile) < 0:
            return None
    return config


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """TensorRT writes some refusals to the process's standard error too, past any logger; what it says is kept by the logger anyway."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)

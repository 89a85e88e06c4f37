"""A typed graph made into a serialized engine, by the calls that TensorRT 10 and 11 and TensorRT-RTX share.

Where one of them lacks a call, ``hasattr`` on the library tells, and what was asked for is an error that names it. TensorRT-RTX builds for
named compute capabilities and needs no GPU for that; TensorRT builds for the GPU that is there, and was not run here.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accel_helpers.engines import _tensorrt_cache
from accel_helpers.engines._inputs import Signature
from accel_helpers.engines._tensorrt_failures import complaints, explained, misread
from accel_helpers.engines._tensorrt_open import logger
from accel_helpers.engines._tensorrt_plan import NAMES
from accel_helpers.errors import UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Compilation, Plan, Profile

if TYPE_CHECKING:
    import tensorrt as trt  # the types of TensorRT 10.13; what TensorRT-RTX adds is reached through Any

NAME = "tensorrt" if importlib.util.find_spec("tensorrt") else "tensorrt_rtx"
"""The module that builds here: TensorRT before TensorRT-RTX."""
RTX_CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""What TensorRT-RTX 1.7 compiles for: the members of its ``ComputeCapability``."""
_CUDA = range(11, 20)  # major versions to look for among the installed packages
Shapes = Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]
"""The least, usual and greatest shape of each input."""


def installed() -> Any:
    """The module named :data:`NAME`."""
    return importlib.import_module(NAME)


def cuda() -> str:
    """The major version of the CUDA that the installed library is for, as its package is named; empty where that does not say."""
    for major in _CUDA:
        try:
            version(f"{NAME.replace('_', '-')}-cu{major}")
        except PackageNotFoundError:
            continue
        return str(major)
    return ""


def shapes(model: Model, plan: Plan) -> tuple[Shapes, ...]:
    """What each of the plan's profiles means for each input of the model.

    Raises:
        ModelError: a profile asks for longer sequences than the model reads.
    """
    signature = Signature(model, plan)
    planned = dict(zip(signature.inputs, signature.planned, strict=True))

    def of(name: str, end: int, profile: Profile) -> tuple[int, ...]:
        length = profile.sequence or (plan.sequence,) * 3
        sizes: dict[int | str, int] = {"batch": profile.batch[end], "sequence": length[end]}
        # An open axis that no profile names goes from one to what the example holds.
        return tuple(
            sizes.get(axis, axis if isinstance(axis, int) else (1, held, held)[end])
            for axis, held in zip(signature.inputs[name][1], planned[name], strict=True)
        )

    if model.has_sequence:
        longest = max((profile.sequence or (plan.sequence,))[-1] for profile in plan.profiles)
        model.example(1, longest, 0)  # raises where the model reads none so long
    return tuple({name: (of(name, 0, one), of(name, 1, one), of(name, 2, one)) for name in planned} for one in plan.profiles)


def check(plan: Plan, capabilities: Sequence[str]) -> None:
    """Raise unless the installed library builds for these compute capabilities, with what the plan asks for.

    Raises:
        UnsupportedError: it does not; the message names the library, its version and what it lacks.
    """
    module, asked = installed(), plan.compilation
    if not hasattr(module, "ComputeCapability"):
        if list(capabilities) != [found := here()]:
            raise _lacks(
                f"builds for the GPU that is there ({found or 'none'}), not for {', '.join(capabilities)}", "Build it on that GPU."
            )
    elif unknown := [one for one in capabilities if one not in RTX_CAPABILITIES or not hasattr(module.ComputeCapability, _member(one))]:
        known = ", ".join(RTX_CAPABILITIES)
        raise _lacks(f"does not compile for compute capability {unknown[0]}; it does for {known}", "Choose one of these.")
    if not capabilities:
        raise UnsupportedError("No compute capability was named to build for.", "Name one, such as 8.9.")
    flags = {"REFIT": asked.refit, "WEIGHT_STREAMING": asked.weight_streaming, "TF32": plan.precision == "tf32"}
    for flag, wanted in flags.items():
        if wanted and not hasattr(module.BuilderFlag, flag):
            raise _lacks(f"has no {flag}", "Leave that option off.")
    if not hasattr(module, "ComputeCapability"):
        return
    if unused := without_effect(plan):
        raise _lacks(unused, "Leave it at its default.")
    if asked.refit and not here():  # with REFIT_INDIVIDUAL too, once a single weight is marked
        raise _lacks("compiles an engine whose weights can be replaced on a GPU alone, and none answers here", "Leave refit off.")


def without_effect(plan: Plan) -> str:
    """What TensorRT-RTX would take and not heed, as the end of a sentence; empty where there is no such thing.

    It times no kernels when it builds: engines of levels 0, 1, 3 and 5 came out the same, byte for byte.
    """
    usual = Compilation().optimization_level
    return "" if plan.compilation.optimization_level == usual else f"builds the same engine at every optimization level as at {usual}"


def here() -> str:
    """The compute capability of the first GPU that PyTorch sees, "8.9"; empty where it sees none."""
    import torch

    return ".".join(map(str, torch.cuda.get_device_capability())) if torch.cuda.is_available() else ""


def _member(capability: str) -> str:
    return f"SM{capability.replace('.', '')}"


def _lacks(what: str, next_step: str) -> UnsupportedError:
    return UnsupportedError(f"{NAMES[NAME]} {installed().__version__} {what}.", next_step)


def serialized(model: Model, plan: Plan, source: Path, capabilities: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The engine of the typed graph in ``source``, and what was seen on the way.

    Args:
        model: whose graph it is.
        plan: its profiles and its ``compilation``.
        source: the graph; its types are those that run.
        capabilities: what to compile for, "8.9" …

    Returns:
        The engine, as a buffer of bytes; ``layers``: of the network before TensorRT fuses it, the number of layers by operator and type of
        the first output; ``timing_cache``: what became of it; ``settings``: as the builder read them back.

    Raises:
        ModelError: TensorRT does not read the graph, or cannot build it; the message says why and what to do.
        UnsupportedError: what :func:`check` says, or a setting that did not hold.
    """
    check(plan, capabilities)
    if wrong := misread(model.name, source):
        raise wrong
    module, known = installed(), shapes(model, plan)
    log = logger(module)
    builder: trt.Builder = module.Builder(log)
    # TensorRT 11 and TensorRT-RTX know no other networks; 10 wants to be told.
    network = builder.create_network(1 << int(module.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser: trt.OnnxParser = module.OnnxParser(network, log)
    if not parser.parse_from_file(str(source)):
        raise explained(model.name, "read the graph", [*complaints(parser), *log.complaints], source)
    config = builder.create_builder_config()
    _target(config, capabilities)
    for profile in known:
        config.add_optimization_profile(_profile(builder.create_optimization_profile(), profile))
    settings = _settle(config, plan)
    with _tensorrt_cache.timing(module.__version__, config, NAME, capabilities) as timing:
        engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise explained(model.name, f"build for compute capability {', '.join(capabilities)}", log.complaints, source)
    return engine, {"layers": layers(network), "timing_cache": timing, "settings": settings}


def _target(config: Any, capabilities: Sequence[str]) -> None:
    module = installed()
    if hasattr(module, "ComputeCapability"):  # TensorRT-RTX alone
        config.num_compute_capabilities = len(capabilities)
        for place, capability in enumerate(capabilities):
            config.set_compute_capability(getattr(module.ComputeCapability, _member(capability)), place)


def _profile(profile: Any, sizes: Shapes) -> trt.IOptimizationProfile:
    for name, (least, usual, greatest) in sizes.items():
        profile.set_shape(name, least, usual, greatest)
    filled: trt.IOptimizationProfile = profile
    return filled


def _settle(config: trt.IBuilderConfig, plan: Plan) -> dict[str, Any]:
    """Set what the plan asks for, and read it back.

    Raises:
        UnsupportedError: a setting did not hold.
    """
    flag, pool = installed().BuilderFlag, installed().MemoryPoolType.WORKSPACE
    asked = plan.compilation
    # TensorRT and TensorRT-RTX both compute FP32 products in TF32 unless told otherwise.
    (config.set_flag if plan.precision == "tf32" else config.clear_flag)(flag.TF32)
    wanted: dict[str, Any] = {"tf32": plan.precision == "tf32", "weight_streaming": asked.weight_streaming, "refit": asked.refit}
    for name in ("weight_streaming", "refit"):
        if wanted[name]:
            config.set_flag(getattr(flag, name.upper()))
    config.profiling_verbosity = installed().ProfilingVerbosity.DETAILED  # a loaded engine can then name its layers and their types
    config.builder_optimization_level = asked.optimization_level
    if asked.workspace_bytes:
        config.set_memory_pool_limit(pool, asked.workspace_bytes)
    found: dict[str, Any] = {name: config.get_flag(getattr(flag, name.upper())) for name in wanted}
    found |= {"optimization_level": config.builder_optimization_level, "workspace_bytes": config.get_memory_pool_limit(pool)}
    wanted |= {"optimization_level": asked.optimization_level, "workspace_bytes": asked.workspace_bytes or found["workspace_bytes"]}
    for name, value in wanted.items():
        if found[name] != value:
            raise _lacks(f"took {name}={found[name]} where {value} was asked for", "Leave that option at its default.")
    return found


def layers(network: trt.INetworkDefinition) -> dict[str, dict[str, int]]:
    """How many layers of a network are of which operator and answer which type, before TensorRT fuses any."""
    found: dict[str, dict[str, int]] = {}
    for place in range(network.num_layers):
        layer = network.get_layer(place)
        kinds = found.setdefault(layer.type.name, {})
        kind = layer.get_output_type(0).name
        kinds[kind] = kinds.get(kind, 0) + 1
    return found

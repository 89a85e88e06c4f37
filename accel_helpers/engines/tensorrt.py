"""TensorRT, or TensorRT for RTX: engines built from a typed graph, ahead of time where there is no GPU. Not yet run on a GPU."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accel_helpers.engine import YES, Built, Engine, Session, Support
from accel_helpers.engines import _hardware, _onnx_export, _tensorrt_build, _tensorrt_cache, _tensorrt_types
from accel_helpers.engines._inputs import Signature
from accel_helpers.engines._tensorrt_build import NAME, RTX_CAPABILITIES
from accel_helpers.engines._tensorrt_plan import FACTS, NAMES, PLAN, check
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan

__all__ = ["AHEAD", "ENGINE", "RTX_CAPABILITIES", "TensorRt", "ahead"]

AHEAD = "8.9"
"""The compute capability that is built for where there is no GPU: the oldest with FP8."""
_GPU_EXTRA = "pip install -e '.[gpu]'"
_KEPT = "both factors are activations, or keep names it"
_READ = "the typed graph that the engine was built from; the engine itself opens on a GPU only"


class TensorRt(Engine):
    """FP32, TF32, FP16 and BF16, and INT8 and FP8 by explicit quantization, on an NVIDIA GPU. Not yet run on a GPU."""

    name = "tensorrt"
    needs = (NAME, "onnxruntime", "onnx", "onnxscript", "torch")
    packages = ("tensorrt", "tensorrt-rtx", "onnxruntime", "torch", "onnx", "onnxscript", "transformers", "onnxsim", "onnxslim")
    schemes = MappingProxyType({"int8": ("static",), "fp8": ("static",)})
    modes = MappingProxyType({"cuda_graph": "replays the plan's calls as one CUDA graph; not yet run on a GPU"})
    compiles = frozenset({"simplifier", "profiles", "workspace_bytes", "optimization_level", "refit", "weight_streaming"})

    def supports(self, plan: Plan, environment: Environment) -> Support:
        """Yes where there is a GPU that the installed library compiles for."""
        if not (answer := _hardware.known(self, plan)):
            return answer
        if plan.device != "cuda":
            return Support(False, "TensorRT runs on NVIDIA GPUs alone; choose device=cuda")
        if plan.precision not in _tensorrt_types.PRECISIONS:
            known = ", ".join(_tensorrt_types.PRECISIONS).upper()
            return Support(False, f"this engine builds {known}, not {plan.precision.upper()}")
        if not (answer := _hardware.gpu(plan, environment)) or not (answer := _quantization(plan, environment)):
            return answer
        if NAME == "tensorrt_rtx" and (unable := _rtx_lacks(plan, environment)):
            return Support(False, f"TensorRT-RTX {unable}")
        if "pycuda" not in environment.packages:
            return Support(False, f"pycuda, which holds TensorRT's buffers, is not installed; run: {_GPU_EXTRA}")
        return YES

    def build(self, model: Model, plan: Plan, out: Path) -> Built:
        """A serialized engine for the GPU that is there, or for :data:`AHEAD` where there is none; see :func:`ahead`."""
        return ahead(model, plan, out, (_tensorrt_build.here() or AHEAD,))

    def load(self, model: Model, plan: Plan, folder: Path) -> Session:
        """The engine on the first GPU."""
        from accel_helpers.engines._tensorrt_runtime import TensorRtSession

        return TensorRtSession(model, plan, folder)


def ahead(model: Model, plan: Plan, out: Path, capabilities: Sequence[str] = (AHEAD,)) -> Built:
    """Build an engine for named compute capabilities, on a machine that may have no GPU.

    What was built from the same things before is copied from the store. TensorRT-RTX puts several capabilities into one engine; TensorRT
    builds for the GPU that is there alone.

    Args:
        model: what to build.
        plan: its precision, ``compilation`` and ``profiles`` decide what is built.
        out: an existing, empty folder; ``model.plan`` and ``engine.json`` are written there.
        capabilities: what to build for, "8.9" …

    Raises:
        ModelError: TensorRT does not read the graph or cannot build it, or the typed graph overflows.
        UnsupportedError: the library lacks something that was asked for; the message names it and its version.
        UnknownNameError: ``keep`` names a layer that is not there.
    """
    _tensorrt_build.check(plan, capabilities)
    targets = sorted(set(capabilities), key=lambda one: [int(part) for part in one.split(".")])
    report, found = _tensorrt_cache.engine(_decides(model, plan, targets), out, lambda folder: _made(model, plan, targets, folder))
    return Built(tuple(report.pop("files")), {**report, "engine_cache": "found" if found else "built"})


def _decides(model: Model, plan: Plan, capabilities: Sequence[str]) -> dict[str, Any]:
    """All that decides an engine's bytes, short of what the builder does by chance. The mode is chosen when it is loaded."""
    return {
        "fingerprint": model.fingerprint,
        "plan": replace(plan, mode="default").build_fields,
        "profiles": [{name: list(sizes) for name, sizes in one.items()} for one in _tensorrt_build.shapes(model, plan)],
        "library": [NAME, _tensorrt_build.installed().__version__, _tensorrt_build.cuda()],
        "compute_capability": list(capabilities),
        "packages": {name: _version(name) for name in TensorRt.packages},
    }


@cache
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _made(model: Model, plan: Plan, capabilities: Sequence[str], folder: Path) -> dict[str, Any]:
    """Export, give the graph its types, build, and write down what was built."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="part-") as part:
        graph = Path(part)
        exported = _onnx_export.export(model, graph, plan.compilation.simplifier)
        typed = _tensorrt_types.typed(model, plan, graph / _onnx_export.FILE)
        graph_digest = _digest(graph)
        engine, seen = _tensorrt_build.serialized(model, plan, graph / _onnx_export.FILE, capabilities)
    blob, seconds = bytes(engine), time.perf_counter() - begun
    check(blob, NAME, _tensorrt_build.installed().__version__)
    (folder / PLAN).write_bytes(blob)
    facts = _facts(model, plan, capabilities)
    facts |= {"graph_sha256": graph_digest, "plan_sha256": hashlib.sha256(blob).hexdigest(), "build_seconds": seconds}
    (folder / FACTS).write_text(json.dumps(facts, indent=1))
    kept = {f"products in {kind}": f"{count} times: {_KEPT}" for kind, count in typed["types"].items() if kind != plan.precision}
    return {**typed, "kept": kept, "types_from": _READ, **seen, **_told(facts), "export": exported}


def _facts(model: Model, plan: Plan, capabilities: Sequence[str]) -> dict[str, Any]:
    inputs = Signature(model, plan).inputs
    return {
        "library": NAME,
        "version": _tensorrt_build.installed().__version__,
        "cuda": _tensorrt_build.cuda(),
        "compute_capability": list(capabilities),
        "precision": plan.precision,
        "profiles": [
            {name: [list(one) for one in sizes] for name, sizes in profile.items()} for profile in _tensorrt_build.shapes(model, plan)
        ],
        "inputs": {name: {"dtype": str(dtype), "shape": list(shape)} for name, (dtype, shape) in inputs.items()},
        "outputs": list(model.outputs),
        "weight_streaming": plan.compilation.weight_streaming,
        "refit": plan.compilation.refit,
    }


def _told(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What of an engine's facts belongs into a report."""
    return {"library": f"{NAMES[NAME]} {facts['version']}", **{name: facts[name] for name in ("cuda", "compute_capability", "profiles")}}


def _digest(folder: Path) -> str:
    """SHA-256 over a graph and the weights beside it."""
    whole = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        whole.update(file.read_bytes())
    return whole.hexdigest()


def _rtx_lacks(plan: Plan, environment: Environment) -> str:
    """What stands in the way in TensorRT-RTX, as the end of a sentence; empty where nothing does."""
    first = environment.gpus[0]
    if first.compute_capability not in RTX_CAPABILITIES:
        return f"compiles for compute capability {', '.join(RTX_CAPABILITIES)}; {first.name} has {first.compute_capability}"
    return _tensorrt_build.without_effect(plan)


def _quantization(plan: Plan, environment: Environment) -> Support:
    chosen = plan.quantization
    if chosen is None:
        return YES
    if plan.precision == "int8" and not chosen.symmetric:
        return Support(False, "TensorRT's bytes are signed around zero; choose symmetric=true")
    if chosen.reduce_range:
        return Support(False, "seven bits are for x86 processors, a GPU's INT8 products do not overflow; choose reduce_range=off")
    if chosen.rest not in ("fp32", "bf16"):
        return Support(False, f"what is not quantized stays in FP32 or BF16 here, not in {chosen.rest.upper()}; choose rest=fp32")
    return _hardware.gpu(replace(plan, precision=chosen.rest), environment)


ENGINE = TensorRt()

"""TensorRT, or TensorRT for RTX: engines built from a typed graph, ahead of time where there is no GPU. Running them is not there yet."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accel_helpers import calibration
from accel_helpers.engine import Built, Engine, Session, Support
from accel_helpers.engines import _explicit_qdq, _hardware, _onnx_export
from accel_helpers.engines._inputs import Signature
from accel_helpers.errors import ModelError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan

PLAN = "model.plan"
RTX_CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""What TensorRT-RTX 1.7 compiles for: the members of its ``ComputeCapability``."""
AHEAD = "8.9"
"""The compute capability that is built for where there is no GPU: the oldest with FP8."""
_KEPT = "both factors are activations, or keep names it"
_READ = "the typed graph that the engine was built from; the engine itself opens on a GPU only"
_NOT_YET = "TensorRT engines are built here and not run yet; onnx_runtime, compiled and pytorch run on a GPU"
_PRECISIONS = ("fp32", "fp16", "int8", "fp8")


class TensorRt(Engine):
    """FP32 and FP16, INT8 and FP8 by explicit quantization, on an NVIDIA GPU."""

    name = "tensorrt"
    needs = ("tensorrt" if importlib.util.find_spec("tensorrt") else "tensorrt_rtx", "onnxruntime", "onnx", "onnxscript", "torch")
    packages = ("tensorrt", "tensorrt-rtx", "onnxruntime", "torch", "onnx", "onnxscript", "transformers")
    schemes = MappingProxyType({"int8": ("static",), "fp8": ("static",)})
    compiles = frozenset({"simplifier", "profiles", "workspace_bytes", "optimization_level", "refit", "weight_streaming"})

    def supports(self, plan: Plan, environment: Environment) -> Support:
        """Never yet: it builds, and does not run what it built. What else would stand in the way is said first."""
        if not (answer := _hardware.known(self, plan)):
            return answer
        if plan.device != "cuda":
            return Support(False, "TensorRT runs on NVIDIA GPUs alone; choose device=cuda")
        if plan.precision not in _PRECISIONS:
            return Support(False, f"this engine builds {', '.join(_PRECISIONS).upper()}, not {plan.precision.upper()}")
        if not (answer := _hardware.gpu(plan, environment)) or not (answer := _quantization(plan)):
            return answer
        first = environment.gpus[0]
        if self.needs[0] == "tensorrt_rtx" and first.compute_capability not in RTX_CAPABILITIES:
            known = ", ".join(RTX_CAPABILITIES)
            return Support(False, f"TensorRT-RTX compiles for compute capability {known}; {first.name} has {first.compute_capability}")
        return Support(False, _NOT_YET)

    def build(self, model: Model, plan: Plan, out: Path) -> Built:
        """A serialized engine with one profile: from one item to the plan's batch and sequence length.

        Raises:
            ModelError: TensorRT does not read the graph, or cannot build it.
        """
        exported = _onnx_export.export(model, out)
        source = out / _onnx_export.FILE
        types = _typed(model, plan, source)
        capability = _capability()
        (out / PLAN).write_bytes(serialized(model, plan, source, capability))
        for file in out.iterdir():
            if file.name != PLAN:
                file.unlink()
        kept = {f"products in {kind}": f"{count} times: {_KEPT}" for kind, count in types.items() if kind != plan.precision}
        report = {"types": types, "kept": kept, "types_from": _READ, "compute_capability": capability}
        return Built((PLAN,), {**report, "export": exported})

    def load(self, model: Model, plan: Plan, folder: Path) -> Session:
        """Refuses: running an engine takes a GPU, and is not there yet."""
        raise UnsupportedError(
            f"The TensorRT engine of {model.name} is built, but running TensorRT engines is not there yet; it takes an NVIDIA GPU.",
            "Choose engine=onnx_runtime, compiled or pytorch with device=cuda.",
        )


def _quantization(plan: Plan) -> Support:
    chosen = plan.quantization
    if chosen is None:
        return Support(True)
    if plan.precision == "int8" and not chosen.symmetric:
        return Support(False, "TensorRT's bytes are signed around zero; choose symmetric=true")
    if chosen.reduce_range:
        return Support(False, "seven bits are for x86 processors, a GPU's INT8 products do not overflow; choose reduce_range=off")
    if chosen.rest != "fp32":
        return Support(False, "what is not quantized stays in FP32 here; choose rest=fp32")
    return Support(True)


def _typed(model: Model, plan: Plan, source: Path) -> dict[str, int]:
    """Give the graph in ``source`` the plan's types, in place; how many of its products are in which."""
    import onnx

    from accel_helpers.engines._onnx_quantize import PRODUCTS

    if plan.quantization:
        split = calibration.samples(model, plan.quantization)
        batches = lambda: (inputs for inputs, _ in split.batches(1))  # noqa: E731
        loaded, typed = _explicit_qdq.explicit(source, plan.precision, plan.quantization, batches)
        onnx.save(loaded, source)
        kinds = [kind or plan.quantization.rest for kind in typed.values()]
    else:
        loaded = onnx.load(source)
        if plan.precision == "fp16":
            from onnxruntime.transformers.float16 import convert_float_to_float16

            loaded = convert_float_to_float16(loaded, keep_io_types=True)
            onnx.save(loaded, source)
        kinds = [plan.precision for node in loaded.graph.node if node.op_type in PRODUCTS]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def _capability() -> str:
    import torch

    return ".".join(map(str, torch.cuda.get_device_capability())) if torch.cuda.is_available() else AHEAD


def serialized(model: Model, plan: Plan, source: Path, capability: str) -> bytes:
    """The engine of the typed graph in ``source``, for one compute capability.

    Raises:
        ModelError: TensorRT does not read the graph, or cannot build it; the message holds its first complaint.
    """
    trt = importlib.import_module(TensorRt.needs[0])
    log = _log(trt)
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(source)):
        raise _refused(model, "read the graph", [parser.get_error(place).desc() for place in range(parser.num_errors)])
    config = builder.create_builder_config()
    if hasattr(trt, "ComputeCapability"):  # TensorRT-RTX; the other builds for the GPU that is there
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{capability.replace('.', '')}"), 0)
    config.add_optimization_profile(_profile(builder, model, plan))
    answer = builder.build_serialized_network(network, config)
    if answer is None:
        raise _refused(model, f"build for compute capability {capability}", log.complaints)
    return bytes(answer)


def _profile(builder: Any, model: Model, plan: Plan) -> Any:
    profile, signature = builder.create_optimization_profile(), Signature(model, plan)
    for (name, (_, shape)), planned in zip(signature.inputs.items(), signature.planned, strict=True):
        least = tuple(1 if isinstance(size, str) else size for size in shape)
        profile.set_shape(name, least, planned, planned)
    return profile


def _log(trt: Any) -> Any:
    """A logger that keeps errors and prints nothing."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.complaints: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.complaints.append(message)

    return Log()


def _refused(model: Model, what: str, complaints: list[str]) -> ModelError:
    first = next((one.strip().splitlines()[0] for one in complaints if one.strip()), "no message")
    return ModelError(
        f"TensorRT cannot {what} of {model.name}: {first[:300].rstrip('.')}.", "Choose another precision, or engine=onnx_runtime."
    )


ENGINE = TensorRt()

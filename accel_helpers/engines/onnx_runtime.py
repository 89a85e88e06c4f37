"""ONNX Runtime on an exported graph: the CPU, CUDA and TensorRT providers."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from accel_helpers.config import PRECISIONS
from accel_helpers.engine import Array, Built, Engine, Session, Support
from accel_helpers.engines import _hardware, _onnx_census, _onnx_export, _onnx_providers, _onnx_quantize, _tensorrt_build
from accel_helpers.engines._executed import executed
from accel_helpers.engines._inputs import Signature, closed, refused
from accel_helpers.engines._onnx_graph import Planned, Recorded
from accel_helpers.engines._onnx_providers import open_session
from accel_helpers.engines._static_buffers import Answer
from accel_helpers.engines._tensorrt_runtime import fitting, outside
from accel_helpers.errors import ArtifactError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Census, Environment, Plan

_EXECUTED = "executed.json"
_BITS = {"int8": 8, "int4": 4}
_CPU_LACKS = {
    "bf16": "ONNX Runtime's CPU provider has no BF16 kernels (it does not load a BF16 MatMul)",
    "fp16": "ONNX Runtime's CPU provider runs FP16 graphs in FP32, between casts",
}
_KEPT = "the graph or the provider computes it in this type"
_CHOSEN = "TensorRT chose for each layer among the types of the graph and lower ones that it may use; its provider does not say which"


class OnnxRuntimeSession(Session):
    """An inference session whose provider is the one that the plan asked for."""

    def __init__(self, model: Model, plan: Plan, folder: Path) -> None:
        self._model, self._plan = model, plan
        self._signature = Signature(model, plan)
        try:
            self._executed: dict[str, Any] = json.loads((folder / _EXECUTED).read_text())
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{_EXECUTED} of {model.name} cannot be read.", "Build the artifact again.") from error
        self._session: Any = open_session(model, plan, folder / _onnx_export.FILE)
        self._recorded = Recorded(self._session, model.outputs) if plan.mode == "cuda_graph" else None
        self._ranges = _tensorrt_build.shapes(model, plan) if plan.mode == "tensorrt" else None

    @property
    def report(self) -> Mapping[str, Any]:
        """Version, provider, threads, and the operators by type that a profiled run at build time saw."""
        import onnxruntime

        if self._session is None:
            raise closed(self._model.name)
        return {
            "engine_version": onnxruntime.__version__,
            "provider": self._session.get_providers()[0],
            "threads": self._session.get_session_options().intra_op_num_threads,
            **self._executed,
            **({"cuda_graph": self._recorded.counts} if self._recorded else {}),
        }

    def place(self, inputs: dict[str, Array]) -> Any:
        import onnxruntime

        checked = self._signature.check(inputs)
        if self._plan.device == "cpu":
            return checked
        if self._session is None:
            raise closed(self._model.name)
        shapes = {name: array.shape for name, array in checked.items()}
        if self._ranges is not None and fitting(self._ranges, shapes) is None:  # the provider would build a new engine, there and then
            raise outside(self._model, self._ranges, shapes)
        if self._recorded and tuple(shapes.values()) == self._signature.planned:
            return self._recorded.place(Planned(checked))
        binding = self._session.io_binding()
        for name, array in checked.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
        return binding

    def run(self, placed: Any) -> Any:
        if self._session is None:
            raise closed(self._model.name)
        try:
            if self._plan.device == "cpu":
                return self._session.run(list(self._model.outputs), placed)
            if self._recorded and isinstance(placed, Planned):
                return self._recorded.run(placed)
            for name in self._model.outputs:  # bound anew each time, so that no run writes over another's outputs
                placed.bind_output(name, "cuda")
            (self._recorded.run_plainly if self._recorded else self._session.run_with_iobinding)(placed)
            return placed.get_outputs()
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise refused(self._model.name, "ONNX Runtime", error) from error

    def fetch(self, result: Any) -> dict[str, Array]:
        if isinstance(result, Answer):
            if self._recorded is None:
                raise closed(self._model.name)
            return {name: as_float32(array) for name, array in self._recorded.fetch(result).items()}
        arrays = result if self._plan.device == "cpu" else [value.numpy() for value in result]
        return {name: as_float32(array) for name, array in zip(self._model.outputs, arrays, strict=True)}

    def close(self) -> None:
        self._session = self._recorded = None


class OnnxRuntime(Engine):
    """FP32, INT8 and INT4 weights on a CPU; FP32, TF32 and FP16 on a CUDA GPU."""

    name = "onnx_runtime"
    needs = ("onnxruntime", "onnx", "onnxscript", "torch")
    packages = ("onnxruntime", "onnxruntime-gpu", "torch", "onnx", "onnxscript", "transformers")
    compiles = frozenset({"simplifier"})
    modes = _onnx_providers.MODES
    schemes = MappingProxyType({"int8": ("static", "dynamic", "weight_only"), "int4": ("weight_only",)})

    def supports(self, plan: Plan, environment: Environment) -> Support:
        """What the installed build and the hardware can run."""
        if not (answer := _hardware.known(self, plan)):
            return answer
        if unable := _onnx_providers.lacks(plan, environment) or _quantization_lacks(plan):
            return Support(False, unable)
        if plan.device == "cpu":
            lacks = _CPU_LACKS.get(plan.precision)
            return Support(False, lacks) if lacks else _hardware.cpu(plan, environment)
        if plan.precision == "bf16":
            return Support(False, "there is no converter of a graph to BF16 for ONNX Runtime; FP16 and TF32 run")
        if "onnxruntime-gpu" not in environment.packages:
            swap = "pip uninstall -y onnxruntime && pip install -e '.[gpu]'"
            return Support(False, f"the installed onnxruntime has no CUDA provider; run: {swap}")
        return _hardware.gpu(plan, environment)

    def build(self, model: Model, plan: Plan, out: Path) -> Built:
        """Export, convert or quantize where asked, and profile one call to see what runs where and in which type."""
        exported = _onnx_export.export(model, out, plan.compilation.simplifier)
        files, path = tuple(exported["files"]), out / _onnx_export.FILE
        _onnx_census.name_nodes(path)
        products = _onnx_census.products(path, model.example(1, plan.sequence, 0))
        if plan.precision == "fp16":
            _to_float16(out)
            files = (_onnx_export.FILE,)
        if plan.quantization:
            files = _onnx_quantize.quantize(model, plan.quantization, _BITS[plan.precision], out)
        profile, census = inspect(model, plan, path, products)
        (out / _EXECUTED).write_text(json.dumps(profile))
        engines = sorted(file.name for kind in _onnx_providers.CACHES for file in out.glob(kind))
        return Built((*files, *engines, _EXECUTED), {**profile, "census": census.to_dict(), "export": exported})

    def load(self, model: Model, plan: Plan, folder: Path) -> OnnxRuntimeSession:
        """A session on the provider asked for, or an error."""
        return OnnxRuntimeSession(model, plan, folder)


def inspect(model: Model, plan: Plan, path: Path, products: Iterable[_onnx_census.Product]) -> tuple[dict[str, Any], Census]:
    """What one call of the graph at ``path`` ran, under ONNX Runtime's profiler.

    Args:
        model: whose graph it is.
        plan: what was asked for.
        path: the graph as it was built.
        products: those of the exported graph, from :func:`_onnx_census.products`.

    Returns:
        Operators by type with the number that ran on each provider, and the census of the products.

    Raises:
        UnsupportedError: the products run in another type than the plan's.
    """
    with tempfile.TemporaryDirectory() as folder:
        seen = plan if plan.mode == "tensorrt" else replace(plan, mode="default")  # a graph's replays would show nothing
        session = open_session(model, seen, path, Path(folder))
        session.run(None, model.example(1, plan.sequence, 0))
        optimised = Path(folder) / _onnx_providers.OPTIMISED
        ran = _onnx_census.ran(Path(session.end_profiling()), optimised if optimised.exists() else path)
    where = _onnx_providers.stayed(ran, plan)
    if plan.mode == "tensorrt":
        return {**where, "types": {}, "kept": {}, "types_from": _CHOSEN}, Census(())
    census = _onnx_census.census(products, ran, plan, _onnx_census.tables(path, plan))
    if plan.quantization and census.share() == 0:
        raise _nothing(census, plan)
    kinds = [(one.operator, _onnx_census.precision(one, plan).removesuffix(" weights")) for one in ran]
    operators = Counter((operator, kind) for operator, kind in kinds if kind in PRECISIONS)
    return {**executed(operators, plan, _KEPT), **where}, census


def _nothing(census: Census, plan: Plan) -> UnsupportedError:
    reasons = Counter(f"{layer.operator}: {layer.reason}" for layer in census.layers if layer.operations)
    stayed = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(3)) or "it multiplies nothing"
    return UnsupportedError(f"{plan.label} quantizes 0 % of the multiplications ({stayed}).", "Choose another scheme, or precision=fp32.")


def _quantization_lacks(plan: Plan) -> str:
    """What of a quantized plan ONNX Runtime cannot do; empty where it can do it all."""
    if plan.quantization is None:
        return ""
    asked = plan.quantization
    if plan.device == "cuda":
        return "ONNX Runtime's CUDA provider runs few quantized operators in INT8 and the others in FP32 between conversions"
    if asked.rest != "fp32":
        return f"ONNX Runtime's CPU provider has no {asked.rest.upper()} kernels for what is not quantized; rest=fp32 runs"
    if asked.scheme == "dynamic" and asked.symmetric:
        return "DynamicQuantizeLinear answers unsigned bytes with a zero point: symmetric=false, or scheme=static"
    if asked.scheme == "weight_only" and not asked.per_channel:
        return "MatMulNBits has a scale for each 32 values of a channel, which per_channel=false cannot turn off"
    return ""


def _to_float16(folder: Path) -> None:
    """Convert the graph in ``folder`` to FP16, inputs and outputs apart."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    path = folder / _onnx_export.FILE
    converted = convert_float_to_float16(onnx.load(path), keep_io_types=True)
    for file in folder.iterdir():
        file.unlink()
    onnx.save(converted, path)


def as_float32(array: Array) -> Array:
    """Floating-point arrays as float32, others as they are; no copy where none is needed."""
    return array.astype(np.float32, copy=False) if np.issubdtype(array.dtype, np.floating) else array


ENGINE = OnnxRuntime()

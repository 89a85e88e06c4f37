"""ONNX Runtime on an exported graph: the CPU and CUDA providers."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.engine import Array, Built, Engine, Session, Support
from accel_helpers.engines import _hardware, _onnx_export
from accel_helpers.engines._executed import executed
from accel_helpers.engines._inputs import Signature, closed, first_line, refused
from accel_helpers.errors import ArtifactError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_EXECUTED = "executed.json"
_CPU_LACKS = {
    "bf16": "ONNX Runtime's CPU provider has no BF16 kernels (it does not load a BF16 MatMul)",
    "fp16": "ONNX Runtime's CPU provider runs FP16 graphs in FP32, between casts",
}
_KEPT = "the graph or the provider computes it in this type"


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
        }

    def place(self, inputs: dict[str, Array]) -> Any:
        import onnxruntime

        checked = self._signature.check(inputs)
        if self._plan.device == "cpu":
            return checked
        if self._session is None:
            raise closed(self._model.name)
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
            for name in self._model.outputs:  # bound anew each time, so that no run writes over another's outputs
                placed.bind_output(name, "cuda")
            self._session.run_with_iobinding(placed)
            return placed.get_outputs()
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise refused(self._model.name, "ONNX Runtime", error) from error

    def fetch(self, result: Any) -> dict[str, Array]:
        arrays = result if self._plan.device == "cpu" else [value.numpy() for value in result]
        return {name: as_float32(array) for name, array in zip(self._model.outputs, arrays, strict=True)}

    def close(self) -> None:
        self._session = None


class OnnxRuntime(Engine):
    """FP32 on a CPU; FP32, TF32 and FP16 on a CUDA GPU."""

    name = "onnx_runtime"
    needs = ("onnxruntime", "onnx", "onnxscript", "torch")
    packages = ("onnxruntime", "onnxruntime-gpu", "torch", "onnx", "onnxscript", "transformers")

    def supports(self, plan: Plan, environment: Environment) -> Support:
        """What the installed build and the hardware can run."""
        if not (answer := _hardware.quantized(self, plan)):
            return answer
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
        """Export, convert to FP16 where asked, and profile one call to see what runs where and in which type."""
        exported = _onnx_export.export(model, out)
        files = tuple(exported["files"])
        if plan.precision == "fp16":
            _to_float16(out)
            files = (_onnx_export.FILE,)
        profile = _profiled(model, plan, out / _onnx_export.FILE)
        (out / _EXECUTED).write_text(json.dumps(profile))
        return Built((*files, _EXECUTED), {**profile, "export": exported})

    def load(self, model: Model, plan: Plan, folder: Path) -> OnnxRuntimeSession:
        """A session on the provider asked for, or an error."""
        return OnnxRuntimeSession(model, plan, folder)


def open_session(model: Model, plan: Plan, path: Path, profile: Path | None = None) -> Any:
    """An ``onnxruntime.InferenceSession``.

    Raises:
        UnsupportedError: another provider than the one asked for would run, or the graph holds an operator that is not there.
        ArtifactError: the file cannot be read.
    """
    import onnxruntime

    wanted = _PROVIDERS[plan.device]
    if wanted not in onnxruntime.get_available_providers():
        raise _other_provider(wanted, "CPUExecutionProvider")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = plan.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what it would log is raised
    # Threads that spin after a call take the CPUs from whatever runs next: PyTorch's operators become tens of times slower.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    # The CUDA provider computes FP32 products in TF32 unless told otherwise.
    settings = {"use_tf32": str(int(plan.precision == "tf32"))} if plan.device == "cuda" else {}
    try:
        session = onnxruntime.InferenceSession(path, options, providers=[(wanted, settings)])
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise _onnx_export.lacking(model, error) or ArtifactError(
            f"{path.name} of {model.name} cannot be loaded: {first_line(error)}.", "Build the artifact again."
        ) from error
    if (first := session.get_providers()[0]) != wanted:
        raise _other_provider(wanted, first)
    return session


def _other_provider(wanted: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        f"ONNX Runtime was asked for {wanted}; {found} would have run.",
        "Choose device=cpu, or install onnxruntime-gpu with the CUDA and cuDNN that it needs: accel check says which.",
    )


def _profiled(model: Model, plan: Plan, path: Path) -> dict[str, Any]:
    """One call under ONNX Runtime's profiler: floating-point operators by type, and how many ran on each provider."""
    operators: Counter[tuple[str, str]] = Counter()
    providers: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(model, plan, path, Path(folder) / "profile")
        session.run(None, model.example(1, plan.sequence, 0))
        events = json.loads(Path(session.end_profiling()).read_text())
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            operator, answers = event["args"]["op_name"], event["args"]["output_type_shape"]
            providers[event["args"]["provider"]] += 1
            kind = next(iter(answers[0]), "") if answers else ""
            if kind in ("float", "float16", "bfloat16", "double"):
                operators[operator, kind] += 1
    return {**executed(operators, plan, _KEPT), "providers": dict(providers)}


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

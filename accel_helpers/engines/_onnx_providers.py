"""ONNX Runtime's execution providers: which run a plan, with which options, and whether they really do.

The options are those of onnxruntime.ai, "CUDA Execution Provider" and "TensorRT Execution Provider". The GPU ones are not yet run on a GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accel_helpers.device import store_root
from accel_helpers.engines import _onnx_export, _tensorrt_build
from accel_helpers.engines._executed import _HEAVY
from accel_helpers.engines._inputs import first_line
from accel_helpers.engines._onnx_census import Ran
from accel_helpers.errors import ArtifactError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
MODES: Mapping[str, str] = MappingProxyType(
    {
        "cuda_graph": "records a call of the plan's shapes and replays it with one launch; other shapes run as ever; not yet run on a GPU",
        "tensorrt": "TensorRT runs what it can of the graph and the CUDA provider the rest, which is counted; not yet run on a GPU",
    }
)
TENSORRT_MAJOR = 10
"""The TensorRT that onnxruntime-gpu 1.31's provider is linked against: libnvinfer.so.10."""
OPTIMISED = "optimised.onnx"
CACHES = ("*.engine", "*.profile")
"""What the TensorRT provider leaves of an engine that it built."""


def lacks(plan: Plan, environment: Environment) -> str:
    """What stands in the way of a plan's mode; empty where nothing does."""
    if plan.mode == "default":
        return ""
    if plan.device != "cuda":
        return f"mode {plan.mode} is of ONNX Runtime's GPU providers; choose device=cuda"
    if plan.mode == "tensorrt":
        if plan.precision == "fp32":
            return "its TensorRT provider has no switch for TF32, in which TensorRT computes FP32 products; choose precision=tf32 or fp16"
        found = next((environment.packages[name] for name in ("tensorrt", "tensorrt-cu13") if name in environment.packages), "")
        if not found.startswith(f"{TENSORRT_MAJOR}."):
            there = f"TensorRT {found} is installed" if found else "TensorRT is not installed"
            return f"its TensorRT provider loads TensorRT {TENSORRT_MAJOR}, and {there}; engine=tensorrt runs others"
    return ""


def providers(model: Model, plan: Plan, cache: Path | None = None, building: bool = False) -> list[tuple[str, dict[str, str]]]:
    """The providers that must load, in this order, with their options as ONNX Runtime spells them.

    Args:
        model: whose inputs a profile of TensorRT's names.
        plan: what is asked for.
        cache: the folder of the artifact, where TensorRT's engine is kept.
        building: whether the engine is made now; kernel timings are then kept from build to build.
    """
    if plan.device == "cpu":
        return [(CPU, {})]
    # The CUDA provider computes FP32 products in TF32 unless told otherwise.
    cuda = {"device_id": "0", "use_tf32": str(int(plan.precision == "tf32"))}
    if plan.mode == "cuda_graph":
        cuda["enable_cuda_graph"] = "1"
    if plan.mode != "tensorrt":
        return [(CUDA, cuda)]
    chosen = {
        "device_id": "0",
        "trt_fp16_enable": str(int(plan.precision == "fp16")),
        "trt_builder_optimization_level": str(plan.compilation.optimization_level),
        **{f"trt_profile_{which}_shapes": _shapes(model, plan, place) for place, which in enumerate(("min", "opt", "max"))},
    }
    if plan.compilation.workspace_bytes:
        chosen["trt_max_workspace_size"] = str(plan.compilation.workspace_bytes)
    if cache is not None:
        chosen |= {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(cache)}
    if building:
        timings = store_root() / "timing"
        timings.mkdir(parents=True, exist_ok=True)
        chosen |= {"trt_timing_cache_enable": "1", "trt_timing_cache_path": str(timings)}
    return [(TENSORRT, chosen), (CUDA, cuda)]


def _shapes(model: Model, plan: Plan, place: int) -> str:
    """One bound of every profile, as the provider reads it: ``ids:1x16,mask:1x16``, the names again for each further profile."""
    return ",".join(
        f"{name}:{'x'.join(map(str, sizes[place]))}" for one in _tensorrt_build.shapes(model, plan) for name, sizes in one.items()
    )


def open_session(model: Model, plan: Plan, path: Path, profile: Path | None = None) -> Any:
    """An ``onnxruntime.InferenceSession``; with ``profile``, one that traces its calls and saves the graph that it runs in that folder.

    Raises:
        UnsupportedError: other providers or options than those asked for would run, or the graph holds an operator that is not there.
        ArtifactError: the file cannot be read.
    """
    import onnxruntime

    wanted = providers(model, plan, path.parent, building=profile is not None)
    for name, _ in wanted:
        if name not in onnxruntime.get_available_providers():
            raise other(name, "CPUExecutionProvider")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = plan.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what it would log is raised
    # Threads that spin after a call take the CPUs from whatever runs next: PyTorch's operators become tens of times slower.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile / "profile")
        if plan.mode != "tensorrt":  # a graph that holds compiled parts cannot be saved
            options.optimized_model_filepath = str(profile / OPTIMISED)
    try:
        session = onnxruntime.InferenceSession(path, options, providers=wanted)
    except Exception as error:  # ONNX Runtime's errors share no base class
        if plan.mode == "cuda_graph" and "graph capture" in str(error):
            raise UnsupportedError(
                f"{model.name} cannot be recorded as a CUDA graph: {first_line(error)}.",
                "Choose mode=default; a graph holds no CPU operators.",
            ) from error
        raise _onnx_export.lacking(model, error) or ArtifactError(
            f"{path.name} of {model.name} cannot be loaded: {first_line(error)}.", "Build the artifact again."
        ) from error
    loaded(session.get_providers(), session.get_provider_options(), wanted)
    return session


def loaded(names: Sequence[str], options: Mapping[str, Mapping[str, str]], wanted: Sequence[tuple[str, Mapping[str, str]]]) -> None:
    """Compare what a session has with what was asked for.

    Args:
        names: its providers, first choice first; the CPU's, which it adds by itself, comes last.
        options: those that each provider holds.
        wanted: as :func:`providers` gives them.

    Raises:
        UnsupportedError: another provider, another order or another option.
    """
    for place, (name, asked) in enumerate(wanted):
        found = names[place] if place < len(names) else "none"
        if found != name:
            raise other(name, found)
        for key, value in asked.items():
            if (held := options.get(name, {}).get(key)) != value:
                raise UnsupportedError(
                    f"ONNX Runtime was asked for {key}={value}, and its {name} holds {held or 'no such option'}.",
                    "Install the onnxruntime-gpu that this project pins: accel check says which.",
                )


def other(wanted: str, found: str) -> UnsupportedError:
    """What is said of a provider that did not load, with another in its place."""
    library = f"CUDA, cuDNN and TensorRT {TENSORRT_MAJOR}" if wanted == TENSORRT else "CUDA and cuDNN"
    return UnsupportedError(
        f"ONNX Runtime was asked for {wanted}; {found} would have run.",
        f"Choose device=cpu, or install onnxruntime-gpu with the {library} that it needs: accel check says which.",
    )


def stayed(ran: Iterable[Ran], plan: Plan) -> dict[str, Any]:
    """Where the operators of a call ran: how many on each provider, and on a GPU which were left to a later one, and why.

    Raises:
        UnsupportedError: on a GPU a product or convolution ran on the CPU; or TensorRT was asked for and ran nothing.
    """
    operators = list(ran)
    counts = Counter(one.provider for one in operators)
    report: dict[str, Any] = {"providers": dict(counts)}
    if plan.device != "cuda":
        return report
    if heavy := sorted({one.operator for one in operators if one.provider == CPU and _HEAVY.search(one.operator)}):
        raise UnsupportedError(
            f"{plan.label} was asked for, and {', '.join(heavy)} would run on the CPU: the CUDA provider lacks them in this type.",
            "Choose another precision, or engine=pytorch.",
        )
    if plan.mode == "tensorrt" and not counts[TENSORRT]:
        elsewhere = ", ".join(f"{count} operators on {name}" for name, count in counts.items())
        raise UnsupportedError(
            f"{plan.label} was asked for, and TensorRT took none of the graph: {elsewhere}.",
            "Choose mode=default, or engine=tensorrt, which says what it refuses.",
        )
    first = TENSORRT if plan.mode == "tensorrt" else CUDA
    reasons = {CUDA: "the TensorRT provider does not take it", CPU: "it computes shapes, or has no kernel on the GPU"}
    left = Counter((one.operator, one.provider) for one in operators if one.provider != first)
    report["left"] = {
        f"{operator} on {name}": f"{count} times: {reasons.get(name, '')}" for (operator, name), count in sorted(left.items())
    }
    return report

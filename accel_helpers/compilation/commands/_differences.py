"""Why the same intent reads differently in each version of TensorRT, with the page that says so."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from accel_helpers.compilation.commands._intent import Intent, typed

_DOCS = "https://docs.nvidia.com/deeplearning/tensorrt/11.4.1"
_RTX = "https://docs.nvidia.com/deeplearning/tensorrt-rtx/latest/inference-library"
_TO_10 = f"{_DOCS}/api/migration/tensorrt-8x-to-10x-trtexec.html"
_TO_10_PYTHON = "https://docs.nvidia.com/deeplearning/tensorrt/latest/api/migration/tensorrt-8x-to-10x-python-api-reference.html"
_TO_11 = f"{_DOCS}/api/migration/tensorrt-10x-to-11x-trtexec.html"
_TO_11_PYTHON = "https://docs.nvidia.com/deeplearning/tensorrt/latest/api/migration/tensorrt-10x-to-11x-python-api-reference.html"
_SOURCE = "https://github.com/NVIDIA/TensorRT/blob/main/samples/common/sampleOptions.cpp"
_BINDINGS = "the names in tensorrt-bindings 8.6.1, tensorrt-stubs 10.13 and tensorrt-cu13-bindings 11.4.0, all on PyPI"


@dataclass(frozen=True)
class Difference:
    """What differs between versions, and why."""

    what: str
    why: str
    source: str  # the page, file or package that says so


@dataclass(frozen=True)
class _Fact:
    versions: Collection[str]  # whose readers should know
    used: Callable[[Intent], object]  # whether the intent asks for it
    difference: Difference


def _short(intent: Intent) -> bool:
    return intent.precision not in ("fp32", "tf32")


_ALL = ("8", "10", "11", "rtx")
_FACTS = (
    _Fact(
        _ALL,
        lambda intent: intent.workspace_bytes,
        Difference(
            "--workspace=N became --memPoolSize=workspace:N; max_workspace_size became set_memory_pool_limit(WORKSPACE, bytes)",
            "the workspace is one of several memory pools; the old names were deprecated in 8 and removed in 10",
            _TO_10,
        ),
    ),
    _Fact(
        _ALL,
        _short,
        Difference(
            "8 and 10 enable a type (--fp16, --int8, BuilderFlag.FP16 …); 11 and RTX have neither flag",
            "11 and RTX build strongly typed networks only, so the types are those in the ONNX file; 10 deprecated the flags in 10.12",
            _TO_11,
        ),
    ),
    _Fact(
        ("10", "11"),
        lambda intent: typed(intent, "10"),
        Difference(
            "--stronglyTyped and STRONGLY_TYPED are asked for in 10 and left out in 11",
            "in 10 a typed network is a choice, which weight streaming needs; in 11 every network is one, and the flag does nothing",
            _SOURCE,
        ),
    ),
    _Fact(
        _ALL,
        lambda intent: intent.precision == "int8",
        Difference(
            "8 and 10 can take the ranges from a calibration cache (--calib, IInt8EntropyCalibrator2); 11 and RTX cannot",
            "implicit quantization was deprecated in 10.1 and removed in 11: Q/DQ pairs in the ONNX file say what is quantized",
            _TO_11_PYTHON,
        ),
    ),
    _Fact(
        _ALL,
        lambda intent: True,
        Difference(
            "create_network(1 << EXPLICIT_BATCH) in 8 is create_network(0) later",
            "8 still built networks without a batch axis; 10 ignores the flag, and 11 and RTX do not have it",
            _BINDINGS,
        ),
    ),
    _Fact(
        _ALL,
        lambda intent: True,
        Difference(
            "build_engine became build_serialized_network",
            "8 has both; 10 kept only the one that gives the bytes to write to a file",
            _TO_10_PYTHON,
        ),
    ),
    _Fact(
        _ALL,
        lambda intent: True,
        Difference(
            "to run the engine: execute_async_v2 with a list of bindings became execute_async_v3 with named tensors",
            "10 removed the bindings that were counted by position; set_tensor_address names each tensor",
            _TO_10_PYTHON,
        ),
    ),
    _Fact(
        ("8", "10"),
        lambda intent: True,
        Difference(
            "--buildOnly became --skipInference",
            "the help of 8.6 lists the new name alone, and 10 does not know the old one: write --buildOnly up to 8.5",
            _SOURCE,
        ),
    ),
    _Fact(
        ("8", "10", "11"),
        lambda intent: len(intent.shapes) > 1,
        Difference(
            "--profile=0 --minShapes … --profile=1 … exists in 10 and 11",
            "trtexec 8.6 has one set of shapes, so one profile; its Python interface takes several",
            _SOURCE,
        ),
    ),
    _Fact(
        ("10", "11", "rtx"),
        lambda intent: intent.weight_streaming,
        Difference(
            "--allowWeightStreaming and WEIGHT_STREAMING exist since 10",
            "the weights can stay in host memory; how much of them does is set when the engine runs (weight_streaming_budget_v2)",
            f"{_DOCS}/inference-library/weight-streaming.html",
        ),
    ),
    _Fact(
        ("rtx",),
        lambda intent: intent.timing_cache,
        Difference(
            "RTX gets no timing cache",
            "it times no kernels while it builds: the cache does nothing and asks for a GPU; a runtime cache keeps what it compiles later",
            f"{_RTX}/timing-cache-migration.html",
        ),
    ),
    _Fact(
        ("rtx",),
        lambda intent: True,
        Difference(
            "trtexec is tensorrt_rtx, and import tensorrt is import tensorrt_rtx",
            "it is another library beside TensorRT; neither reads the engines of the other",
            f"{_RTX}/porting.html",
        ),
    ),
    _Fact(
        _ALL,
        lambda intent: intent.capabilities,
        Difference(
            "RTX names the GPUs to build for (--computeCapabilities, set_compute_capability); the others build for the GPU that is there",
            "RTX compiles ahead of time without a GPU and finishes on the one that runs the engine; TensorRT times kernels on its own",
            f"{_RTX}/cpu-engines.html",
        ),
    ),
)


def differences(intent: Intent, version: str) -> tuple[Difference, ...]:
    """Those that a reader of a version's commands should know: of what the intent asks for, and nothing else."""
    return tuple(fact.difference for fact in _FACTS if version in fact.versions and fact.used(intent))

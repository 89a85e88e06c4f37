"""An intent as one command of ``trtexec``, or of ``tensorrt_rtx``, which took its place in TensorRT-RTX.

The flags are those of ``trtexec --help`` in 8.6, 10.x and 11.x (``samples/common/sampleOptions.cpp`` in github.com/NVIDIA/TensorRT) and
those that the pages of TensorRT-RTX name: :data:`_RTX_LACKS` is what they do not.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from accel_helpers.compilation.commands._intent import USUAL_LEVEL, VERSIONS, Intent, Shapes, commented, notes, typed

_RTX_LACKS = "tensorrt_rtx: its documentation names no flag for {}; the Python code has it."
_ENDS = ("min", "opt", "max")


def trtexec(intent: Intent, version: str) -> str:
    """The command, with what a reader must know in comments before it; comments alone where the tool cannot build it.

    Units: memory in MiB, as the tool reads it.
    """
    said = notes(intent, version)
    if len(intent.shapes) > 1 and version in ("8", "rtx"):
        tool = "tensorrt_rtx" if version == "rtx" else f"trtexec of {VERSIONS[version]}"
        return commented(
            [*said, f"{tool} builds one optimization profile as far as it is documented, and {len(intent.shapes)} are asked for:"]
        ) + ("# take the Python code or Polygraphy.\n")
    if version == "rtx":
        said += [_RTX_LACKS.format(what) for what in _lacking(intent)]
    tool = "tensorrt_rtx" if version == "rtx" else "trtexec"
    flags = [f"--onnx={intent.onnx}", f"--saveEngine={intent.engine}", "--skipInference"]
    flags += [*_profiles(intent.shapes), *_types(intent, version), *_options(intent, version)]
    return commented(said) + " \\\n  ".join([tool, *(shlex.quote(flag) for flag in flags)]) + "\n"


def _lacking(intent: Intent) -> Iterator[str]:
    if intent.precision != "tf32":
        yield "turning TF32 off"
    if intent.workspace_bytes:
        yield "the workspace limit"
    if intent.optimization_level != USUAL_LEVEL:
        yield "the optimization level"


def _profiles(shapes: tuple[Shapes, ...]) -> Iterator[str]:
    for number, profile in enumerate(shapes):
        if len(shapes) > 1:
            yield f"--profile={number}"
        for end, word in enumerate(_ENDS):
            yield f"--{word}Shapes=" + ",".join(f"{name}:{'x'.join(map(str, sizes[end]))}" for name, sizes in profile.items())


def _types(intent: Intent, version: str) -> Iterator[str]:
    if intent.precision != "tf32" and version != "rtx":
        yield "--noTF32"
    if version == "10" and typed(intent, version):
        yield "--stronglyTyped"
    if typed(intent, version) or intent.precision in ("fp32", "tf32"):
        return
    yield f"--{intent.precision}"
    if intent.calibration_cache:
        yield f"--calib={intent.calibration_cache}"


def _options(intent: Intent, version: str) -> Iterator[str]:
    if version == "rtx":
        if intent.capabilities:
            yield "--computeCapabilities=" + ",".join(one.replace(".", "") for one in intent.capabilities)
    else:
        yield from _limits(intent, version)
    if intent.refit:
        yield "--refit"
    if intent.weight_streaming:
        yield "--allowWeightStreaming"


def _limits(intent: Intent, version: str) -> Iterator[str]:
    workspace: Mapping[str, str] = {"8": "--workspace={}"}
    if intent.workspace_bytes:
        yield workspace.get(version, "--memPoolSize=workspace:{}").format(-(-intent.workspace_bytes // 2**20))
    if intent.optimization_level != USUAL_LEVEL:
        yield f"--builderOptimizationLevel={intent.optimization_level}"
    if intent.timing_cache:
        yield f"--timingCacheFile={intent.timing_cache}"

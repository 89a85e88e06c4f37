"""An intent as one command of Polygraphy, which knows TensorRT from 8.5 on and, by an environment variable, TensorRT-RTX.

Polygraphy turns TF32 off unless ``--tf32`` is given; for TensorRT-RTX it leaves it on (``polygraphy/backend/trt/config.py``, 0.53).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from accel_helpers.compilation.commands._intent import USUAL_LEVEL, Intent, Shapes, commented, notes, typed

_ENDS = ("min", "opt", "max")


def polygraphy(intent: Intent, version: str) -> str:
    """The command, with what a reader must know in comments before it. Units: memory in bytes, as the tool reads it."""
    said = notes(intent, version)
    if version == "rtx" and intent.precision != "tf32":
        said.append("Polygraphy leaves TF32 on in TensorRT-RTX; the Python code turns it off.")
    if intent.precision == "int8" and not typed(intent, version) and not intent.calibration_cache:
        said.append("Without such pairs, Polygraphy would calibrate with random numbers and say so in its log only.")
    words = ["polygraphy", "convert", intent.onnx, "-o", intent.engine, "--convert-to", "trt"]
    lines = [shlex.join(words), *(shlex.join(one) for one in _flags(intent, version))]
    prefix = "POLYGRAPHY_USE_TENSORRT_RTX=1 " if version == "rtx" else ""
    return commented(said) + prefix + " \\\n  ".join(lines) + "\n"


def _flags(intent: Intent, version: str) -> Iterator[list[str]]:
    """Each flag with its values."""
    for shapes in intent.shapes:
        yield from _profile(shapes)
    yield from _types(intent, version)
    if intent.workspace_bytes:
        yield ["--pool-limit", f"workspace:{intent.workspace_bytes}"]
    if intent.optimization_level != USUAL_LEVEL:
        yield ["--builder-optimization-level", str(intent.optimization_level)]
    if intent.refit:
        yield ["--refittable"]
    if intent.weight_streaming:
        yield ["--weight-streaming"]
    if version == "rtx" and intent.capabilities:
        yield ["--compute-capabilities", *intent.capabilities]
    if intent.timing_cache and version != "rtx":
        yield ["--load-timing-cache", intent.timing_cache, "--save-timing-cache", intent.timing_cache]


def _profile(shapes: Shapes) -> Iterator[list[str]]:
    for end, word in enumerate(_ENDS):
        yield [f"--trt-{word}-shapes", *(f"{name}:[{','.join(map(str, sizes[end]))}]" for name, sizes in shapes.items())]


def _types(intent: Intent, version: str) -> Iterator[list[str]]:
    if intent.precision == "tf32" and version != "rtx":
        yield ["--tf32"]
    if version == "10" and typed(intent, version):
        yield ["--strongly-typed"]
    if not typed(intent, version) and intent.precision not in ("fp32", "tf32"):
        yield [f"--{intent.precision}"]
    if intent.calibration_cache and not typed(intent, version):
        yield ["--calibration-cache", intent.calibration_cache]

"""What an engine should be, whatever TensorRT builds it; and which version can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accel_helpers.engines._tensorrt_types import PRECISIONS
from accel_helpers.errors import ModelError, ParameterError, UnknownNameError, UnsupportedError
from accel_helpers.records import Profile

VERSIONS: Mapping[str, str] = {"8": "TensorRT 8.6", "10": "TensorRT 10", "11": "TensorRT 11", "rtx": "TensorRT-RTX"}
"""The versions with commands of their own, oldest first, and their names. Of the eighth, the last one is meant."""
USUAL_LEVEL = 3
Shapes = Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]
"""Input name -> its least, usual and greatest shape."""

_WRITERS = {
    "fp16": "engine=tensorrt precision=fp16 does that before it builds, with onnxruntime.transformers.float16",
    "bf16": "engine=tensorrt precision=bf16 does that before it builds: every FP32 value is rounded, inputs and outputs apart",
    "int8": "engine=tensorrt precision=int8 symmetric=true does that before it builds: signed scales around zero before each product",
    "fp8": "engine=tensorrt precision=fp8 symmetric=true does that before it builds: signed scales around zero before each product",
}


@dataclass(frozen=True)
class Intent:
    """One engine to build. Nothing here is a version's own word for it.

    Raises:
        ParameterError: an unknown precision, an optimization level or a size out of range, a name that is no line,
            or a calibration cache without INT8.
    """

    onnx: str  # the file to read
    engine: str  # the file to write
    inputs: Mapping[str, tuple[int | str, ...]]  # name -> sizes of its axes: a number, or "batch" or "sequence" where the axis is open
    profiles: tuple[Profile, ...]
    precision: str = "fp32"
    workspace_bytes: int = 0  # 0 leaves TensorRT's own limit
    timing_cache: str = ""  # a file; empty for none
    optimization_level: int = USUAL_LEVEL
    refit: bool = False
    weight_streaming: bool = False
    capabilities: tuple[str, ...] = ()  # "8.9" …: what TensorRT-RTX builds for; empty leaves its own choice
    calibration_cache: str = ""  # a file with the ranges for implicit INT8; empty where the graph holds its Q/DQ pairs

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ParameterError(f"There are no TensorRT commands for precision={self.precision}.", f"Choose {', '.join(PRECISIONS)}.")
        if not 0 <= self.optimization_level <= 5 or self.workspace_bytes < 0:
            raise ParameterError(
                f"optimization_level={self.optimization_level}, workspace={self.workspace_bytes} bytes: one is out of range.",
                "The level goes from 0 to 5, and the workspace is no less than 0.",
            )
        if any(not name.isprintable() for name in (self.onnx, self.engine, self.timing_cache, self.calibration_cache, *self.inputs)):
            raise ParameterError("A file or an input has a line break or another control character in its name.", "Rename it.")
        if self.calibration_cache and self.precision != "int8":
            raise ParameterError(f"A calibration cache is of no use to {self.precision.upper()}.", "Choose precision=int8, or name none.")

    @property
    def shapes(self) -> tuple[Shapes, ...]:
        """For each profile the shapes of the inputs with an open axis; empty where no input has one.

        Raises:
            ModelError: an open axis is neither batch nor sequence, or a profile lacks the sequence.
        """
        opened = {name: sizes for name, sizes in self.inputs.items() if any(isinstance(size, str) for size in sizes)}
        if not opened:
            return ()
        return tuple({name: _shapes(name, sizes, profile) for name, sizes in opened.items()} for profile in self.profiles)


def _shapes(name: str, sizes: tuple[int | str, ...], profile: Profile) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    chosen = {"batch": profile.batch, "sequence": profile.sequence}

    def size(of: int | str, end: int) -> int:
        if isinstance(of, int):
            return of
        if not (ends := chosen.get(of)):
            raise ModelError(
                f"The profile says nothing of the open axis {of!r} of input {name!r}.", "Fix that axis, or give the profile one."
            )
        return ends[end]

    least, usual, greatest = (tuple(size(of, end) for of in sizes) for end in range(3))
    return least, usual, greatest


def check(intent: Intent, version: str) -> None:
    """Raise unless a version can build what is asked for.

    Raises:
        UnknownNameError: no such version.
        UnsupportedError: TensorRT 8 has no BF16 (``BuilderFlag.BF16`` is missing from its bindings), no FP8 (its ``NvInferRuntimeBase.h``:
            "kFP8 is not supported yet") and no weight streaming (its bindings have no such flag).
    """
    if version not in VERSIONS:
        raise UnknownNameError("TensorRT version", version, VERSIONS)
    if version == "8" and (intent.precision in ("bf16", "fp8") or intent.weight_streaming):
        lacking = "weight streaming" if intent.weight_streaming else intent.precision.upper()
        raise UnsupportedError(f"{VERSIONS[version]} has no {lacking}.", "Choose --tensorrt 10, 11 or rtx.")


def typed(intent: Intent, version: str) -> bool:
    """Whether the network is strongly typed, so that the types in the ONNX file are those that run.

    TensorRT 11 and RTX know no other networks. In TensorRT 10 weight streaming asks for it (``trtexec --help``), and its FP8 flag
    speaks of plugins alone (``BuilderFlag.FP8``: "Enable plugins with FP8 input/output").
    """
    return version in ("11", "rtx") or (version == "10" and (intent.weight_streaming or intent.precision == "fp8"))


def notes(intent: Intent, version: str) -> list[str]:
    """What a reader must know before running any of a version's texts, a sentence each."""
    found = []
    if typed(intent, version):
        found.append(_types(intent))
    elif intent.precision == "int8" and not intent.calibration_cache:
        found.append(f"{intent.onnx} must hold pairs of QuantizeLinear and DequantizeLinear: {_WRITERS['int8']}.")
    if intent.calibration_cache and typed(intent, version):
        found.append(f"{intent.calibration_cache} is of no use here: {VERSIONS[version]} takes its scales from the ONNX file alone.")
    if version == "rtx" and intent.refit:
        found.append("An engine that can be refitted is built on a machine with a GPU only.")
    return found


def _types(intent: Intent) -> str:
    if intent.precision in ("fp32", "tf32"):
        return f"The network is strongly typed: {intent.onnx} must hold FP32, which an export does."
    what = f"{intent.precision.upper()} {'Q/DQ pairs' if intent.precision in ('int8', 'fp8') else 'types'}"
    return f"The network is strongly typed: {intent.onnx} must already hold the {what}; {_WRITERS[intent.precision]}."


def commented(lines: list[str]) -> str:
    """Lines as comments of a shell or of Python."""
    return "".join(f"# {line}\n" for line in lines)

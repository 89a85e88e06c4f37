"""RunConfig: the one typed schema behind widget, notebook parameter, command-line flag and YAML file.

>>> RunConfig(precision="bf16", batch=8).batch
8
>>> [c.precision for c in RunConfig.sweep(["precision=fp32,bf16"])]
['fp32', 'bf16']
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from accel_helpers.errors import ParameterError, UnknownNameError

Precision = Literal["fp32", "tf32", "bf16", "fp16", "int8", "int4", "fp8"]
Scheme = Literal["auto", "dynamic", "static", "weight_only", "accuracy_control", "qat"]
Calibrator = Literal["minmax", "entropy", "percentile"]
CalibrationData = Literal["representative", "one_class", "unnormalised", "noise"]
Switch = Literal["auto", "on", "off"]
Rest = Literal["fp32", "bf16"]
Device = Literal["cpu", "cuda"]
Hint = Literal["latency", "throughput"]
Simplifier = Literal["off", "onnxsim", "onnxslim"]

PRECISIONS: tuple[str, ...] = get_args(Precision)
DEVICES: tuple[str, ...] = get_args(Device)
HINTS: tuple[str, ...] = get_args(Hint)
QUANTIZED: tuple[str, ...] = ("int8", "int4", "fp8")
"""The precisions that a model must be quantized to; the fields from ``scheme`` to ``keep`` speak of these alone."""
KEEP = "+"
"""Between the layers in ``keep``: a comma means a sweep on the command line."""
SCHEMES: tuple[str, ...] = get_args(Scheme)


class RunConfig(BaseModel):
    """What to run and how long to measure it. Every field is a scalar, so that it fits a widget, a flag and a YAML line."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)

    model: str = Field("text-encoder", description="built-in name, ONNX file, Hugging Face id or folder, or module:function")
    engine: str = Field("pytorch", description="a name in accel_helpers/engines")
    precision: Precision = Field("fp32", description="the type the heavy operators run in")
    scheme: Scheme = Field("auto", description="how a model is quantized; auto takes the engine's own choice for the model")
    calibration: int = Field(64, ge=1, le=4096, description="samples to take the ranges of activations from, where the scheme needs them")
    calibrator: Calibrator = Field("minmax", description="how a range is taken from the calibration samples")
    calibration_data: CalibrationData = Field("representative", description="what to calibrate with; all but the first are experiments")
    per_channel: bool = Field(True, description="one scale for each output channel of a weight, or one for the whole weight")
    symmetric: bool = Field(False, description="activations as signed integers around zero (S8S8), or unsigned with a zero point (U8S8)")
    reduce_range: Switch = Field("auto", description="weights in seven bits; auto where the processor's INT8 products would overflow")
    rest: Rest = Field("fp32", description="the type of what is not quantized")
    keep: str = Field("", description="names of layers to leave unquantized, with + between them")
    device: Device = Field("cpu", description="where the model runs")
    batch: int = Field(1, ge=1, le=4096, description="items per call")
    sequence: int = Field(128, ge=2, le=8192, description="tokens per item, for models that read sequences")
    threads: int = Field(0, ge=0, le=1024, description="compute threads; 0 takes every CPU this process may use")
    hint: Hint = Field("latency", description="what the engine optimises for, where it lets one choose")
    mode: str = Field("default", description="how the engine runs: one of its modes (Engine.modes): cuda_graph …")
    simplifier: Simplifier = Field("off", description="what rewrites an exported ONNX graph before an engine reads it")
    profiles: str = Field(
        "",
        description="TensorRT's optimization profiles, least/usual/greatest as batch x sequence (1x16/8x128/32x256), with + between them",
    )
    workspace: int = Field(0, ge=0, le=1024 * 1024, description="MiB of scratch memory that TensorRT may plan with; 0 leaves its own limit")
    optimization_level: int = Field(3, ge=0, le=5, description="TensorRT's builder_optimization_level: how long it searches for kernels")
    refit: bool = Field(False, description="whether the weights of a built TensorRT engine can be replaced")
    weight_streaming: bool = Field(False, description="whether a TensorRT engine may keep its weights in host memory")
    rounds: int = Field(12, ge=6, le=500, description="rounds per measurement: the unit of evidence")
    seconds: float = Field(3.0, gt=0, le=3600, description="time to spend sampling one plan, warm-up apart")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="orders the interleaving and draws the inputs")

    def __init__(self, **values: Any) -> None:
        unknown = [name for name in values if name not in type(self).model_fields]
        if unknown:
            raise UnknownNameError("parameter", unknown[0], type(self).model_fields)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _parameter_error(error) from None
        self.sizes  # noqa: B018 - a profile that is not one is refused here

    @property
    def kept(self) -> tuple[str, ...]:
        """The layers that ``keep`` names."""
        return tuple(sorted({name.strip() for name in self.keep.split(KEEP)} - {""}))

    @property
    def sizes(self) -> tuple[tuple[tuple[int, int | None], ...], ...]:
        """What ``profiles`` says: of each profile three (batch, sequence), the sequence None where none is written.

        Raises:
            ParameterError: it is not written so, or its sizes fall.
        """
        return tuple(_sizes(one) for one in self.profiles.split(KEEP)) if self.profiles else ()

    def replace(self, **changes: Any) -> Self:
        """A checked copy with some fields changed."""
        return type(self)(**{**self.model_dump(), **changes})

    @classmethod
    def parse(cls, settings: Iterable[str], **defaults: Any) -> Self:
        """One configuration from ``name=value`` strings.

        Raises:
            ParameterError: a setting is malformed, unknown, ill-typed, or lists several values.
        """
        configs = cls.sweep(settings, **defaults)
        if len(configs) != 1:
            raise ParameterError(
                f"One configuration was expected; these settings give {len(configs)}.", "Name one value for each parameter."
            )
        return configs[0]

    @classmethod
    def sweep(cls, settings: Iterable[str], **defaults: Any) -> list[Self]:
        """Every combination of ``name=value[,value…]`` strings, in the order written."""
        axes: dict[str, list[Any]] = {}
        for setting in settings:
            name, separator, values = setting.partition("=")
            if not separator or (not values and name not in ("keep", "profiles")):
                raise ParameterError(f"{setting!r} is not a setting.", "Write name=value, or name=value,value to sweep.")
            if name not in cls.model_fields:
                raise UnknownNameError("parameter", name, cls.model_fields)
            axes[name] = [cls._scalar(name, value) for value in values.split(",")]
        return [cls(**{**defaults, **dict(zip(axes, values, strict=True))}) for values in itertools.product(*axes.values())]

    @classmethod
    def from_yaml(cls, path: Path) -> Self:
        """One configuration from a YAML mapping.

        Raises:
            ParameterError: the file is missing, is not a mapping, or holds a bad parameter.
        """
        import yaml

        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise ParameterError(f"The configuration {path} cannot be read: {error.strerror}.", "Check the path.") from None
        except yaml.YAMLError as error:
            raise ParameterError(f"{path} is not YAML: {error}.".replace("\n", " "), "Write one `name: value` a line.") from None
        if not isinstance(values, dict):
            raise ParameterError(f"{path} holds a {type(values).__name__}, not a mapping.", "Write one `name: value` a line.")
        return cls(**{str(name): value for name, value in values.items()})

    @classmethod
    def from_namespace(cls, namespace: Mapping[str, Any]) -> Self:
        """The configuration in a notebook's namespace, read right after its parameter cell.

        Papermill only logs a parameter that no cell declares and then runs on the defaults. Here every scalar in the namespace must
        be a field of RunConfig, so a mistyped name stops the notebook before anything runs.
        """
        scalars = {
            name: value for name, value in namespace.items() if isinstance(value, bool | int | float | str) and not name.startswith("_")
        }
        return cls(**scalars)

    @classmethod
    def _scalar(cls, name: str, text: str) -> Any:
        kind = cls.model_fields[name].annotation
        if kind is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind not in (int, float):
            return text
        try:
            return kind(text)
        except ValueError:
            raise ParameterError(
                f"{name}={text!r} is not of type {kind.__name__}.", f"Expected: {cls.model_fields[name].description}."
            ) from None


def _sizes(text: str) -> tuple[tuple[int, int | None], ...]:
    if not re.fullmatch(r"\d+(x\d+)?(/\d+(x\d+)?){2}", text.strip()):
        raise ParameterError(
            f"profiles: {text!r} is no profile.",
            "Write least/usual/greatest, each batch x sequence (1x16/8x128/32x256) or batch alone (1/8/32).",
        )
    sizes = [[int(number) for number in size.split("x")] for size in text.strip().split("/")]
    columns = list(zip(*sizes, strict=False))
    if len({len(size) for size in sizes}) > 1 or any(list(column) != sorted(column) or not column[0] for column in columns):
        raise ParameterError(
            f"profiles: the sizes in {text!r} fall, hold a zero, or name a sequence in some places only.", "Write least/usual/greatest."
        )
    return tuple((size[0], size[1] if len(size) > 1 else None) for size in sizes)


def _parameter_error(error: ValidationError) -> ParameterError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    expected = RunConfig.model_fields[name].description
    return ParameterError(f"Parameter {name}={first['input']!r} is refused: {first['msg'].lower()}.", f"It is: {expected}.")

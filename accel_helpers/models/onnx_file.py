"""A model of the reader's own in an ONNX file: inputs, axes and example values read from its graph."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.errors import ModelError
from accel_helpers.models import onnx_weights
from accel_helpers.models.model import Array, Model

_DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
_SMALL = 10  # integers are drawn below this, for they may index a table of unknown length


@dataclass(frozen=True)
class _Value:
    """An input or output: ``shape`` holds a number where an axis is fixed, and a name where it is open."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def axes(self) -> dict[int, str]:
        return {axis: size for axis, size in enumerate(self.shape) if isinstance(size, str)}


def from_onnx(name: str) -> Model:
    """The model in the ONNX file ``name``. Weights beside the file are read from its own folder only.

    Raises:
        ModelError: no such file, not a valid ONNX graph, weights that are missing or lie outside the folder, or values that are no tensors.
    """
    path = Path(name).expanduser()
    if not path.is_file():
        raise ModelError(f"There is no file {name}.", "Check the path.")
    graph, weights = _read(path)
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [_value(one, name) for one in graph.input if one.name not in constants]
    outputs = [_value(one, name) for one in graph.output]
    digest = hashlib.sha256()
    for file in (path, *weights):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return Model(
        name=name,
        example=lambda batch, sequence, seed: _example(name, inputs, batch, sequence, seed),
        axes={value.name: value.axes for value in (*inputs, *outputs)},
        outputs=tuple(value.name for value in outputs),
        fingerprint=digest.hexdigest(),
        onnx=path.resolve(),
        has_sequence=any("sequence" in value.axes.values() for value in inputs),
        notes={"source": f"the reader's file {path.name}"},
    )


def _read(path: Path) -> tuple[Any, list[Path]]:
    """The checked graph without its external weights, and the files that hold those."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(path, load_external_data=False)
        weights = onnx_weights.beside(path, model)
        onnx.checker.check_model(str(path))
    except (DecodeError, onnx.checker.ValidationError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(
            f"{path.name} is not a valid ONNX model: {reason}.", "Export it again, or copy it again if the copy was cut short."
        ) from None
    return model.graph, weights


def _value(info: Any, model: str) -> _Value:
    import onnx

    if info.type.WhichOneof("value") != "tensor_type":
        kind = info.type.WhichOneof("value") or "nothing"
        raise ModelError(f"{model}: {info.name} is a {kind}, not a tensor.", "Export a graph whose inputs and outputs are tensors.")
    tensor = info.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower().replace("double", "float64").removesuffix("_")
    dtype = {"float": "float32"}.get(dtype, dtype)
    shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim]
    roles = [size if isinstance(size, int) else _role(info.name, dtype, len(shape), axis, size) for axis, size in enumerate(shape)]
    return _Value(info.name, dtype, tuple(roles))


def _role(value: str, dtype: str, rank: int, axis: int, name: str) -> str:
    """What an open axis means, by its name where it tells, else by its place."""
    lower = name.lower()
    if any(word in lower for word in ("seq", "len", "token", "time")):
        return "sequence"
    if axis == 0 or "batch" in lower:
        return "batch"
    if axis == 1 and rank == 2 and dtype.startswith("int"):
        return "sequence"
    return name or f"{value}_{axis}"


def _example(model: str, inputs: list[_Value], batch: int, sequence: int, seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    sizes = {"batch": batch, "sequence": sequence}
    made = {}
    for value in inputs:
        open_axes = [axis for axis in value.axes.values() if axis not in sizes]
        if open_axes:
            raise _missing(model, inputs, f"the size of the open axis {open_axes[0]!r} of input {value.name!r} cannot be guessed")
        if value.dtype not in _DTYPES:
            raise _missing(model, inputs, f"input {value.name!r} is of type {value.dtype}, for which no values can be guessed")
        if value.shape and isinstance(value.shape[0], int) and value.shape[0] != batch:
            raise ModelError(
                f"{model} takes batches of {value.shape[0]} only; {batch} was asked for.", "Export it with an open first axis."
            )
        made[value.name] = _values(value, tuple(sizes.get(str(size), size) for size in value.shape), generator)
    return made


def _values(value: _Value, shape: tuple[Any, ...], generator: np.random.Generator) -> Array:
    if "mask" in value.name.lower() or value.dtype == "bool":
        return np.ones(shape, value.dtype)
    if "token_type" in value.name.lower():
        return np.zeros(shape, value.dtype)
    drawn = generator.normal(size=shape) if value.dtype.startswith("float") else generator.integers(_SMALL, size=shape)
    return drawn.astype(value.dtype)


def _missing(model: str, inputs: list[_Value], what: str) -> ModelError:
    arrays = ", ".join(f"{value.name!r}: …" for value in inputs)
    return ModelError(
        f"{model} needs example inputs from you: {what}.",
        f"In a file mine.py write `def model(): return dataclasses.replace(accel_helpers.models.get({model!r}), "
        f"example=lambda batch, sequence, seed: {{{arrays}}})` with NumPy arrays, and name the model mine:model.",
    )

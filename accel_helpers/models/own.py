"""Find a model by what the reader calls it: a built-in name, or a model of their own."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path

from accel_helpers.errors import ModelError, UnknownNameError
from accel_helpers.models.model import Model

_ZOO: Mapping[str, str] = {"digits": "digits:model", "text-encoder": "text_encoder:model", "vision-classifier": "vision:model"}
_TINY: Mapping[str, str] = {"tiny-cnn": "tiny:cnn", "tiny-attention": "tiny:attention"}


def names() -> tuple[str, ...]:
    """The built-in models. ``get`` also knows ``tiny-cnn`` and ``tiny-attention``, which exist for tests."""
    return tuple(sorted(_ZOO))


def get(name: str) -> Model:
    """The model of that name. A built-in one costs nothing until its network or its data are asked for.

    Args:
        name: a built-in name; a file ending in ``.onnx``; a Hugging Face folder or ``owner/name`` id; or ``package.module:function``,
            a function without arguments that answers a ``torch.nn.Module`` or a :class:`Model`. The function of a Module carries the
            example inputs as its attribute ``example``, a callable like ``Model.example``.

    Raises:
        UnknownNameError: none of these.
        ModelError: a model of the reader's own that cannot be found, read or understood; the message says what is missing.
    """
    if place := {**_ZOO, **_TINY}.get(name):
        module, _, function = place.partition(":")
        model: Model = getattr(importlib.import_module(f"accel_helpers.models.{module}"), function)()
        return model
    if name.lower().endswith(".onnx"):
        from accel_helpers.models.onnx_file import from_onnx

        return from_onnx(name)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        from accel_helpers.models.function import from_function

        return from_function(name)
    if Path(name).is_dir() or re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        from accel_helpers.models.huggingface import from_huggingface

        return from_huggingface(name)
    if "/" in name or "\\" in name:
        raise ModelError(f"There is no folder {name}.", "Check the path; a Hugging Face id is written owner/name.")
    raise UnknownNameError("model", name, names())

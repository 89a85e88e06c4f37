"""A model of the reader's own that a function builds: ``package.module:function``."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.errors import ModelError
from accel_helpers.models.model import Array, Model

_BATCHES = (2, 3)
_SEQUENCES = (32, 48)
"""Sizes that occur in no network by chance together: an axis that follows them is open."""


def from_function(name: str) -> Model:
    """The model that ``package.module:function`` answers; modules in the current folder are found too.

    Of a ``torch.nn.Module`` the function's attribute ``example`` gives the inputs; their axes and the outputs are found by running it.

    Raises:
        ModelError: the module or function cannot be found or fails, answers something else, or lacks example inputs.
    """
    import torch

    function = _find(name)
    made = _call(name, function)
    if isinstance(made, Model):
        return replace(made, name=name)
    if not isinstance(made, torch.nn.Module):
        raise ModelError(f"{name} answered a {type(made).__name__}.", "Let it return a torch.nn.Module or an accel_helpers.models.Model.")
    example = getattr(function, "example", None)
    if not callable(example):
        raise _no_example(name, made)
    small, large = (_inputs(name, made, example, *sizes) for sizes in zip(_BATCHES, _SEQUENCES, strict=True))
    first, second = _outputs(name, made, small), _outputs(name, made, large)
    axes = {key: _axes(key, {**small, **first}[key].shape, {**large, **second}[key].shape) for key in (*small, *first)}
    for key, open_axes in axes.items():
        if open_axes.get(0) != "batch":
            raise ModelError(f"The first axis of {key!r} in {name} is not the batch.", "Put the batch first in every input and output.")
    weights = _weights_digest(made)
    return Model(
        name=name,
        example=example,
        axes=axes,
        outputs=tuple(first),
        fingerprint=hashlib.sha256(f"{weights} {made!r}".encode() + _source(function)).hexdigest(),
        build=lambda: _rebuild(name, function, weights),
        has_sequence=any("sequence" in axes[key].values() for key in small),
        notes={"source": f"the reader's function {name}"},
    )


def _find(name: str) -> Callable[[], Any]:
    module_name, _, function_name = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # a console script does not have it, python -m does
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ModelError(f"The module {module_name} cannot be imported: {_told(error)}.", "Run from its folder, or install it.") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        near = difflib.get_close_matches(function_name, [key for key, value in vars(module).items() if callable(value)], n=1)
        raise ModelError(f"{module_name} has no function {function_name}.", f"Did you mean {near[0]}?" if near else "Check its name.")
    found: Callable[[], Any] = function
    return found


def _call(name: str, function: Callable[[], Any]) -> Any:
    import torch

    try:
        made = function()
    except Exception as error:
        raise ModelError(f"{name} failed: {_told(error)}.", "It is called without arguments and must return the network.") from error
    return made.eval() if isinstance(made, torch.nn.Module) else made


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().rstrip(".:").split("\n")[0]


def _parameters(network: Any) -> list[str]:
    return list(inspect.signature(network.forward).parameters)


def _no_example(name: str, network: Any) -> ModelError:
    function = name.partition(":")[2]
    arrays = ", ".join(
        f"{key!r}: numpy.random.default_rng(seed).normal(size=(batch, …)).astype('float32')" for key in _parameters(network)[:1]
    )
    return ModelError(
        f"{name} gives a network without example inputs; forward takes {', '.join(_parameters(network))}.",
        f"Add the line `{function}.example = lambda batch, sequence, seed: {{{arrays}}}` below the function, one entry per input.",
    )


def _inputs(name: str, network: Any, example: Callable[[int, int, int], dict[str, Array]], batch: int, sequence: int) -> dict[str, Array]:
    try:
        made = example(batch, sequence, 0)
    except Exception as error:
        raise ModelError(
            f"The example inputs of {name} failed: {_told(error)}.", "They are called as example(batch, sequence, seed)."
        ) from error
    if not isinstance(made, dict) or not made or not all(isinstance(values, np.ndarray) for values in made.values()):
        raise ModelError(f"The example inputs of {name} are not a dict of NumPy arrays.", "Answer one array per input, by its name.")
    if list(made) != _parameters(network)[: len(made)]:
        wanted, given = ", ".join(_parameters(network)), ", ".join(made)
        raise ModelError(f"forward of {name} takes {wanted}; its example inputs are {given}.", "Use forward's names, in its order.")
    return made


def _outputs(name: str, network: Any, inputs: dict[str, Array]) -> dict[str, Any]:
    import torch

    try:
        with torch.inference_mode():
            answer = network(**{key: torch.from_numpy(values) for key, values in inputs.items()})
    except Exception as error:
        raise ModelError(
            f"{name} does not run on its example inputs: {_told(error)}.", "Correct the shapes or types that example answers."
        ) from error
    parts = answer if isinstance(answer, tuple | list) else (answer,)
    if not all(isinstance(part, torch.Tensor) and part.ndim for part in parts):
        raise ModelError(
            f"{name} answers a {type(answer).__name__}.", "Let forward return one tensor or a tuple of tensors, the batch first."
        )
    return {"output": answer} if len(parts) == 1 else {f"output_{index}": part for index, part in enumerate(parts)}


def _axes(name: str, small: tuple[int, ...], large: tuple[int, ...]) -> dict[int, str]:
    roles = {_BATCHES: "batch", _SEQUENCES: "sequence"}
    return {axis: roles.get(pair, f"{name}_{axis}") for axis, pair in enumerate(zip(small, large, strict=True)) if pair[0] != pair[1]}


def _weights_digest(network: Any) -> str:
    import torch

    digest = hashlib.sha256()
    for key, values in sorted(network.state_dict().items()):
        digest.update(f"{key} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _source(function: Callable[[], Any]) -> bytes:
    file = inspect.getsourcefile(inspect.unwrap(function)) if inspect.isroutine(function) else None
    return Path(file).read_bytes() if file else b""


def _rebuild(name: str, function: Callable[[], Any], weights: str) -> Any:
    network = _call(name, function)
    if _weights_digest(network) != weights:
        raise ModelError(
            f"{name} answers other weights each time it is called, so no two engines would run the same model.",
            "Load the weights from a file, or call torch.manual_seed(0) first in the function.",
        )
    return network

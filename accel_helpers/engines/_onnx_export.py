"""A model as an ONNX file with open axes: exported once, compared with PyTorch at several sizes, kept for all engines that read it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

from accel_helpers.device import store_root
from accel_helpers.engine import Array
from accel_helpers.engines import _onnx_fixed, _onnx_simplify, _torch_fixed
from accel_helpers.engines._inputs import first_line, refused
from accel_helpers.engines._onnx_check import CHECKED_SEQUENCES, compared, lacking, neighbours, opset, quiet, sizes
from accel_helpers.engines.pytorch import named
from accel_helpers.errors import ModelError
from accel_helpers.models import Model, onnx_weights

__all__ = ["FILE", "OPSET", "export", "lacking", "quiet"]

OPSET = 20
"""The newest that PyTorch's exporter, ONNX Runtime, OpenVINO and TensorRT all read; it has LayerNormalization and Gelu as operators."""
FILE = "model.onnx"
_DIGESTS = "digests.json"
_FORM = 2  # of the reports that are kept beside the files: another number makes them anew


def export(model: Model, out: Path, simplifier: str = "off") -> dict[str, Any]:
    """Write ``model.onnx``, and the weights beside it where it keeps them apart, into ``out``.

    The file is kept under the store and copied from there the next time, if its hashes still fit. Every size in
    :func:`_onnx_check.sizes` has been run through ONNX Runtime and compared: with PyTorch, or, for a model that is an ONNX file, each
    sample of a batch with the same sample alone. With ``simplifier`` (onnxsim or onnxslim) it is what that made of the exported graph,
    compared with it at the same sizes.

    Returns:
        ``files``: the names written; ``opset``; ``checked``: the sizes run; ``worst_error``: the largest relative error of an output;
        ``eval_forced``: whether the network, or a part of it, came in training mode; with a simplifier also ``simplified``: the report of
        :func:`_onnx_simplify.simplified`.

    Raises:
        ModelError: the model cannot be exported, an axis that should be open is fixed, or outputs differ; the message names where.
        MissingPackageError: the simplifier is not installed.
        UnsupportedError: the model holds an operator that ONNX or ONNX Runtime lacks.
    """
    home = store_root() / "onnx"
    home.mkdir(parents=True, exist_ok=True)
    plain = home / f"{model.fingerprint[:16]}-{_origin() if model.build else 'own'}-{_FORM}"
    with FileLock(home / f"{plain.name}.lock"):
        kept, report = plain, keep(plain, lambda folder: _made(model, folder))
        if simplifier != "off":
            kept = home / f"{plain.name}-{_onnx_simplify.key(simplifier)}"
            made = keep(kept, lambda folder: _onnx_simplify.simplified(model, plain / FILE, simplifier, folder / FILE))
            report = {**report, "files": made.pop("files"), "simplified": made}
        for name in report["files"]:
            shutil.copyfile(kept / name, out / name)
    return report


def _origin() -> str:
    """What else than the model decides an exported graph: the network's library and the exporter."""
    others = hashlib.sha256("|".join(version(name) for name in ("transformers", "onnxscript")).encode()).hexdigest()
    return f"{version('torch')}-opset{OPSET}-{others[:8]}"


def _intact(folder: Path) -> dict[str, Any] | None:
    """The report of a kept export whose every file still has its hash, or None."""
    try:
        kept = json.loads((folder / _DIGESTS).read_text())
        if all(_digest(folder / name) == digest for name, digest in kept["digests"].items()):
            report: dict[str, Any] = kept["report"]
            return report
    except (OSError, ValueError, KeyError):
        pass
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def keep(kept: Path, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The report of the files in the folder ``kept``, made anew where one is missing or changed; ``files`` names them."""
    if (report := _intact(kept)) is not None:
        return report
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="part-") as part:
        folder = Path(part)
        report = make(folder)
        digests = {one.name: _digest(one) for one in sorted(folder.iterdir())}
        report = {"files": list(digests), **report}
        (folder / _DIGESTS).write_text(json.dumps({"digests": digests, "report": report}))
        if kept.exists():
            shutil.rmtree(kept)
        folder.rename(kept)
        folder.mkdir()  # for TemporaryDirectory to remove
    return report


def _made(model: Model, folder: Path) -> dict[str, Any]:
    training = False
    if model.build:
        network = model.build()
        training = any(part.training for part in network.modules())
        worst = _from_network(model, network.eval(), folder / FILE)
    else:
        worst = _from_file(model, folder / FILE)
    checked = [list(size) for size in sizes(model)]
    return {"opset": opset(folder / FILE), "checked": checked, "worst_error": worst, "eval_forced": training}


def _from_network(model: Model, network: Any, path: Path) -> float:
    import torch

    example = model.example(2, CHECKED_SEQUENCES[0], 0)
    _check_names(model, list(example))

    def answer(sample: dict[str, Array]) -> Mapping[str, Array]:
        try:
            with torch.inference_mode():
                result = network(**{name: torch.from_numpy(array) for name, array in sample.items()})
        except Exception as error:  # a network may raise anything
            raise refused(model.name, "PyTorch", error) from error
        return {name: value.numpy() for name, value in named(result, model).items()}

    answer(example)
    inputs = {name: torch.from_numpy(array) for name, array in example.items()}
    try:
        with quiet():
            torch.onnx.export(
                network,
                kwargs=inputs,
                f=path,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=list(model.outputs),
                dynamic_shapes={name: dict(model.axes.get(name, {})) for name in inputs},
            )
    except Exception as error:  # the exporter wraps whatever the network and its own passes raise
        raise _not_exported(model, network, error) from error
    _check_axes(model, path)

    return compared(model, path, answer)


def _check_names(model: Model, inputs: list[str]) -> None:
    """A mistyped name would leave its axis fixed, and the exporter would only warn."""
    known = [*inputs, *model.outputs]
    if unknown := sorted(model.axes.keys() - set(known)):
        raise ModelError(
            f"{model.name} names open axes of {unknown[0]!r}, which is no input or output of it, so its axis would be fixed.",
            f"Correct the name in Model.axes: inputs and outputs are {', '.join(known)}.",
        )
    for name in known:
        if 0 not in model.axes.get(name, {}):
            raise ModelError(
                f"{model.name} does not name axis 0 of {name!r}, so its batch would be fixed.",
                f"Add {{{name!r}: {{0: 'batch'}}}} to Model.axes.",
            )


def _from_file(model: Model, path: Path) -> float:
    """The reader's file with its weights gathered in one file beside it, wherever below its folder they were."""
    import onnx

    if model.onnx is None:
        raise ModelError(f"{model.name} has neither a network nor an ONNX file.", "Give Model.build or Model.onnx.")
    try:
        graph = onnx.load(model.onnx, load_external_data=False)
        onnx_weights.beside(model.onnx, graph)  # anew, for the file may have changed since the model was named
        onnx.load_external_data_for_model(graph, str(model.onnx.parent))
        onnx.save(graph, path, save_as_external_data=True, location=f"{FILE}.data")
    except ModelError:
        raise
    except Exception as error:  # protobuf's, onnx's and the file system's errors share no base class
        raise ModelError(f"{model.name} cannot be read: {first_line(error)}.", "Export it again, with its weights beside it.") from error
    return compared(model, path)


def _not_exported(model: Model, network: Any, error: Exception) -> ModelError:
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)  # type: ignore[arg-type]
    text = str(causes[-1])
    for name, axes in model.axes.items():
        for axis, role in axes.items():
            if re.search(rf"\b{re.escape(name)}'?\]?\.(?:size\(\)|shape)\[{axis}\]", text):
                where = _torch_fixed.culprit(network, *_two(model, role))
                return ModelError(
                    f"Axis {axis} ({role}) of {name!r} in {model.name} cannot be open: "
                    f"{f'its size is fixed where {where}' if where else 'the network fixes its size'}.",
                    "Look for a size written as a number (view, reshape, expand, a loop over it) and take it from the tensor's shape.",
                )
    return ModelError(f"{model.name} cannot be exported to ONNX: {first_line(causes[-1])}.", "Run it with engine=pytorch or compiled.")


def _two(model: Model, role: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """The example that a network is exported with, and one of another batch, or, where ``role`` is sequence, of another length."""
    if role == "sequence":
        other, exported = neighbours(model, 2, CHECKED_SEQUENCES[1])
        return exported, other
    return neighbours(model, 2, CHECKED_SEQUENCES[0])


def _check_axes(model: Model, path: Path) -> None:
    import onnx

    loaded = onnx.load(path, load_external_data=False)
    if (found := opset(path)) != OPSET:
        raise ModelError(f"{model.name} was exported with opset {found} in place of {OPSET}.", "Run it with engine=pytorch or compiled.")
    for value in (*loaded.graph.input, *loaded.graph.output):
        dims = value.type.tensor_type.shape.dim
        for axis, role in model.axes.get(value.name, {}).items():
            if axis >= len(dims) or dims[axis].HasField("dim_value"):
                node = _onnx_fixed.culprit(path, *_two(model, role), value.name)
                where = f" at {node}" if node else ""
                raise ModelError(
                    f"Axis {axis} ({role}) of {value.name!r} in {model.name} came out fixed{where}; it should be open.",
                    "Look for a size written as a number in the network, and take it from the tensor's shape.",
                )

"""A model as an ONNX file with open axes: exported once, compared with PyTorch at several sizes, kept for all engines that read it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from accel_helpers.device import store_root, usable_cpus
from accel_helpers.engine import Array
from accel_helpers.engines._inputs import first_line, refused
from accel_helpers.engines.pytorch import named
from accel_helpers.errors import ModelError, UnsupportedError
from accel_helpers.models import Model

OPSET = 20
"""The newest that PyTorch's exporter, ONNX Runtime, OpenVINO and TensorRT all read; it has LayerNormalization and Gelu as operators."""
FILE = "model.onnx"
CHECKED_BATCHES = (1, 2, 3, 7)
CHECKED_SEQUENCES = (16, 21)
_TOLERANCE = 1e-3  # of accuracy.TOLERANCE["fp32"]: two FP32 runtimes
_DIGESTS = "digests.json"


def export(model: Model, out: Path) -> dict[str, Any]:
    """Write ``model.onnx``, and the weights beside it where it keeps them apart, into ``out``.

    The file is kept under the store and copied from there the next time, if its hashes still fit. Every size in :data:`CHECKED_BATCHES`
    and, for models that read sequences, a second length has been run through ONNX Runtime and compared: with PyTorch, or, for a model
    that is an ONNX file, each sample of a batch with the same sample alone.

    Returns:
        ``files``: the names written; ``opset``; ``checked``: the sizes run; ``worst_error``: the largest relative error of an output.

    Raises:
        ModelError: the model cannot be exported, an axis that should be open is fixed, or outputs differ; the message names where.
        UnsupportedError: the model holds an operator that ONNX or ONNX Runtime lacks.
    """
    kept = store_root() / "onnx" / f"{model.fingerprint[:16]}-{_origin() if model.build else 'own'}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(kept.with_name(f"{kept.name}.lock")):
        report = _intact(kept)
        if report is None:
            report = _made(model, kept)
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


def _made(model: Model, kept: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="part-") as part:
        folder = Path(part)
        worst = _from_network(model, model.build().eval(), folder / FILE) if model.build else _from_file(model, folder / FILE)
        files = sorted(one.name for one in folder.iterdir())
        report = {"files": files, "opset": _opset(folder / FILE), "checked": [list(size) for size in _sizes(model)], "worst_error": worst}
        digests = {name: _digest(folder / name) for name in files}
        (folder / _DIGESTS).write_text(json.dumps({"digests": digests, "report": report}))
        if kept.exists():
            shutil.rmtree(kept)
        folder.rename(kept)
        folder.mkdir()  # for TemporaryDirectory to remove
    return report


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
        raise _not_exported(model, error) from error
    _check_axes(model, path)

    return _compared(model, path, answer)


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
        onnx.save(onnx.load(model.onnx), path, save_as_external_data=True, location=f"{FILE}.data")
    except Exception as error:  # protobuf's, onnx's and the file system's errors share no base class
        raise ModelError(f"{model.name} cannot be read: {first_line(error)}.", "Export it again, with its weights beside it.") from error
    return _compared(model, path, None)


def _not_exported(model: Model, error: Exception) -> ModelError:
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)  # type: ignore[arg-type]
    text = str(causes[-1])
    for name, axes in model.axes.items():
        for axis, role in axes.items():
            if re.search(rf"\b{re.escape(name)}'?\]?\.(?:size\(\)|shape)\[{axis}\]", text):
                return ModelError(
                    f"Axis {axis} ({role}) of {name!r} in {model.name} cannot be open: the network fixes its size.",
                    "Look for a size written as a number (view, reshape, expand, a loop over it) and take it from the tensor's shape.",
                )
    return ModelError(f"{model.name} cannot be exported to ONNX: {first_line(causes[-1])}.", "Run it with engine=pytorch or compiled.")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The exporter prints, logs missing optional packages, and warns about its own deprecations and shared axis names."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _opset(path: Path) -> int:
    import onnx

    versions = {one.domain: int(one.version) for one in onnx.load(path, load_external_data=False).opset_import}
    return versions.get("", 0)


def _check_axes(model: Model, path: Path) -> None:
    import onnx

    loaded = onnx.load(path, load_external_data=False)
    if (found := _opset(path)) != OPSET:
        raise ModelError(f"{model.name} was exported with opset {found} in place of {OPSET}.", "Run it with engine=pytorch or compiled.")
    for value in (*loaded.graph.input, *loaded.graph.output):
        dims = value.type.tensor_type.shape.dim
        for axis, role in model.axes.get(value.name, {}).items():
            if axis >= len(dims) or dims[axis].HasField("dim_value"):
                raise ModelError(
                    f"Axis {axis} ({role}) of {value.name!r} in {model.name} came out fixed; it should be open.",
                    "Look for a size written as a number in the network, and take it from the tensor's shape.",
                )


def _sizes(model: Model) -> list[tuple[int, int]]:
    sizes = [(batch, CHECKED_SEQUENCES[0]) for batch in CHECKED_BATCHES]
    return [*sizes, (2, CHECKED_SEQUENCES[1])] if model.has_sequence else sizes


def _compared(model: Model, path: Path, answer: Callable[[dict[str, Array]], Mapping[str, Array]] | None) -> float:
    """The largest relative error over all sizes; without ``answer``, of each sample in a batch against the same sample alone."""
    session = _session(model, path)

    def run(sample: dict[str, Array]) -> dict[str, Array]:
        try:
            return dict(zip(model.outputs, session.run(list(model.outputs), sample), strict=True))
        except Exception as error:  # ONNX Runtime's errors share no base class
            shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in sample.items())
            raise ModelError(
                f"The ONNX graph of {model.name} does not run with {shapes}: {first_line(error)}.",
                "A size is fixed inside the graph, at the node named; export it with that axis open.",
            ) from error

    def singly(sample: dict[str, Array]) -> dict[str, Array]:
        count = len(next(iter(sample.values())))
        each = [run({name: array[row : row + 1] for name, array in sample.items()}) for row in range(count)]
        return {name: np.concatenate([one[name] for one in each]) for name in model.outputs}

    worst = 0.0
    for batch, sequence in _sizes(model):
        sample = model.example(batch, sequence, batch)
        actual, expected = run(sample), (answer or singly)(sample)
        for name in model.outputs:
            error = _relative(actual[name], expected[name])
            if not error <= _TOLERANCE:
                against = "PyTorch" if answer else "the same samples one at a time"
                raise ModelError(
                    f"Output {name!r} of {model.name} in ONNX differs from {against} by {error:.2g} at batch {batch}, "
                    f"at most {_TOLERANCE:g} was expected.",
                    "Look for an operator that mixes samples, draws random numbers or depends on the batch.",
                )
            worst = max(worst, error)
    return worst


def _relative(actual: Array, expected: Array) -> float:
    if actual.shape != expected.shape:
        return float("inf")
    scale = float(np.linalg.norm(expected.astype(np.float64)))
    return float(np.linalg.norm(actual.astype(np.float64) - expected)) / (scale or 1.0)


def _session(model: Model, path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cpus()
    options.log_severity_level = 4  # what it would log is raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise lacking(model, error) or ModelError(
            f"The ONNX graph of {model.name} does not load: {first_line(error)}.", "Check it with onnx.checker, and export it again."
        ) from error


def lacking(model: Model, error: Exception) -> UnsupportedError | None:
    """What to raise where ONNX Runtime refused a graph for an operator it lacks; None where the reason is another one."""
    patterns = r"No Op registered for (\S+)|(\S+?)\(-?\d+\) is not a registered|implementation for (\S+?)\(\d+\)"
    found = re.search(patterns, str(error))
    if not found:
        return None
    operator = next(group for group in found.groups() if group)
    return UnsupportedError(
        f"ONNX Runtime has no operator {operator}, which {model.name} holds.", "Export the model with standard operators only."
    )

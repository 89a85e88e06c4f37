"""One model whose batch is declared wrong in several ways, and right: what builds, and what runs at another batch."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_helpers import models
from accel_helpers.compilation.builds._trial import Asked, Range, absent, trial
from accel_helpers.compilation.graphs import _onnx_session
from accel_helpers.engine import Array
from accel_helpers.engines import _onnx_export, _tensorrt_build, _tensorrt_runtime
from accel_helpers.errors import UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Compilation, Plan, Profile

EXPORTED, RUN = 2, 3
"""The batch that a fixed export and a narrow profile hold, and the one that is run."""
SEQUENCE = (1, 16, 32)
"""Least, usual and greatest sequence length of the profiles, for models that read sequences; the usual one is run."""
RIGHT = "open batch; least 1, usual 2, greatest 8"
TENSORRT, ORT, OPENVINO = "TensorRT", "ONNX Runtime", "OpenVINO"


@dataclass(frozen=True)
class ShapeTrial:
    """One declaration of the batch, met by one runtime in one stage."""

    declared: str  # how, for people
    wrong: bool  # whether the declaration does not hold the batch that is run
    runtime: str  # TENSORRT, ORT or OPENVINO
    stage: str  # "build", "run" at batch RUN, or "admit": whether TensorRT's session would give batch RUN to the GPU
    ok: bool
    said: str = ""  # what stood in the way


@dataclass(frozen=True)
class ShapeTrials:
    """Every trial of one model."""

    model: str
    trials: tuple[ShapeTrial, ...]
    missing: str = ""  # why TensorRT was not tried; empty where it was

    def of(self, runtime: str, stage: str, wrong: bool) -> tuple[ShapeTrial, ...]:
        """The trials of one runtime and stage, of wrong declarations or of right ones."""
        return tuple(one for one in self.trials if (one.runtime, one.stage, one.wrong) == (runtime, stage, wrong))


@dataclass(frozen=True)
class _Graphs:
    """The same network exported three ways."""

    open: Path  # the batch is an axis
    fixed: Path  # the batch is EXPORTED
    renamed: Path  # the fixed one, whose inputs and outputs say that it is an axis


def dynamic_shapes(model_name: str) -> ShapeTrials:
    """Declare the batch of a model right and wrong, build each in TensorRT, and run each in ONNX Runtime and OpenVINO on this CPU.

    A built engine runs on a GPU only, so that none is run here. Whether a session would admit the batch is what it checks on the host
    before it asks the GPU: a profile that holds the shapes.

    Raises:
        UnsupportedError: the model is no PyTorch network, so it cannot be exported again.
    """
    model = models.get(model_name)
    if model.build is None:
        raise UnsupportedError(f"{model.name} is an ONNX file and cannot be exported with a fixed batch.", "Choose a PyTorch model.")
    with tempfile.TemporaryDirectory() as folder:
        graphs = _exported(model, Path(folder))
        found = [*_on_cpu(model, graphs), *([] if (missing := absent()) else _built(model, graphs))]
    return ShapeTrials(model.name, tuple(found), missing)


def _exported(model: Model, folder: Path) -> _Graphs:
    import onnx
    import torch

    (folder / "open").mkdir()
    _onnx_export.export(model, folder / "open")
    inputs = {name: torch.from_numpy(array) for name, array in model.example(EXPORTED, SEQUENCE[1], 0).items()}
    fixed, renamed = folder / "fixed.onnx", folder / "renamed.onnx"
    assert model.build is not None
    with _onnx_export.quiet():
        torch.onnx.export(
            model.build().eval(),
            kwargs=inputs,
            f=fixed,
            dynamo=True,
            verbose=False,
            opset_version=_onnx_export.OPSET,
            input_names=list(inputs),
            output_names=list(model.outputs),
        )
    loaded = onnx.load(fixed, load_external_data=False)
    for value in (*loaded.graph.input, *loaded.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    renamed.write_bytes(loaded.SerializeToString())
    return _Graphs(folder / "open" / _onnx_export.FILE, fixed, renamed)


def sizes(model: Model, least: int, usual: int, greatest: int) -> tuple[Mapping[str, Range], ...]:
    """The profile of a model for three batches, with :data:`SEQUENCE`."""
    asked = Compilation(profiles=(Profile((least, usual, greatest), SEQUENCE),))
    return _tensorrt_build.shapes(model, Plan("tensorrt", sequence=SEQUENCE[1], compilation=asked))


def _closed(sizes: Sequence[Mapping[str, Range]]) -> tuple[Mapping[str, Range], ...]:
    """The same profiles with the usual sequence length in every place: a fixed export holds that one."""
    return tuple({name: tuple((end[0], *one[1][1:]) for end in one) for name, one in profile.items()} for profile in sizes)  # type: ignore[misc]


def _built(model: Model, graphs: _Graphs) -> list[ShapeTrial]:
    wide, narrow = sizes(model, 1, EXPORTED, 8), sizes(model, 1, EXPORTED, EXPORTED)
    fallen = sizes(model, 1, 8, EXPORTED)
    ranks = tuple({name: tuple(end[1:] for end in one) for name, one in profile.items()} for profile in wide)
    return [
        *_tensorrt(model, graphs.fixed, f"batch fixed to {EXPORTED} by the export, no profile", Asked(), sizes(model, *[EXPORTED] * 3)),
        *_tensorrt(model, graphs.fixed, f"batch fixed to {EXPORTED} by the export, profile 1 to 8", Asked(_closed(wide))),
        *_tensorrt(model, graphs.renamed, f"axis called open, {EXPORTED} written inside, profile 1 to 8", Asked(_closed(wide))),
        *_tensorrt(model, graphs.open, "open batch, no profile", Asked()),
        *_tensorrt(model, graphs.open, "open batch, profile without the batch axis", Asked(ranks)),  # type: ignore[arg-type]
        *_tensorrt(model, graphs.open, "open batch, usual size above the greatest", Asked(fallen)),
        *_tensorrt(model, graphs.open, f"open batch, greatest {EXPORTED}", Asked(narrow), narrow),
        *_tensorrt(model, graphs.open, RIGHT, Asked(wide), wide),
    ]


def _tensorrt(model: Model, path: Path, declared: str, asked: Asked, holds: Sequence[Mapping[str, Range]] = ()) -> list[ShapeTrial]:
    """Build it; where that succeeds and ``holds`` tells what the engine is for, ask whether a session would run batch RUN."""
    wrong = declared != RIGHT
    found = trial(path, asked, model.name)
    trials = [ShapeTrial(declared, wrong, TENSORRT, "build", found.ok, found.error.failure.cause if found.error else "")]
    if found.ok and holds:
        shapes = {name: array.shape for name, array in model.example(RUN, SEQUENCE[1], 0).items()}
        fits = _tensorrt_runtime.fitting(holds, shapes) is not None
        refused = "" if fits else _tensorrt_runtime.outside(model, holds, shapes).what.rstrip(".")
        trials.append(ShapeTrial(declared, wrong, TENSORRT, "admit", fits, refused))
    return trials


def _on_cpu(model: Model, graphs: _Graphs) -> list[ShapeTrial]:
    inputs = model.example(RUN, SEQUENCE[1], 0)
    trials = []
    for declared, path, wrong in (
        (f"batch fixed to {EXPORTED} by the export", graphs.fixed, True),
        (f"axis called open, {EXPORTED} written inside", graphs.renamed, True),
        ("open batch", graphs.open, False),
    ):
        for runtime, run in ((ORT, _onnx_runtime), (OPENVINO, _openvino)):
            said = ""
            try:
                outputs = run(path, inputs)
                if short := [array.shape for array in outputs if len(array) != RUN]:
                    said = f"it answers {short[0]} for a batch of {RUN}"
            except Exception as error:  # neither runtime's errors share a base class
                said = _said(error)
            trials.append(ShapeTrial(declared, wrong, runtime, "run", not said, said))
    return trials


def _said(error: Exception) -> str:
    """A runtime's message in one line, without where in its own source it was raised."""
    told = [line.strip() for line in str(error).splitlines() if line.strip() and not re.search(r"^(?:Exception from|Check ').*:$", line)]
    return re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : |/onnxruntime_src/\S+ ", "", " ".join(told))[:300].rstrip(" .")


def _onnx_runtime(path: Path, inputs: Mapping[str, Array]) -> list[Array]:
    found: list[Array] = _onnx_session.opened(path, "BASIC").run(None, dict(inputs))
    return found


def _openvino(path: Path, inputs: Mapping[str, Array]) -> list[Array]:
    import openvino

    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(openvino.Core().read_model(path), "CPU", settings)
    return [array.copy() for array in compiled(dict(inputs)).values()]

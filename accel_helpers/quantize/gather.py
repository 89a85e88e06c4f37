"""Gather evidence on a quantized model: build it, read its files, run the probes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers import calibration, engines, environment, models
from accel_helpers.accuracy import relative_error
from accel_helpers.bench import Comparison, plan_of
from accel_helpers.bench.process import WorkerProcess
from accel_helpers.config import RunConfig
from accel_helpers.device import measuring, usable_cpus
from accel_helpers.engines import _onnx_export
from accel_helpers.errors import ModelError
from accel_helpers.intervals import median
from accel_helpers.models import Model
from accel_helpers.quantize import facts, kernels, probes
from accel_helpers.quantize.evidence import Evidence, LayerFacts
from accel_helpers.quantize.facts import Samples
from accel_helpers.records import Artifact, Census, Plan, Verdict
from accel_helpers.store import Store

SAMPLES = 8
"""Items of the validation part that are looked at."""
_CALIBRATION = 32
EXTRA = 16
"""Tokens of padding that a sample is given, to see whether it answers the same."""


def examine(known: Evidence, reference: Path, samples: Samples, built: Path | None = None, timed: bool = True) -> Evidence:
    """Add to what is known what the files and the probes say.

    Args:
        known: model, plan, environment, and the census where there is one.
        reference: the FP32 ONNX graph.
        samples: inputs of one item each, like those that the model will meet.
        built: the quantized ONNX file, where the engine keeps one.
        timed: whether to time the layers in the engine's kernels, where it runs single ones (:data:`kernels.ENGINES`).
    """
    answer = probes.answer_of(reference)
    training = facts.training_nodes(reference)
    asked = known.plan.quantization
    layers = facts.built_layers(built) if built else {}
    found: dict[str, Any] = {
        "training": training,
        "repeats": probes.repeats(answer, samples[0]),
        "batches": probes.batches(answer, _together(samples)),
        "layers": facts.layer_facts(reference, samples, layers, bool(asked and asked.reduce_range)),
    }
    if built:
        quantized = probes.answer_of(built)
        found["error"] = median([relative_error(quantized(one), answer(one)) for one in samples])
        found["signed"] = facts.signed_share(built)
        found["boundaries"] = probes.boundaries(reference)
    if asked and timed and known.plan.engine in kernels.ENGINES:
        found["rates"], found["rest"] = probes.rates(reference, samples[0], known.plan.engine)
        found["saturates"] = probes.saturates(known.plan.engine)
    return replace(known, **found)


def _together(samples: Samples) -> dict[str, np.ndarray[Any, Any]]:
    """Those samples in one batch that have the shape of the first."""
    shapes = {name: values.shape for name, values in samples[0].items()}
    same = [one for one in samples if {name: values.shape for name, values in one.items()} == shapes]
    return {name: np.concatenate([one[name] for one in same]) for name in shapes}


def gather(config: RunConfig, comparison: Comparison | None = None) -> Evidence:
    """Build the plan of a configuration, or find it built, and look at it: the files, the layers' timings, the outputs.

    Args:
        config: the quantized plan.
        comparison: of this plan with another one; its verdict then says whether the model is slow or wrong at all.

    Raises:
        ModelError: the model cannot be exported, for another reason than that it is in training mode.
        UnsupportedError: the plan cannot run here, or quantizes nothing; the message says why.
    """
    model, plan, here = models.get(config.model), plan_of(config), environment.describe()
    known = Evidence(model.name, plan, here, verdict=_verdict(plan, comparison))
    items = probes.open_samples(model, SAMPLES)
    with reference_of(model) as reference:
        if reference == model.onnx:
            return examine(known, reference, items, timed=False)
        (artifact,) = artifacts(model, plan)
        built = Store().open(artifact, here) / _onnx_export.FILE
        census = artifact.report.get("census")
        padding = padding_of(model, plan, reference)
        known = replace(known, census=Census.from_dict(census) if census else None, **padding)  # type: ignore[arg-type]
        with measuring(f"why {model.name} {plan.label} is as it is"):
            known = examine(known, reference, items, built if built.exists() else None)
        if known.error is None:
            known = replace(known, error=median(errors(model, artifact, reference, items)))
        return known if built.exists() else replace(known, layers=_calibrated(model, plan, reference, items))


@contextmanager
def reference_of(model: Model) -> Iterator[Path]:
    """The FP32 graph of a model; the reader's own file as it is where it is in training mode, which no engine accepts.

    Raises:
        ModelError: the model cannot be exported, for another reason.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            _onnx_export.export(model, Path(folder))
        except ModelError:
            if model.onnx is None or not facts.training_nodes(model.onnx):
                raise
            yield model.onnx
            return
        yield Path(folder) / _onnx_export.FILE


def _verdict(plan: Plan, comparison: Comparison | None) -> Verdict | None:
    """The verdict on that plan against FP32."""
    if comparison is None or comparison.measurements[0].plan.precision != "fp32":
        return None
    judged = zip(comparison.measurements[1:], comparison.verdicts, strict=True)
    return next((verdict for measured, verdict in judged if measured.plan == plan), None)


def artifacts(model: Model, *plans: Plan) -> list[Artifact]:
    """The plans' artifacts, built or found built in a process of its own, as for a measurement."""
    for plan in plans:
        engines.get(plan.engine).require(plan, environment.describe())
    with WorkerProcess(usable_cpus()) as worker:
        built = [worker.ask("build", model=model.name, plan=plan.to_dict())["artifact"] for plan in plans]
    return [Artifact.from_dict(one).with_plan(plan) for one, plan in zip(built, plans, strict=True)]


def padding_of(model: Model, plan: Plan, reference: Path) -> dict[str, float | None]:
    """How the FP32 graph answers padding, and how much there is; empty for inputs without a mask."""
    if model.dataset is None or (part := model.dataset().validation).mask is None:
        return {}
    sample = {name: values[:1] for name, values in part.inputs.items()}
    difference = probes.padded(probes.answer_of(reference), sample, part.mask, EXTRA)
    return {"padding": probes.padding_share(part, plan.batch), "padded": difference}


def errors(model: Model, artifact: Artifact, reference: Path, items: Samples) -> list[float]:
    """The relative error of the built plan's outputs on each item, against the FP32 graph."""
    answer = probes.answer_of(reference)
    folder = Store().open(artifact, environment.describe())
    with engines.get(artifact.plan.engine).load(model, artifact.plan, folder) as session:
        return [relative_error(session(one), answer(one)) for one in items]


def _calibrated(model: Model, plan: Plan, reference: Path, items: Samples) -> tuple[LayerFacts, ...]:
    """The layers' facts with the ranges that the plan's calibration samples give, for engines whose files do not show theirs."""
    asked = plan.quantization
    if asked is None or not asked.calibration:
        return facts.layer_facts(reference, items, {}, bool(asked and asked.reduce_range))
    split = calibration.samples(model, replace(asked, calibration=min(asked.calibration, _CALIBRATION)))
    given = facts.ranges(reference, [inputs for inputs, _ in split.batches(1)])
    limit = facts.REDUCED if asked.reduce_range else 127
    assumed = {name: facts.BuiltLayer(low, high, asked.per_channel, limit) for name, (low, high) in given.items()}
    return facts.layer_facts(reference, items, assumed)

"""Quantizing an OpenVINO graph with NNCF: static, with accuracy control, or the weights alone."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers import calibration
from accel_helpers.engine import Array
from accel_helpers.engines import _openvino_census
from accel_helpers.engines._inputs import first_line
from accel_helpers.engines._onnx_export import quiet
from accel_helpers.errors import AccelError, ModelError, UnknownNameError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Quantization

MAX_DROP = 0.01
"""What accuracy control may lose of the task metric: one point."""
_RANKED = 64  # samples that rank the operations by what they cost
_REVERTED = 24  # operations that may go back to floating point before accuracy control gives up
_SECONDS = 900.0  # of accuracy control, after which it gives up too
_GROUP = 64  # weights of one INT4 scale; layers narrower than that get the largest power of two from _LEAST_GROUP that divides them
_LEAST_GROUP = 16


def quantize(graph: Any, model: Model, chosen: Quantization, precision: str) -> tuple[Any, dict[str, Any]]:
    """The quantized graph, and what accuracy control did; empty for the other schemes.

    ``graph`` is an ``openvino.Model`` with open axes. The samples come from :func:`accel_helpers.calibration.samples` one at a time, and
    NNCF keeps statistics of each, not its tensors.

    Raises:
        UnknownNameError: ``chosen.keep`` names a layer that the graph lacks.
        UnsupportedError: accuracy control has no labels or no metric, or does not come to an end.
        ModelError: NNCF cannot quantize the graph.
    """
    known = _openvino_census.names(graph)
    for name in chosen.keep:
        if name not in known:
            raise UnknownNameError("layer", name, known)
    validate = _Validation(model) if chosen.scheme == "accuracy_control" else None
    samples = [] if chosen.scheme == "weight_only" else [inputs for inputs, _ in calibration.samples(model, chosen).batches(1)]
    try:
        with quiet():
            if chosen.scheme == "weight_only":
                return _compressed(graph, chosen, precision), {}
            if validate is None:
                return _nncf().quantize(graph, _nncf().Dataset(samples), **_static(model, chosen, len(samples))), {}
            return _controlled(graph, model, chosen, samples, validate)
    except AccelError:
        raise
    except Exception as error:  # NNCF's errors and OpenVINO's share no base class
        raise ModelError(f"NNCF cannot quantize {model.name}: {first_line(error)}.", "Try engine=onnx_runtime.") from error


def _nncf() -> Any:
    """The package, without its telemetry, which would report to its maker without asking."""
    if "nncf" in sys.modules:
        return sys.modules["nncf"]
    telemetry = sys.modules.get("openvino_telemetry")
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # Python's way to say: not installed; NNCF then sends nothing
    try:
        import nncf
    finally:
        del sys.modules["openvino_telemetry"]
        if telemetry:
            sys.modules["openvino_telemetry"] = telemetry
    return nncf


def _static(model: Model, chosen: Quantization, samples: int) -> dict[str, Any]:
    """The options that ``nncf.quantize`` and ``nncf.quantize_with_accuracy_control`` share, and ``advanced_parameters``."""
    nncf = _nncf()
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    # MINMAX: the outermost values of all samples. MEAN_QUANTILE: the mean over the samples of each one's 0.01 % and 99.99 % quantile.
    ranges = {"minmax": RangeEstimatorParametersSet.MINMAX, "percentile": RangeEstimatorParametersSet.MEAN_QUANTILE}
    return {
        "preset": nncf.QuantizationPreset.PERFORMANCE if chosen.symmetric else nncf.QuantizationPreset.MIXED,
        "subset_size": samples,
        "model_type": nncf.ModelType.TRANSFORMER if model.has_sequence else None,
        "ignored_scope": nncf.IgnoredScope(names=list(chosen.keep)),
        "advanced_parameters": nncf.AdvancedQuantizationParameters(
            overflow_fix=nncf.OverflowFix.ENABLE if chosen.reduce_range else nncf.OverflowFix.DISABLE,
            activations_range_estimator_params=ranges[chosen.calibrator],
            weights_quantization_params=nncf.quantization.advanced_parameters.QuantizationParameters(per_channel=chosen.per_channel),
        ),
    }


def _compressed(graph: Any, chosen: Quantization, precision: str) -> Any:
    nncf = _nncf()
    modes = nncf.CompressWeightsMode
    scope = nncf.IgnoredScope(names=list(chosen.keep))
    if precision == "int8":
        return nncf.compress_weights(graph, mode=modes.INT8_SYM if chosen.symmetric else modes.INT8_ASYM, ignored_scope=scope)
    return nncf.compress_weights(
        graph,
        mode=modes.INT4_SYM if chosen.symmetric else modes.INT4_ASYM,
        group_size=_GROUP,
        ignored_scope=scope,
        advanced_parameters=nncf.AdvancedCompressionParameters(
            group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST, min_adjusted_group_size=_LEAST_GROUP
        ),
    )


def _controlled(
    graph: Any, model: Model, chosen: Quantization, samples: list[dict[str, Array]], validate: _Validation
) -> tuple[Any, dict[str, Any]]:
    import openvino

    nncf, core = _nncf(), openvino.Core()
    options = _static(model, chosen, len(samples))
    with tempfile.TemporaryDirectory() as folder:
        answer = nncf.quantize_with_accuracy_control(
            graph,
            nncf.Dataset(samples),
            nncf.Dataset(validate.items, lambda item: item[0]),
            validate,
            max_drop=MAX_DROP,
            drop_type=nncf.DropType.ABSOLUTE,
            advanced_quantization_parameters=options.pop("advanced_parameters"),
            advanced_accuracy_restorer_parameters=nncf.AdvancedAccuracyRestorerParameters(
                max_num_iterations=_REVERTED,
                ranking_subset_size=min(_RANKED, len(validate.items)),
                num_ranking_workers=1,
                intermediate_model_dir=folder,
            ),
            **options,
        )
        whole = _openvino_census.quantized_names(core.read_model(Path(folder) / "intermediate_model.xml"))
    reverted = sorted(whole - _openvino_census.quantized_names(answer))
    _openvino_census.mark_reverted(answer, reverted)
    validate.started = float("inf")  # the last look is at what is there, however long it took
    after = validate.score(core.compile_model(answer, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}))
    return answer, validate.report(after, reverted)


class _Validation:
    """The task metric over the labelled calibration part: what accuracy control steers by, so that the validation part stays unseen.

    Raises:
        UnsupportedError: the model has no metric, or its calibration part no labels.
    """

    def __init__(self, model: Model) -> None:
        part = model.dataset().calibration if model.dataset else None
        if part is None or part.labels is None or model.metric is None:
            lacks = "no metric" if model.metric is None else "no labels in its calibration part"
            raise UnsupportedError(
                f"Accuracy control steers by the task metric, and {model.name} has {lacks}; "
                "by its validation part it would be judged twice.",
                "Choose scheme=static.",
            )
        self._metric, self._outputs = model.metric, model.outputs
        self._name = model.name
        self.items = [(inputs, labels) for inputs, labels in part.batches(1) if labels is not None]
        self.started = time.monotonic()
        self._whole: list[float] = []

    def __call__(self, compiled: Any, items: Iterable[tuple[dict[str, Array], Array]]) -> tuple[float, None]:
        """What NNCF asks for: a figure of which more is better."""
        if time.monotonic() - self.started > _SECONDS:
            raise UnsupportedError(
                f"Accuracy control of {self._name} did not end within {_SECONDS:.0f} s.", "Choose scheme=static, or name layers in keep."
            )
        return self._figure(compiled, items), None

    def _figure(self, compiled: Any, items: Iterable[tuple[dict[str, Array], Array]]) -> float:
        outputs: dict[str, list[Array]] = {name: [] for name in self._outputs}
        labels = []
        for inputs, label in items:
            answer = compiled(inputs)
            labels.append(label)
            for name, values in outputs.items():
                values.append(answer[name].copy())
        figure = self._metric.function({name: np.concatenate(values) for name, values in outputs.items()}, np.concatenate(labels))
        if len(labels) == len(self.items):
            self._whole.append(figure)
        return figure if self._metric.higher_is_better else -figure

    def score(self, compiled: Any) -> float:
        """The metric itself, over all labelled calibration samples."""
        self._figure(compiled, self.items)
        return self._whole[-1]

    def report(self, after: float, reverted: list[str]) -> dict[str, Any]:
        """What accuracy control did, with the metric of the graph in FP32, quantized whole, and as it was left."""
        before, whole = self._whole[:2]
        drop = (before - after) * (1 if self._metric.higher_is_better else -1)
        return {
            "metric": self._metric.name,
            "samples": len(self.items),
            "fp32": before,
            "quantized": whole,
            "left": after,
            "reverted": reverted,
            "reached": drop <= MAX_DROP,
        }

"""Ranges of activations for static quantization, one sample at a time: the memory it takes does not grow with the samples.

ONNX Runtime's own calibrators keep every activation of every sample until the last one has been seen.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from accel_helpers.device import usable_memory
from accel_helpers.engine import Array
from accel_helpers.errors import ModelError, UnsupportedError

Batches = Callable[[], Iterable[dict[str, Array]]]
"""Gives the calibration inputs anew each time it is called."""
Range = tuple[np.float32, np.float32]
"""The least and the greatest value."""
PERCENTILE = 99.999  # ONNX Runtime's own choice
BINS = {"percentile": 2048, "entropy": 256}
"""Bins of a histogram. ONNX Runtime's 128 for entropy leave its search one candidate, the largest value. With more than 256 it is slow, and
cuts so much off the activations of the built-in models that their accuracy falls."""
LEVELS = 128  # of the quantized distribution that entropy compares with


def ranges(source: Path, tensors: Iterable[str], batches: Batches, calibrator: str) -> dict[str, Range]:
    """The range of values that each tensor needs.

    One pass finds the extremes, reduced inside the graph. ``entropy`` and ``percentile`` take a second one, that counts the values in
    histograms of that width; the threshold is then found by ONNX Runtime's own functions.

    Args:
        source: the FP32 graph.
        tensors: names of float tensors in it.
        batches: the samples, small batches each.
        calibrator: minmax, entropy or percentile.

    Raises:
        ModelError: a tensor holds infinities or no numbers.
        UnsupportedError: one sample needs more memory than is free; raised before the first pass, with both figures.
    """
    names = list(tensors)
    longest = max(batches(), key=lambda batch: sum(array.size for array in batch.values()))
    fits(predicted(source, names, longest, calibrator))
    extremes = _extremes(source, names, batches)
    if calibrator == "minmax":
        return extremes
    collector = _collector(extremes, calibrator)
    with contextlib.redirect_stdout(io.StringIO()):  # it announces itself at each call
        for values in _answers(source, ["Identity"], list(collector.histogram_dict), batches()):
            for key in list(values):  # each let go before the next is counted
                collector.collect({key[1]: values.pop(key)})
        found = collector.compute_collection_result()
    return extremes | {name: (np.float32(kept[0]), np.float32(kept[1])) for name, kept in found.items()}


def predicted(source: Path, tensors: Iterable[str], batch: dict[str, Array], calibrator: str) -> int:
    """Bytes that calibration needs beyond the model and its weights: every tensor of one batch at once, and the histograms.

    ONNX Runtime may reduce a tensor to its extremes at the end of a call only, so that minmax can need as much as the others.
    """
    sizes = [4 * int(np.prod(shape)) for shape in shapes(source, tensors, batch).values()]
    if calibrator == "minmax":
        return sum(sizes)
    return sum(sizes) + max(sizes, default=0) + 12 * BINS[calibrator] * len(sizes)  # counting copies the tensor at hand


def fits(need: int, free: int | None = None) -> None:
    """Refuse what would not fit the memory.

    Raises:
        UnsupportedError: ``need`` bytes are more than are ``free`` (what this process may still take, where it is not given).
    """
    if free is None:
        free = min(int(psutil.virtual_memory().available), usable_memory() - int(psutil.Process().memory_info().rss))
    if need > free:
        raise UnsupportedError(
            f"Calibration would need {need >> 10:,} KiB for the activations of one sample; {free >> 10:,} KiB are free.",
            "Free memory, choose scheme=dynamic or weight_only, which read no samples, or calibrate with smaller inputs.",
        )


def shapes(source: Path, tensors: Iterable[str], batch: dict[str, Array]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor when the graph reads ``batch``. Runs it once; keeps no tensor but the shapes."""
    names = list(tensors)
    if not names:
        return {}
    (found,) = _answers(source, ["Shape"], names, [batch])
    return {name: tuple(int(size) for size in found["Shape", name]) for name in names}


def _extremes(source: Path, names: list[str], batches: Batches) -> dict[str, Range]:
    low: dict[str, Any] = dict.fromkeys(names, np.float32(np.inf))
    high: dict[str, Any] = dict.fromkeys(names, np.float32(-np.inf))
    for values in _answers(source, ["ReduceMin", "ReduceMax"], names, batches()):
        for name in names:
            low[name] = np.minimum(low[name], values["ReduceMin", name])
            high[name] = np.maximum(high[name], values["ReduceMax", name])
    for name in names:
        if not (np.isfinite(low[name]) and np.isfinite(high[name])):
            raise ModelError(
                f"The tensor {name!r} goes from {low[name]} to {high[name]} over the calibration samples, which no integer scale covers.",
                "Keep its layer in float (keep=…), or look where the infinity comes from.",
            )
    return {name: (np.float32(low[name]), np.float32(high[name])) for name in names}


def _collector(extremes: Mapping[str, Range], calibrator: str) -> Any:
    """ONNX Runtime's collector with empty histograms that already have their width, so that none of them grows."""
    from onnxruntime.quantization.calibrate import HistogramCollector

    bins = BINS[calibrator]
    collector = HistogramCollector(calibrator, False, bins, LEVELS, PERCENTILE, "same")
    for name, (low, high) in extremes.items():
        if (width := max(abs(low), abs(high))) > 0:  # a tensor of zeros needs no histogram
            edges = np.linspace(-width, width, bins + 1, dtype=np.float32)
            collector.histogram_dict[name] = (np.zeros(bins, np.int64), edges, low, high, width)
    return collector


def _answers(
    source: Path, operators: list[str], tensors: list[str], batches: Iterable[dict[str, Array]]
) -> Iterator[dict[tuple[str, str], Array]]:
    """What each operator (Identity, Shape, ReduceMin, ReduceMax) answers on each tensor of the graph, for one batch after the other."""
    import onnx
    import onnxruntime

    graph = onnx.load(source, load_external_data=False)
    added = {(operator, name): f"{operator} of {name}" for operator in operators for name in tensors}
    for (operator, name), output in added.items():
        options: dict[str, Any] = {"keepdims": 0} if operator.startswith("Reduce") else {}
        graph.graph.node.append(onnx.helper.make_node(operator, [name], [output], **options))
        graph.graph.output.append(onnx.helper.make_empty_tensor_value_info(output))
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4  # what it would log is raised
    settings.enable_cpu_mem_arena = settings.enable_mem_pattern = False  # an arena keeps what the largest shapes took, rounded up
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with tempfile.NamedTemporaryFile(dir=source.parent, suffix=".onnx") as file:  # beside its weights
        file.write(graph.SerializeToString())
        file.flush()
        session = onnxruntime.InferenceSession(file.name, settings, providers=["CPUExecutionProvider"])
    inputs = [value.name for value in session.get_inputs()]
    for batch in batches:
        answers = session.run(list(added.values()), {name: batch[name] for name in inputs})
        yield dict(zip(added, answers, strict=True))

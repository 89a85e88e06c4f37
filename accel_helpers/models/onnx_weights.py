"""Weights that an ONNX file keeps in files of their own: found and confined to its folder before any of them is opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from accel_helpers.errors import ModelError


def beside(path: Path, model: Any) -> list[Path]:
    """The files in which ``model``, an ``onnx.ModelProto`` read from ``path``, keeps weights; none of them is opened.

    Raises:
        ModelError: a tensor's file lies outside the folder of ``path``, directly or through a link; is missing; or is shorter than the
            tensor needs. The message names the tensor.
    """
    folder = path.resolve().parent
    places: dict[str, None] = {}
    for tensor in _tensors(model):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        place = entries.get("location", "")
        file, named = folder / place, f"(tensor {tensor.name!r})"
        if Path(place).is_absolute() or not file.resolve().is_relative_to(folder):
            raise ModelError(
                f"{path.name} keeps weights outside its own folder, in {place} {named}.", "Move them beside the model and save it again."
            )
        if not file.is_file():
            raise ModelError(
                f"{path.name} keeps weights in {place}, which is missing {named}.", f"Copy {place} into {folder}: the two travel together."
            )
        if (needed := _end(entries, path, named)) > (size := file.stat().st_size):
            raise ModelError(
                f"{path.name} keeps weights in {place}, which holds {size:,} bytes where {needed:,} are needed {named}.",
                f"Copy {place} again: the copy was cut short.",
            )
        places[place] = None
    return [folder / place for place in sorted(places)]


def _end(entries: Mapping[str, str], path: Path, named: str) -> int:
    """The byte after a tensor's last in its file; the offset where no length is written."""
    try:
        return int(entries.get("offset", 0)) + int(entries.get("length", 0))
    except ValueError:
        raise ModelError(
            f"{path.name} keeps weights at an offset or of a length that is no number {named}.", "Export the model again."
        ) from None


def _tensors(model: Any) -> Iterator[Any]:
    """Every tensor of a model: of its graph, the graphs inside its nodes, and its functions."""
    yield from _in_graph(model.graph)
    for function in model.functions:
        yield from _in_nodes(function.node)


def _in_graph(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _in_nodes(graph.node)


def _in_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            for inner in (attribute.g, *attribute.graphs):
                yield from _in_graph(inner)

"""PyTorch eager in a CUDA graph: the plan's shapes recorded once and replayed with one launch. Not yet run on a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from accel_helpers.engine import Array
from accel_helpers.engines._inputs import closed, first_line
from accel_helpers.engines._static_buffers import Answer, StaticBuffers, counted
from accel_helpers.engines.pytorch import TorchSession
from accel_helpers.errors import UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Plan

_WARM_UP = 3
"""Calls on a side stream before the recording, so that libraries choose their kernels and take their memory outside it."""


class _Planned(dict[str, Any]):
    """Host tensors of the plan's shapes, for the graph's own inputs; a plain dict goes past the graph."""


class GraphSession(TorchSession):
    """A network that is recorded at the first call of the plan's shapes. Other shapes run eagerly, and the report counts them."""

    def __init__(self, model: Model, plan: Plan, network: Any) -> None:
        super().__init__(model, plan, network)
        self._calls: Counter[str] = Counter()
        self._inputs: dict[str, Any] = {}
        self._outputs: Any = None
        self._graph: Any = None
        self._buffers: StaticBuffers[_Planned] = StaticBuffers(self._fill, lambda _: TorchSession.fetch(self, self._outputs))

    @property
    def report(self) -> Mapping[str, Any]:
        """That of a :class:`TorchSession`, and how many calls replayed the graph."""
        return {**super().report, "cuda_graph": counted(self._calls)}

    def _executed(self) -> dict[str, Any]:
        before = self._calls.copy()
        try:
            return super()._executed()  # watches an eager call, which is nobody's
        finally:
            self._calls = before

    def place(self, inputs: dict[str, Array]) -> dict[str, Any]:
        checked = self._signature.check(inputs)
        if tuple(array.shape for array in checked.values()) != self._signature.planned:
            return super().place(inputs)
        if self._network is None:
            raise closed(self._model.name)
        planned = _Planned({name: self._on_host(array).pin_memory() for name, array in checked.items()})
        self._buffers.hold(planned)
        return planned

    def _fill(self, planned: _Planned) -> None:
        for name, tensor in planned.items():
            if name not in self._inputs:
                self._inputs[name] = self._torch.empty_like(tensor, device=self._device)
            self._inputs[name].copy_(tensor, non_blocking=True)

    def _forward(self, placed: dict[str, Any]) -> Any:
        if not isinstance(placed, _Planned):
            self._calls["not captured"] += 1
            return super()._forward(placed)
        self._buffers.make_room()
        self._buffers.hold(placed)
        if self._graph is None:
            self._record()
            self._calls["captured"] += 1
        else:
            self._calls["replayed"] += 1
        self._graph.replay()
        return self._buffers.answer(None)

    def _record(self) -> None:
        """Record the network on its static inputs. Recording computes nothing: the first answer comes from the first replay.

        Raises:
            UnsupportedError: something in it waits for the GPU, or reads a value back from it.
        """
        cuda = self._torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(_WARM_UP):
                self._network(**self._inputs)
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        try:
            with cuda.graph(graph, capture_error_mode="thread_local"):  # other sessions' threads go on as they like
                self._outputs = self._network(**self._inputs)
        except RuntimeError as error:
            raise UnsupportedError(
                f"{self._model.name} cannot be recorded as a CUDA graph: {first_line(error)}.",
                "Choose mode=default; a graph holds no step that waits for the GPU or depends on a value that it computed.",
            ) from error
        self._graph = graph

    def fetch(self, result: Any) -> dict[str, Array]:
        if not isinstance(result, Answer):
            return super().fetch(result)
        if self._network is None and result.arrays is None:
            raise closed(self._model.name)
        return self._buffers.fetch(result)

    def close(self) -> None:
        if self._graph is not None:
            self.synchronise()
            self._graph.reset()  # its memory is its own until then
        self._graph = self._outputs = None
        self._inputs.clear()
        super().close()

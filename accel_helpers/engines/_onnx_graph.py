"""ONNX Runtime's CUDA provider in a CUDA graph: fixed buffers for the plan's shapes, filled and read in turn. Not yet run on a GPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

from accel_helpers.engine import Array
from accel_helpers.engines._static_buffers import Answer, StaticBuffers, counted

_SKIP = "-1"
"""The ``gpu_graph_id`` of a run that is neither recorded nor replayed: onnxruntime_run_options_config_keys.h."""


class Planned(dict[str, Array]):
    """Inputs of the plan's shapes, for the graph's own buffers; any others are bound as they are."""


class Recorded:
    """A session with ``enable_cuda_graph``: the provider records the first call of its fixed buffers and replays it from then on.

    Args:
        session: an ``onnxruntime.InferenceSession``.
        outputs: names, in the model's order.
        on: ONNX Runtime's name of the device, "cuda".
    """

    def __init__(self, session: Any, outputs: tuple[str, ...], on: str = "cuda") -> None:
        import onnxruntime

        self._session, self._names, self._on = session, outputs, on
        self._new = onnxruntime.OrtValue.ortvalue_from_shape_and_type
        self._plainly = onnxruntime.RunOptions()
        self._plainly.add_run_config_entry("gpu_graph_id", _SKIP)
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._binding: Any = None
        self._calls: Counter[str] = Counter()
        self._buffers: StaticBuffers[Planned] = StaticBuffers(self._fill, self._read)

    def place(self, planned: Planned) -> Planned:
        """Copy inputs of the plan's shapes into the graph's buffers."""
        self._buffers.hold(planned)
        return planned

    def run(self, planned: Planned) -> Answer:
        """Replay the graph; the first call also records it."""
        self._buffers.make_room()
        self._buffers.hold(planned)
        if self._binding is None:
            self._bind()
        self._calls["replayed" if self._calls["captured"] else "captured"] += 1
        self._session.run_with_iobinding(self._binding)
        return self._buffers.answer(None)

    def run_plainly(self, binding: Any) -> None:
        """Run a binding of other shapes past the graph."""
        self._calls["not captured"] += 1
        self._session.run_with_iobinding(binding, self._plainly)

    def fetch(self, answer: Answer) -> dict[str, Array]:
        """An answer's arrays by output name, in memory of their own and in the graph's types."""
        return self._buffers.fetch(answer)

    @property
    def counts(self) -> dict[str, int]:
        """How many calls recorded, replayed and went past the graph."""
        return counted(self._calls)

    def _fill(self, planned: Planned) -> None:
        for name, array in planned.items():
            if name not in self._inputs:
                self._inputs[name] = self._new(array.shape, array.dtype, self._on, 0)
            self._inputs[name].update_inplace(array)

    def _bind(self) -> None:
        """Bind the buffers; a plain run tells the outputs' shapes and types."""
        first = self._session.io_binding()
        for name, value in self._inputs.items():
            first.bind_ortvalue_input(name, value)
        for name in self._names:
            first.bind_output(name, self._on)
        self._session.run_with_iobinding(first, self._plainly)
        binding = self._session.io_binding()
        for name, value in self._inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in zip(self._names, first.get_outputs(), strict=True):
            array = value.numpy()
            self._outputs[name] = self._new(array.shape, array.dtype, self._on, 0)
            binding.bind_ortvalue_output(name, self._outputs[name])
        self._binding = binding

    def _read(self, _: Any) -> dict[str, Array]:
        return {name: value.numpy().copy() for name, value in self._outputs.items()}

"""A serialized TensorRT engine, run: profiles, buffers, CUDA graphs, layers. Not yet run on a GPU."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.engine import Array, Session
from accel_helpers.engines import _cuda_buffers, _tensorrt_open, _tensorrt_plan
from accel_helpers.engines._inputs import Signature, closed, refused
from accel_helpers.engines._static_buffers import Answer, StaticBuffers, counted
from accel_helpers.engines._tensorrt_jit import Jit
from accel_helpers.errors import ModelError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Plan

_TYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "uint16", "INT32": "int32", "INT64": "int64", "INT8": "int8", "UINT8": "uint8"}
"""TensorRT's types of inputs and outputs, and NumPy's; BF16, which NumPy lacks, as its bits."""
_KINDS = {"float": "fp32", "fp32": "fp32", "half": "fp16", "fp16": "fp16", "bfloat16": "bf16", "bf16": "bf16", "int8": "int8", "fp8": "fp8"}
Shape = tuple[int, ...]
Range = Mapping[str, tuple[Shape, Shape, Shape]]
"""An optimization profile: the least, usual and greatest shape of each input."""


@dataclass(eq=False)
class _Placed:
    arrays: dict[str, Array]
    shapes: dict[str, Shape]
    profile: int
    context: int  # which execution context runs it
    graph: bool  # whether that is the one that is captured


class TensorRtSession(Session):
    """An engine on the first GPU: a context for each profile, one stream, and one pair of buffers for each tensor.

    Inputs run in the narrowest profile that holds their shapes. In mode ``cuda_graph`` the plan's own shapes are captured after a first
    call and replayed; calls of other shapes are queued kernel by kernel, and the report says how many there were.

    Raises:
        ArtifactError: the files are no engine of the installed TensorRT, or are damaged.
        MissingPackageError: TensorRT, pycuda or cuda-bindings is not installed.
        UnsupportedError: there is no GPU that runs this engine.
    """

    def __init__(self, model: Model, plan: Plan, folder: Path) -> None:
        self._model, self._plan = model, plan
        self._signature = Signature(model, plan)
        self._facts = _tensorrt_open.facts(model, folder)
        self._trt = _tensorrt_open.opener(model, self._facts)
        blob = _tensorrt_open.verified(model, folder, self._facts, self._trt)
        self._device = _tensorrt_open.fits(model, self._facts)
        self._captures = plan.mode == "cuda_graph" and self._facts["library"] == "tensorrt"  # TensorRT-RTX captures by itself
        if self._captures:
            _cuda_buffers.graph_library()
        self._calls: Counter[str] = Counter()
        self._graph: _cuda_buffers.Graph | None = None
        self._engine: Any = None
        self._log = _tensorrt_open.logger(self._trt)
        with _cuda_buffers.current() as cuda:
            self._open(blob, cuda)

    def _open(self, blob: bytes, cuda: Any) -> None:
        trt = self._trt
        runtime = trt.Runtime(self._log)
        runtime.engine_host_code_allowed = False  # an engine is data; it brings no code of its own to this machine
        engine = runtime.deserialize_cuda_engine(blob)
        if engine is None:
            raise _tensorrt_open.unopened(self._model, self._log.complaints)
        self._runtime, self._engine = runtime, engine
        if self._facts.get("weight_streaming"):
            engine.weight_streaming_budget_v2 = engine.get_weight_streaming_automatic_budget()
        names = [engine.get_tensor_name(place) for place in range(engine.num_io_tensors)]
        inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        self._outputs = [name for name in names if name not in inputs]
        self._profiles: list[Range] = [
            {name: _range(engine.get_tensor_profile_shape(name, index)) for name in inputs}
            for index in range(engine.num_optimization_profiles)
        ]
        self._stream, self._uploaded = cuda.Stream(), cuda.Event()
        self._jit = Jit(trt, self._facts, self._device, engine, self._plan.mode)
        self._contexts = [self._context(index) for index in range(len(self._profiles))]
        self._pairs = {name: _cuda_buffers.Pair(cuda, *self._room(name)) for name in names}
        planned = fitting(self._profiles, dict(zip(self._signature.inputs, self._signature.planned, strict=True)))
        if self._captures and planned is not None:
            self._contexts.append(self._context(planned))  # a graph replays what its context held, so others' shapes get another
        for context in self._contexts:
            for name, pair in self._pairs.items():
                context.set_tensor_address(name, pair.address)
        self._buffers: StaticBuffers[_Placed] = StaticBuffers(self._fill, self._read)

    def _context(self, index: int) -> Any:
        """A context in one profile, told its greatest shapes, so that it knows how large its outputs can be."""
        context = self._jit.context()
        if context is None:
            raise _tensorrt_open.unopened(self._model, self._log.complaints)
        context.set_optimization_profile_async(index, self._stream.handle)
        self._stream.synchronize()
        for name, (_, _, greatest) in self._profiles[index].items():
            context.set_input_shape(name, greatest)
        return context

    def _room(self, name: str) -> tuple[int, np.dtype[Any]]:
        """Elements that a tensor's buffers must hold at most, and their type."""
        engine = self._engine
        kind = engine.get_tensor_dtype(name).name
        if kind not in _TYPES:
            raise UnsupportedError(
                f"The engine of {self._model.name} has {name} in {kind}.", f"Inputs and outputs can be {', '.join(_TYPES)}."
            )
        dtype = np.dtype(_TYPES[kind])
        if name in self._outputs:
            most = max(context.get_max_output_size(name) for context in self._contexts)
            return most // dtype.itemsize, dtype
        return max(int(np.prod(profile[name][2])) for profile in self._profiles), dtype

    @property
    def report(self) -> Mapping[str, Any]:
        """Version, GPU, profiles and how often each ran, CUDA graph replays, streamed weights, and the layers as the engine names them."""
        engine = self._opened()
        graph: dict[str, Any] = {"cuda_graph": counted(self._calls)} if self._captures else {}
        if self._plan.mode == "cuda_graph" and not self._captures:
            graph = {"cuda_graph": {"captured by": "TensorRT-RTX"}}
        streamed = {"streamable_bytes": engine.streamable_weights_size, "budget_bytes": engine.weight_streaming_budget_v2}
        inspector = engine.create_engine_inspector()
        found = layers(inspector.get_engine_information(self._trt.LayerInformationFormat.JSON))
        return {
            "engine_version": self._trt.__version__,
            "provider": _tensorrt_plan.NAMES[self._facts["library"]],
            "device": self._device[0],
            "profiles": [{name: [list(one) for one in sizes] for name, sizes in profile.items()} for profile in self._profiles],
            "profile_calls": [self._calls[f"profile {index}"] for index in range(len(self._profiles))],
            "scratch_bytes": engine.device_memory_size_v2,
            "layers": found,
            "layer_types": dict(Counter(one["type"] for one in found)),
            **graph,
            **({"weight_streaming": streamed} if self._facts.get("weight_streaming") else {}),
        }

    def _opened(self) -> Any:
        if self._engine is None:
            raise closed(self._model.name)
        return self._engine

    def place(self, inputs: dict[str, Array]) -> _Placed:
        checked = self._signature.check(inputs)
        self._opened()
        shapes = {name: array.shape for name, array in checked.items()}
        index = fitting(self._profiles, shapes)
        if index is None:
            raise outside(self._model, self._profiles, shapes)
        graph = self._captures and tuple(shapes.values()) == self._signature.planned
        placed = _Placed(checked, shapes, index, -1 if graph else index, graph)
        with _cuda_buffers.current():
            self._buffers.hold(placed)
        return placed

    def _fill(self, placed: _Placed) -> None:
        self._uploaded.synchronize()  # the pinned buffers may still be on their way
        context = self._contexts[placed.context]
        for name, array in placed.arrays.items():
            self._pairs[name].upload(array, self._stream)
            context.set_input_shape(name, placed.shapes[name])
        self._uploaded.record(self._stream)

    def run(self, placed: _Placed) -> Answer:
        self._opened()
        with _cuda_buffers.current():
            self._buffers.make_room()
            self._buffers.hold(placed)
            context = self._contexts[placed.context]
            self._calls[f"profile {placed.profile}"] += 1
            if placed.graph and self._graph is not None:
                self._graph.replay()
                self._calls["replayed"] += 1
            else:
                self._enqueue(context)
                self._calls["captured" if placed.graph else "not captured"] += 1
                if placed.graph:  # right after a plain call of the same shapes, which brings the context up to date
                    self._graph = _cuda_buffers.Graph(self._stream, lambda: self._enqueue(context))
            return self._buffers.answer({name: tuple(context.get_tensor_shape(name)) for name in self._outputs})

    def _enqueue(self, context: Any) -> None:
        if not context.execute_async_v3(self._stream.handle):
            raise refused(self._model.name, "TensorRT", RuntimeError((self._log.complaints or ["no message"])[-1]))

    def synchronise(self) -> None:
        self._opened()
        with _cuda_buffers.current():
            self._stream.synchronize()

    def fetch(self, result: Answer) -> dict[str, Array]:
        self._opened()
        with _cuda_buffers.current():
            return self._buffers.fetch(result)

    def _read(self, shapes: Mapping[str, Shape]) -> dict[str, Array]:
        engine = self._opened()
        parts = {name: self._pairs[name].download(int(np.prod(shape)), self._stream) for name, shape in shapes.items()}
        self._stream.synchronize()
        return {
            name: as_float32(part, engine.get_tensor_dtype(name) == self._trt.DataType.BF16).reshape(shapes[name])
            for name, part in parts.items()
        }

    def close(self) -> None:
        if self._engine is None:
            return
        with _cuda_buffers.current():
            self._stream.synchronize()
            self._jit.save()
            if self._graph is not None:
                self._graph.free()
            for pair in self._pairs.values():
                pair.free()
            del self._jit, self._contexts, self._buffers, self._stream, self._uploaded
            self._graph = self._engine = None
            del self._runtime


def fitting(profiles: Sequence[Range], shapes: Mapping[str, Shape]) -> int | None:
    """The profile with the least room that holds these shapes; None where there is none."""

    def holds(profile: Range) -> bool:
        return all(
            all(low <= size <= high for low, size, high in zip(profile[name][0], shape, profile[name][2], strict=True))
            for name, shape in shapes.items()
        )

    room = {index: sum(int(np.prod(one[2])) for one in profile.values()) for index, profile in enumerate(profiles) if holds(profile)}
    return min(room, key=room.__getitem__) if room else None


def outside(model: Model, profiles: Sequence[Range], shapes: Mapping[str, Shape]) -> ModelError:
    """What is said of shapes that no profile holds."""

    def told(shape: Shape) -> str:
        return "x".join(map(str, shape))

    given = ", ".join(f"{name} {told(shape)}" for name, shape in shapes.items())
    known = "; ".join(", ".join(f"{name} {told(low)} to {told(high)}" for name, (low, _, high) in one.items()) for one in profiles)
    return ModelError(
        f"The engine of {model.name} has no profile for {given}; its profiles: {known}.", "Build it with profiles=least/usual/greatest."
    )


def layers(information: str) -> list[dict[str, str]]:
    """The layers in an engine inspector's JSON: name, kind and the type of the first output; "unknown" where it was built without."""
    try:
        found = json.loads(information).get("Layers", [])
    except ValueError:
        return []
    return [_layer(one) if isinstance(one, dict) else {"name": str(one), "kind": "unknown", "type": "unknown"} for one in found]


def _layer(said: Mapping[str, Any]) -> dict[str, str]:
    outputs = said.get("Outputs") or [{}]
    words = re.findall(r"[a-z]+\d*", str(outputs[0].get("Format/Datatype", "")).lower())
    kind = next((_KINDS[word] for word in words if word in _KINDS), "unknown")
    return {"name": str(said.get("Name", "")), "kind": str(said.get("LayerType", "unknown")), "type": kind}


def as_float32(part: Array, bf16: bool) -> Array:
    """A copy in memory of its own; floating-point values as float32, BF16 from its bits."""
    if bf16:
        return (part.astype(np.uint32) << 16).view(np.float32)
    return part.astype(np.float32 if part.dtype.kind == "f" else part.dtype, copy=True)


def _range(shapes: Sequence[Sequence[int]]) -> tuple[Shape, Shape, Shape]:
    least, usual, greatest = (tuple(one) for one in shapes)
    return least, usual, greatest

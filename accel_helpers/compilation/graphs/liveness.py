"""How much memory a graph's values take: all of them at once, and at most at a time when each is freed after its last use.

Exact: the sizes are those of one call, the order is the one it ran in, and nothing is timed.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accel_helpers.compilation.graphs._onnx_session import opened
from accel_helpers.compilation.graphs.graph import onnx_nodes
from accel_helpers.engine import Array
from accel_helpers.engines._onnx_quantize import named

_ALIASES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")
"""Operators whose answer is their first input under another shape, in the same memory."""
_ELEMENTWISE = {"Relu", "Clip", "Gelu", "Sigmoid", "Tanh", "Erf", "Add", "Sub", "Mul", "Div", "Max", "Min", "Where", "Softmax"}
"""Operators that can write their answer over an input of the same size that nobody reads any more."""
_BYTES = {"float": 4, "float16": 2, "bfloat16": 2, "double": 8, "bool": 1}  # of ONNX Runtime's types; integers tell their bits


@dataclass(frozen=True)
class Value:
    """One value between the operators of a graph."""

    name: str
    bytes: int
    born: int  # the step that makes it
    dies: int  # the last step that reads it; an output of the graph lives to the last step


@dataclass(frozen=True)
class Liveness:
    """The values of one call. Weights and the call's inputs are not among them."""

    values: tuple[Value, ...]
    steps: int

    @property
    def total(self) -> int:
        """Bytes, if every value kept memory of its own to the end."""
        return sum(value.bytes for value in self.values)

    @property
    def alive(self) -> tuple[int, ...]:
        """Bytes alive while each step runs: what it reads, what it makes, and what a later one reads."""
        return tuple(sum(one.bytes for one in self.values if one.born <= step <= one.dies) for step in range(self.steps))

    @property
    def peak(self) -> int:
        """The most bytes alive at one step."""
        return max(self.alive, default=0)


@dataclass(frozen=True)
class Step:
    """One operator that ran."""

    reads: tuple[str, ...]
    writes: Mapping[str, int]  # value -> bytes
    alias: bool = False  # it answers its first input under another shape
    elementwise: bool = False  # it can write its answer over an input


def alive(steps: Sequence[Step], outputs: Sequence[str], in_place: bool = False) -> Liveness:
    """The lives of the values that the steps make, one after another, where ``outputs`` are wanted in the end.

    With ``in_place`` an elementwise step writes over an input of its answer's size that dies with it, so that both are one value.
    """
    holder: dict[str, str] = {}  # value -> the one whose memory it is in
    born: dict[str, int] = {}
    dies: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for place, step in enumerate(steps):
        for name, size in step.writes.items():
            source = holder.get(step.reads[0]) if step.alias else None
            holder[name] = source or name
            if source is None and not step.alias:
                born[name], dies[name], sizes[name] = place, place, size
        for name in step.reads:
            if holder.get(name) in dies:
                dies[holder[name]] = place
    for name in outputs:
        if holder.get(name) in dies:
            dies[holder[name]] = len(steps) - 1
    for place, step in enumerate(steps if in_place else ()):
        ((made, size), *_) = step.writes.items()
        over = [holder[name] for name in step.reads if name in holder and dies.get(holder[name]) == place and sizes[holder[name]] == size]
        if step.elementwise and over:
            dies[over[0]] = dies.pop(made)
            del born[made], sizes[made]
            holder.update({name: over[0] for name, held in holder.items() if held == made})
    return Liveness(tuple(Value(name, sizes[name], born[name], dies[name]) for name in born), len(steps))


def liveness(path: Path, inputs: Mapping[str, Array], level: str = "DISABLE_ALL", in_place: bool = False) -> Liveness:
    """The values of an ONNX graph as ONNX Runtime's CPU provider runs it.

    Args:
        path: an ONNX file.
        inputs: of one call, which is made.
        level: of graph optimisation: a key of ``fusion.LEVELS``; "DISABLE_ALL" fuses nothing, "ALL" is what runs by default.
        in_place: whether an elementwise operator writes over an input that dies with it, as ONNX Runtime's do, or into new memory.

    Raises:
        ModelError: ONNX Runtime does not load the graph.
    """
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "optimised.onnx"
        settings = {"enable_profiling": True, "profile_file_prefix": f"{folder}/profile", "optimized_model_filepath": str(written)}
        session = opened(_with_names(path), level, settings)
        session.run(None, dict(inputs))
        events = json.loads(Path(session.end_profiling()).read_text())
        graph = onnx.load(written, load_external_data=False).graph
    nodes = {name: (operator, reads, writes) for name, operator, reads, writes in onnx_nodes(graph)}
    steps = []
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            operator, reads, writes = nodes[event["name"].removesuffix("_kernel_time")]
            sizes = [_bytes(one) for one in event["args"]["output_type_shape"]]
            steps.append(Step(tuple(reads), dict(zip(writes, sizes, strict=True)), operator in _ALIASES, operator in _ELEMENTWISE))
    return alive(steps, [one.name for one in graph.output], in_place)


def _with_names(path: Path) -> Path | bytes:
    """The graph, each of whose nodes the profiler can call by its name."""
    import onnx

    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception:  # protobuf's errors are not onnx's; ONNX Runtime says what is wrong with the file
        return path
    return path if all(node.name for node in graph.node) else bytes(named(onnx.load(path)).SerializeToString())


def _bytes(typed: Mapping[str, Sequence[int]]) -> int:
    ((kind, shape),) = typed.items()
    return math.prod(shape) * (_BYTES.get(kind) or int("".join(filter(str.isdigit, kind))) // 8)

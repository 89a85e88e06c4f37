"""What TorchInductor makes of a network: PyTorch's operators before, and the kernels that its scheduler plans after; no code is made."""

from __future__ import annotations

import shutil
import time
from functools import partial
from typing import Any

from accel_helpers.compilation.graphs.graph import Graph, Stage, grouped, linked
from accel_helpers.engines import _inductor
from accel_helpers.engines.compiled import CompiledSession
from accel_helpers.engines.pytorch import network_of
from accel_helpers.errors import AccelError
from accel_helpers.models import Model
from accel_helpers.records import Plan

_STAGES = ("PyTorch's operators", "rewritten", "kernels")


class _PlannedError(Exception):
    """The scheduler has planned its kernels, which is all that was wanted."""


class _Lowering(CompiledSession):
    """A session whose first call ends where Inductor would begin to write code."""

    def __init__(self, model: Model, plan: Plan, network: Any) -> None:
        super().__init__(model, plan, network)
        self.before: Graph | None = None
        self.lowered: Graph | None = None
        self.after: Graph | None = None
        self.claims: dict[str, set[str]] = {}

    def captured(self, graph: Any) -> None:
        """Keep the operators as PyTorch's own tracing leaves them; called by Inductor ahead of its passes."""
        self.before = _graph(graph)

    def planned(self, kernels: list[Any]) -> list[Any]:
        """Keep the rewritten graph and the kernels; called by Inductor's scheduler when it has fused what it can."""
        from torch._inductor.virtualized import V

        self.lowered = _graph(V.graph.module.graph)
        made = linked(
            [(one.get_name(), _kind(one), [read.name for read in one.read_writes.reads], one.get_buffer_names()) for one in kernels]
        )
        running = [one for one in kernels if type(one.node).__name__ != "MultiOutput"]  # which only names one answer of another kernel
        self.after = made.kept(one.get_name() for one in running)
        order = {node.name: place for place, node in enumerate(self.lowered.nodes)}
        latest = {}
        for kernel in running:  # a kernel's origins hold all that came before it and was joined or only renamed; the last is its own
            known = [[one.name for one in part.node.get_origins() if one.name in order] for part in kernel.get_nodes() if part.node]
            latest[kernel.get_name()] = {max(names, key=order.__getitem__) for names in known if names}
        called = {
            name for kernel in running if kernel.is_extern() for name in latest[kernel.get_name()]
        }  # not by loops that lay out its inputs
        self.claims = {one.get_name(): latest[one.get_name()] - (set() if one.is_extern() else called) for one in running}
        raise _PlannedError


def stages(model: Model, plan: Plan, asked: bool = True) -> tuple[Stage, ...]:
    """A network's operators, what Inductor's patterns rewrite them to, and the kernels that it would make of them at the plan's sizes.

    Where the graph is cut, they are those of the first program. An operator that several kernels compute counts in the first that runs.
    """
    reason = "" if model.build else "an ONNX file holds no PyTorch network"
    if not shutil.which(compiler := _inductor.cpp_compiler()):  # Inductor asks it what the processor has
        reason = f"torch.compile needs a C++ compiler and there is no {compiler}"
    if not asked:
        reason = "left out by request"
    if reason:
        return tuple(Stage("compiled", stage, None, reason=reason) for stage in _STAGES)
    _inductor.cache_in_store()
    network = network_of(model, plan)
    begin = time.perf_counter()
    with _Lowering(model, plan, network) as session:
        _lower(session, model.example(plan.batch, plan.sequence, 0))
        seconds = time.perf_counter() - begin
        assert session.before
        assert session.lowered
        assert session.after
        before, lowered = (
            Stage("compiled", stage, graph) for stage, graph in zip(_STAGES, (session.before, session.lowered), strict=False)
        )
        groups = grouped(session.lowered, session.after, session.claims)
        return before, lowered, Stage("compiled", _STAGES[-1], session.after, lowered.name, groups, seconds)


def _lower(session: _Lowering, example: Any) -> None:
    import torch._functorch.config
    import torch._inductor.config

    from accel_helpers.engines._onnx_check import quiet

    hooks: dict[str, Any] = {  # functions, for Inductor copies its settings, and what a method belongs to with them
        "joint_custom_pre_pass": lambda graph: session.captured(graph),
        "_post_fusion_custom_pass": lambda kernels: session.planned(kernels),
        "fx_graph_cache": False,
    }
    with torch._inductor.config.patch(hooks), torch._functorch.config.patch(enable_autograd_cache=False), quiet():
        try:
            session.run(session.place(example))
        except AccelError:  # made of _PlannedError, where both were seen
            if session.after is None:
                raise


def _graph(graph: Any) -> Graph:
    called = [node for node in graph.nodes if node.op == "call_function"]
    return linked([(node.name, _short(node.target), [one.name for one in node.all_input_nodes], [node.name]) for node in called])


def _short(target: Any) -> str:
    if isinstance(target, partial):  # how Inductor writes a pattern that it replaced by one function of a library
        return "fused pattern"
    packet = getattr(target, "overloadpacket", target)
    return str(getattr(packet, "__name__", packet)).rpartition(".")[2]


def _kind(kernel: Any) -> str:
    """A loop that Inductor writes, or the library's function that it calls."""
    called = getattr(kernel.node, "python_kernel_name", None)
    return str(called).removeprefix("torch.ops.").split(".")[1] if called else "generated loop"

"""How many programs torch.compile makes of a model that meets many shapes, why, and when it stops compiling without a word."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from accel_helpers import bench, models
from accel_helpers.config import RunConfig
from accel_helpers.errors import ParameterError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Plan

POLICIES: dict[str, bool | None] = {"as people write it": None, "dynamic=False": False, "dynamic=True": True}
"""What ``torch.compile(network, dynamic=...)`` is given; None, its default, opens the axes that it has seen change."""
ENGINE = "engine compiled"
"""This package's own policy: one program for the plan's shape, one with open sizes for all others, and an error at the limit."""


@dataclass(frozen=True)
class Call:
    """One call on a shape that had not been seen."""

    batch: int
    sequence: int  # tokens per item
    compiled: int  # programs made for it
    ran: int  # compiled programs that it ran; 0 where it ran eagerly
    reason: str  # why the programs that were there did not fit, as PyTorch says; empty where one did, or none was there
    refused: str = ""  # what the engine said where it ran nothing


@dataclass(frozen=True)
class Policy:
    """One way to ask for compilation, and what it made of the shapes in their order."""

    name: str
    calls: tuple[Call, ...]
    logged: str = ""  # the first line that PyTorch logged while it ran

    @property
    def programs(self) -> int:
        """Programs made in all."""
        return sum(call.compiled for call in self.calls)

    @property
    def eager(self) -> tuple[Call, ...]:
        """The calls that ran no compiled program and raised nothing."""
        return tuple(call for call in self.calls if not call.ran and not call.refused)


@dataclass(frozen=True)
class Recompilations:
    """The same shapes in the same order under every policy."""

    model: str
    limit: int  # programs of one function, after which torch.compile gives up (torch._dynamo.config.recompile_limit)
    policies: tuple[Policy, ...]

    @property
    def sentence(self) -> str:
        """The programs of each policy, and from which call on it ran eagerly."""
        said = []
        for one in self.policies:
            end = ""
            if one.eager:
                told = f"a logged line ({one.logged})" if one.logged else "nothing logged"
                end = f", then eager from call {one.calls.index(one.eager[0]) + 1} on, with no error and {told}"
            elif refused := [call for call in one.calls if call.refused]:
                end = f", then an error at call {one.calls.index(refused[0]) + 1}"
            said.append(f"{one.name}: {one.programs} programs{end}")
        return f"{len(self.policies[0].calls)} shapes of {self.model}. {'; '.join(said)} (the limit is {self.limit} programs)."


class _Count:
    """Programs made and run so far."""

    def __init__(self) -> None:
        self.made = self.ran = 0

    def backend(self, graph: Any, _: Any) -> Callable[..., Any]:
        """A backend of torch.compile that makes no code: it counts, and runs the captured graph as it is."""
        self.made += 1

        def program(*inputs: Any) -> Any:
            self.ran += 1
            return graph.forward(*inputs)

        return program


def recompilations(
    config: RunConfig, batches: Sequence[int] = tuple(range(1, 11)), sequences: Sequence[int] = (), limit: int | None = None
) -> Recompilations:
    """Call a model on one shape after another under each policy, and count the programs. Generates no code, so it takes seconds.

    Args:
        config: its model, device, precision, sequence length and batch; the batch is the plan's shape for the engine's own policy.
        batches: items per call, in order, at the configuration's sequence length.
        sequences: tokens per item of further calls, at the last of the batches.
        limit: programs before torch.compile gives up; without, PyTorch's own limit.

    Raises:
        ParameterError: no shape, or a sequence for a model that reads none.
        ModelError: the model is an ONNX file, or fails on a shape.
    """
    import torch._dynamo.config

    model, plan = models.get(config.model), bench.plan_of(config.replace(engine="compiled", mode="default"))
    shapes = [(batch, config.sequence) for batch in batches] + [(batches[-1], sequence) for sequence in sequences if batches]
    if not shapes or (sequences and not model.has_sequence):
        raise ParameterError(
            f"No shapes of {model.name} to call.", "Name batches, and sequences only for a model that reads sequences (has_sequence)."
        )
    limit = limit or int(torch._dynamo.config.recompile_limit)
    with torch._dynamo.config.patch(recompile_limit=limit):
        found = [_policy(model, plan, shapes, name) for name in (*POLICIES, ENGINE)]
    return Recompilations(model.name, limit, tuple(found))


def _policy(model: Model, plan: Plan, shapes: Sequence[tuple[int, int]], name: str) -> Policy:
    from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics

    count, calls = _Count(), []
    with _logged() as lines, _session(model, plan, name, count) as session:
        for batch, sequence in shapes:
            made, ran, refused = count.made, count.ran, ""
            clear_compilation_metrics()
            try:
                session(model.example(batch, sequence, 0))
            except UnsupportedError as error:
                refused = error.what
            reasons = [one.recompile_reason for one in get_compilation_metrics() if one.recompile_reason]
            reason = _plain(reasons[0]) if reasons else ""
            calls.append(Call(batch, sequence, count.made - made, count.ran - ran, reason, refused))
    return Policy(name, tuple(calls), lines[0] if lines else "")


@contextmanager
def _logged() -> Iterator[list[str]]:
    """The first lines of what torch.compile logs, kept from standard error."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage().splitlines()[0])

    logger, keep = logging.getLogger("torch._dynamo.convert_frame"), Keep()
    before, logger.propagate = logger.propagate, False
    logger.addHandler(keep)
    try:
        yield lines
    finally:
        logger.removeHandler(keep)
        logger.propagate = before


@contextmanager
def _session(model: Model, plan: Plan, policy: str, count: _Count) -> Iterator[Any]:
    """A session that compiles by a policy, with a counting backend."""
    import torch
    from torch._dynamo.eval_frame import reset_code

    from accel_helpers.engines._inductor import own_function
    from accel_helpers.engines.compiled import CompiledSession
    from accel_helpers.engines.pytorch import TorchSession, network_of

    class Counted(CompiledSession):
        def _compile(self, graph: Any, inputs: list[Any]) -> Callable[..., Any]:
            self._programs[self._compiling] += 1
            return count.backend(graph, inputs)

    network = network_of(model, plan)
    if policy == ENGINE:
        with Counted(model, plan, network) as counted:
            yield counted
        return
    function = own_function(network)
    try:
        with TorchSession(model, plan, torch.compile(function, backend=count.backend, dynamic=POLICIES[policy])) as session:
            yield session
    finally:
        reset_code(function.__code__)


def _plain(reason: str) -> str:
    """The first of PyTorch's reasons, without the number of the program and the line of code that follows."""
    return reason.strip().splitlines()[0].split("#")[0].strip()

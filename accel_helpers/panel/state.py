"""What the panel knows and what follows from it: pure functions from one :class:`State` to the next, to words and to a chart."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar, get_args

from accel_helpers import bench, engines
from accel_helpers.accuracy import Budget
from accel_helpers.bench import Comparison, Progress
from accel_helpers.charts import Chart, rounds_so_far
from accel_helpers.config import RunConfig
from accel_helpers.errors import AccelError, UnsupportedError
from accel_helpers.records import Measurement, Verdict

_LABEL_WIDTH = 100


@dataclass(frozen=True)
class Number:
    """A control for a whole number: a box for every value from ``smallest`` to ``largest``, and a slider over ``stops`` or all of them."""

    name: str
    label: str
    smallest: int
    largest: int
    stops: tuple[int, ...] = ()


@dataclass(frozen=True)
class State(ABC):
    """Everything a panel shows follows from this. A subclass says which controls it has, what one press measures and what is drawn."""

    config: RunConfig
    history: tuple[Measurement, ...] = ()  # finished measurements
    verdicts: tuple[Verdict, ...] = ()  # those that judge two of them
    running: bool = False
    progress: Progress | None = None  # of the running measurement, once it has begun
    message: str = "Change a control or press Measure."

    choices: ClassVar[tuple[str, ...]]
    """The controls with a list of options; each control is a field of RunConfig."""
    switches: ClassVar[tuple[str, ...]] = ()
    """The controls that are on or off."""
    note: ClassVar[str]
    """What a reader of the chart must know."""

    @property
    @abstractmethod
    def numbers(self) -> tuple[Number, ...]:
        """The controls with a range."""

    @property
    def allowed(self) -> Budget:
        """What a candidate may lose."""
        return Budget()

    def runs(self, config: RunConfig) -> tuple[RunConfig, ...]:
        """What is measured in one interleaved run where ``config`` is chosen, the baseline first."""
        return (config,)

    def reason(self, config: RunConfig) -> str:
        """Why a configuration cannot run here, empty where it can."""
        return next((support.reason for support in map(bench.support, self.runs(config)) if not support), "")

    @abstractmethod
    def said(self, comparison: Comparison) -> str:
        """A finished run in a sentence or two."""

    @abstractmethod
    def drawn(self) -> Chart:
        """Every finished measurement."""

    @property
    def label(self) -> str:
        """The chosen plan's short name."""
        return bench.plan_of(self.config).label


Kind = TypeVar("Kind", bound=State)


@dataclass(frozen=True)
class Option:
    """One option of a control; ``reason`` says why it cannot run here with the other controls as they are, empty where it can."""

    value: str
    reason: str = ""


def options(state: State, name: str) -> tuple[Option, ...]:
    """Every option of a control in a fixed order, with the reasons of those that cannot run."""
    return tuple(Option(value, state.reason(state.config.replace(**{name: value}))) for value in _values(name))


def _values(name: str) -> tuple[str, ...]:
    return engines.names() if name == "engine" else get_args(RunConfig.model_fields[name].annotation)


def listed(state: State, name: str) -> list[tuple[str, str]]:
    """A control's (label, value) pairs. One that cannot run says why; the chosen one need not, the status does."""
    chosen = getattr(state.config, name)
    return [(one.value if one.value == chosen else _label(one), one.value) for one in options(state, name)]


def _label(option: Option) -> str:
    words = f"{option.value} — {option.reason}" if option.reason else option.value
    return textwrap.shorten(words, _LABEL_WIDTH, placeholder=" …")


def ends(state: State) -> dict[str, tuple[Any, ...]]:
    """Every value of each list and switch and both ends of each range, by control."""
    lists: dict[str, tuple[Any, ...]] = {name: _values(name) for name in state.choices}
    return {**lists, **dict.fromkeys(state.switches, (False, True)), **{one.name: (one.smallest, one.largest) for one in state.numbers}}


def idle(state: State) -> tuple[str, ...]:
    """The controls that change nothing about the plan with the others as they are."""
    plan = bench.plan_of(state.config)
    found = ends(state).items()
    return tuple(name for name, values in found if all(bench.plan_of(state.config.replace(**{name: one})) == plan for one in values))


def choose(state: Kind, name: str, value: Any) -> Kind:
    """The state after a control was changed: ready to run, or with the reason why it cannot.

    Raises:
        ParameterError: a value that RunConfig refuses.
    """
    return begin(replace(state, config=state.config.replace(**{name: value})))


def begin(state: Kind) -> Kind:
    """The state in which the chosen configuration starts to run, or the reason why it does not."""
    if reason := state.reason(state.config):
        message = f"{state.label} cannot run here: {reason.rstrip('.')}. Nothing was measured."
        return replace(state, running=False, progress=None, message=message)
    return replace(state, running=True, progress=None, message=f"{state.label}: waiting for its turn, one measurement at a time.")


def advance(state: Kind, progress: Progress) -> Kind:
    """The state after the measurement told where it stands."""
    return replace(state, progress=progress, message=f"{state.label}: {progress.stage}.")


def finish(state: Kind, found: Comparison) -> Kind:
    """The state with one more finished run; an earlier measurement of the same model and plan gives way, unless a verdict rests on it."""
    again = {(one.model, one.plan) for one in found.measurements[-1:]}
    old = {one.digest for one in state.history if (one.model, one.plan) in again}
    verdicts = tuple(one for one in state.verdicts if one.candidate not in old)
    needed = {digest for one in verdicts for digest in (one.baseline, one.candidate)}
    again |= {(one.model, one.plan) for one in found.measurements}
    kept = tuple(one for one in state.history if one.digest in needed or (one.model, one.plan) not in again)
    history, verdicts = (*kept, *found.measurements), (*verdicts, *found.verdicts)
    return replace(state, history=history, verdicts=verdicts, running=False, progress=None, message=state.said(found))


def fail(state: Kind, error: AccelError) -> Kind:
    """The state after a measurement that gave no figure; what was finished stays."""
    return replace(state, running=False, progress=None, message=str(error))


def draw(state: State) -> Chart:
    """The rounds of the running measurement while there are any, else what is finished."""
    if state.progress and state.progress.rounds:
        return rounds_so_far(state.progress.plans, state.progress.rounds, state.progress.total)
    return state.drawn()


def noted(state: State, labels: Sequence[str]) -> str:
    """What a reader of the chart must know, and which controls change nothing now."""
    return f"{state.note} Switched off, because they change nothing about this plan: {', '.join(labels)}." if labels else state.note


def headless(state: State) -> Chart:
    """Every option of every control and both ends of every range drawn as a click would, then ``state.config`` measured and drawn.

    Only the configuration given is measured: measuring every option would take minutes and is what a sweep is for.

    Raises:
        UnsupportedError: ``state.config`` cannot run here.
        AccelError: what :func:`accel_helpers.bench.compare` raises.
    """
    for name, values in ends(state).items():
        for value in values:
            draw(choose(state, name, value))
    if state.reason(state.config):
        raise UnsupportedError(begin(state).message, "Choose another precision, scheme, device or engine.")
    runs = state.runs(state.config)
    return draw(finish(state, bench.compare(runs, watch=lambda progress: _drawn(state, progress), budget=state.allowed)))


def _drawn(state: State, progress: Progress) -> None:
    draw(advance(state, progress))

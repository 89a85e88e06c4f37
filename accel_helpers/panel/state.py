"""What the panel knows and what follows from it: pure functions from one :class:`State` to the next, to words and to a chart."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import Any

from accel_helpers import bench, engines
from accel_helpers.bench import Progress
from accel_helpers.charts import Chart, batch_sweep, rounds_so_far, seconds
from accel_helpers.config import DEVICES, PRECISIONS, RunConfig
from accel_helpers.errors import AccelError
from accel_helpers.records import Measurement

CHOICES = ("engine", "precision", "device")
"""The controls with a list of options; the batch size is the one with a range."""
_LABEL_WIDTH = 100


@dataclass(frozen=True)
class State:
    """Everything the panel shows follows from this."""

    config: RunConfig
    largest_batch: int = 64
    history: tuple[Measurement, ...] = ()  # finished measurements, one for each model and plan
    running: bool = False
    progress: Progress | None = None  # of the running measurement, once it has begun
    message: str = "Change a control or press Measure."

    @property
    def label(self) -> str:
        """The chosen plan's short name."""
        return bench.plan_of(self.config).label


@dataclass(frozen=True)
class Option:
    """One option of a control; ``reason`` says why it cannot run here with the other controls as they are, empty where it can."""

    value: str
    reason: str = ""


def options(config: RunConfig, name: str) -> tuple[Option, ...]:
    """Every option of a control in a fixed order, with the reasons of those that cannot run."""
    values = {"precision": PRECISIONS, "engine": engines.names(), "device": DEVICES}[name]
    return tuple(Option(value, bench.support(config.replace(**{name: value})).reason) for value in values)


def listed(config: RunConfig, name: str) -> list[tuple[str, str]]:
    """A control's (label, value) pairs. One that cannot run says why; the chosen one need not, the status does."""
    chosen = getattr(config, name)
    return [(one.value if one.value == chosen else _label(one), one.value) for one in options(config, name)]


def _label(option: Option) -> str:
    words = f"{option.value} — {option.reason}" if option.reason else option.value
    return textwrap.shorten(words, _LABEL_WIDTH, placeholder=" …")


def choose(state: State, name: str, value: Any) -> State:
    """The state after a control was changed: ready to run, or with the reason why it cannot.

    Raises:
        ParameterError: a value that RunConfig refuses.
    """
    return begin(replace(state, config=state.config.replace(**{name: value})))


def begin(state: State) -> State:
    """The state in which the chosen configuration starts to run, or the reason why it does not."""
    support = bench.support(state.config)
    if not support:
        reason = support.reason.rstrip(".")
        return replace(state, running=False, progress=None, message=f"{state.label} cannot run here: {reason}. Nothing was measured.")
    return replace(state, running=True, progress=None, message=f"{state.label}: waiting for its turn, one measurement at a time.")


def advance(state: State, progress: Progress) -> State:
    """The state after the measurement told where it stands."""
    return replace(state, progress=progress, message=f"{state.label}: {progress.stage}.")


def finish(state: State, measurement: Measurement) -> State:
    """The state with one more finished measurement; an earlier one of the same model and plan gives way."""
    kept = tuple(one for one in state.history if (one.model, one.plan) != (measurement.model, measurement.plan))
    verdict = f"{measurement.status}: {'; '.join(measurement.reasons)}" if measurement.reasons else measurement.status
    message = f"{measurement.plan.label}: P50 {seconds(measurement.p50)} per call (95 % interval). {verdict}."
    return replace(state, history=(*kept, measurement), running=False, progress=None, message=message)


def fail(state: State, error: AccelError) -> State:
    """The state after a measurement that gave no figure; what was finished stays."""
    return replace(state, running=False, progress=None, message=str(error))


def draw(state: State) -> Chart:
    """The rounds of the running measurement while there are any, else every finished measurement over the batch size."""
    if state.progress and state.progress.rounds:
        return rounds_so_far(state.progress.plans, state.progress.rounds, state.progress.total)
    if state.history:
        return batch_sweep(state.history)
    return rounds_so_far((bench.plan_of(state.config),), ((),), state.config.rounds)


def headless(state: State) -> Chart:
    """Every option of every control and both ends of the batch size drawn as a click would, then ``state.config`` measured and drawn.

    Only the configuration given is measured: measuring every option would take minutes and is what a sweep is for.

    Raises:
        AccelError: what :func:`accel_helpers.bench.measure` raises.
    """
    for name in CHOICES:
        for option in options(state.config, name):
            draw(choose(state, name, option.value))
    for batch in (1, state.largest_batch):
        draw(choose(state, "batch", batch))
    return draw(finish(state, bench.measure(state.config, watch=lambda progress: _drawn(state, progress))))


def _drawn(state: State, progress: Progress) -> None:
    draw(advance(state, progress))

"""Measure a loaded session: first call and warm-up apart, then rounds; interleave several; check that the work was really done.

A *subject* is one session under measurement. It runs in this process (:class:`Subject`) or in a fresh one of its own (``bench``); both
answer the same calls, so that :func:`interleave` does not know the difference.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from accel_helpers.accuracy import TOLERANCE, compare_outputs
from accel_helpers.engine import Array, Session
from accel_helpers.errors import MeasurementError, StoppedError
from accel_helpers.intervals import log_centre, median
from accel_helpers.records import Check, Round, Scope
from accel_helpers.steady import steady

Clock = Callable[[], float]

MOST_CALLS = 200
"""Calls per round at most: twelve such rounds already give a p99 its interval."""
WARMUP_SECONDS = 5.0
"""Warm-up at most: an engine that is still not steady then is measured and labelled so."""
_CACHE_RATIO = 1.5
_KEPT_BYTES = 64 * 2**20


class Measurable(Protocol):
    """What :func:`interleave` needs of a subject."""

    def round(self, calls: int) -> Round:
        """Run some calls and time them."""
        ...


class Subject:
    """One session under measurement, in this process.

    Args:
        session: loaded; stays the caller's to close.
        inputs: distinct input sets, each mapping names to arrays; calls take them in turn.
        references: the right outputs for each input set, or empty where nothing is known.
        precision: decides the tolerance of the comparison.
        scope: "compute" times run and synchronise; "end to end" times place, run and fetch.
        clock: monotonic seconds.
        cpu_clock: CPU seconds of this process.
    """

    def __init__(
        self,
        session: Session,
        inputs: Sequence[dict[str, Array]],
        references: Sequence[Mapping[str, Array]] = (),
        precision: str = "fp32",
        scope: Scope = "end to end",
        clock: Clock = time.perf_counter,
        cpu_clock: Clock = time.process_time,
    ) -> None:
        self.session, self.inputs, self.references = session, inputs, references
        self.precision, self.scope, self.clock, self.cpu_clock = precision, scope, clock, cpu_clock
        self._sizes = _sizes(references)
        self.first_call = 0.0
        self.warmup: tuple[float, ...] = ()
        self.errors: list[str] = []
        self._series: list[float] = []
        self._turn = 0
        self._worst = 0.0
        self._compared = 0

    def _call(self, inputs: dict[str, Array]) -> tuple[float, dict[str, Array]]:
        session, clock = self.session, self.clock
        if self.scope == "end to end":
            begin = clock()
            outputs = session.fetch(session.run(session.place(inputs)))
            return clock() - begin, outputs
        placed = session.place(inputs)
        session.synchronise()
        begin = clock()
        result = session.run(placed)
        session.synchronise()
        seconds = clock() - begin
        return seconds, session.fetch(result)

    def _attempt(self, inputs: dict[str, Array]) -> tuple[float, dict[str, Array]] | None:
        try:
            return self._call(inputs)
        except Exception as error:  # an engine may raise anything; a failed call is counted, and a run with errors is INVALID
            self.errors.append(f"{type(error).__name__}: {error}")
            return None

    def _next(self) -> int:
        self._turn = (self._turn + 1) % len(self.inputs)
        return self._turn

    def _compare(self, index: int, outputs: Mapping[str, Array]) -> None:
        if self.references:
            found = compare_outputs(outputs, self.references[index])
            self._worst = max(self._worst, *(one.relative * self._sizes[index][name] for name, one in found.items()))
            self._compared += 1

    def warm_up(self, seconds: float = WARMUP_SECONDS) -> float:
        """Make the first call, then call until steady or out of time. Returns the typical seconds of a call.

        Raises:
            MeasurementError: the first call failed.
        """
        first = self._attempt(self.inputs[0])
        if first is None:
            raise MeasurementError(f"The first call failed: {self.errors[0]}.", "Run the model once by hand with these inputs.")
        self.first_call = first[0]
        self._compare(0, first[1])
        begin = self.clock()
        while self.clock() - begin < seconds:
            index = self._next()
            if (done := self._attempt(self.inputs[index])) is not None:
                self._series.append(done[0])
                self._compare(index, done[1])
            count = len(self._series)
            if count >= 16 and count & (count - 1) == 0 and steady(self._series).stable:  # looked at when the series has doubled
                break
            if len(self.errors) > 10:
                break
        self.warmup = tuple(self._series)
        return median(self._series[-16:]) if self._series else self.first_call

    def round(self, calls: int) -> Round:
        """Time ``calls`` calls in a row, after one that is not counted (another subject may have emptied the caches).

        Raises:
            MeasurementError: every call failed.
        """
        if calls > 1:
            self._attempt(self.inputs[self._turn])
        wall: list[float] = []
        kept: list[tuple[int, dict[str, Array]]] = []
        room = _KEPT_BYTES
        cpu = self.cpu_clock()
        for _ in range(calls):
            index = self._next()
            done = self._attempt(self.inputs[index])
            if done is None:
                continue
            wall.append(done[0])
            room -= sum(output.nbytes for output in done[1].values())
            if room > 0:
                kept.append((index, done[1]))
        cpu = self.cpu_clock() - cpu
        if not wall:
            raise MeasurementError(
                f"All {calls} calls of a round failed: {self.errors[-1]}.", "Run the model once by hand with these inputs."
            )
        for index, outputs in kept:  # compared after the round, so that comparing costs the round nothing
            self._compare(index, outputs)
        self._series += wall
        return Round(tuple(wall), cpu)

    def checks(self) -> tuple[Check, ...]:
        """Whether the work was really done; makes a few more calls. Asked after the last round."""
        found = [self._outputs_right(), self._steady(), self._no_cache()]
        if self.scope == "compute":
            found.append(self._waited())
        return tuple(found)

    def _outputs_right(self) -> Check:
        if not self.references:
            return Check("outputs", None, "no reference outputs")
        tolerance = TOLERANCE[self.precision]
        detail = f"largest relative error {self._worst:.2g} over {self._compared} calls, tolerance {tolerance:g} for {self.precision}"
        return Check("outputs", self._worst <= tolerance, detail)

    def _steady(self) -> Check:
        found = steady(self._series)
        counted = found.change - len(self.warmup)
        late = counted > 0.05 * (len(self._series) - len(self.warmup))
        detail = f"{found.detail}; warm-up took {counted} calls more than were left out" if late else found.detail
        return Check("steady", found.stable and not late, detail, fatal=False)

    def _no_cache(self) -> Check:
        """Inputs never seen before must take as long as repeated ones; looked at again, in pairs, before it is said."""
        seen = median(self._series[-6:])
        fresh = [self._attempt(_shifted(self.inputs[0], shift + 1)) for shift in range(3)]
        ratio = median([one[0] for one in fresh if one]) / max(seen, 1e-9) if any(fresh) else 0.0
        if ratio > _CACHE_RATIO:
            ratios = []
            for shift in range(6):  # as many as an interval needs
                new, old = self._attempt(_shifted(self.inputs[0], shift + 4)), self._attempt(self.inputs[0])
                if new and old:
                    ratios.append(max(new[0], 1e-9) / max(old[0], 1e-9))
            ratio = log_centre(ratios).low if len(ratios) >= 6 else ratio
        detail = f"inputs never seen before take {ratio:.2f} times a repeated one"
        return Check("no result cache", ratio <= _CACHE_RATIO, detail)

    def _waited(self, pairs: int = 6) -> Check:
        """A result fetched at once must not cost much more than one fetched after a pause: else run returned before the work was done."""
        session = self.session
        placed = session.place(self.inputs[0])
        whole = median(self._series[-16:])

        def fetched(pause: float) -> float:
            result = session.run(placed)
            session.synchronise()
            time.sleep(pause)
            begin = self.clock()
            session.fetch(result)
            return self.clock() - begin

        fetched(0.0)  # what a first fetch allocates is not waiting
        once = min(fetched(0.0) for _ in range(pairs))
        later = min(fetched(min(3 * (whole + once), 0.5)) for _ in range(pairs))
        hidden = once - later
        return Check(
            "device finished",
            hidden <= 0.2 * whole + 20e-6,
            f"{max(hidden, 0.0):.2g} s of work were still running after run and synchronise",
        )


def _shifted(inputs: dict[str, Array], by: int) -> dict[str, Array]:
    """The same values in other places along the last axis: new to any cache, valid for any model that read the old ones."""
    return {name: np.roll(values, by, axis=-1) if values.ndim > 1 else values for name, values in inputs.items()}


def calls_per_round(typical: float, seconds: float, rounds: int) -> int:
    """How many calls of ``typical`` seconds fit into one of ``rounds`` rounds of ``seconds`` in all."""
    return max(1, min(MOST_CALLS, int(seconds / rounds / max(typical, 1e-9) + 1e-6)))


def interleave(
    subjects: Sequence[Measurable],
    calls: Sequence[int],
    rounds: int,
    seed: int,
    watch: Callable[[int, list[list[Round]]], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[list[Round]]:
    """Run every subject once a round, in an order drawn anew for each round; gives each subject's rounds.

    Blocks (all of A, then all of B) mistake the machine's drift for a difference; a random order within short rounds does not.

    Args:
        subjects: what to run.
        calls: calls per round of each subject.
        rounds: how many.
        seed: of the orders.
        watch: told the number of finished rounds and all rounds so far after each of them.
        stop: asked before each turn.

    Raises:
        StoppedError: ``stop`` said so.
    """
    order = random.Random(seed)  # noqa: S311 - an order, not a secret
    done: list[list[Round]] = [[] for _ in subjects]
    for number in range(rounds):
        for index in order.sample(range(len(subjects)), len(subjects)):
            if stop and stop():
                raise StoppedError(f"Stopped after {number} of {rounds} rounds.", "Run it again to measure.")
            done[index].append(subjects[index].round(calls[index]))
        if watch:
            watch(number + 1, done)
    return done


def _sizes(references: Sequence[Mapping[str, Array]]) -> list[dict[str, float]]:
    """How large each reference output is beside the same output of all input sets (root mean square of their norms).

    An error counts by what outputs usually are: two logits that happen to lie near zero would make any rounding a large relative error.
    """
    norms = [{name: float(np.linalg.norm(values.astype(np.float64))) for name, values in one.items()} for one in references]
    usual = {name: float(np.sqrt(np.mean([one[name] ** 2 for one in norms]))) or 1.0 for name in (norms[0] if norms else ())}
    return [{name: (norm or 1.0) / usual[name] for name, norm in one.items()} for one in norms]

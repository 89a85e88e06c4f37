"""One set of device buffers for many calls: what a captured CUDA graph reads and writes always lies at the same addresses."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from accel_helpers.engine import Array

Placed = TypeVar("Placed")


class Answer:
    """What one call left in the buffers: ``form`` says what lies there; ``arrays`` holds a copy once another call needs the room."""

    def __init__(self, form: Any) -> None:
        self.form = form
        self.arrays: dict[str, Array] | None = None


class StaticBuffers(Generic[Placed]):
    """Fills and empties the buffers in turn, so that no placed input and no answer changes under whoever holds it.

    The usual order, place, run and fetch, copies nothing twice. Inputs that others overwrote are filled in again before they run, and an
    answer that was not fetched is read out before the next call.

    Args:
        fill: copies placed inputs into the buffers; may return before the copy is done.
        read: copies the outputs out of the buffers, into memory of their own; told the answer's ``form``.
    """

    def __init__(self, fill: Callable[[Placed], None], read: Callable[[Any], dict[str, Array]]) -> None:
        self._fill, self._read = fill, read
        self._held: Placed | None = None
        self._last: Callable[[], Answer | None] = lambda: None

    def hold(self, placed: Placed) -> None:
        """Have these inputs in the buffers."""
        if self._held is not placed:
            self._held = None  # should filling fail half-way, nobody's inputs are there
            self._fill(placed)
            self._held = placed

    def make_room(self) -> None:
        """Save the last call's answer, where somebody still waits for it. Called before each run."""
        if (last := self._last()) is not None and last.arrays is None:
            last.arrays = self._read(last.form)

    def answer(self, form: Any) -> Answer:
        """What a call that has just been started will leave in the buffers."""
        made = Answer(form)
        self._last = weakref.ref(made)
        return made

    def fetch(self, answer: Answer) -> dict[str, Array]:
        """An answer's arrays, in memory of their own."""
        if answer.arrays is None:
            return self._read(answer.form)
        return {name: array.copy() for name, array in answer.arrays.items()}


def counted(calls: Mapping[str, int]) -> dict[str, int]:
    """What a session's report says of its CUDA graph: calls that captured it, that replayed it, and of other shapes, which did neither."""
    return {how: calls.get(how, 0) for how in ("captured", "replayed", "not captured")}

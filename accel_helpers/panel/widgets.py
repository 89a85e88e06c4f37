"""The panel in a browser: widgets show a :class:`~accel_helpers.panel.state.State` and turn clicks into the next one.

Callbacks arrive on whichever thread the front end chooses (a subshell's or the main one) while a cell may still run, so every change of
state happens under one lock, and a measurement runs on a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ipywidgets

from accel_helpers import bench
from accel_helpers.bench import Progress
from accel_helpers.errors import AccelError, StoppedError
from accel_helpers.panel import state as states
from accel_helpers.panel.elements import NumberBox
from accel_helpers.panel.screen import Screen
from accel_helpers.panel.state import State


class Panel:
    """Controls, status, chart and table. ``widget`` is what a cell displays."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._lock = threading.RLock()
        self._turn = 0  # counts starts and stops; a measurement of an earlier turn ends itself
        self._thread: threading.Thread | None = None
        self._filling = False
        self.controls = _controls(state)
        self.start = ipywidgets.Button(description="Measure", button_style="primary", icon="play")
        self.stop = ipywidgets.Button(description="Stop", icon="stop")
        self.screen = Screen()
        self._fill()
        self._show()
        for name, control in self.controls.items():
            control.observe(lambda change, name=name: self._chosen(name, change["new"]), "value")
        self.start.on_click(lambda _: self._enter(states.begin))
        self.stop.on_click(lambda _: self._stopped())
        row = ipywidgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="4px 20px")
        choices = ipywidgets.Box([self.controls[name] for name in state.choices], layout=row)
        others = [control for name, control in self.controls.items() if name not in state.choices]
        rest = ipywidgets.Box([*others, self.start, self.stop], layout=row)
        self.widget = ipywidgets.VBox([choices, rest, *self.screen.children])
        self.widget.add_class("accel-panel")

    def _chosen(self, name: str, value: Any) -> None:
        if not self._filling:
            self._enter(lambda state: states.choose(state, name, value))

    def _enter(self, step: Callable[[State], State]) -> None:
        """Take one step; end what runs; run the chosen configuration where the step says so."""
        with self._lock:
            self._turn += 1
            try:
                self.state = step(self.state)
            except AccelError as error:
                self.state = states.fail(self.state, error)
            self._fill()
            self._show()
            if self.state.running:
                arguments = (self._turn, self.state, self._thread)
                self._thread = threading.Thread(target=self._measure, args=arguments, name="accel-panel", daemon=True)
                self._thread.start()

    def _stopped(self) -> None:
        with self._lock:
            if self.state.running:
                self._enter(lambda state: states.fail(state, StoppedError("Stopped.", "Finished measurements are kept.")))

    def _measure(self, turn: int, chosen: State, previous: threading.Thread | None) -> None:
        if previous:
            previous.join()  # its worker is being killed: two at a time would disturb one another

        def stop() -> bool:
            return turn != self._turn

        def watch(progress: Progress) -> None:
            self._follow(turn, lambda state: states.advance(state, progress), last=False)

        if stop():
            return
        try:
            found = bench.compare(chosen.runs(chosen.config), watch=watch, stop=stop, budget=chosen.allowed)
        except AccelError as error:
            failure = error
            self._follow(turn, lambda state: states.fail(state, failure), last=True)
        except Exception as error:
            bug = AccelError(f"The panel failed: {type(error).__name__}: {error}.", "This is a bug; the kernel's log holds its traceback.")
            self._follow(turn, lambda state: states.fail(state, bug), last=True)
            raise
        else:
            self._follow(turn, lambda state: states.finish(state, found), last=True)

    def _follow(self, turn: int, step: Callable[[State], State], *, last: bool) -> None:
        """A step of the measurement itself, unless it has been superseded. Redraws are rare enough for a browser to keep up."""
        with self._lock:
            if turn != self._turn:
                return
            self.state = step(self.state)
            if self.screen.throttle.ready() or last:
                self._show(store=last)

    def _fill(self) -> None:
        """Options with their reasons, and the chosen values, into the controls; those that change nothing are switched off."""
        self._filling = True
        idle = states.idle(self.state)
        try:
            for name, control in self.controls.items():
                with control.hold_sync():
                    if name in self.state.choices:
                        control.options = states.listed(self.state, name)
                    control.value = getattr(self.state.config, name)
                    control.disabled = name in idle
        finally:
            self._filling = False
        self._note = states.noted(self.state, [_described(self.controls[name]) for name in idle])

    def _show(self, *, store: bool = False) -> None:
        self.screen.status.say(self.state.message, self.state.progress, running=self.state.running)
        self.stop.disabled = not self.state.running
        self.screen.show(states.draw(self.state), self._note, store=store)


def _controls(state: State) -> dict[str, Any]:
    """A control for each field, by the field's name."""
    controls: dict[str, Any] = {}
    for name in state.choices:
        controls[name] = ipywidgets.Dropdown(description=_title(name), style=_STYLE, layout=_CHOICE)
    for one in state.numbers:
        controls[one.name] = NumberBox(
            label=one.label,
            smallest=one.smallest,
            largest=one.largest,
            stops=list(one.stops),
            value=getattr(state.config, one.name),
        )
    for name in state.switches:
        controls[name] = ipywidgets.Checkbox(description=_title(name), indent=False, layout={"width": "auto"})
    return controls


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _described(control: Any) -> str:
    return str(control.label if isinstance(control, NumberBox) else control.description)


_STYLE = {"description_width": "initial"}
_CHOICE = {"width": "auto", "max_width": "15em"}

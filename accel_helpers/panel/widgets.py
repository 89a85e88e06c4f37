"""The panel in a browser: widgets show a :class:`~accel_helpers.panel.state.State` and turn clicks into the next one.

Callbacks arrive on whichever thread the front end chooses (a subshell's or the main one) while a cell may still run, so every change of
state happens under one lock, and a measurement runs on a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from accel_helpers import bench
from accel_helpers.bench import Progress
from accel_helpers.charts import CONFIG, Chart, as_html
from accel_helpers.config import RunConfig
from accel_helpers.errors import AccelError, StoppedError
from accel_helpers.panel import state as states
from accel_helpers.panel.elements import Batch, Status
from accel_helpers.panel.state import CHOICES, State

REDRAW_SECONDS = 0.1
_NOTE = "Each point is a run of its own. Which of two plans is faster, only an interleaved comparison can say."


class Throttle:
    """Says yes at most once in ``interval`` seconds."""

    def __init__(self, interval: float = REDRAW_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._clock = interval, clock
        self._last = -float("inf")

    def ready(self) -> bool:
        """Whether the interval has passed since the last yes."""
        now = self._clock()
        if now - self._last < self._interval:
            return False
        self._last = now
        return True


class Panel:
    """Controls, status, chart and table. ``widget`` is what a cell displays."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._lock = threading.RLock()
        self._turn = 0  # counts starts and stops; a measurement of an earlier turn ends itself
        self._thread: threading.Thread | None = None
        self._throttle = Throttle()
        self._filling = False
        self.choices = {name: ipywidgets.Dropdown(description=name.capitalize(), style=_STYLE, layout=_CHOICE) for name in CHOICES}
        self.batch = Batch(value=state.config.batch, largest=max(state.largest_batch, state.config.batch))
        self.start = ipywidgets.Button(description="Measure", button_style="primary", icon="play")
        self.stop = ipywidgets.Button(description="Stop", icon="stop")
        self.status = Status()
        self.figure = go.FigureWidget()
        self.figure._config = CONFIG
        self.below = ipywidgets.HTML()
        self._fill()
        self._show()
        for name, control in self.choices.items():
            control.observe(lambda change, name=name: self._chosen(name, change["new"]), "value")
        self.batch.observe(lambda change: self._chosen("batch", change["new"]), "value")
        self.start.on_click(lambda _: self._enter(states.begin))
        self.stop.on_click(lambda _: self._stopped())
        row = ipywidgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="4px 20px")
        choices = ipywidgets.Box([*self.choices.values()], layout=row)
        rest = ipywidgets.Box([self.batch, self.start, self.stop], layout=row)
        self.widget = ipywidgets.VBox([choices, rest, self.status, self.figure, self.below])
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
                arguments = (self._turn, self.state.config, self._thread)
                self._thread = threading.Thread(target=self._measure, args=arguments, name="accel-panel", daemon=True)
                self._thread.start()

    def _stopped(self) -> None:
        with self._lock:
            if self.state.running:
                self._enter(lambda state: states.fail(state, StoppedError("Stopped.", "Finished measurements are kept.")))

    def _measure(self, turn: int, config: RunConfig, previous: threading.Thread | None) -> None:
        if previous:
            previous.join()  # its worker is being killed: two at a time would disturb one another

        def stop() -> bool:
            return turn != self._turn

        def watch(progress: Progress) -> None:
            self._follow(turn, lambda state: states.advance(state, progress), last=False)

        if stop():
            return
        try:
            measurement = bench.measure(config, watch=watch, stop=stop)
        except AccelError as error:
            failure = error
            self._follow(turn, lambda state: states.fail(state, failure), last=True)
        except Exception as error:
            bug = AccelError(f"The panel failed: {type(error).__name__}: {error}.", "This is a bug; the kernel's log holds its traceback.")
            self._follow(turn, lambda state: states.fail(state, bug), last=True)
            raise
        else:
            self._follow(turn, lambda state: states.finish(state, measurement), last=True)

    def _follow(self, turn: int, step: Callable[[State], State], *, last: bool) -> None:
        """A step of the measurement itself, unless it has been superseded. Redraws are rare enough for a browser to keep up."""
        with self._lock:
            if turn != self._turn:
                return
            self.state = step(self.state)
            if self._throttle.ready() or last:
                self._show(store=last)

    def _fill(self) -> None:
        """Options with their reasons, and the chosen values, into the controls."""
        self._filling = True
        try:
            for name, control in self.choices.items():
                with control.hold_sync():
                    control.options = states.listed(self.state.config, name)
                    control.value = getattr(self.state.config, name)
            self.batch.value = self.state.config.batch
        finally:
            self._filling = False

    def _show(self, *, store: bool = False) -> None:
        state = self.state
        chart = states.draw(state)
        progress = state.progress
        with self.status.hold_sync():
            self.status.text, self.status.running = state.message, state.running
            self.status.done, self.status.total = (progress.done, progress.total) if progress and progress.rounds else (0, 0)
        self.stop.disabled = not state.running
        self._redraw(chart.figure, store=store)
        self.below.value = _below(chart)

    def _redraw(self, figure: Any, *, store: bool) -> None:
        """Make the live figure look like ``figure``: in place where it has the same traces, so that a redraw sends only what changed."""
        live = self.figure
        same = [trace.name for trace in live.data] == [trace.name for trace in figure.data]
        if same:
            with live.batch_update():
                for old, new in zip(live.data, figure.data, strict=True):
                    old.update(new.to_plotly_json(), overwrite=True)
                live.layout.update(figure.layout.to_plotly_json(), overwrite=True)
        else:
            live.data = ()
            live.add_traces(figure.data)
            live.layout = figure.layout
        if store or not same:
            live._repr_mimebundle_()  # updates travel as messages; this stores their sum, without which a reloaded page shows no chart


_STYLE = {"description_width": "initial"}
_CHOICE = {"width": "auto", "max_width": "15em"}


def _below(chart: Chart) -> str:
    return (
        f"<p>{escape(chart.sentence)}</p><details><summary>The same data as a table</summary>{as_html(chart.table)}</details><p>{_NOTE}</p>"
    )

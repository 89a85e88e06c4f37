"""What a panel or a running comparison shows: a status line, a live chart, and the chart's sentence and table."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from accel_helpers.charts import CONFIG, Chart, as_html
from accel_helpers.panel.elements import Status

REDRAW_SECONDS = 0.1


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


class Screen:
    """Status, chart, sentence and table; ``children`` are the widgets, in order."""

    def __init__(self) -> None:
        self.throttle = Throttle()
        self.status = Status()
        self.figure = go.FigureWidget()
        self.figure._config = CONFIG
        self.below = ipywidgets.HTML()
        self.children = [self.status, self.figure, self.below]

    def show(self, chart: Chart, note: str, *, store: bool = False) -> None:
        """Make the live figure look like the chart's: in place where it has the same traces, so that a redraw sends only what changed."""
        live, figure = self.figure, chart.figure
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
        self.below.value = _below(chart, note)


def _below(chart: Chart, note: Any) -> str:
    table = f"<details><summary>The same data as a table</summary>{as_html(chart.table)}</details>"
    return f"<p>{escape(chart.sentence)}</p>{table}<p>{escape(note)}</p>"

"""One interleaved comparison, followed while it runs: speed-ups round by round, then each plan's task metric as it is scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from accel_helpers import bench
from accel_helpers.accuracy import Budget
from accel_helpers.bench import Comparison, Progress
from accel_helpers.charts import Chart, trade_off, trade_off_so_far
from accel_helpers.config import RunConfig
from accel_helpers.records import Plan, Round, Scope

REDRAW_SECONDS = 1.0
"""A redraw makes the whole chart anew."""


@dataclass(frozen=True)
class Following:
    """What is known of a running comparison; the chart follows from it."""

    plans: tuple[Plan, ...]
    budget: float
    rounds: tuple[tuple[Round, ...], ...] = ()
    finished: Comparison | None = None  # the plans that are scored
    message: str = "Waiting for its turn, one measurement at a time."

    def after(self, progress: Progress) -> Following:
        """What is known once the comparison told where it stands."""
        step = f" ({progress.done + 1} of {progress.total})" if progress.stage in ("building", "loading and warming up", "scoring") else ""
        message = f"{len(self.plans)} plans: {progress.stage}{step}."
        return replace(self, rounds=progress.rounds or self.rounds, finished=progress.finished or self.finished, message=message)

    def drawn(self) -> Chart:
        """Scored plans with their verdicts, the others with their speed-up so far."""
        rounds = self.rounds or ((),) * len(self.plans)
        scored = (self.finished.measurements, self.finished.verdicts) if self.finished else ()
        return trade_off_so_far(self.plans, rounds, self.budget, *scored)


def followed(configs: Sequence[RunConfig], budget: float, scope: Scope) -> Comparison:
    """Run a comparison with a status line and a chart below the cell that follow it.

    While it runs, the figure is the whole state of one widget: JupyterLab draws no displayed figure a second time, and a front end that is
    still loading misses nothing. At the end the finished figure takes the widget's place and stays in the saved notebook.
    """
    import ipywidgets
    from IPython.display import display

    from accel_helpers.panel.elements import Status
    from accel_helpers.panel.screen import Throttle

    known = Following(tuple(map(bench.plan_of, configs)), budget)
    throttle = Throttle(REDRAW_SECONDS)
    status, place = Status(text=known.message, running=True), ipywidgets.Output()
    display(status)
    figure, words = known.drawn().bundles()
    place.outputs = _output(figure)
    above, below = display(place, display_id=True), display(words, raw=True, display_id=True)

    def watch(progress: Progress) -> None:
        nonlocal known
        known = known.after(progress)
        if throttle.ready() or progress.finished:
            status.say(known.message, progress, running=True)
            figure, words = known.drawn().bundles()
            place.outputs = _output(figure)
            below.update(words, raw=True)

    try:
        found = bench.compare(configs, scope=scope, watch=watch, budget=Budget(budget))
    except BaseException as error:  # an interrupt of the kernel too: the status must not say that it still runs
        status.say(str(error) or "Stopped.", None, running=False)
        raise
    status.say(f"{len(configs)} plans are measured.", None, running=False)
    figure, words = trade_off(found.measurements, found.verdicts, budget).bundles()
    above.update(figure, raw=True)
    below.update(words, raw=True)
    place.close()
    return found


def _output(bundle: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return ({"output_type": "display_data", "data": bundle, "metadata": {}},)

"""Controls in, RunConfig out: panels that measure what the reader chooses, with a live chart while someone is watching.

No callback computes anything: it makes a RunConfig and hands it to the pure functions of ``state``. A headless run calls those same
functions for every option of every control.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from accel_helpers import bench
from accel_helpers.accuracy import Budget
from accel_helpers.bench import Comparison
from accel_helpers.charts import trade_off
from accel_helpers.config import RunConfig
from accel_helpers.errors import ParameterError
from accel_helpers.panel.follow import followed
from accel_helpers.panel.kinds import Explore, Quantize
from accel_helpers.panel.state import State, headless
from accel_helpers.records import Measurement, Scope

__all__ = ["compare_live", "explore", "live", "quantize"]


def live() -> bool:
    """Whether someone is watching: this process is a Jupyter kernel and ``ACCEL_HEADLESS`` is not set.

    A kernel cannot tell a person from papermill, so whatever runs notebooks unwatched sets ``ACCEL_HEADLESS=1``.
    """
    application = sys.modules.get("ipykernel.kernelapp")
    return not os.environ.get("ACCEL_HEADLESS") and application is not None and bool(application.IPKernelApp.initialized())


def explore(config: RunConfig, *, largest_batch: int = 64, earlier: Sequence[Measurement] = ()) -> Any:
    """Measure one configuration after another and see how they differ: controls for precision, batch size, engine and device.

    Live, this is a widget. Nothing runs until a control is changed or Measure is pressed. Headless, every option of every control goes
    through the same functions as a click would, ``config`` itself is measured, and the finished chart is returned.

    Args:
        config: where the controls begin; everything without a control (model, rounds, seconds …) stays as it is.
        largest_batch: the batch control's upper end.
        earlier: measurements that the chart begins with.

    Returns:
        A widget when :func:`live`, else a :class:`~accel_helpers.charts.Chart`; both display themselves as the last line of a cell.

    Raises:
        AccelError: headless only, where ``config`` cannot be measured. Live, the status line says it.
    """
    return _panel(Explore(config, tuple(earlier), largest_batch=largest_batch))


def quantize(config: RunConfig, budget: float = 0.01, *, largest_batch: int = 64, earlier: Comparison | None = None) -> Any:
    """Quantize one way after another and see what each gains and costs against FP32 of the same engine.

    Controls for engine, precision, scheme, calibrator, reduced range, calibration size, batch, per channel and symmetric. Live and
    headless as :func:`explore`; each press measures the plan and its FP32 baseline in one interleaved run and adds a point.

    Args:
        config: where the controls begin; everything without a control stays as it is.
        budget: the loss of the task metric that is still accepted: 0.01 is one point of an accuracy.
        largest_batch: the batch control's upper end.
        earlier: a comparison that the chart begins with.

    Returns:
        A widget when :func:`live`, else a :class:`~accel_helpers.charts.Chart`; both display themselves as the last line of a cell.

    Raises:
        AccelError: headless only, where ``config`` cannot be measured. Live, the status line says it.
    """
    known = earlier or Comparison((), ())
    return _panel(Quantize(config, known.measurements, known.verdicts, budget=budget, largest_batch=largest_batch))


def _panel(state: State) -> Any:
    if not live():
        return headless(state)
    from accel_helpers.panel.widgets import Panel

    return Panel(state).widget


def compare_live(configs: Sequence[RunConfig], budget: float = 0.01, *, scope: Scope = "end to end") -> Comparison:
    """Compare in one interleaved run, and draw speed-up against the change of the task metric.

    Live, the chart below the cell shows the speed-ups while rounds arrive and each plan's task metric as soon as it is scored. Headless,
    one finished chart is displayed.

    Args:
        configs: as for :func:`accel_helpers.bench.compare`; the first is the baseline.
        budget: the loss of the task metric that is still accepted: 0.01 is one point of an accuracy.
        scope: what is timed.

    Raises:
        ParameterError: there is nothing to compare.
        AccelError: what :func:`accel_helpers.bench.compare` raises.
    """
    if len(configs) < 2:
        raise ParameterError(f"A comparison of {len(configs)} plans was asked for.", "Give a baseline and at least one other plan.")
    if live():
        return followed(configs, budget, scope)
    from IPython.display import display

    found = bench.compare(configs, scope=scope, budget=Budget(budget))
    display(trade_off(found.measurements, found.verdicts, budget))
    return found

"""Controls in, RunConfig out: a panel that measures what the reader chooses, with a live chart while someone is watching.

No callback computes anything: it makes a RunConfig and hands it to the pure functions of ``state``. A headless run calls those same
functions for every option of every control.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from accel_helpers.config import RunConfig
from accel_helpers.panel.state import State, headless
from accel_helpers.records import Measurement

__all__ = ["explore", "live"]


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
    state = State(config, largest_batch, tuple(earlier))
    if not live():
        return headless(state)
    from accel_helpers.panel.widgets import Panel

    return Panel(state).widget

"""Measure, accelerate and check a model's inference on your own machine.

>>> import accel_helpers as accel
>>> accel.RunConfig(precision="bf16").precision
'bf16'

Names are imported when they are first asked for, so that importing the package loads no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_helpers.bench import compare, measure, support
    from accel_helpers.config import RunConfig
    from accel_helpers.errors import AccelError
    from accel_helpers.records import Measurement, Plan, Verdict
    from accel_helpers.store import Store

_HOME = {
    "AccelError": "errors",
    "Measurement": "records",
    "Plan": "records",
    "RunConfig": "config",
    "Store": "store",
    "Verdict": "records",
    "compare": "bench",
    "measure": "bench",
    "support": "bench",
}

__all__ = ["AccelError", "Measurement", "Plan", "RunConfig", "Store", "Verdict", "compare", "measure", "support"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"accel_helpers.{_HOME[name]}"), name)
    raise AttributeError(f"module 'accel_helpers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

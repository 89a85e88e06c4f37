"""Measure, accelerate and check a model's inference on your own machine.

>>> import accel_helpers as accel
>>> accel.RunConfig(precision="bf16").precision
'bf16'

Names are imported when they are first asked for, so that importing the package loads no framework.
"""

from __future__ import annotations

import importlib
import logging
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


_EXPECTED = ("Failed to load ", "is an Enum subclass and is now natively supported")
"""What torchao logs whenever it is imported, as transformers does for every network: CUDA extensions that do not load, Enum classes."""
for _name in ("torchao", "torch.utils._pytree"):
    logging.getLogger(_name).addFilter(lambda record: not any(part in record.msg for part in _EXPECTED))


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"accel_helpers.{_HOME[name]}"), name)
    raise AttributeError(f"module 'accel_helpers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

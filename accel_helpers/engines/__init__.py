"""The folder is the registry: every module here is an engine and ends in ``ENGINE = …``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from accel_helpers.engine import Engine
from accel_helpers.engines._hardware import overflows
from accel_helpers.errors import UnknownNameError

__all__ = ["get", "names", "overflows"]


@cache
def names() -> tuple[str, ...]:
    """Every engine's name, without importing any of them."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")))


def get(name: str) -> Engine:
    """The engine of that name; its framework is imported when it builds or loads, not here.

    Raises:
        UnknownNameError: no such engine.
    """
    if name not in names():
        raise UnknownNameError("engine", name, names())
    engine: Engine = importlib.import_module(f"{__name__}.{name}").ENGINE
    return engine

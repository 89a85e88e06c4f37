"""Errors that carry the next step.

Every error a user can cause derives from :class:`AccelError` and reads as one paragraph: what happened, what was
expected, and what to try next. The command line and the notebooks print it without a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AccelError(Exception):
    """What happened, and what to try next.

    Args:
        what: one sentence: what happened and what was expected.
        next_step: one sentence: what to try. Empty only where nothing can be done.
    """

    def __init__(self, what: str, next_step: str = "") -> None:
        self.what = what
        self.next_step = next_step
        super().__init__(f"{what} {next_step}".strip())

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [f"{type(self).__name__}: {self.what}", *([self.next_step] if self.next_step else [])]


class ParameterError(AccelError):
    """A parameter that does not exist, has the wrong type, or is out of range."""


class UnknownNameError(ParameterError):
    """A name that is in no list: a parameter, an engine, a model, a notebook."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        guess = f"Did you mean {near[0]!r}? " if near else ""
        super().__init__(f"There is no {kind} {name!r}.", f"{guess}Known: {', '.join(names)}.")


class UnsupportedError(AccelError):
    """This machine, engine or model cannot do what was asked; nothing else was done in its place."""


class MissingPackageError(UnsupportedError):
    """An optional package is not installed."""


class ModelError(AccelError):
    """A model that cannot be read, exported or fed."""


class ArtifactError(AccelError):
    """A built artifact that is missing, damaged, stale or of another machine."""


class AssetError(AccelError):
    """A file of the built-in models that cannot be fetched or is not the file that was pinned."""


class BudgetError(AccelError):
    """A model that loses more than its budget allows."""


class StoreError(AccelError):
    """The store on disk cannot be read or written."""


class BusyError(AccelError):
    """Another measurement is running on this machine."""


class MeasurementError(AccelError):
    """A measurement that produced no figure."""


class StoppedError(MeasurementError):
    """The reader stopped the measurement; finished records are kept."""

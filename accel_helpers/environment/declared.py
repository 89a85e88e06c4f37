"""What this project asks of an environment: its own metadata, read once."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from accel_helpers.records import Environment

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = "inference-acceleration-workbook"


@dataclass(frozen=True)
class Declared:
    """The bounds that the project declares."""

    python: str  # "<3.15,>=3.11"
    requires: tuple[str, ...]  # PEP 508 lines, extras as markers
    extras: tuple[str, ...]

    def requirements(self, environment: Environment, extra: str = "") -> Iterator[Requirement]:
        """What the extra asks for beyond the core, or what the core asks for where it is empty, on that machine."""
        from packaging.requirements import Requirement

        for line in self.requires:
            one = Requirement(line)
            core = one.marker is None or one.marker.evaluate({**_markers(environment), "extra": ""})
            if core if not extra else not core and one.marker and one.marker.evaluate({**_markers(environment), "extra": extra}):
                yield one

    def pin(self, name: str, features: str = "") -> str:
        """The package with the bounds declared for it, as a shell word for pip: ``'onnxruntime-gpu[cuda]~=1.31.1'``."""
        from packaging.requirements import Requirement

        bounds = {one.name: str(one.specifier) for one in map(Requirement, self.requires)}
        return f"'{name}{features}{bounds.get(name, '')}'"


def _markers(environment: Environment) -> dict[str, str]:
    system, _, machine = (*environment.os.split(), "", "", "")[:3]
    return {
        "python_version": ".".join(environment.python.split(".")[:2]),
        "python_full_version": environment.python,
        "platform_system": system,
        "sys_platform": {"Darwin": "darwin", "Windows": "win32"}.get(system, system.lower()),
        "platform_machine": machine,
    }


@cache
def declared() -> Declared:
    """The bounds of the installed project; empty where its metadata cannot be read, so that nothing is judged by them."""
    try:
        metadata = importlib.metadata.metadata(DISTRIBUTION)
        requires, extras = metadata.get_all("Requires-Dist") or (), metadata.get_all("Provides-Extra") or ()
        return Declared(",".join(metadata.get_all("Requires-Python") or ()), tuple(requires), tuple(extras))
    except Exception:  # not installed, or its metadata is damaged: a rule says so
        return Declared("", (), ())

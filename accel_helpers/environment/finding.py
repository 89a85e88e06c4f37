"""What a rule says about an environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from accel_helpers.environment.declared import Declared
from accel_helpers.records import Environment, Record

Level = Literal["problem", "warning", "info", "ok"]


@dataclass(frozen=True)
class Finding(Record):
    """Whether one thing fits; ``command`` mends it, and is empty where nothing has to be done or no command can do it."""

    level: Level
    what: str
    why: str = ""
    command: str = ""


Rule = Callable[[Environment, Declared], Iterator[Finding]]


def system(environment: Environment) -> str:
    """``Linux``, ``Darwin`` or ``Windows``."""
    return environment.os.partition(" ")[0]


def is_linux_x86(environment: Environment) -> bool:
    """Whether the machine runs 64-bit x86 Linux, which most prebuilt GPU packages are made for."""
    return system(environment) == "Linux" and environment.os.endswith(("x86_64", "AMD64"))


def capability(text: str) -> tuple[int, int]:
    """A CUDA compute capability as numbers: "8.9" -> (8, 9)."""
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)

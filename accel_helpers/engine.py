"""The contract of an engine: one way to run a model.

An engine is one file in ``accel_helpers/engines`` that ends in ``ENGINE = …``; the folder is the registry.
Engines never time themselves: ``measure`` times ``run`` and ``synchronise`` ("compute") or ``place``, ``run`` and ``fetch`` ("end to end")
the same way for all of them.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import numpy as np

from accel_helpers.errors import MissingPackageError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Support:
    """Whether a plan can run on a machine; ``reason`` says what stands in the way and what a person can do about it."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


YES = Support(True)


class Session(ABC):
    """A loaded artifact. NumPy at the boundary, device tensors inside; closing it leaves nothing behind."""

    @property
    def report(self) -> Mapping[str, Any]:
        """What really executes: provider or device, precision by layer type, threads. Asked for after the first call."""
        return {}

    def place(self, inputs: dict[str, Array]) -> Any:
        """Host to device. ``inputs`` maps each input name to an array whose first axis is the batch."""
        return inputs

    @abstractmethod
    def run(self, placed: Any) -> Any:
        """One call on placed inputs; may return before the device is done."""

    def synchronise(self) -> None:
        """Return once the device has finished everything that was started. Nothing to do on a host."""

    @abstractmethod
    def fetch(self, result: Any) -> dict[str, Array]:
        """Device to host: each output by name, in memory of its own that a later run does not overwrite. Floating outputs are float32."""

    def close(self) -> None:
        """Free everything. A second call does nothing."""

    def __call__(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Place, run and fetch: outputs by name."""
        return self.fetch(self.run(self.place(inputs)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class Built:
    """What ``Engine.build`` leaves: the files it wrote, relative to its folder, and what it can say of them."""

    files: tuple[str, ...]
    report: Mapping[str, Any]  # {"types": {"bf16": 73, "fp32": 4}, "kept": {"LayerNorm": "why"}, …}


class Engine(ABC):
    """One way to run a model."""

    name: str
    needs: tuple[str, ...] = ()  # import names
    packages: tuple[str, ...] = ()  # distributions whose versions a built artifact depends on
    install: str = "pip install -e '.[cpu]'"
    needs_network: bool = False  # runs a torch.nn.Module, so a model that is only an ONNX file cannot run here
    schemes: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # quantized precision -> its schemes, the usual one first
    modes: Mapping[str, str] = MappingProxyType({})  # what Plan.mode may be beside "default" -> what it does, in a sentence
    compiles: frozenset[str] = frozenset()  # the fields of Compilation that decide what it builds
    signed: frozenset[str] = frozenset()  # schemes whose activations are signed integers, whether symmetric is asked for or not

    @abstractmethod
    def supports(self, plan: Plan, environment: Environment) -> Support:
        """Whether the plan's precision, device and hint exist here; asked before anything is built. Imports no framework."""

    @abstractmethod
    def build(self, model: Model, plan: Plan, out: Path) -> Built:
        """Write the artifact's files into the empty folder ``out``.

        Raises:
            ModelError: the model cannot be exported or compiled.
            UnsupportedError: the model holds something this engine lacks.
        """

    @abstractmethod
    def load(self, model: Model, plan: Plan, folder: Path) -> Session:
        """A session on verified files. What loads is what was asked for, or it raises.

        Raises:
            UnsupportedError: the provider, device or precision asked for did not load.
            ArtifactError: the files cannot be read.
        """

    def scheme(self, precision: str, has_sequence: bool) -> str:
        """What ``scheme=auto`` means here: dynamic for models that read sequences, where there is that choice, else the usual one."""
        known = self.schemes.get(precision, ("static",))
        return "dynamic" if has_sequence and "dynamic" in known else known[0]

    def missing(self) -> tuple[str, ...]:
        """Import names this engine needs that are not installed. Looks, but imports nothing."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)

    def versions(self, plan: Plan, environment: Environment) -> dict[str, str]:
        """The installed distributions that decide what a plan's files hold."""
        names = (*self.packages, plan.compilation.simplifier)
        return {name: environment.packages[name] for name in names if name in environment.packages}

    def require(self, plan: Plan, environment: Environment) -> None:
        """Raise unless the plan can run here.

        Raises:
            MissingPackageError: a package is missing; the message holds the command that installs it.
            UnsupportedError: what :meth:`supports` says.
        """
        if missing := self.missing():
            raise MissingPackageError(f"Engine {self.name} needs {', '.join(missing)}, not installed here.", f"Run: {self.install}")
        if not (support := self.supports(plan, environment)):
            raise UnsupportedError(
                f"{plan.label} cannot run on this machine: {support.reason}.", "Choose another precision, device or engine."
            )

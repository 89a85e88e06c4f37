"""The machine and the software that a figure belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from accel_helpers.records.record import Record


@dataclass(frozen=True)
class Gpu(Record):
    """One accelerator, as its driver names it."""

    name: str
    memory_bytes: int
    compute_capability: str
    driver: str


@dataclass(frozen=True)
class Environment(Record):
    """The machine and the software that a figure belongs to."""

    cpu: str
    isa: tuple[str, ...]  # instruction sets that decide inference speed: avx2, avx512f, avx512_bf16, avx512_vnni, amx_bf16, amx_int8 …
    cpus: int  # CPUs this process may use: affinity and cgroup quota
    cpus_online: int
    memory_bytes: int  # what this process may use: physical memory or the cgroup's limit
    os: str
    python: str
    gpus: tuple[Gpu, ...] = ()
    cuda: str = ""  # what torch was built for; empty for a CPU build
    cudnn: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)  # distribution name -> installed version
    tools: Mapping[str, str] = field(default_factory=dict)  # compilers and drivers beside Python: name -> version, or what is wrong with it

    @property
    def hardware(self) -> str:
        """What a compiled artifact is bound to: processor, instruction sets and accelerators."""
        parts = [self.cpu, *self.isa, *(f"{gpu.name}/{gpu.compute_capability}" for gpu in self.gpus)]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

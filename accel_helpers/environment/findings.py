"""Whether a machine's hardware and software fit together: pure rules over an Environment, each finding with what mends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from accel_helpers.environment.declared import Declared
from accel_helpers.environment.declared import declared as own_bounds
from accel_helpers.environment.finding import Finding, Level, Rule, system
from accel_helpers.environment.gpu_rules import GPU_RULES
from accel_helpers.environment.machine import PACKAGES
from accel_helpers.records import Environment

SMALL_MEMORY = 6 * 2**30
"""Bytes below which several engines side by side, each in a process of its own of about one gigabyte, do not fit."""


def findings(environment: Environment, declared: Declared | None = None) -> tuple[Finding, ...]:
    """What fits, what does not, and what to install or change; problems first. Never raises.

    Args:
        environment: of this machine, or of any other.
        declared: the bounds to judge versions by; those of the installed project where None.
    """
    found: list[Finding] = []
    for rule in RULES:
        try:
            found += rule(environment, declared or own_bounds())
        except Exception as error:  # a version or a driver string nobody foresaw must not hide the other findings
            name = rule.__name__.strip("_").replace("_", " ")
            found.append(Finding("warning", f"The rule about {name} could not be applied: {type(error).__name__}: {error}."))
    return tuple(sorted(found, key=lambda one: get_args(Level).index(one.level)))


def _python(environment: Environment, declared: Declared) -> Iterator[Finding]:
    from packaging.specifiers import SpecifierSet

    bounds = SpecifierSet(declared.python)
    if bounds.contains(environment.python, prereleases=True):
        yield Finding(
            "ok", f"Python {environment.python} is within {declared.python}." if declared.python else f"Python {environment.python}."
        )
        return
    oldest = next((one.version for one in bounds if one.operator == ">="), "")
    why = "The packages of this project do not install or were never tried with it."
    yield Finding("problem", f"Python {environment.python} is outside {declared.python}.", why, f"python{oldest} -m venv .venv")


def _versions(environment: Environment, declared: Declared) -> Iterator[Finding]:
    if not declared.requires:
        why = "Versions cannot be judged, because the project's bounds are not known."
        yield Finding("warning", "The project itself is not installed.", why, "pip install -e '.[cpu]'")
        return
    right, missing = 0, []
    for extra in ("", *declared.extras):
        for one in declared.requirements(environment, extra):
            version = environment.packages.get(one.name)
            if version and one.specifier.contains(version, prereleases=True):
                right += 1
            elif version:
                why = "The workbook was tried with versions inside these bounds only."
                yield Finding("warning", f"{one.name} {version} is outside {one.specifier}.", why, f"pip install {declared.pin(one.name)}")
            elif one.name in PACKAGES and not extra:
                missing.append(one.name)
    if missing:
        yield Finding("problem", f"Not installed: {', '.join(missing)}.", "The core needs them.", "pip install -e .")
    yield Finding("ok", f"{right} of the packages that decide speed are installed within the project's bounds.")


def _extras(environment: Environment, declared: Declared) -> Iterator[Finding]:
    for extra in declared.extras:
        if extra in ("cpu", "gpu", "dev"):
            continue  # the rules about ONNX Runtime and GPUs speak of the first two; the last is for this project's developers
        asked = [one.name for one in declared.requirements(environment, extra) if one.name in PACKAGES]
        missing = [name for name in asked if name not in environment.packages]
        if missing:
            what = f"The extra {extra} is not installed: {', '.join(missing)}."
            yield Finding("info", what, "Only the lessons on it need it.", f"pip install -e '.[{extra}]'")


def _threads(environment: Environment, _: Declared) -> Iterator[Finding]:
    if environment.cpus < environment.cpus_online:
        why = (
            "Affinity or a container's quota limits it. Programs that start a thread for every CPU of the machine slow down many times "
            "over; the workbook starts as many as this process may use."
        )
        what = f"This process may use {environment.cpus} of {environment.cpus_online} CPUs."
        setting = "set" if system(environment) == "Windows" else "export"
        yield Finding("info", what, why, f"{setting} OMP_NUM_THREADS={environment.cpus}")


def _memory(environment: Environment, _: Declared) -> Iterator[Finding]:
    if 0 < environment.memory_bytes < SMALL_MEMORY:  # 0: it could not be read
        what = f"This process may use {environment.memory_bytes / 2**30:.1f} GiB of memory."
        why = "A comparison keeps each engine in a process of its own, about 1 GiB each. Compare fewer plans at once, or close programs."
        yield Finding("warning", what, why)


def _compiler(environment: Environment, _: Declared) -> Iterator[Finding]:
    compiler, headers = environment.tools.get("c++"), environment.tools.get("python headers")
    if compiler and headers:
        yield Finding("ok", f"torch.compile finds a C++ compiler and Python's headers: {compiler}.")
        return
    missing = ", ".join(name for name, there in (("no C++ compiler", compiler), ("no Python headers", headers)) if not there)
    command = {
        "Linux": "sudo apt-get install g++ python3-dev",
        "Darwin": "xcode-select --install",
        "Windows": "winget install Microsoft.VisualStudio.2022.BuildTools",
    }.get(system(environment), "")
    why = "torch.compile writes C++ for the CPU, and a launcher in C for the GPU, and compiles it on the spot."
    yield Finding("warning", f"torch.compile cannot work here: {missing}.", why, command)


_CONSEQUENCES: tuple[tuple[tuple[str, ...], Level, str, str], ...] = (
    (
        ("amx_bf16", "amx_int8"),
        "ok",
        "AMX multiplies BF16 and INT8 in tiles.",
        "BF16 is the first thing to try: many times FP32's rate at nearly its accuracy. INT8 must earn its place beside it.",
    ),
    (
        ("avx512_bf16", "avx512_vnni"),
        "ok",
        "AVX-512 with BF16 and VNNI, without AMX.",
        "BF16 reaches about twice FP32's rate, INT8 about four times.",
    ),
    (
        ("avx512_vnni",),
        "info",
        "AVX-512 with VNNI, without BF16.",
        "INT8 pays. BF16 has no instructions here: it is emulated and gains no speed.",
    ),
    (
        ("avx_vnni",),
        "info",
        "AVX2 with VNNI, without BF16.",
        "INT8 pays. BF16 has no instructions here: it is emulated and gains no speed.",
    ),
    (
        ("avx512f",),
        "info",
        "AVX-512 without VNNI and BF16.",
        "INT8 takes three instructions for one and its sums can saturate at 16 bits: quantize weights to 7 bits (reduce_range), and "
        "expect little. BF16 is emulated and gains no speed.",
    ),
    (
        ("avx2",),
        "info",
        "AVX2 without AVX-512 and VNNI.",
        "INT8 takes three instructions for one and its sums can saturate at 16 bits: quantize weights to 7 bits (reduce_range), and "
        "expect little. BF16 is emulated and gains no speed.",
    ),
    (("i8mm", "bf16"), "ok", "ARM with matrix instructions for INT8 and BF16.", "Both pay where the engine uses them: measure."),
    (
        ("asimddp",),
        "info",
        "ARM with dot products, without BF16.",
        "INT8 pays. BF16 has no instructions here: it is emulated and gains no speed.",
    ),
    (
        ("neon",),
        "info",
        "ARM without dot products.",
        "Neither INT8 nor BF16 has instructions of its own: the graph is what can be optimised.",
    ),
)


def _instruction_sets(environment: Environment, _: Declared) -> Iterator[Finding]:
    for needed, level, what, why in _CONSEQUENCES:
        if set(needed) <= set(environment.isa):
            yield Finding(level, what, why)
            return
    why = (
        "Engines fall back to plain code, several times slower. A virtual machine may hide the processor's instructions: pass them through."
    )
    yield Finding("warning", f"{environment.cpu} shows neither AVX2 nor NEON.", why)


RULES: tuple[Rule, ...] = (_python, _versions, _instruction_sets, _threads, _memory, _compiler, *GPU_RULES, _extras)

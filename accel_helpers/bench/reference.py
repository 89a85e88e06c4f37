"""The inputs of a measurement and the right outputs for them: PyTorch eager FP32 on the CPU, computed once and kept.

A model that exists only as an ONNX file is referred to ONNX Runtime FP32; the record's check says which engine was asked.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import load_file, save_file

from accel_helpers import engines
from accel_helpers.device import store_root, usable_cpus
from accel_helpers.engine import Array
from accel_helpers.models import Model
from accel_helpers.records import Plan


def inputs(model: Model, plan: Plan, seed: int) -> list[dict[str, Array]]:
    """Distinct example inputs for a plan's batch and sequence length: four, or two of a large batch, where each costs more."""
    return [model.example(plan.batch, plan.sequence, seed * 1000 + number) for number in range(4 if plan.batch < 8 else 2)]


def engine_of(model: Model) -> str:
    """The engine that counts as right for a model."""
    return "pytorch" if model.build else "onnx_runtime"


def _path(model: Model, plan: Plan, seed: int) -> Path:
    key = f"{model.fingerprint}|{engine_of(model)}|{plan.batch}|{plan.sequence if model.has_sequence else 0}|{seed}"
    return store_root() / "references" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.safetensors"


def ensure(model: Model, plan: Plan, seed: int) -> None:
    """Compute the reference outputs unless they are there."""
    path = _path(model, plan, seed)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = engines.get(engine_of(model))
    right = replace(plan, engine=engine.name, precision="fp32", device="cpu", threads=usable_cpus(), hint="latency")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        engine.build(model, right, Path(folder))
        with engine.load(model, right, Path(folder)) as session:
            outputs = [session(one) for one in inputs(model, right, seed)]
        part = Path(folder) / "part"
        save_file({f"{number}/{name}": value for number, one in enumerate(outputs) for name, value in one.items()}, part)
        part.replace(path)


def read(model: Model, plan: Plan, seed: int) -> Sequence[Mapping[str, Array]]:
    """What :func:`ensure` computed, one mapping of output name to array for each input set."""
    found: dict[int, dict[str, Array]] = {}
    for key, value in load_file(_path(model, plan, seed)).items():
        number, _, name = key.partition("/")
        found.setdefault(int(number), {})[name] = value
    return [found[number] for number in sorted(found)]

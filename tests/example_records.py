"""Measurements and verdicts made by hand, from seeded rounds with known levels."""

import random

from accel_helpers.records import Check, Environment, Measurement, Plan, Round, Score, Verdict

MACHINE = Environment(
    cpu="Example CPU 9000",
    isa=("avx2", "avx512f", "amx_bf16"),
    cpus=2,
    cpus_online=4,
    memory_bytes=24_000_000_000,
    os="Linux 6.1",
    python="3.11.7",
    packages={"torch": "2.13.0", "numpy": "2.4.0"},
)
RIGHT = Check("outputs", True, "largest relative error 1.2e-06 over 252 calls, tolerance 0.001 for fp32")
BUSY = Check("quiet machine", False, "other processes took 31% of the CPU time", fatal=False)


def rounds(level, count=12, calls=20, seed=0, noise=0.02):
    draw = random.Random(seed)
    return tuple(
        Round(tuple(level * (1 + abs(draw.gauss(0, noise))) for _ in range(calls)), 1.9 * level * calls * (1 + abs(draw.gauss(0, noise))))
        for _ in range(count)
    )


def measurement(level=0.03, plan=None, seed=0, count=12, calls=20, **changes):
    values = {
        "model": "text-encoder",
        "plan": plan or Plan("pytorch", threads=2),
        "environment": MACHINE,
        "scope": "end to end",
        "first_call": 9 * level,
        "warmup": (2 * level, 1.4 * level, 1.05 * level, level),
        "rounds": rounds(level, count, calls, seed),
        "errors": 0,
        "checks": (RIGHT,),
        "peak_memory_bytes": 410_000_000,
        "peak_device_bytes": None,
        "artifact": "5a" * 32,
        "size_bytes": 90_900_000,
        "build_seconds": 1.5,
        "load_seconds": 0.4,
        "seed": seed,
        "started": "2026-12-01T10:00:00+00:00",
        "score": Score("accuracy", 0.9033, 858),
    }
    return Measurement(**{**values, **changes})


def verdict(baseline, candidate, **changes):
    pairs = list(zip(baseline.rounds, candidate.rounds, strict=True))
    items = candidate.plan.batch / baseline.plan.batch
    values = {
        "baseline": baseline.digest,
        "candidate": candidate.digest,
        "wall": tuple(old.wall_median / new.wall_median * items for old, new in pairs),
        "cpu": tuple(old.cpu_per_call / new.cpu_per_call * items for old, new in pairs),
        "score_change": -0.0012,
    }
    return Verdict(**{**values, **changes})


def comparison():
    """A baseline and a candidate of each word, and their verdicts."""
    base = measurement(0.03)
    fast = measurement(0.01, Plan("openvino", "bf16", threads=2), seed=1, checks=(RIGHT, BUSY))
    slow = measurement(0.045, Plan("onnx_runtime", threads=2), seed=2)
    same = measurement(0.03, Plan("compiled", threads=2), seed=3)
    noisy = measurement(0.03, Plan("compiled", "bf16", threads=2), seed=4, rounds=rounds(0.025, seed=4, calls=1, noise=0.7))
    rest = [fast, slow, same, noisy]
    return [base, *rest], [verdict(base, one, status="INDICATIVE" if one is fast else "VALID") for one in rest]


def sweep():
    """One plan at five batch sizes: throughput gains up to eight, then little."""
    levels = {1: 0.010, 2: 0.014, 4: 0.022, 8: 0.036, 32: 0.140}
    return [measurement(level, Plan("pytorch", batch=batch, threads=2), seed=batch) for batch, level in levels.items()]

"""What the processor's widest vector instructions are worth: one matrix product with them, and with them held back.

oneDNN, which runs PyTorch's convolutions, obeys ``ONEDNN_MAX_CPU_ISA`` when a process begins. So two processes, alike but for that variable,
take turns with the same product, a 1x1 convolution in fp32 on one thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from accel_helpers import environment
from accel_helpers.device import measuring
from accel_helpers.errors import MeasurementError
from accel_helpers.intervals import Estimate, log_centre
from accel_helpers.measure import interleave
from accel_helpers.records import Round

CHANNELS, SIDE = 512, 32
FLOPS = 2 * CHANNELS * CHANNELS * SIDE * SIDE
"""Floating-point operations of one product: (channels, channels) by (channels, side * side)."""


@dataclass(frozen=True)
class Effect:
    """The same product with and without the widest instructions. ``level`` is what was held back to; empty where nothing could be."""

    level: str
    native: tuple[Round, ...]
    held: tuple[Round, ...]

    @property
    def speedup(self) -> Estimate:
        """What the widest instructions gain, by CPU time: one ratio a round. Unbounded where nothing could be held back."""
        pairs = zip(self.native, self.held, strict=True)
        return log_centre([held.cpu_per_call / native.cpu_per_call for native, held in pairs]) if self.level else Estimate(1, 0, float("inf"))


def effect(rounds: int = 12, calls: int = 8, seed: int = 0) -> Effect:
    """Measure what the widest vector instructions of this processor gain. Some seconds; two processes at once, one at work.

    Raises:
        MeasurementError: one of the processes died.
    """
    isa = environment.describe().isa
    level = "AVX2" if "avx512f" in isa else "SSE41" if "avx2" in isa else ""
    if not level:
        return Effect("", (), ())
    with measuring("vector instructions"), ExitStack() as stack:
        subjects = [stack.enter_context(_Product(name)) for name in ("DEFAULT", level)]
        native, held = interleave(subjects, [calls, calls], rounds, seed)
    return Effect(level, tuple(native), tuple(held))


class _Product:
    """A process that computes the product; answers one JSON round for each number of calls."""

    def __init__(self, level: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "accel_helpers.instructions"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ONEDNN_MAX_CPU_ISA": level, "OMP_NUM_THREADS": "1"},
        )

    def round(self, calls: int) -> Round:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{calls}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise MeasurementError(f"The process that computed a product ended with {self._process.wait()}.", "Run this again.")
        found = json.loads(line)
        return Round(tuple(found["wall"]), found["cpu"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()  # closes its input, at which it ends


def main() -> None:
    """Answer rounds until standard input ends."""
    import torch

    torch.set_num_threads(1)
    product = torch.nn.Conv2d(CHANNELS, CHANNELS, 1, bias=False)
    values = torch.ones(1, CHANNELS, SIDE, SIDE)
    with torch.inference_mode():
        for line in sys.stdin:
            product(values)
            cpu, wall = time.process_time(), []
            for _ in range(int(line)):
                begin = time.perf_counter()
                product(values)
                wall.append(time.perf_counter() - begin)
            sys.stdout.write(json.dumps({"wall": wall, "cpu": time.process_time() - cpu}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

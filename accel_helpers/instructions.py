"""What the processor's vector instructions are worth, and where memory decides instead.

oneDNN, one of PyTorch's libraries, obeys ``ONEDNN_MAX_CPU_ISA`` when a process begins. So processes that are alike but for that variable
take turns with the same matrix product in fp32 on one thread. Beside them stands a matrix times a vector, which uses each number that it
reads once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from accel_helpers import environment
from accel_helpers.device import measuring
from accel_helpers.errors import MeasurementError
from accel_helpers.intervals import Estimate, log_centre
from accel_helpers.measure import interleave
from accel_helpers.records import Round

ROWS, WIDTH = 256, 1024
"""Of the matrix product: (rows, width) by (width, width)."""
SIDE = 4096
MOVED_BYTES = 4 * SIDE * SIDE
"""What a (side, side) matrix times a vector reads: 67 MB, more than most caches hold."""
_LEVELS = {"avx512f": ("AVX2", "SSE41"), "avx2": ("SSE41",)}
"""What to hold a processor back to, by the widest instructions it has; oneDNN's names."""


@dataclass(frozen=True)
class Effect:
    """A matrix product with all instructions and with fewer, and a matrix times a vector; one thread.

    ``held`` maps what the instructions were held back to, widest first, to its rounds; empty on a processor without levels to hold back to.
    """

    native: tuple[Round, ...]
    held: Mapping[str, tuple[Round, ...]]
    vector: tuple[Round, ...]

    def speedup(self, level: str) -> Estimate:
        """What the instructions beyond ``level`` gain, by CPU time: one ratio a round."""
        pairs = zip(self.native, self.held[level], strict=True)
        return log_centre([held.cpu_per_call / native.cpu_per_call for native, held in pairs])

    @property
    def bandwidth(self) -> Estimate:
        """Bytes per second that the matrix times a vector reads, by CPU time."""
        return log_centre([MOVED_BYTES / one.cpu_per_call for one in self.vector])


def effect(rounds: int = 12, calls: int = 8, seed: int = 0) -> Effect:
    """Measure it: some seconds, one process at work at a time.

    Raises:
        BusyError: another measurement does not end.
        MeasurementError: one of the processes died.
    """
    isa = environment.describe().isa
    levels = next((levels for flag, levels in _LEVELS.items() if flag in isa), ())
    with measuring("vector instructions"), ExitStack() as stack:
        asked = [("matrix", "DEFAULT"), ("vector", "DEFAULT"), *(("matrix", level) for level in levels)]
        subjects = [stack.enter_context(_Product(kind, level)) for kind, level in asked]
        native, vector, *held = interleave(subjects, [calls] * len(subjects), rounds, seed)
    return Effect(tuple(native), dict(zip(levels, map(tuple, held), strict=True)), tuple(vector))


class _Product:
    """A process that computes one product; answers one JSON round for each number of calls."""

    def __init__(self, kind: str, level: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "accel_helpers.instructions", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ONEDNN_MAX_CPU_ISA": level, "OMP_NUM_THREADS": "1"},
        )

    def round(self, calls: int) -> Round:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(f"{calls}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise MeasurementError(f"The process that computed a product ended with code {self._process.wait()}.", "Run this again.")
        return Round.from_dict(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    """Answer rounds until standard input ends."""
    import torch
    from torch.utils.mkldnn import to_mkldnn

    torch.set_num_threads(1)
    product: Callable[[Any], Any]
    if sys.argv[1] == "vector":
        product, values = torch.ones(SIDE, SIDE).mv, torch.ones(SIDE)
    else:
        product, values = to_mkldnn(torch.nn.Linear(WIDTH, WIDTH).eval()), torch.ones(ROWS, WIDTH).to_mkldnn()
    with torch.inference_mode():
        for line in sys.stdin:
            product(values)
            cpu, wall = time.process_time(), []
            for _ in range(int(line)):
                begin = time.perf_counter()
                product(values)
                wall.append(time.perf_counter() - begin)
            sys.stdout.write(Round(tuple(wall), time.process_time() - cpu).to_json() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

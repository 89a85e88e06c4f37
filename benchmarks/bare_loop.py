"""The loops that a library's documentation writes, which ``no_overhead.py`` holds against our sessions. It starts this script.

    python benchmarks/bare_loop.py (onnx_runtime FILE | compiled MODEL) FOLDER_OF_INPUTS THREADS PRECISION

Answers each line on standard input, a number of calls, with a JSON list of the seconds that each took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NOT_COUNTED = 2  # calls before those of a line


def loop(engine: str, what: str, inputs: str, threads: str, precision: str) -> None:
    """Answer lines until standard input ends."""
    sets = [dict(np.load(path)) for path in sorted(Path(inputs).glob("set_*.npz"))]
    make = {"onnx_runtime": onnx_runtime_call, "compiled": compiled_call}[engine]
    call = make(what, sets, int(threads), precision)
    for line in sys.stdin:
        taken = []
        for number in range(int(line) + NOT_COUNTED):
            begin = time.perf_counter()
            call(number % len(sets))
            taken.append(time.perf_counter() - begin)
        print(json.dumps(taken[NOT_COUNTED:]), flush=True)


def onnx_runtime_call(path: str, sets: list[dict[str, Any]], threads: int, _: str) -> Callable[[int], Any]:
    """A call on the input set of that number: NumPy in, NumPy out. Threads sleep between calls, as the engine has it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda number: session.run(None, sets[number])


def compiled_call(name: str, sets: list[dict[str, Any]], threads: int, precision: str) -> Callable[[int], Any]:
    """A call on the input set of that number: tensors in, tensors out."""
    import torch
    import torch._inductor.config

    from accel_helpers import models

    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    build = models.get(name).build
    assert build
    compiled = torch.compile(build().eval().to(dtype), dynamic=False)
    tensors = [{key: torch.from_numpy(array) for key, array in one.items()} for one in sets]
    placed = [{key: value.to(dtype) if value.is_floating_point() else value for key, value in one.items()} for one in tensors]

    def call(number: int) -> Any:
        with torch.inference_mode():
            return compiled(**placed[number])

    return call


if __name__ == "__main__":
    loop(*sys.argv[1:])

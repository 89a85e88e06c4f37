"""Attempts at a graph, each in a process of its own, counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from accel_helpers.compilation.debugging._attempt import marked
from accel_helpers.engine import Array
from accel_helpers.engines._tensorrt_failures import misread
from accel_helpers.errors import ParameterError

_OPEN = 2  # the size of an open axis, where no input tells it


@dataclass
class Attempts:
    """Runs one check on many graphs, and counts.

    ``check`` is a kind that ``_attempt`` knows, or a command that is given the path of a graph and ends with 0
    where that passes.
    """

    folder: Path  # for what passes between the processes
    check: str | Sequence[str]
    seconds: float  # the longest that one may take; longer counts as a failure
    count: int = 0

    @property
    def name(self) -> str:
        """The check in words."""
        return self.check if isinstance(self.check, str) else " ".join(self.check)

    def __call__(self, graph: Path, inputs: Mapping[str, Array]) -> str:
        """What is said against a graph; nothing where it passes."""
        if not isinstance(self.check, str):
            return self._run([*self.check, str(graph)])
        if self.check == "tensorrt":
            if error := misread("this file", graph):  # it would build another operator, and say nothing
                return error.what
            inputs = _completed(graph, inputs)
        return self._own(self.check, graph, inputs)

    def values(self, model: Path, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
        """Every tensor of a graph, and what is said against running it."""
        import onnx
        from safetensors.numpy import load_file

        out, exposed = self.folder / "values.safetensors", self.folder / "marked.onnx"
        onnx.save(marked(onnx.load(model)), exposed)
        complaint = self._own("values", exposed, inputs, out)
        return ({}, complaint) if complaint else (load_file(out), "")

    def _own(self, kind: str, graph: Path, inputs: Mapping[str, Array], *more: Path) -> str:
        from safetensors.numpy import save_file

        given = self.folder / "inputs.safetensors"
        save_file({name: np.ascontiguousarray(array) for name, array in inputs.items()}, given)
        return self._run(
            [sys.executable, "-m", "accel_helpers.compilation.debugging._attempt", kind, str(graph), str(given), *map(str, more)]
        )

    def _run(self, command: Sequence[str]) -> str:
        self.count += 1
        path = os.pathsep.join(entry for entry in (str(Path.cwd()), *sys.path) if entry)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # what kills its whole group kills no more than itself
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            raise ParameterError(f"The check {self.name} cannot be run: {error.strerror}.", "Give a command that is there.") from error
        with process:
            try:
                out, err = process.communicate(timeout=self.seconds)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)  # and what it started, which holds the pipes open
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return f"did not end within {self.seconds:g} s"
        if process.returncode == 0:
            return ""
        if process.returncode < 0:
            return f"killed by {signal.Signals(-process.returncode).name}"
        return (out.strip() or err.strip() or f"ended with exit code {process.returncode}").splitlines()[-1].strip()


def _completed(graph: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """An array for every input of a graph: those that are known, and zeros for the others."""
    import onnx

    found = {}
    for one in onnx.load(graph, load_external_data=False).graph.input:
        kind = one.type.tensor_type
        if one.name in inputs:
            found[one.name] = inputs[one.name]
        elif kind.elem_type:  # without a type there is nothing to make
            shape = [axis.dim_value or _OPEN for axis in kind.shape.dim]
            found[one.name] = np.zeros(shape, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return found

"""The parent's side of a worker process: ask, wait, stop."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from accel_helpers import errors
from accel_helpers.errors import AccelError, MeasurementError, StoppedError
from accel_helpers.records import Round

Stop = Callable[[], bool]


class WorkerProcess:
    """A fresh Python process that runs ``accel_helpers.bench.worker``, or another module that ends in its ``serve``.

    Args:
        threads: compute threads the process may use; OpenMP reads it before any framework is imported.
        stop: asked ten times a second while the worker works; true ends the worker at once.
        module: what to run.
        variables: environment variables of the process beside this one's.
    """

    def __init__(
        self,
        threads: int,
        stop: Stop | None = None,
        module: str = "accel_helpers.bench.worker",
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.stop = stop or (lambda: False)
        path = os.pathsep.join(entry for entry in (str(Path.cwd()), *sys.path) if entry)
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", **variables},
        )
        self._pending = b""

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def ask(self, call: str, **arguments: Any) -> dict[str, Any]:
        """One request, answered.

        Raises:
            AccelError: what the worker raised, with its class and next step.
            StoppedError: ``stop`` said so; the worker is gone.
            MeasurementError: the worker died, or broke in a way that is no user's mistake.
        """
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"call": call, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died(call) from None
        reply = json.loads(self._line(call))
        if "result" in reply:
            result: dict[str, Any] = reply["result"]
            return result
        if "crash" in reply:
            raise MeasurementError(f"The engine failed while it was asked to {call}: {reply['what']}.", f"Its traceback:\n{reply['crash']}")
        kind: type[AccelError] = getattr(errors, reply["error"])
        error = kind.__new__(kind)
        AccelError.__init__(error, reply["what"], reply["next_step"])
        raise error

    def round(self, calls: int) -> Round:
        """One round of calls; see ``measure.interleave``."""
        return Round.from_dict(self.ask("round", calls=calls))

    def _line(self, call: str) -> bytes:
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            if self.stop():
                self.close()
                raise StoppedError("Stopped.", "Run it again to measure; finished records are kept.")
            if select.select([descriptor], [], [], 0.1)[0]:
                chunk = os.read(descriptor, 1 << 20)
                if not chunk:
                    raise self._died(call)
                self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _died(self, call: str) -> MeasurementError:
        code = self._process.wait()
        self._log.seek(0)
        last = " | ".join(self._log.read().strip().splitlines()[-3:])
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        hint = "Out of memory is the usual cause: take a smaller batch." if code == -signal.SIGKILL else "Try another precision or engine."
        return MeasurementError(f"The process that measured {how} while it was asked to {call}.{' It said: ' + last if last else ''}", hint)

    def close(self) -> None:
        """End the worker: politely first, then for certain. A second call does nothing."""
        if self._process.poll() is None:
            assert self._process.stdin
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            deadline = time.monotonic() + (0.0 if self.stop() else 5.0)
            while self._process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

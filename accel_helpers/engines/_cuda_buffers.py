"""A GPU through pycuda: its context, and for each tensor a pair of buffers, in pinned host memory and on the device. Not yet run on a GPU.

pycuda 2026.1 has no CUDA graphs, so :class:`Graph` captures and replays through cuda-bindings, which PyTorch's CUDA builds bring along.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from accel_helpers.engine import Array
from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import MissingPackageError, UnsupportedError


@cache
def _driver() -> Any:
    """``pycuda.driver``, with the driver initialised.

    Raises:
        MissingPackageError: pycuda is not installed.
        UnsupportedError: it cannot load the driver, or the driver sees no GPU.
    """
    if importlib.util.find_spec("pycuda") is None:
        raise MissingPackageError(
            "TensorRT engines run in device memory that pycuda holds, and pycuda is not installed.",
            "It builds from source: install a full CUDA toolkit (nvcc and curand.h), then run: pip install -e '.[gpu]'",
        )
    try:
        cuda = importlib.import_module("pycuda.driver")
    except ImportError as error:  # it is linked against libcuda
        raise UnsupportedError(
            f"pycuda is installed, but does not load: {first_line(error)}.",
            "Its libcuda comes with the NVIDIA driver: install that, until nvidia-smi lists the GPU.",
        ) from error
    try:
        cuda.init()
        count = cuda.Device.count()
    except cuda.Error as error:
        raise UnsupportedError(
            f"The NVIDIA driver does not answer: {first_line(error)}.", "Run nvidia-smi; after a driver update, restart the machine."
        ) from error
    if not count:
        raise UnsupportedError("The NVIDIA driver sees no GPU.", "Check nvidia-smi and CUDA_VISIBLE_DEVICES.")
    return cuda


@cache
def _primary() -> tuple[Any, Any]:
    """The first GPU and its primary context: the one that PyTorch and the CUDA runtime use.

    It is given back when the process ends, not with each session: pycuda leaves a context that it detaches on the driver's stack.
    """
    device = _driver().Device(0)
    return device, device.retain_primary_context()


@contextlib.contextmanager
def current() -> Iterator[Any]:
    """``pycuda.driver`` with the primary context current in this thread; nothing of pycuda's works without."""
    cuda, (_, context) = _driver(), _primary()
    context.push()
    try:
        yield cuda
    finally:
        cuda.Context.pop()


def gpu() -> tuple[str, str, int]:
    """The first GPU's name, its compute capability as "8.9", and the newest CUDA version that its driver speaks (13000 is 13.0).

    Raises:
        UnsupportedError: there is none.
    """
    cuda = _driver()
    device = cuda.Device(0)
    return device.name(), ".".join(map(str, device.compute_capability())), int(cuda.get_driver_version())


class Pair:
    """A tensor's two buffers, large enough for ``size`` elements; copies are asynchronous on the given stream."""

    def __init__(self, cuda: Any, size: int, dtype: np.dtype[Any]) -> None:
        self._cuda = cuda
        self._host = cuda.pagelocked_empty(max(size, 1), dtype)
        self._device = cuda.mem_alloc(self._host.nbytes)

    @property
    def address(self) -> int:
        """Of the device buffer."""
        return int(self._device)

    def upload(self, array: Array, stream: Any) -> None:
        """Start the copy to the device. The host buffer must not be written before it is done."""
        part = self._host[: array.size]
        part[...] = array.reshape(-1)  # casts to the buffer's type
        self._cuda.memcpy_htod_async(self._device, part, stream)

    def download(self, size: int, stream: Any) -> Array:
        """Start the copy of ``size`` elements to the host buffer, and answer that part of it."""
        part: Array = self._host[:size]
        self._cuda.memcpy_dtoh_async(part, self._device, stream)
        return part

    def free(self) -> None:
        """Give both back."""
        self._device.free()
        self._host.base.free()


class Graph:
    """What ``enqueue`` queues on ``stream``, captured once and replayed with one launch.

    Raises:
        MissingPackageError: cuda-bindings is not installed.
        UnsupportedError: it cannot be captured; the message holds the driver's error.
    """

    def __init__(self, stream: Any, enqueue: Callable[[], None]) -> None:
        self._driver = graph_library()
        self._stream = self._driver.CUstream(stream.handle)
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL  # other sessions' threads go on as they like
        self._done(self._driver.cuStreamBeginCapture(self._stream, mode))
        try:
            enqueue()
        finally:
            ended = self._driver.cuStreamEndCapture(self._stream)
        graph = self._done(ended)
        try:
            self._graph = self._done(self._driver.cuGraphInstantiate(graph, 0))
        finally:
            self._done(self._driver.cuGraphDestroy(graph))

    def replay(self) -> None:
        """Queue all of it."""
        self._done(self._driver.cuGraphLaunch(self._graph, self._stream))

    def free(self) -> None:
        """Give the graph back; the stream must be idle."""
        self._done(self._driver.cuGraphExecDestroy(self._graph))

    def _done(self, answer: tuple[Any, ...]) -> Any:
        """The value in a driver call's answer, or its error."""
        status, *value = answer
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise UnsupportedError(f"This engine's work cannot be captured as a CUDA graph: {status.name}.", "Choose mode=default.")
        return value[0] if value else None


def graph_library() -> Any:
    """``cuda.bindings.driver``.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise MissingPackageError(
            f"CUDA graphs of TensorRT engines are captured through cuda-bindings, which does not load: {first_line(error)}.",
            "Run: pip install cuda-bindings, or choose mode=default.",
        ) from error

"""TensorRT-RTX's settings at run time: CUDA graphs, and the kernels that it compiles on the GPU, kept so that they are made once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_helpers.device import store_root


class Jit:
    """Makes an engine's contexts, and keeps the kernels that TensorRT-RTX compiles for them.

    Full TensorRT compiles everything when it builds, and gets plain contexts. TensorRT-RTX itself checks what is
    kept against its own version, the GPU and the driver; the content's hash in the file's name tells a damaged file before it is read.
    """

    def __init__(self, trt: Any, known: Mapping[str, Any], device: tuple[str, str], engine: Any, mode: str) -> None:
        self._engine, self._config = engine, None
        if known["library"] != "tensorrt_rtx":
            return
        name = f"{known['plan_sha256'][:24]}-{known['version']}-{device[0]}-{device[1]}"
        self._key = re.sub(r"[^\w.]+", "-", name)
        config: Any = engine.create_runtime_config()
        strategies = trt.CudaGraphStrategy
        config.cuda_graph_strategy = strategies.WHOLE_GRAPH_CAPTURE if mode == "cuda_graph" else strategies.DISABLED
        cache = self._cache = config.create_runtime_cache()
        for kept in self._kept():
            content = kept.read_bytes()
            if kept.stem.endswith(hashlib.sha256(content).hexdigest()[:32]):
                cache.deserialize(content)  # false where it is of another environment: then it is compiled again
        config.set_runtime_cache(cache)
        self._config = config

    def _kept(self) -> list[Path]:
        return sorted((store_root() / "jit").glob(f"{self._key}-*.bin"))

    def context(self) -> Any:
        """A new execution context, or None where there is no memory for it."""
        engine = self._engine
        return engine.create_execution_context() if self._config is None else engine.create_execution_context(self._config)

    def save(self) -> None:
        """Keep what was compiled since it was read, in place of what was kept before."""
        if self._config is None:
            return
        content, before = bytes(self._cache.serialize()), self._kept()
        path = store_root() / "jit" / f"{self._key}-{hashlib.sha256(content).hexdigest()[:32]}.bin"
        if path in before:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_bytes(content)
        part.replace(path)
        for old in before:
            old.unlink(missing_ok=True)

"""How TorchInductor is set for a plan and a mode, and what it says of what it did."""

from __future__ import annotations

import os
import sys
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from accel_helpers.device import store_root

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    # Shapes other than the plan's run without a graph: each would want one of its own.
    "reduce_overhead": {"triton.cudagraphs": True, "triton.cudagraph_skip_dynamic_graphs": True},
    "max_autotune": {"max_autotune": True, "coordinate_descent_tuning": True},
}
"""Inductor's settings for each mode of a session, as ``torch._inductor.list_mode_options`` has them for ``torch.compile``'s."""

_LOOK_UPS = {"embedding", "index", "index_select", "gather"}


def cpp_compiler() -> str:
    """The C++ compiler that TorchInductor calls."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def cache_in_store() -> None:
    """Keep generated programs in the store, unless the reader chose a place."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    if os.environ.get("TORCHINDUCTOR_CACHE_DIR") in (None, default_cache_dir()):  # importing torch._dynamo sets the default
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(store_root() / "inductor")


def skipped_graphs() -> int:
    """How often Inductor ran a program without the CUDA graph that was asked for, in this process so far."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cudagraph_skips"])


def templates() -> int:
    """How many matrix products run in C++ templates that tuning chose before the library's, in this process so far."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cpp_templated_kernel_counter"])


def look_up_eagerly(graph: Any) -> None:
    """Leave table look-ups to PyTorch's own operators, which raise on an index beyond the table.

    Generated code checks it as well, but inside a parallel region, where raising ends the process.
    """
    for node in graph.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "__name__", "").split(".")[0] in _LOOK_UPS:
            node.meta["custom"] = {**node.meta.get("custom", {}), "fallback_to_eager": True}


def own_function(network: Any) -> Any:
    """A function whose code object belongs to one session: PyTorch keeps programs, and counts them, by code object."""

    def call(**inputs: Any) -> Any:
        return network(**inputs)

    return types.FunctionType(call.__code__.replace(), call.__globals__, "call", None, call.__closure__)


@contextmanager
def compiling(mode: str, freezing: bool, breaks: set[str]) -> Iterator[None]:
    """Settings for a call that compiles; ``breaks`` gains the reasons for which the graph had to be cut."""
    import torch._dynamo.config
    import torch._inductor.config
    import torch._inductor.select_algorithm
    from torch._dynamo.utils import counters

    torch._inductor.select_algorithm.PRINT_AUTOTUNE = False  # tables of what was tried, on standard error
    before = Counter(counters["graph_break"])
    # Freezing folds and packs the weights, which is where BF16 wins on a CPU. A pool of compiling threads would outlive the session.
    settings = {"freezing": freezing, "compile_threads": 1, **OPTIONS[mode]}
    with ExitStack() as stack:
        stack.enter_context(torch._dynamo.config.patch(fail_on_recompile_limit_hit=True))
        stack.enter_context(torch._inductor.config.patch(settings))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # PyTorch's own deprecations, raised by its own code
        yield
    breaks.update(reason.split("\n")[0] for reason in Counter(counters["graph_break"]) - before)


def operators(graph: Any) -> Counter[tuple[str, str]]:
    """Operators of a captured or exported graph by the type of what they answer, when that is a floating-point tensor."""
    import torch

    counts: Counter[tuple[str, str]] = Counter()
    for node in graph.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        if node.op in ("call_function", "call_method", "call_module") and isinstance(value, torch.Tensor) and value.is_floating_point():
            target = getattr(node.target, "overloadpacket", node.target)  # an exported operator's name holds its overload's
            counts[getattr(target, "__name__", str(target)), str(value.dtype).removeprefix("torch.")] += 1
    return counts

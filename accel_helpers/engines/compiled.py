"""PyTorch through torch.compile: one fused program for each shape, made by TorchInductor at the first call."""

from __future__ import annotations

import ctypes
import gc
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accel_helpers.engine import Built, Support
from accel_helpers.engines import _hardware, _inductor, _torchao, _torchao_census
from accel_helpers.engines._executed import executed
from accel_helpers.engines._inputs import Shapes, first_line
from accel_helpers.engines.pytorch import WEIGHTS, PyTorch, TorchSession, loaded, named, network_of
from accel_helpers.errors import ArtifactError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan

_KEPT = "the model itself computes it in this type"
_FLOAT = "quantization changes products with a weight; the census says of each whether it did"
_TORCH_TENSORRT = (
    "Torch-TensorRT for this PyTorch pins TensorRT 11.0, which is not the one of the gpu extra and whose libraries are not on PyPI: "
    "choose engine=tensorrt"
)
_INDUCTOR_MODULES = "torch._inductor.runtime.compile_tasks."


class CompiledSession(TorchSession):
    """A network whose plan has a program of its own, specialised to its shapes; all other shapes share one with open sizes.

    A shape's first call compiles, so it is slow; the others pay a set look-up. torch.compile gives up after a number of programs and
    runs eagerly from then on without a word: here that is an error.
    """

    def __init__(self, model: Model, plan: Plan, network: Any) -> None:
        super().__init__(model, plan, network)
        torch = self._torch
        self._operators: Counter[tuple[str, str]] = Counter()
        self._breaks: set[str] = set()
        self._programs: Counter[str] = Counter()
        self._called: set[Shapes] = set()
        self._compiling = ""
        self._graphed, self._graphless = plan.mode == "reduce_overhead", False
        self._templates = _inductor.templates()
        self._function = _inductor.own_function(network)
        # Folding constants would widen short weights once and for all: the plan would run, and hold, FP32.
        self._freezing = not self._cuda and not (plan.quantization and plan.quantization.scheme == "weight_only")
        self._static, self._open = (
            torch.compile(self._function, backend=self._compile, dynamic=False, isolate_recompiles=True) for _ in range(2)
        )

    def _executed(self) -> dict[str, Any]:
        if not self._called:
            self(self._model.example(self._plan.batch, self._plan.sequence, 0))
        first = next(iter(self._programs.values()), 0)
        return {
            **executed(self._operators, self._plan, _FLOAT if self._plan.quantization else _KEPT),
            "compilations": dict(self._programs),
            "recompilations": self._programs.total() - first,
            "graph_breaks": max(first - 1, 0),
            "graph_break_reasons": sorted(self._breaks),
            **({"tuned_products": _inductor.templates() - self._templates} if self._plan.mode == "max_autotune" else {}),
        }

    def _forward(self, placed: dict[str, Any]) -> Any:
        shapes = tuple(value.shape for value in placed.values())
        planned = shapes == self._signature.planned
        call = self._static if planned else self._open
        if shapes in self._called:
            return self._answered(call, placed)
        from torch._dynamo import maybe_mark_dynamic
        from torch._dynamo.exc import FailOnRecompileLimitHit

        for name, value in placed.items():
            for axis in () if planned else self._model.axes.get(name, ()):
                maybe_mark_dynamic(value, axis)
        self._compiling = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in zip(placed, shapes, strict=True))
        before = _inductor.skipped_graphs()
        with _inductor.compiling(self._plan.mode, self._freezing, self._breaks):
            try:
                result = self._answered(call, placed)
            except FailOnRecompileLimitHit:
                raise UnsupportedError(
                    f"torch.compile gave up on {self._model.name} after {self._programs.total()} programs, one before {self._compiling}; "
                    "it would run eagerly from here on.",
                    "The network asks for a program for each of its input sizes: keep to fewer sizes, or choose engine=pytorch.",
                ) from None
        if self._graphed and planned and _inductor.skipped_graphs() > before:
            self._graphless = True
        if planned and self._graphless:
            raise UnsupportedError(
                f"{self._plan.label} was asked for, and Inductor made no CUDA graph of {self._model.name}.",
                "Choose mode=default; a CUDA graph needs all of the network on the GPU, and none of its inputs changed in place.",
            )
        self._called.add(shapes)
        return result

    def _answered(self, call: Callable[..., Any], placed: dict[str, Any]) -> Any:
        """What a call answers, in memory that the next replay of a graph does not write to."""
        if self._graphed:
            self._torch.compiler.cudagraph_mark_step_begin()
        result = call(**placed)
        return tuple(value.clone() for value in named(result, self._model).values()) if self._graphed else result

    def _compile(self, graph: Any, inputs: list[Any]) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx

        if not self._called and not self._plan.quantization:
            self._operators.update(_inductor.operators(graph))
        compiled: Callable[..., Any] = compile_fx(graph, inputs, inner_compile=self._generate)
        self._programs[self._compiling] += 1
        return compiled

    def _generate(self, graph: Any, inputs: Any, **options: Any) -> Any:
        """Make code of a graph whose operators are those that will run: integer kernels have taken their places in it."""
        from torch._inductor.compile_fx import compile_fx_inner

        if not self._called and self._plan.quantization:
            self._operators.update(_torchao_census.types(_torchao_census.ran(graph, self._plan)))
        if self._plan.threads > 1 and not self._cuda:
            _inductor.look_up_eagerly(graph)
        return compile_fx_inner(graph, inputs, **options)

    def close(self) -> None:
        """Free the network and its programs, which hold packed copies of the weights and which PyTorch otherwise keeps for ever."""
        if self._network is None:
            return
        from torch._dynamo.eval_frame import reset_code
        from torch._inductor.codecache import PyCodeCache

        reset_code(self._function.__code__)
        if self._breaks:  # pieces that belong to other functions' code; other sessions compile theirs again when called
            self._torch._dynamo.reset()
        self._static = self._open = self._function = None
        PyCodeCache.cache_clear()
        for name in [name for name in sys.modules if name.startswith(_INDUCTOR_MODULES)]:
            del sys.modules[name]
        super().close()
        gc.collect()
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)  # compiling leaves glibc's heap in holes that it does not give back by itself


class _Inspection(CompiledSession):
    """Lowers the network as a session does and runs the lowered graph as it is, without making code of it: what will run, in seconds."""

    ran: tuple[_torchao_census.Ran, ...] = ()

    def _generate(self, graph: Any, inputs: Any, **options: Any) -> Any:
        self.ran += tuple(_torchao_census.ran(graph, self._plan))

        def interpret(arguments: list[Any]) -> Any:
            return graph.forward(*arguments)

        interpret._boxed_call = True  # type: ignore[attr-defined]  # takes its arguments as one list, as generated code does
        return interpret


class Compiled(PyTorch):
    """The same files as ``pytorch``; compiling happens when they are loaded and first called, on the machine that runs them.

    Quantized plans have files of their own, which torchao makes, and mode "aot" has a compiled package.
    """

    name = "compiled"
    needs = (*PyTorch.needs, "torchao")
    packages = (*PyTorch.packages, "torchao")
    schemes = MappingProxyType({"int8": ("static", "dynamic", "weight_only", "qat"), "int4": ("weight_only",)})
    modes = MappingProxyType(
        {
            "reduce_overhead": "replays the plan's calls as one CUDA graph; for a GPU, and not yet run on a GPU",
            "max_autotune": "tries several kernels for each product when it compiles, which takes minutes",
            "aot": "compiles when it is built (AOTInductor), so that loading and the first call compile nothing; FP32 and 16-bit plans",
        }
    )
    signed = frozenset({"dynamic"})

    def supports(self, plan: Plan, environment: Environment) -> Support:
        """What ``pytorch`` supports and INT8 and INT4 on a CPU, given a compiler: for a CPU's kernels, for what launches a GPU's."""
        if not (answer := _hardware.known(self, plan)):
            return Support(False, f"{answer.reason}; {_TORCH_TENSORRT}") if plan.mode == "torch_tensorrt" else answer
        if unable := _torchao.lacks(plan) or _lacks(plan):
            return Support(False, unable)
        if not shutil.which(compiler := _inductor.cpp_compiler()):
            return Support(False, f"torch.compile needs a C++ compiler and there is no {compiler}; install one (Debian: apt install g++)")
        return super().supports(plan, environment)

    def build(self, model: Model, plan: Plan, out: Path) -> Built:
        """As ``pytorch``; a quantized plan's tensors, and which products integer kernels take in the graph that is compiled."""
        if plan.mode == "aot":
            from accel_helpers.engines import _aot

            return Built((_aot.PACKAGE,), _aot.build(model, plan, out))
        if plan.quantization is None:
            return super().build(model, plan, out)
        from safetensors.torch import save_file

        network, tensors = _torchao.quantized(model, plan)
        report = _inspect(model, plan, network)
        save_file(tensors, str(out / WEIGHTS))
        return Built((WEIGHTS,), report)

    def load(self, model: Model, plan: Plan, folder: Path) -> TorchSession:
        """The network with the artifact's weights, which nothing compiles before its first call; or the compiled package."""
        if plan.mode == "aot":
            from accel_helpers.engines import _aot

            return _aot.load(model, plan, folder)
        _inductor.cache_in_store()
        return CompiledSession(model, plan, _quantized(model, plan, folder) if plan.quantization else loaded(model, plan, folder))


def _lacks(plan: Plan) -> str:
    """Why a plan's mode cannot be had; empty where it can."""
    if plan.mode == "reduce_overhead" and plan.device == "cpu":
        return "reduce_overhead replays CUDA graphs, and a CPU has none: PyTorch would run mode=default without a word"
    if plan.mode == "aot" and plan.quantization:
        return "mode aot compiles no quantized plans; mode=default does"
    return ""


def _quantized(model: Model, plan: Plan, folder: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise ArtifactError(f"{WEIGHTS} of {model.name} cannot be loaded: {first_line(error)}.", "Build the artifact again.") from error
    return _torchao.restored(model, plan, tensors)


def _inspect(model: Model, plan: Plan, network: Any) -> dict[str, Any]:
    """What torch.compile makes of a quantized network, up to the graph that code is made from.

    Raises:
        UnsupportedError: no product would run in integers.
    """
    # Two items: products with one row are rewritten as sums, which is no matter of types.
    with _Inspection(model, replace(plan, batch=2), network) as session:
        placed = session.place(model.example(2, plan.sequence, 0))
        session.run(placed)
        found = session.ran
    plain = network_of(model, plan)
    census = _torchao_census.census(_torchao_census.products(plain, placed), found, plan, _torchao_census.tables(plain, plan))
    if census.share() == 0:
        stayed = ", ".join(sorted({one.operator for one in census.layers if one.operations})) or "no product at all"
        raise UnsupportedError(
            f"{plan.engine} would quantize 0 % of the multiplications of {model.name}: {stayed} would run in FP32.",
            "Choose another scheme or engine; accel check says what this processor has.",
        )
    return {**executed(_torchao_census.types(found), plan, _FLOAT), "census": census.to_dict()}


ENGINE = Compiled()

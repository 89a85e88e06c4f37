"""PyTorch, eager: every operator is called on its own, as a notebook would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accel_helpers.engine import Array, Built, Engine, Session, Support
from accel_helpers.engines import _hardware
from accel_helpers.engines._executed import executed
from accel_helpers.engines._inputs import Signature, closed, first_line, refused
from accel_helpers.errors import AccelError, ArtifactError, ModelError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Environment, Plan

WEIGHTS = "model.safetensors"
_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
"""Types of inputs and weights; FP32 in all other plans, whose products then run in TF32 or whose weights are quantized."""
_KEPT = "the model itself computes it in this type"
_NO_GRAPH = "a CUDA graph is recorded on an NVIDIA GPU; a CPU has none"


class TorchSession(Session):
    """A network in the plan's type, on the plan's device.

    PyTorch keeps threads and TF32 per process, so each run sets its own and closing gives back what was there.
    """

    def __init__(self, model: Model, plan: Plan, network: Any) -> None:
        import torch

        self._torch, self._model, self._plan = torch, model, plan
        self._network: Any = network
        self._signature = Signature(model, plan)
        self._dtype = getattr(torch, _DTYPES.get(plan.precision, "float32"))
        self._device, self._cuda = plan.device, plan.device == "cuda"
        self._threads_before = torch.get_num_threads()
        self._tf32_before = _tf32(torch)
        self._report: dict[str, Any] | None = None

    @property
    def report(self) -> Mapping[str, Any]:
        """Version, device, threads, and the operators of one call by type."""
        if self._network is None:
            raise closed(self._model.name)
        if self._report is None:
            self._report = {
                "engine_version": self._torch.__version__,
                "device": self._torch.cuda.get_device_name() if self._cuda else "cpu",
                "threads": self._torch.get_num_threads(),
                **self._executed(),
            }
        return self._report

    def _executed(self) -> dict[str, Any]:
        placed = TorchSession.place(self, self._model.example(1, self._plan.sequence, 0))
        return executed(census(lambda: self.run(placed)), self._plan, _KEPT)

    def place(self, inputs: dict[str, Array]) -> dict[str, Any]:
        placed = {name: self._on_host(array) for name, array in self._signature.check(inputs).items()}
        if self._cuda:
            return {name: tensor.pin_memory().to(self._device, non_blocking=True) for name, tensor in placed.items()}
        return placed

    def _on_host(self, array: Array) -> Any:
        """The array as a tensor of the plan's type, in ordinary memory."""
        tensor = self._torch.from_numpy(array if array.flags.writeable else array.copy())
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor

    def run(self, placed: dict[str, Any]) -> Any:
        if self._network is None:
            raise closed(self._model.name)
        torch = self._torch
        if torch.get_num_threads() != self._plan.threads:
            torch.set_num_threads(self._plan.threads)
        if self._cuda:  # cuDNN's convolutions run in TF32 unless told otherwise
            _allow_tf32(torch, *[self._plan.precision == "tf32"] * 2)
        try:
            with torch.inference_mode():
                return self._forward(placed)
        except AccelError:
            raise
        except Exception as error:  # a network may raise anything
            raise refused(self._model.name, self._plan.engine, error) from error

    def _forward(self, placed: dict[str, Any]) -> Any:
        return self._network(**placed)

    def synchronise(self) -> None:
        if self._cuda:
            self._torch.cuda.synchronize()

    def fetch(self, result: Any) -> dict[str, Array]:
        fetched = {}
        for name, tensor in named(result, self._model).items():
            dtype = self._torch.float32 if tensor.is_floating_point() else tensor.dtype
            array: Array = tensor.to("cpu", dtype, copy=True).numpy()
            fetched[name] = array
        return fetched

    def close(self) -> None:
        if self._network is None:
            return
        self._network = None
        self._torch.set_num_threads(self._threads_before)
        if self._cuda:
            _allow_tf32(self._torch, *self._tf32_before)
            self._torch.cuda.empty_cache()


def _tf32(torch: Any) -> tuple[bool, bool]:
    """Whether matrix products, and cuDNN's convolutions, may run in TF32."""
    try:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    except RuntimeError:  # somebody set it through both of PyTorch's interfaces, which it then refuses to read
        return False, True  # as PyTorch starts


def _allow_tf32(torch: Any, products: bool, convolutions: bool) -> None:
    """Set both, in this process: through the older interface, which keeps the newer one in step.

    After a setting through the newer one, ``fp32_precision``, torch.export and TorchInductor fail: they still read the older one, which
    then raises (pytorch/pytorch issues 166387 and 179445).
    """
    torch.backends.cuda.matmul.allow_tf32 = products
    torch.backends.cudnn.allow_tf32 = convolutions


class PyTorch(Engine):
    """Weights in safetensors, in the plan's type; the network itself comes from the model's ``build``."""

    name = "pytorch"
    needs: tuple[str, ...] = ("torch", "safetensors")
    needs_network = True
    packages: tuple[str, ...] = ("torch", "transformers")
    install = "pip install -e ."
    modes: Mapping[str, str] = MappingProxyType(
        {"cuda_graph": "records a call of the plan's shapes and replays it with one launch; other shapes run as ever; not yet run on a GPU"}
    )

    def supports(self, plan: Plan, environment: Environment) -> Support:
        """FP32 everywhere; BF16, FP16 and TF32 where the hardware has them."""
        if not (answer := _hardware.known(self, plan)):
            return answer
        if plan.mode == "cuda_graph" and plan.device != "cuda":
            return Support(False, _NO_GRAPH)
        if plan.device == "cpu":
            return _hardware.cpu(plan, environment)
        if not environment.cuda:
            return Support(False, "this PyTorch was built without CUDA; install one that has it (pytorch.org, Get Started)")
        return _hardware.gpu(plan, environment)

    def build(self, model: Model, plan: Plan, out: Path) -> Built:
        """Cast the weights and save them once; see what one call computes in which type."""
        from safetensors.torch import save_model

        network = network_of(model, plan)
        with TorchSession(model, plan, network) as session:
            session(model.example(1, plan.sequence, 0))
            report = session.report
        save_model(network, str(out / WEIGHTS))  # tied weights once
        return Built((WEIGHTS,), report)

    def load(self, model: Model, plan: Plan, folder: Path) -> TorchSession:
        """The network with the artifact's weights, eager or recorded as a CUDA graph."""
        if plan.mode != "cuda_graph":
            return TorchSession(model, plan, loaded(model, plan, folder))
        from accel_helpers.engines._torch_graph import GraphSession

        if plan.device != "cuda":
            raise UnsupportedError(f"{plan.label} was asked for, and {_NO_GRAPH}.", "Choose device=cuda or mode=default.")
        return GraphSession(model, plan, loaded(model, plan, folder))


def network_of(model: Model, plan: Plan) -> Any:
    """The model's network in eval mode, in the plan's type, on its device.

    Raises:
        UnsupportedError: the model is no PyTorch network, or the device is not there.
    """
    import torch

    if model.build is None:
        raise UnsupportedError(f"{model.name} is an ONNX file, which PyTorch does not read.", "Choose onnx_runtime or openvino.")
    if plan.device == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError("CUDA was asked for, and PyTorch sees no GPU.", "Choose device=cpu, or check the driver with nvidia-smi.")
    return model.build().eval().to(device=plan.device, dtype=getattr(torch, _DTYPES.get(plan.precision, "float32")))


def loaded(model: Model, plan: Plan, folder: Path) -> Any:
    """:func:`network_of` with the weights in ``folder``.

    Raises:
        ArtifactError: the weights cannot be read or are not those of this network.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    network = network_of(model, plan)
    try:
        load_model(network, folder / WEIGHTS, strict=True, device=plan.device)
    except (SafetensorError, OSError, RuntimeError) as error:
        raise ArtifactError(f"{WEIGHTS} of {model.name} cannot be loaded: {first_line(error)}.", "Build the artifact again.") from error
    return network


def named(result: Any, model: Model) -> dict[str, Any]:
    """A network's answer by output name.

    Raises:
        ModelError: it answers other than the model's outputs.
    """
    values = result if isinstance(result, tuple | list) else (result,)
    if len(values) != len(model.outputs):
        raise ModelError(
            f"{model.name} answered {len(values)} values; its outputs are {', '.join(model.outputs)}.", "Name each output, in order."
        )
    return dict(zip(model.outputs, values, strict=True))


def census(call: Callable[[], Any]) -> Counter[tuple[str, str]]:
    """How often ``call`` runs each ATen operator, by the type of what it answers. Views and integers are left out."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    counts: Counter[tuple[str, str]] = Counter()

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            answer = function(*args, **(kwargs or {}))
            first = answer[0] if isinstance(answer, tuple | list) and answer else answer
            if isinstance(first, torch.Tensor) and first.is_floating_point() and not function.is_view:
                counts[function.overloadpacket.__name__, str(first.dtype).removeprefix("torch.")] += 1
            return answer

    with Watch():
        call()
    return counts


ENGINE = PyTorch()

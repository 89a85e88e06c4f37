"""What one call of a model costs whatever runs it: operations and bytes, counted by running its network once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accel_helpers.errors import ModelError
from accel_helpers.records import Record

if TYPE_CHECKING:
    from accel_helpers.models import Model

_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "int8": 1}


@dataclass(frozen=True)
class Cost(Record):
    """One call in FP32. A multiplication and an addition are two operations.

    ``flops`` are those of matrix products, convolutions and attention; the rest is left out, so a time bound by them stays a bound.
    ``bytes_weights`` is what must be read of the weights, each once: all of a matrix, of an embedding table the rows that are looked up.
    ``bytes_activations`` is what an unfused run writes: every operator's fresh output. A fused one writes less, and may keep it in a cache.
    """

    flops: float
    bytes_weights: float
    bytes_activations: float

    def least_bytes(self, precision: str) -> float:
        """Bytes of weights that one call in that type reads at least: the memory side of a roofline's bound."""
        return self.bytes_weights * _BYTES[precision] / _BYTES["fp32"]


def cost(model: Model, batch: int = 1, sequence: int = 128, seed: int = 0) -> Cost:
    """Count one call. The network runs once, in this process, in FP32 on the CPU.

    Args:
        model: with a PyTorch network.
        batch: items in the call.
        sequence: tokens in an item, for models that read sequences.
        seed: of the example inputs.

    Raises:
        ModelError: the model is an ONNX file, whose operators PyTorch cannot count.
    """
    if model.build is None:
        what = f"{model.name} has no PyTorch network whose operations could be counted."
        raise ModelError(what, "Count those of the network that it was exported from.")
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    network = model.build()
    inputs = {name: torch.from_numpy(values) for name, values in model.example(batch, sequence, seed).items()}

    traffic = _traffic(network)
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=_cpu_kernels(torch)) as counter, traffic:
        network(**inputs)
    return Cost(counter.get_total_flops(), traffic.weights(), traffic.activations)


def _cpu_kernels(torch: Any) -> dict[Any, Any]:
    """Operations of the CPU's fused kernels, which the counter does not know, by the shapes of their arguments."""
    from torch.utils.flop_counter import sdpa_flop_count

    def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query, key, value))

    def recurrent(steps: Any, of_input: Any, of_state: Any, *_: Any, **__: Any) -> int:
        return int(2 * math.prod(steps[:-1]) * (math.prod(of_input) + math.prod(of_state)))

    aten = torch.ops.aten
    return {aten._scaled_dot_product_flash_attention_for_cpu: attention, aten.mkldnn_rnn_layer: recurrent}


def _traffic(network: Any) -> Any:
    """A mode under which every operator's traffic is noted: see :class:`Cost`."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def place(tensor: Any) -> int:
        return int(tensor.untyped_storage().data_ptr())

    sizes = {place(one): one.untyped_storage().nbytes() for one in (*network.parameters(), *network.buffers()) if one.numel()}

    class Traffic(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.activations = 0
            self._read: dict[int, float] = {}

        def weights(self) -> float:
            return math.fsum(self._read.values())

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            read = {place(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
            fresh = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor) and place(one) not in read]
            if not fresh:  # a view, or a result written in place
                return result
            self.activations += sum(one.numel() * one.element_size() for one in fresh)
            for weight in read & sizes.keys():
                rows = fresh[0].nbytes if function is torch.ops.aten.embedding.default else math.inf
                self._read[weight] = min(sizes[weight], self._read.get(weight, 0.0) + rows)
            return result

    return Traffic()

"""Quantized networks for ``torch.compile``, by torchao: made once, kept as plain tensors, and put together again without unpickling.

The modules of a network are changed by torchao's ``quantize_`` (dynamic and weight-only schemes) or its exported graph by its PT2E
quantizer (static and QAT, in ``_torchao_graph``). The artifact holds the tensors that come of it; loading repeats the change on the
model's own network, which is cheap, and fills in the tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accel_helpers.engines import _torchao_graph
from accel_helpers.engines._inputs import first_line
from accel_helpers.engines.pytorch import network_of
from accel_helpers.errors import ArtifactError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Plan, Quantization

GROUP = 32
"""Weights of a row that share a scale in INT4: the smallest group of torchao's configurations."""
_GRAPH_SCHEMES = ("static", "qat")

Tensors = dict[str, Any]


def lacks(plan: Plan) -> str:
    """What of a plan's quantization is not there, or nothing."""
    asked = plan.quantization
    if asked is None:
        return ""
    if plan.device != "cpu":
        return "the quantized kernels of torch.compile that are used here run on a CPU; choose device=cpu"
    if asked.calibrator != "minmax":
        return f"ranges are taken here by minmax, not by {asked.calibrator}; onnx_runtime has other calibrators"
    if asked.rest != "fp32":
        return f"what is not quantized stays in FP32 here, not in {asked.rest.upper()}"
    if asked.scheme == "dynamic" and not asked.symmetric:
        return "products quantized at each call read signed activations here: set symmetric=true"
    return ""


def quantized(model: Model, plan: Plan) -> tuple[Any, Tensors]:
    """The model's network, quantized as the plan says, and the tensors that make it up.

    Raises:
        ModelError: no calibration data, or a network that cannot be exported.
        UnsupportedError: nothing in the network can be quantized so, or a layer to keep is not there.
    """
    asked = _asked(plan)
    network = network_of(model, plan)
    _check_kept(network, asked, model)
    if asked.scheme in _GRAPH_SCHEMES:
        return _torchao_graph.quantized(model, plan, network)
    changed = _change(network, plan)
    if not changed:
        raise _nothing(model, network, plan)
    return network, _tensors(network)


def restored(model: Model, plan: Plan, tensors: Mapping[str, Any]) -> Any:
    """The network that :func:`quantized` made, from its tensors alone: no calibration, no training.

    Raises:
        ArtifactError: the tensors are not those of this model and plan.
    """
    asked = _asked(plan)
    network = network_of(model, plan)
    try:
        if asked.scheme in _GRAPH_SCHEMES:
            return _torchao_graph.restored(model, plan, network, tensors)
        _change(network, plan)
        return _fill(network, tensors)
    except (KeyError, RuntimeError, ValueError) as error:
        raise ArtifactError(
            f"The tensors of {model.name} do not fit its network: {first_line(error)}.", "Build the artifact again."
        ) from error


def _asked(plan: Plan) -> Quantization:
    if plan.quantization is None:
        raise ValueError(f"{plan.label} is not quantized")
    return plan.quantization


def _check_kept(network: Any, asked: Quantization, model: Model) -> None:
    known = {name for name, _ in network.named_modules()}
    if unknown := [name for name in asked.keep if name not in known]:
        raise UnsupportedError(f"{model.name} has no layer {unknown[0]} to keep.", "Use the names that the census of a built plan prints.")


def _change(network: Any, plan: Plan) -> int:
    """Quantize the linear layers in place; how many there were."""
    asked = _asked(plan)
    names = [name for name, module in network.named_modules() if _is_linear(module) and name not in asked.keep]
    if plan.precision == "int4":
        return _pack(network, [name for name in names if network.get_submodule(name).in_features % GROUP == 0])
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, PerRow, PerTensor, quantize_

    weights = PerRow() if asked.per_channel else PerTensor()
    # The inductor settings that torchao would set are global; the session has its own.
    config = (
        Int8DynamicActivationInt8WeightConfig(granularity=[PerRow(), weights], set_inductor_config=False, reduce_range=asked.reduce_range)
        if asked.scheme == "dynamic"
        else Int8WeightOnlyConfig(granularity=weights, set_inductor_config=False)
    )
    chosen = set(names)
    quantize_(network, config, filter_fn=lambda module, name: name in chosen)
    return len(names)


def _is_linear(module: Any) -> bool:
    import torch

    return isinstance(module, torch.nn.Linear)


def _pack(network: Any, names: list[str]) -> int:
    import torch
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup, quantize_

    chosen = set(names)
    quantize_(network, IntxWeightOnlyConfig(torch.int4, PerGroup(GROUP)), filter_fn=lambda module, name: name in chosen)
    for name in names:
        linear = network.get_submodule(name)
        parent, _, own = name.rpartition(".")
        setattr(network.get_submodule(parent), own, _packed_linear(linear.weight, linear.bias))
    return len(names)


def _packed_linear(weight: Any, bias: Any) -> Any:
    """A linear layer that holds two four-bit weights to the byte. torchao itself keeps one to the byte outside of CUDA and XPU."""
    import torch
    from torch.nn import functional

    class PackedLinear(torch.nn.Module):  # type: ignore[misc]
        """Widens its weights in the call: the product itself is computed in the activations' type."""

        def __init__(self) -> None:
            super().__init__()
            short = (weight.qdata + 8).to(torch.uint8)
            self.register_buffer("packed", short[:, ::2] | short[:, 1::2] << 4)
            self.register_buffer("scale", weight.scale.detach().clone())
            self.bias = bias

        def forward(self, inputs: Any) -> Any:
            pairs = torch.stack([self.packed & 15, self.packed >> 4], dim=-1)
            groups = pairs.reshape(*self.scale.shape, GROUP).to(self.scale.dtype) - 8
            return functional.linear(inputs, (groups * self.scale.unsqueeze(-1)).flatten(1), self.bias)

    return PackedLinear()


def _nothing(model: Model, network: Any, plan: Plan) -> UnsupportedError:
    kinds = sorted({type(module).__name__ for module in network.modules() if getattr(module, "weight", None) is not None})
    scheme = _asked(plan).scheme
    return UnsupportedError(
        f"{plan.engine} {plan.precision.upper()} {scheme} quantizes linear layers, and found none that it can in {model.name}: "
        f"0 % of its multiplications would be quantized. What holds its weights ({', '.join(kinds) or 'nothing'}) would stay in FP32.",
        "Choose scheme=static, which quantizes convolutions too.",
    )


def _parts(network: Any) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """Parameters and buffers by name, each once, with the tensors that a torchao tensor consists of."""
    named = [*network.named_parameters(), *network.named_buffers()]
    return {name: (value, tuple(_inner(value))) for name, value in named}


def _inner(value: Any) -> list[str]:
    names = [*getattr(value, "tensor_data_names", ()), *getattr(value, "optional_tensor_data_names", ())]
    return [name for name in names if getattr(value, name) is not None]


def _tensors(network: Any) -> Tensors:
    found: Tensors = {}
    for name, (value, inner) in _parts(network).items():
        found |= {f"{name}.{part}": getattr(value, part).detach().contiguous() for part in inner} or {name: value.detach().contiguous()}
    return found


def _fill(network: Any, tensors: Mapping[str, Any]) -> Any:
    left = set(tensors)
    for name, (value, inner) in _parts(network).items():
        places: dict[str, Any] = {f"{name}.{part}": getattr(value, part) for part in inner} or {name: value}
        for key, place in places.items():
            stored = tensors[key]
            if (stored.shape, stored.dtype) != (place.shape, place.dtype):
                raise ValueError(f"{key} is {stored.dtype} {tuple(stored.shape)}, not {place.dtype} {tuple(place.shape)}")
            place.detach().copy_(stored)
            left.discard(key)
    if left:
        raise ValueError(f"{min(left)} belongs nowhere")
    return network

"""Static quantization and quantization-aware training of an exported graph: torchao's PT2E, lowered by TorchInductor to oneDNN.

Export, insert observers, show them the calibration samples (static) or train with fake quantization in place (QAT), convert. The
artifact holds the converted graph's tensors and what the observers saw; loading exports and converts again and fills these in.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from accel_helpers import calibration
from accel_helpers.engines._inputs import first_line
from accel_helpers.errors import AccelError, ModelError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Plan, Quantization

_OBSERVED = "observed."
_EPS = 2**-12  # smallest scale, as in torchao's own configuration of this quantizer
_BATCH = 8  # samples a call while calibrating


def quantized(model: Model, plan: Plan, network: Any) -> tuple[Any, dict[str, Any]]:
    """A converted graph of the network and its tensors.

    Raises:
        ModelError: the network cannot be exported, or there is no data to calibrate with.
        UnsupportedError: QAT of a model that has no training recipe.
    """
    asked = plan.quantization
    assert asked is not None
    if asked.scheme == "qat" and model.train is None:
        raise UnsupportedError(
            f"{model.name} brings no training recipe, which quantization-aware training needs.",
            "Give Model.train, or choose scheme=static.",
        )
    prepared = prepare(model, asked, network, plan.sequence)
    fit(model, prepared, asked)
    observed = {f"{_OBSERVED}{name}": value.clone() for name, value in prepared.state_dict().items() if "activation_post_process" in name}
    converted = convert(prepared)
    return converted, observed | {name: value.detach().contiguous() for name, value in converted.state_dict().items()}


def restored(model: Model, plan: Plan, network: Any, tensors: Mapping[str, Any]) -> Any:
    """The converted graph that :func:`quantized` answered, from its tensors."""
    assert plan.quantization is not None
    prepared = prepare(model, plan.quantization, network, plan.sequence)
    observed = {name.removeprefix(_OBSERVED): value for name, value in tensors.items() if name.startswith(_OBSERVED)}
    if unknown := prepared.load_state_dict(observed, strict=False).unexpected_keys:
        raise ValueError(f"{unknown[0]} belongs nowhere")
    converted = convert(prepared)
    converted.load_state_dict({name: value for name, value in tensors.items() if not name.startswith(_OBSERVED)}, strict=True)
    return converted


def prepare(model: Model, asked: Quantization, network: Any, sequence: int, bits: int = 8) -> Any:
    """The network's graph with observers, or for QAT with fake quantization, at every tensor that will be quantized.

    Args:
        model: whose inputs and axes the graph has.
        asked: how to quantize.
        network: of the model; exporting leaves it in eval mode, or for QAT in training mode.
        sequence: length of the example inputs.
        bits: of weights and activations.

    Raises:
        ModelError: the network cannot be exported.
    """
    import torch
    from torchao.quantization.pt2e import allow_exported_model_train_eval
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e

    training = asked.scheme == "qat"
    inputs = {name: torch.from_numpy(values) for name, values in model.example(2, sequence, 0).items()}
    axes = {name: dict.fromkeys(model.axes.get(name, {}), torch.export.Dim.DYNAMIC) for name in inputs}
    with _silent():
        try:
            graph = torch.export.export(network.train(training), (), inputs, dynamic_shapes=axes).module()
        except Exception as error:  # export raises whatever the network does
            raise ModelError(
                f"{model.name} cannot be exported to a graph: {first_line(error)}.",
                "Quantize it by scheme=dynamic or weight_only, which change the network's modules instead.",
            ) from error
        _name_kinds(graph)
        prepared = (prepare_qat_pt2e if training else prepare_pt2e)(graph, _quantizer(asked, bits))
        return allow_exported_model_train_eval(prepared) if training else prepared


def _name_kinds(graph: Any) -> None:
    """Say of every convolution that it is one. The quantizer finds them by the class of their module and misses classes derived from it."""
    import torch

    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.conv2d.default:
            node.meta["source_fn_stack"] = [(node.name, torch.nn.Conv2d)]


def _quantizer(asked: Quantization, bits: int) -> Any:
    from torch.nn import functional
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer

    quantizer = X86InductorQuantizer()
    for name in asked.keep:
        quantizer.set_module_name_qconfig(name, None)
    if asked.reduce_range:
        quantizer.set_function_type_qconfig(functional.conv2d, _configuration(asked, bits, short_inputs=True))
    return quantizer.set_global(_configuration(asked, bits))


def _configuration(asked: Quantization, bits: int, short_inputs: bool = False) -> Any:
    """How the quantizer takes ranges: activations per tensor, weights as the plan says. Fewer than eight bits are held in bytes.

    A reduced range takes the eighth bit from the weights, or with ``short_inputs`` from the activations, as torchao's own
    configuration does. Either keeps a sum of two products within sixteen bits. Convolutions whose batch norms are folded need their
    weights' bits more, linear layers those of the activations.
    """
    import torch
    from torchao.quantization.pt2e import (
        FakeQuantize,
        MinMaxObserver,
        MovingAverageMinMaxObserver,
        MovingAveragePerChannelMinMaxObserver,
        PerChannelMinMaxObserver,
    )
    from torchao.quantization.pt2e.quantizer import QuantizationConfig, QuantizationSpec

    training = asked.scheme == "qat"
    per_channel = MovingAveragePerChannelMinMaxObserver if training else PerChannelMinMaxObserver

    def spec(signed: bool, width: int, scheme: Any, observer: Any, **more: Any) -> Any:
        low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
        make = FakeQuantize.with_args(observer=observer, eps=_EPS) if training else observer.with_args(eps=_EPS)
        kind = torch.int8 if signed else torch.uint8
        return QuantizationSpec(dtype=kind, quant_min=low, quant_max=high, qscheme=scheme, observer_or_fake_quant_ctr=make, **more)

    activations = spec(
        asked.symmetric,
        min(bits, 7) if asked.reduce_range and short_inputs else bits,
        torch.per_tensor_symmetric if asked.symmetric else torch.per_tensor_affine,
        MovingAverageMinMaxObserver if training else MinMaxObserver,
    )
    weights = spec(
        True,
        min(bits, 7) if asked.reduce_range and not short_inputs else bits,
        torch.per_channel_symmetric,
        per_channel if asked.per_channel else _one_range(per_channel),
        ch_axis=0,
    )
    return QuantizationConfig(activations, activations, weights, None, training)


def _one_range(per_channel: Any) -> Any:
    """An observer that gives every channel of a weight the same range. oneDNN's kernels read one scale a channel, so it is repeated."""

    class WholeWeight(per_channel):  # type: ignore[misc]
        def forward(self, values: Any) -> Any:
            answer = super().forward(values)
            self.min_val.fill_(self.min_val.min())
            self.max_val.fill_(self.max_val.max())
            return answer

    return WholeWeight


def fit(model: Model, prepared: Any, asked: Quantization) -> None:
    """Show the observers the calibration samples, or for QAT run the model's training."""
    (_train if asked.scheme == "qat" else _calibrate)(model, prepared, asked)


def _calibrate(model: Model, prepared: Any, asked: Quantization) -> None:
    import torch

    samples = calibration.samples(model, asked)
    # A padded batch would show the observers what a single request never has.
    size = 1 if samples.mask is not None else _BATCH
    with torch.no_grad():
        for inputs, _ in samples.batches(size):
            prepared(**{name: torch.from_numpy(values) for name, values in inputs.items()})


def _train(model: Model, prepared: Any, asked: Quantization) -> None:
    import torch

    assert model.train is not None
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(asked.seed)
        try:
            model.train(prepared)
        except AccelError:
            raise
        except Exception as error:  # the reader's own code
            raise ModelError(f"Training {model.name} failed: {first_line(error)}.", "Correct Model.train.") from error


def convert(prepared: Any) -> Any:
    """The graph with integers and scales in the place of observers. Run as it is, it computes what integer kernels compute."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    with _silent():
        move_exported_model_to_eval(prepared)
        converted = convert_pt2e(prepared)
    _drop_unread(converted)
    return converted


def _drop_unread(graph: Any) -> None:
    """Delete what the graph no longer reads: the weights in FP32, whose places integers have taken."""
    read = {node.target for node in graph.graph.nodes if node.op == "get_attr"}
    for name in [name for name, _ in (*graph.named_parameters(), *graph.named_buffers()) if name not in read]:
        owner, _, own = name.rpartition(".")
        delattr(graph.get_submodule(owner), own)


@contextmanager
def _silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations that PyTorch's and torchao's own code raises
        yield

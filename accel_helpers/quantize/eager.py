"""Two ways to quantize a PyTorch network that many pages still show, tried on a small one: neither is a road of this workbook.

PyTorch deprecates ``torch.ao.quantization`` and will remove it; this module is the only one that calls it, to show what it does.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Attempt:
    """What was tried, what came of it, and why."""

    call: str
    outcome: str
    cause: str


def attempts() -> tuple[Attempt, ...]:
    """Quantize a convolution and a rectifier by the eager API, dynamically and statically, and say what happens."""
    import torch

    if not hasattr(torch.ao, "quantization"):
        gone = "this PyTorch has the API no more"
        return (Attempt("torch.ao.quantization", gone, "it was deprecated, and torchao took its place"),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own deprecation
        return _dynamic(), _static()


def _network() -> Any:
    import torch

    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()


def _dynamic() -> Attempt:
    import torch

    network = torch.ao.quantization.quantize_dynamic(_network(), {torch.nn.Conv2d}, dtype=torch.qint8)
    left = sum(type(one) is torch.nn.Conv2d for one in network.modules())
    outcome = f"no error, and {left} of 1 convolutions is an FP32 Conv2d as before"
    return Attempt(
        "quantize_dynamic(network, {Conv2d})", outcome, "it knows linear and recurrent layers, and passes over the others silently"
    )


def _static() -> Attempt:
    import torch

    network = _network()
    network.qconfig = torch.ao.quantization.get_default_qconfig("x86")
    prepared = torch.ao.quantization.prepare(network)
    inputs = torch.zeros(1, 3, 8, 8)
    prepared(inputs)
    try:
        torch.ao.quantization.convert(prepared)(inputs)
        outcome = "it ran"
    except (NotImplementedError, RuntimeError) as error:
        outcome = f"{type(error).__name__}: {str(error).splitlines()[0][:120]} …"
    cause = "the converted layer reads quantized tensors and is given floats: the network has no QuantStub and DeQuantStub around it"
    return Attempt("prepare(network), calibrate, convert, call", outcome, cause)

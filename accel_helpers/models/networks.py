"""The torch networks of the built-in models. Importing this imports torch, so only ``Model.build`` does."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

_EPS = 1e-3  # of every batch norm of EfficientNet, as in TensorFlow


class SentimentEncoder(nn.Module):  # type: ignore[misc]
    """A BERT encoder, a sentence embedding and a linear head on it.

    The embedding is the mean of the last hidden states over the tokens that the mask keeps, scaled to length one, as the
    sentence-transformers configuration of all-MiniLM-L6-v2 says.
    """

    def __init__(self, encoder: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(batch, sequence) int64 twice -> logits (batch, classes), sentence_embedding (batch, hidden)."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        embedding = functional.normalize(mean, dim=1)
        return self.head(embedding), embedding


class TinyCnn(nn.Module):  # type: ignore[misc]
    """Two strided convolutions with batch norm, pooling and a linear head."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )
        self.head = nn.Linear(32 * 16, classes)

    def features(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """(batch, 3, height, width) float32 -> what the head reads, (batch, 512)."""
        return self.body(pixel_values)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """(batch, 3, height, width) float32 -> logits (batch, classes)."""
        return self.head(self.features(pixel_values))


class TinyAttention(nn.Module):  # type: ignore[misc]
    """Two pre-norm transformer layers with a padding mask, mean pooling and a linear head."""

    def __init__(self, classes: int, vocabulary: int, positions: int, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.layers = nn.ModuleList([_Layer(width, heads) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def features(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(batch, sequence) int64 twice -> what the head reads, (batch, width)."""
        states = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1], device=input_ids.device))
        for layer in self.layers:
            states = layer(states, attention_mask)
        mask = attention_mask.unsqueeze(-1).to(states.dtype)
        return self.norm((states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(batch, sequence) int64 twice -> logits (batch, classes)."""
        return self.head(self.features(input_ids, attention_mask))


class _Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.before_attention(states)).chunk(3, -1)
        )
        kept = attention_mask[:, None, None, :].bool()
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=kept)
        states = states + self.out(attended.transpose(1, 2).flatten(-2))
        return states + self.mlp(self.before_mlp(states))


class _SameConv(nn.Conv2d):  # type: ignore[misc]
    """A bias-free convolution padded as TensorFlow's "SAME" does on even inputs: at stride 2, the odd pixel goes to the right and below."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding=kernel // 2 if stride == 1 else 0, groups=groups, bias=False)
        before, after = (kernel - stride) // 2, kernel - stride - (kernel - stride) // 2
        self.edges = (before, after, before, after)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return super().forward(pixels if self.stride == (1, 1) else functional.pad(pixels, self.edges))


class _InvertedResidual(nn.Module):  # type: ignore[misc]
    """Widen, filter each channel, narrow; the input is added where shapes agree. Without squeeze and excitation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        width = inputs * expand
        self.adds_input = stride == 1 and inputs == outputs
        self.expands = expand != 1
        if self.expands:
            self._expand_conv, self._bn0 = _SameConv(inputs, width, 1), nn.BatchNorm2d(width, eps=_EPS)
        self._depthwise_conv, self._bn1 = _SameConv(width, width, kernel, stride, groups=width), nn.BatchNorm2d(width, eps=_EPS)
        self._project_conv, self._bn2 = _SameConv(width, outputs, 1), nn.BatchNorm2d(outputs, eps=_EPS)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        wide = functional.relu6(self._bn0(self._expand_conv(pixels))) if self.expands else pixels
        wide = functional.relu6(self._bn1(self._depthwise_conv(wide)))
        narrow = self._bn2(self._project_conv(wide))
        return narrow + pixels if self.adds_input else narrow


class EfficientNetLite0(nn.Module):  # type: ignore[misc]
    """EfficientNet-Lite0 for 224 x 224 pictures; its state's names are those of the published PyTorch file.

    The stages are table 1 of Tan and Le, EfficientNet, ICML 2019, without squeeze and excitation and with ReLU6, as the Lite
    variants are.
    """

    STAGES = (
        (1, 3, 1, 1, 16),
        (2, 3, 2, 6, 24),
        (2, 5, 2, 6, 40),
        (3, 3, 2, 6, 80),
        (3, 5, 1, 6, 112),
        (4, 5, 2, 6, 192),
        (1, 3, 1, 6, 320),
    )
    """Repeats, kernel, stride of the first, expansion, outputs."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        width = 32
        self._conv_stem, self._bn0 = _SameConv(3, width, 3, stride=2), nn.BatchNorm2d(width, eps=_EPS)
        self._blocks = nn.ModuleList()
        for repeats, kernel, stride, expand, outputs in self.STAGES:
            for index in range(repeats):
                self._blocks.append(_InvertedResidual(width, outputs, kernel, stride if index == 0 else 1, expand))
                width = outputs
        self._conv_head, self._bn1 = _SameConv(width, 1280, 1), nn.BatchNorm2d(1280, eps=_EPS)
        self._fc = nn.Linear(1280, classes)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """(batch, 3, 224, 224) float32, scaled to [-1, 1] -> logits (batch, classes)."""
        pixels = functional.relu6(self._bn0(self._conv_stem(pixel_values)))
        for block in self._blocks:
            pixels = block(pixels)
        pixels = functional.relu6(self._bn1(self._conv_head(pixels)))
        return self._fc(pixels.mean(dim=(2, 3)))


class FirstOfText(nn.Module):  # type: ignore[misc]
    """A transformers network that reads tokens, cut to its first output."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(batch, sequence) int64 twice -> the logits or the last hidden state."""
        return self.network(input_ids=input_ids, attention_mask=attention_mask)[0]


class FirstOfPictures(nn.Module):  # type: ignore[misc]
    """A transformers network that reads pictures, cut to its first output."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) float32 -> the logits or the last hidden state."""
        return self.network(pixel_values=pixel_values)[0]


class Digits(nn.Module):  # type: ignore[misc]
    """Depthwise separable convolutions for 28 x 28 pictures, as MobileNet has them; ``folded`` is the same network for inference.

    A depthwise filter sees one channel, so the ranges of its channels differ widely once batch norm is folded into it.
    """

    WIDTHS = (16, 32, 96)

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers = _unit(1, self.WIDTHS[0], 3, 2)
        for inputs, outputs, stride in zip(self.WIDTHS, self.WIDTHS[1:], (2, 1), strict=False):
            layers += _unit(inputs, inputs, 3, stride, inputs) + _unit(inputs, outputs, 1)
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(self.WIDTHS[-1], classes)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """(batch, 1, 28, 28) float32 in [0, 1] -> logits (batch, classes)."""
        return self.head(self.body(pixel_values).mean(dim=(2, 3)))

    def folded(self) -> Digits:
        """This network with each batch norm folded into the convolution before it, in eval mode."""
        layers = list(self.eval().body)
        pairs = zip(layers[::3], layers[1::3], strict=True)
        kept = [layer for conv, norm in pairs for layer in (torch.nn.utils.fuse_conv_bn_eval(conv, norm), nn.ReLU())]
        self.body = nn.Sequential(*kept)
        return self


def _unit(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]

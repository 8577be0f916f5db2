"""The decoder of nanoGPT in PyTorch, its initialization and its optimizer."""

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["NanoGpt", "Sizes", "make_adamw"]


class Sizes(NamedTuple):
    """Sizes of a decoder."""

    layers: int
    heads: int
    width: int
    length: int
    vocab_size: int


class Layer(nn.Module):
    """Causal attention and a feed-forward layer, each behind a norm."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv, self.out, self.up, self.down = (
            nn.Linear(rows * width, columns * width, bias=False)
            for rows, columns in ((1, 3), (1, 1), (1, 4), (4, 1))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [B, T, D] to [B, T, D]."""
        batch, length, _ = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        mixed = F.scaled_dot_product_attention(*heads.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class NanoGpt(nn.Module):
    """Learned positions, pre-norm, GELU, no biases, tied embeddings."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab_size, sizes.width)
        self.positions = nn.Embedding(sizes.length, sizes.width)
        self.layers = nn.Sequential(*(Layer(sizes.heads, sizes.width) for _ in range(sizes.layers)))
        self.norm = nn.LayerNorm(sizes.width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                is_output = name.endswith(("out.weight", "down.weight"))
                narrow = math.sqrt(2 * sizes.layers) if is_output else 1
                nn.init.normal_(parameter, std=0.02 / narrow)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean loss of [B, T] tokens."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        logits = self.norm(self.layers(x)) @ self.tokens.weight.T
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def make_adamw(model: nn.Module, rate: float, beta2: float) -> torch.optim.AdamW:
    """AdamW without weight decay of vectors."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}
    ]  # fmt: skip
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, beta2))

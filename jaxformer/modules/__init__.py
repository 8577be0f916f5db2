"""Flax Linen twins of the pure functions: parameters plus one call."""

from jaxformer.modules.attention import AttentionContext, MultiHeadAttention
from jaxformer.modules.block import Block
from jaxformer.modules.embedding import Embedding
from jaxformer.modules.feed_forward import FeedForward
from jaxformer.modules.normalization import Norm
from jaxformer.modules.positions import AddPositions, PositionBias, rotary_for
from jaxformer.modules.stack import Stack, stack_layers, unstack_layers

__all__ = [
    "AddPositions",
    "AttentionContext",
    "Block",
    "Embedding",
    "FeedForward",
    "MultiHeadAttention",
    "Norm",
    "PositionBias",
    "Stack",
    "rotary_for",
    "stack_layers",
    "unstack_layers",
]

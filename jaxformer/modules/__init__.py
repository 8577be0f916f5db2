"""Flax Linen twins of the pure functions: parameters plus one call."""

from jaxformer.modules.attention import AttentionContext, CrossAttention, MultiHeadAttention
from jaxformer.modules.block import AttentionWeights, Block
from jaxformer.modules.embedding import Embedding
from jaxformer.modules.feed_forward import FeedForward
from jaxformer.modules.normalization import Norm
from jaxformer.modules.positions import AddPositions, PositionBias, rotary_for
from jaxformer.modules.stack import Stack, stack_layers, unstack_layers

__all__ = [
    "AddPositions",
    "AttentionContext",
    "AttentionWeights",
    "Block",
    "CrossAttention",
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

"""Flax Linen modules: parameters plus one call of the pure functions."""

from jaxformer.modules.attention import AttentionContext, CrossAttention, MultiHeadAttention
from jaxformer.modules.block import AttentionWeights, Block, BlockOutput
from jaxformer.modules.embedding import Embedding
from jaxformer.modules.execution import layer_execution
from jaxformer.modules.experts import ExpertsFeedForward
from jaxformer.modules.feed_forward import FeedForward
from jaxformer.modules.normalization import Norm
from jaxformer.modules.pooling import Pooler
from jaxformer.modules.positions import (
    AlibiPositions,
    LearnedPositions,
    Positions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    make_positions,
)
from jaxformer.modules.stack import Stack
from jaxformer.modules.stacked_layers import ScannedCache

__all__ = [
    "AlibiPositions",
    "AttentionContext",
    "AttentionWeights",
    "Block",
    "BlockOutput",
    "CrossAttention",
    "Embedding",
    "ExpertsFeedForward",
    "FeedForward",
    "LearnedPositions",
    "MultiHeadAttention",
    "Norm",
    "Pooler",
    "Positions",
    "RelativePositions",
    "RotaryPositions",
    "ScannedCache",
    "SinusoidalPositions",
    "Stack",
    "layer_execution",
    "make_positions",
]

"""Pure functions on arrays: attention, masks, positions, normalization, feed-forward, losses."""

from jaxformer.functional.attention import (
    RingLayout,
    attention_implementation,
    attention_mask,
    attention_weights,
    dot_product_attention,
    from_ring_order,
    ring_attention,
    ring_positions,
    sharded_attention,
    sharded_ring_attention,
    to_ring_order,
)
from jaxformer.functional.embedding import embed, unembed
from jaxformer.functional.experts import (
    ExpertsLayout,
    ExpertsOutput,
    ExpertsParams,
    mixture_of_experts,
)
from jaxformer.functional.feed_forward import (
    FeedForwardParams,
    GatedFeedForwardParams,
    feed_forward,
    gated_feed_forward,
)
from jaxformer.functional.linear import Kernel, LowRankKernel, linear
from jaxformer.functional.losses import chunked_cross_entropy, cross_entropy
from jaxformer.functional.masks import Causal, Lengths, Mask, Prefix, Rule, Segments, Window
from jaxformer.functional.multi_head import (
    AttentionFunction,
    CachedKeys,
    KVCache,
    MultiHeadOutput,
    MultiHeadParams,
    Rotation,
    WindowCache,
    multi_head_attention,
    project_memory,
)
from jaxformer.functional.normalization import layer_norm, rms_norm
from jaxformer.functional.pooling import pool
from jaxformer.functional.positions.biases import (
    AlibiBias,
    RelativeBias,
    alibi_bias,
    alibi_slopes,
    relative_position_buckets,
)
from jaxformer.functional.positions.scaling import (
    LinearScaling,
    Llama3Scaling,
    LongropeScaling,
    RotaryScaling,
    YarnScaling,
)
from jaxformer.functional.positions.sinusoids import (
    apply_rotary,
    rotary_tables,
    sinusoidal_positions,
)
from jaxformer.functional.taps import LayerTaps

__all__ = [
    "Window",
    "Segments",
    "Rule",
    "Prefix",
    "Mask",
    "Lengths",
    "Causal",
    "AlibiBias",
    "AttentionFunction",
    "CachedKeys",
    "ExpertsLayout",
    "ExpertsOutput",
    "ExpertsParams",
    "FeedForwardParams",
    "GatedFeedForwardParams",
    "KVCache",
    "Kernel",
    "LayerTaps",
    "LinearScaling",
    "LowRankKernel",
    "Llama3Scaling",
    "LongropeScaling",
    "MultiHeadOutput",
    "MultiHeadParams",
    "RelativeBias",
    "RingLayout",
    "RotaryScaling",
    "Rotation",
    "WindowCache",
    "YarnScaling",
    "alibi_bias",
    "alibi_slopes",
    "apply_rotary",
    "attention_implementation",
    "attention_mask",
    "attention_weights",
    "chunked_cross_entropy",
    "cross_entropy",
    "dot_product_attention",
    "embed",
    "feed_forward",
    "from_ring_order",
    "gated_feed_forward",
    "layer_norm",
    "linear",
    "mixture_of_experts",
    "multi_head_attention",
    "pool",
    "project_memory",
    "relative_position_buckets",
    "ring_attention",
    "ring_positions",
    "rms_norm",
    "rotary_tables",
    "sharded_attention",
    "sharded_ring_attention",
    "sinusoidal_positions",
    "to_ring_order",
    "unembed",
]

"""Scaled dot-product attention: one contract, several implementations."""

from jaxformer.functional.attention.dot_product import (
    attention_mask,
    attention_weights,
    dot_product_attention,
)
from jaxformer.functional.attention.inputs import AttentionKeywords, Bias, add_biases
from jaxformer.functional.attention.program import attention_implementation
from jaxformer.functional.attention.ring.local import ring_attention
from jaxformer.functional.attention.ring.order import from_ring_order, ring_positions, to_ring_order
from jaxformer.functional.attention.ring.sharded_ring import RingLayout, sharded_ring_attention
from jaxformer.functional.attention.sharded import sharded_attention

__all__ = [
    "AttentionKeywords",
    "Bias",
    "RingLayout",
    "add_biases",
    "attention_implementation",
    "attention_mask",
    "attention_weights",
    "dot_product_attention",
    "from_ring_order",
    "ring_attention",
    "ring_positions",
    "sharded_attention",
    "sharded_ring_attention",
    "to_ring_order",
]

"""Scaled dot-product attention: one contract, several implementations."""

from jaxformer.functional.attention.choice import Choice, Implementation, attention_implementation
from jaxformer.functional.attention.dot_product import (
    attention_mask,
    attention_weights,
    dot_product_attention,
)
from jaxformer.functional.attention.inputs import AttentionOptions, Lengths, WindowSize
from jaxformer.functional.attention.ring import ring_attention
from jaxformer.functional.attention.ring_order import (
    from_ring_order,
    ring_positions,
    to_ring_order,
)
from jaxformer.functional.attention.sharded_ring import sharded_ring_attention

__all__ = [
    "AttentionOptions",
    "Choice",
    "Implementation",
    "Lengths",
    "WindowSize",
    "attention_implementation",
    "attention_mask",
    "attention_weights",
    "dot_product_attention",
    "from_ring_order",
    "ring_attention",
    "ring_positions",
    "sharded_ring_attention",
    "to_ring_order",
]

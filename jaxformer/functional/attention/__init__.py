"""Scaled dot-product attention: one contract, several implementations."""

from jaxformer.functional.attention.choice import Choice, Implementation, attention_implementation
from jaxformer.functional.attention.dot_product import (
    attention_mask,
    attention_weights,
    dot_product_attention,
)
from jaxformer.functional.attention.inputs import AttentionOptions, Lengths, WindowSize

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
]

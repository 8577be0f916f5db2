"""Scaled dot-product attention: one contract, several implementations."""

from jaxformer.functional.attention.choice import Choice, Implementation, attention_implementation
from jaxformer.functional.attention.dot_product import attention_weights, dot_product_attention

__all__ = [
    "Choice",
    "Implementation",
    "attention_implementation",
    "attention_weights",
    "dot_product_attention",
]

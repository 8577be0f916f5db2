"""Attention masks as rules, which attention evaluates only for the blocks that it computes.

True = attend. A rule stands in place of a `[T, S]` array as the argument `mask` of attention and of
models. Rules combine by `&`, `|` and `~`, also with boolean arrays. Query i and key j are at
positions i and j of their sequences; with a cache, at their positions among all cached tokens.
"""

from jaxformer.functional.masks.base import Mask
from jaxformer.functional.masks.rules import Causal, Lengths, Prefix, Rule, Segments, Window

__all__ = ["Causal", "Lengths", "Mask", "Prefix", "Rule", "Segments", "Window"]

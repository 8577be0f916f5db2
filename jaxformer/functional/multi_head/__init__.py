"""The multi-head attention layer, its key/value caches, and attention functions of one's own."""

from jaxformer.functional.multi_head.attention_function import AttentionFunction
from jaxformer.functional.multi_head.cache import CachedKeys, KVCache
from jaxformer.functional.multi_head.layer import MultiHeadOutput, multi_head_attention
from jaxformer.functional.multi_head.projections import MultiHeadParams, Rotation, project_memory
from jaxformer.functional.multi_head.window_cache import WindowCache

__all__ = [
    "AttentionFunction",
    "CachedKeys",
    "KVCache",
    "MultiHeadOutput",
    "MultiHeadParams",
    "Rotation",
    "WindowCache",
    "multi_head_attention",
    "project_memory",
]

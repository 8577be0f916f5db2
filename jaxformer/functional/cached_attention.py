"""Attention arguments set by a cache: offset, lengths, mask of unwritten slots."""

import jax

from jaxformer.errors import ShapeError
from jaxformer.functional.attention_function import AttentionKeywords
from jaxformer.functional.cache import KVCache, WindowCache
from jaxformer.functional.masks import combine, window_sides
from jaxformer.functional.shapes import Array

__all__ = ["check_cached", "with_cache", "with_cross_cache", "with_window_cache"]


def with_cross_cache(options: AttentionKeywords, cross_cache: KVCache) -> AttentionKeywords:
    """Adds the lengths of a cross-attention cache."""
    if options.get("key_value_seq_lengths") is not None:
        raise ShapeError(
            "key_value_seq_lengths must be left out with a cross_cache, which has its own, got both"
        )
    return {**options, "key_value_seq_lengths": cross_cache.lengths}


def check_cached(options: AttentionKeywords, crosses: str, mask: Array | None) -> None:
    """Checks that a call with a cache is self-attention without its own offset or lengths."""
    is_causal = options.get("is_causal", False)
    if crosses or (not is_causal and mask is None):
        raise ShapeError(
            f"a cache is for causal self-attention, got is_causal={is_causal}"
            + (f" and {crosses}" if crosses else "")
            + "; set is_causal=True (or pass the mask of another structure) and pass query_inputs "
            "only"
        )
    for name in ("query_offset", "query_seq_lengths", "key_value_seq_lengths"):
        if options.get(name) is not None:
            raise ShapeError(
                f"{name} must be left out with a cache, which has its own, got both; "
                "pass num_tokens for rows of unequal length"
            )


def with_cache(
    options: AttentionKeywords, cache: KVCache, num_queries: int, num_tokens: jax.Array | None
) -> AttentionKeywords:
    """Adds the query offset and lengths of a cache that has the new tokens already."""
    options = {
        **options,
        "query_seq_lengths": num_tokens,
        "key_value_seq_lengths": cache.lengths,
    }
    if options.get("is_causal") or options.get("local_window_size") is not None:
        new = num_queries if num_tokens is None else num_tokens
        options["query_offset"] = cache.lengths - new
    return options


def with_window_cache(
    options: AttentionKeywords, cache: WindowCache, num_queries: int, num_tokens: jax.Array | None,
    mask: Array | None,
) -> tuple[AttentionKeywords, jax.Array | None]:  # fmt: skip
    """Adds offset, lengths and slot mask of a window cache without the new tokens."""
    left, _ = window_sides("local_window_size", options.get("local_window_size"))
    if left != cache.window:
        raise ShapeError(
            "a WindowCache needs local_window_size with its own left side, got "
            f"{options.get('local_window_size')} and a cache of {cache.window} tokens"
        )
    # Distances between slots are fixed, so the first query is at slot W in every row.
    options = {**options, "query_offset": cache.window, "query_seq_lengths": num_tokens}
    if num_tokens is not None:
        options["key_value_seq_lengths"] = cache.window + num_tokens
    written = cache.written(num_queries)
    return options, written if mask is None else combine(mask, written)

"""Attention to the keys of a cache: arguments that the cache sets, and checks of such a call."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.errors import ShapeError
from jaxformer.functional.attention import AttentionKeywords, add_biases
from jaxformer.functional.attention.inputs import split_bias
from jaxformer.functional.checks import check_axes
from jaxformer.functional.masks.base import AnyMask, Mask, Moved, all_rules
from jaxformer.functional.masks.checks import window_sides
from jaxformer.functional.multi_head.attention_function import AttentionCall, uses_positions
from jaxformer.functional.multi_head.cache import KVCache, read_layer
from jaxformer.functional.multi_head.window_cache import WindowCache

Cache = KVCache | WindowCache


def read_memory(
    cross_cache: KVCache, query: jax.Array, num_kv_heads: int, options: AttentionKeywords
) -> tuple[jax.Array, jax.Array, AttentionKeywords]:
    """Keys `[B, S, K, H]` and values `[B, S, K, Hv]` of a cross-attention cache; options."""
    sizes = {"B": query.shape[0], "K": num_kv_heads, "H": query.shape[-1]}
    heads_first = read_layer(cross_cache.key, cross_cache.layer)  # [B, K, S, H]
    check_axes("cross_cache.key", heads_first, "B K S H", sizes)
    if options.get("key_value_seq_lengths") is not None:
        raise ShapeError(
            "key_value_seq_lengths must be left out with a cross_cache, which has its own, got both"
        )
    key, value = (array.astype(query.dtype) for array in cross_cache.keys_and_values)
    return key, value, {**options, "key_value_seq_lengths": cross_cache.lengths}


def check_sources(
    key_value_inputs: Any, cross_cache: Any, cache: Any, rotary: Any, num_tokens: Any,
    mask: AnyMask | None, options: AttentionKeywords,
) -> None:  # fmt: skip
    """Checks where keys and values come from, and that a call with a cache fits it."""
    if not isinstance(cache, Cache | None):
        raise ShapeError(f"cache must be a KVCache or WindowCache, got {type(cache).__name__}")
    if not isinstance(cross_cache, KVCache | None):
        raise ShapeError(f"cross_cache must be a KVCache, got {type(cross_cache).__name__}")
    sources = {"key_value_inputs": key_value_inputs, "cross_cache": cross_cache}
    cross = [name for name, source in sources.items() if source is not None]
    if len(cross) == 2:
        raise ShapeError("cross_cache replaces key_value_inputs, got both; leave one out")
    if cross and rotary is not None:
        raise ShapeError(f"rotary is for self-attention, got {cross[0]} as well")
    if cross and cache is not None:
        raise ShapeError(f"a cache is for self-attention, got {cross[0]} as well")
    if cache is not None:
        _check_cached(cache, mask, options)
    elif num_tokens is not None:
        raise ShapeError(
            "num_tokens goes with a cache, got none; pass query_seq_lengths and "
            "key_value_seq_lengths"
        )


def _check_cached(cache: Cache, mask: AnyMask | None, options: AttentionKeywords) -> None:
    """Checks that a call fits the cache, and has no offset or lengths of its own."""
    if mask is None and not options.get("is_causal"):
        raise ShapeError(
            "a cache is for causal self-attention, got is_causal=False; set is_causal=True "
            "(or pass the mask of another structure)"
        )
    for name in ("query_offset", "query_seq_lengths", "key_value_seq_lengths"):
        if options.get(name) is not None:
            raise ShapeError(
                f"{name} must be left out with a cache, which has its own, got both; "
                "pass num_tokens for rows of unequal length"
            )
    left, _ = window_sides("local_window_size", options.get("local_window_size"))
    if isinstance(cache, WindowCache) and left != cache.window:
        raise ShapeError(
            "a WindowCache needs local_window_size with its own left side, got "
            f"{options.get('local_window_size')} and a cache of {cache.window} tokens"
        )


def with_cached_keys(
    call: AttentionCall,  # to the new tokens, key [B, T, K, H]; bias and mask have all slots
    cache: Cache,  # keys and values of earlier tokens
    num_tokens: jax.Array | None,  # int [B], real tokens among the T of each row; None = all
    *,
    in_order: bool,  # whether keys must be in order of position; a ring is out of order
) -> tuple[AttentionCall, Cache]:
    """The call with the keys that new tokens attend to, and the cache with the new ones."""
    # 1. Append the tokens. Masks, biases and segments go by positions: with one, keys are in order.
    if cache.is_empty:
        call = _to_new_tokens(call, cache)
    by_position = call.mask, call.bias, call.options.get("key_value_segment_ids")
    in_order = in_order or any(array is not None for array in by_position)
    keys, longer = cache.extend(call.key, call.value, num_tokens, in_order=in_order)
    # 2. The mask of these keys.
    mask = call.mask
    if isinstance(mask, Mask) and not cache.is_empty:
        # The rule's positions count all tokens, of which `lengths` came before the new ones.
        first_key = cache.lengths - keys.query_offset if isinstance(cache, WindowCache) else 0
        mask = Moved(mask, cache.lengths, first_key)
    mask = all_rules(mask, keys.mask)
    # 3. Lengths, and the position of the first query where it counts.
    options: AttentionKeywords = {
        **call.options, "query_seq_lengths": num_tokens, "key_value_seq_lengths": keys.lengths,
    }  # fmt: skip
    if not keys.in_order:  # the mask alone hides keys
        options = {**options, "is_causal": False, "local_window_size": None}
    if split_bias(call.bias)[1] is not None or uses_positions(options):
        options["query_offset"] = keys.query_offset
    dtype = call.query.dtype
    key, value = keys.key.astype(dtype), keys.value.astype(dtype)  # [B, S, K, H], [B, S, K, Hv]
    return AttentionCall(call.query, key, value, call.bias, mask, options), longer


def _to_new_tokens(call: AttentionCall, cache: Cache) -> AttentionCall:
    """Bias and mask for the keys of an empty cache, the new ones; those of `by_slot` fit."""
    num_tokens = call.key.shape[1]
    first, num_slots = _slots_of_empty(cache, num_tokens)

    def new_keys(array: Any) -> Any:
        if getattr(array, "ndim", 0) == 0 or array.shape[-1] != num_slots:
            return array
        return array[..., first : first + num_tokens]

    array, position_bias = split_bias(call.bias)
    bias = add_biases(new_keys(array), position_bias)
    return call._replace(bias=bias, mask=new_keys(call.mask))


def with_empty_slots(cache: Cache, weights: jax.Array) -> jax.Array:
    """Weights `[..., T]` of the keys of new tokens with those of unwritten slots, which are 0."""
    num_tokens = weights.shape[-1]
    first, full = _slots_of_empty(cache, num_tokens)
    pad = (first, full - first - num_tokens)
    return jnp.pad(weights, [(0, 0)] * (weights.ndim - 1) + [pad])


def _slots_of_empty(cache: Cache, num_tokens: int) -> tuple[int, int]:
    """First slot of new tokens in an empty cache, and number of slots."""
    if isinstance(cache, WindowCache):
        return cache.window, cache.window + num_tokens
    return 0, cache.capacity

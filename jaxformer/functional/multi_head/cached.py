"""Attention arguments that a cache sets, and checks of a call with one."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.errors import ShapeError
from jaxformer.functional.attention import AttentionKeywords, Bias, add_biases
from jaxformer.functional.attention.inputs import split_bias
from jaxformer.functional.checks import Array
from jaxformer.functional.masks.base import AnyMask, Mask, Moved
from jaxformer.functional.masks.checks import window_sides
from jaxformer.functional.masks.tiles import to_rank
from jaxformer.functional.multi_head.cache import CachedKeys, KVCache
from jaxformer.functional.multi_head.window_cache import WindowCache


def with_cross_cache(options: AttentionKeywords, cross_cache: KVCache) -> AttentionKeywords:
    """Adds the lengths of a cross-attention cache."""
    if options.get("key_value_seq_lengths") is not None:
        raise ShapeError(
            "key_value_seq_lengths must be left out with a cross_cache, which has its own, got both"
        )
    return {**options, "key_value_seq_lengths": cross_cache.lengths}


def check_cached(
    options: AttentionKeywords,
    cache: KVCache | WindowCache,
    crosses: str,
    mask: AnyMask | None,
) -> None:
    """Checks that a call is self-attention that fits the cache, without own offset or lengths."""
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
    left, _ = window_sides("local_window_size", options.get("local_window_size"))
    if isinstance(cache, WindowCache) and left != cache.window:
        raise ShapeError(
            "a WindowCache needs local_window_size with its own left side, got "
            f"{options.get('local_window_size')} and a cache of {cache.window} tokens"
        )


def of_new_tokens(
    cache: KVCache | WindowCache, bias: Bias | None, mask: AnyMask | None, num_tokens: int
) -> tuple[Bias | None, AnyMask | None]:
    """Bias and mask for the keys of new tokens alone, which those of an empty cache are."""
    first, full = _slots_of_empty(cache, num_tokens)

    def new_keys(array: Any) -> Any:
        if getattr(array, "ndim", 0) == 0 or array.shape[-1] != full:
            return array
        return array[..., first : first + num_tokens]

    array, position_bias = split_bias(bias)
    return add_biases(new_keys(array), position_bias), new_keys(mask)


def with_empty_slots(cache: KVCache | WindowCache, weights: jax.Array) -> jax.Array:
    """Weights `[..., T]` of the keys of new tokens with those of unwritten slots, which are 0."""
    num_tokens = weights.shape[-1]
    first, full = _slots_of_empty(cache, num_tokens)
    pad = (first, full - first - num_tokens)
    return jnp.pad(weights, [(0, 0)] * (weights.ndim - 1) + [pad])


def _slots_of_empty(cache: KVCache | WindowCache, num_tokens: int) -> tuple[int, int]:
    """First slot of new tokens in an empty cache, and number of slots."""
    if isinstance(cache, WindowCache):
        return cache.window, cache.window + num_tokens
    return 0, cache.capacity


def in_slot_order(
    options: AttentionKeywords, keys: CachedKeys, bias: Bias | None, mask: AnyMask | None
) -> tuple[AttentionKeywords, Bias | None, AnyMask | None]:
    """Options, bias and mask for the keys of a ring, which `CachedKeys.mask` alone hides."""
    if keys.order is None:
        return options, bias, mask
    order = keys.order[:, None, None]
    options = {**options, "is_causal": False, "local_window_size": None}

    def reorder(array: Array) -> jax.Array:
        array = to_rank(jnp.asarray(array), 4)
        if array.shape[-1] == 1:
            return array
        array = jnp.broadcast_to(array, (order.shape[0], *array.shape[1:]))
        return jnp.take_along_axis(array, order, axis=-1)

    array, position_bias = split_bias(bias)
    bias = None if array is None else reorder(array)
    if position_bias is not None:
        by_distance = reorder(position_bias.array(1, order.shape[-1], keys.query_offset))
        bias = by_distance if bias is None else bias + by_distance
    if mask is None or isinstance(mask, Mask):  # no rule comes to a ring
        return options, bias, mask
    return options, bias, reorder(mask)


def with_cached_keys(
    options: AttentionKeywords, keys: CachedKeys, num_tokens: jax.Array | None,
    *, has_position_bias: bool,
) -> AttentionKeywords:  # fmt: skip
    """Adds the query offset and lengths for queries that attend to the keys of a cache."""
    options = {
        **options,
        "query_seq_lengths": num_tokens,
        "key_value_seq_lengths": keys.lengths,
    }
    if has_position_bias or uses_positions(options):
        options["query_offset"] = keys.query_offset
    return options


def uses_positions(options: AttentionKeywords) -> bool:
    """Whether a call depends on query_offset without a position bias."""
    return bool(options.get("is_causal")) or options.get("local_window_size") is not None


def with_cached_positions(
    mask: AnyMask | None, keys: CachedKeys, lengths: jax.Array, cache: KVCache | WindowCache
) -> AnyMask | None:
    """A rule for positions among all tokens, `lengths` of which came before, for those of keys."""
    if not isinstance(mask, Mask) or (isinstance(keys.query_offset, int) and not keys.query_offset):
        return mask
    first_key = lengths - keys.query_offset if isinstance(cache, WindowCache) else 0
    return Moved(mask, lengths, first_key)

"""Key/value cache of one attention layer with a sliding window."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.functional.checks import Array, check_size
from jaxformer.functional.multi_head.cache import (
    CachedKeys,
    KVCache,
    checked_new_tokens,
    swap_heads,
)


class WindowCache(NamedTuple):
    """Key/value cache of a sliding window: the last W tokens of every row.

    The newest token is in the last slot, so a slot has the same distance to the next token in all
    rows. If a row has fewer than W tokens, its first slots are unwritten. Heads come before slots,
    as in a `KVCache`.

    Args:
        key: float `[B, K, W, H]`.
        value: float `[B, K, W, Hv]`.
        lengths: int32 `[B]`, tokens of each row so far, including those no longer held.

    References:
        Jiang et al., "Mistral 7B", 2023 (rolling buffer cache).

    Example:
        >>> cache = WindowCache.init(2, 4, num_kv_heads=1, head_dim=4)
        >>> cache = cache.append(jnp.ones((2, 9, 1, 4)), jnp.ones((2, 9, 1, 4)))
        >>> cache.key.shape, cache.lengths.tolist()
        ((2, 1, 4, 4), [9, 9])
    """

    key: jax.Array
    value: jax.Array
    lengths: jax.Array

    @classmethod
    def init(
        cls, batch_size: int, window: int, *, num_kv_heads: int, head_dim: int,
        value_head_dim: int | None = None, dtype: jax.typing.DTypeLike = jnp.float32,
    ) -> "WindowCache":  # fmt: skip
        """Makes an empty cache; arguments and errors are those of `KVCache.init`, but for `window`.

        `window` is W, how many tokens before itself a query may attend to.
        """
        check_size("window", window)
        return cls(*KVCache.init(
            batch_size, window, num_kv_heads=num_kv_heads, head_dim=head_dim,
            value_head_dim=value_head_dim, dtype=dtype,
        ))  # fmt: skip

    @property
    def window(self) -> int:
        """W, number of tokens held before the next one."""
        return self.key.shape[2]

    def append(
        self, key: jax.Array, value: jax.Array, num_tokens: Array | None = None
    ) -> "WindowCache":
        """Appends new tokens to every row, and keeps the last W.

        Arguments and errors are those of `KVCache.append`, but no row can overflow, and a traced
        num_tokens beyond T counts as T.
        """
        return self.extend(key, value, num_tokens)[1]

    def extend(
        self, key: jax.Array, value: jax.Array, num_tokens: Array | None = None
    ) -> tuple[CachedKeys, "WindowCache"]:
        """Appends new tokens, which attend to the held ones followed by the new, `[B, W + T, ...]`.

        Distances between slots are fixed, so the first query is at slot W in every row.
        """
        has_unequal_rows = num_tokens is not None
        num_tokens = checked_new_tokens(self, key, value, num_tokens).clip(0, key.shape[1])

        def last(joined: jax.Array) -> jax.Array:
            # Unwritten slots move along and stay in front of a short row's tokens.
            slots = num_tokens[:, None] + jnp.arange(self.window, dtype=num_tokens.dtype)[None]
            return jnp.take_along_axis(joined, slots[:, None, :, None], axis=2)

        new_keys, new_values = swap_heads(key), swap_heads(value)
        keys = jnp.concatenate([self.key, new_keys.astype(self.key.dtype)], axis=2)
        values = jnp.concatenate([self.value, new_values.astype(self.value.dtype)], axis=2)
        longer = WindowCache(last(keys), last(values), self.lengths + num_tokens)
        lengths = self.window + num_tokens if has_unequal_rows else None
        mask = self.written(key.shape[1])
        return CachedKeys(swap_heads(keys), swap_heads(values), self.window, lengths, mask), longer

    def key_layout(self, num_tokens: int) -> tuple[int, int | jax.Array]:
        """Number of keys that new tokens attend to, and index of the first new one among them."""
        return self.window + num_tokens, self.window

    def written(self, num_tokens: int) -> jax.Array:
        """Mask of the slots that hold tokens, with T new ones.

        Args:
            num_tokens: T.

        Returns:
            bool `[B, 1, 1, W + T]`, False where a row has no token yet.
        """
        first = (self.window - self.lengths).clip(0)
        slots = jnp.arange(self.window + num_tokens, dtype=jnp.int32)
        return (slots[None] >= first[:, None])[:, None, None]

    def by_slot(self, array: jax.Array, num_tokens: int) -> jax.Array:
        """Reorders the key axis of a mask or bias from positions to slots.

        Args:
            array: `[B or 1, N or 1, T or 1, S or 1]`, S keys from position 0 on.
            num_tokens: T, how many tokens are about to be appended.

        Returns:
            `[B, N or 1, T or 1, W + T]`; unchanged if the last axis is 1. Unwritten slots have the
            first key's value. Tokens beyond S are False in a mask and NaN in a bias, like those
            beyond the capacity of a `KVCache`.
        """
        if array.shape[-1] == 1:
            return array
        slots = jnp.arange(self.window + num_tokens, dtype=jnp.int32)
        position = (self.lengths - self.window)[:, None] + slots[None]
        position = position.clip(0)[:, None, None]
        array = jnp.broadcast_to(array, (position.shape[0], *array.shape[1:]))
        beyond = False if array.dtype == bool else jnp.nan
        return jnp.take_along_axis(array, position, axis=-1, mode="fill", fill_value=beyond)

"""Key/value cache of one attention layer with a sliding window."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.functional.checks import Array, check_size
from jaxformer.functional.multi_head.cache import (
    CachedKeys,
    KVCache,
    checked_new_tokens,
    has_no_tokens,
    read_layer,
    swap_heads,
    write_first_slots,
    write_slots,
)


class WindowCache(NamedTuple):
    """Key/value cache of a sliding window, a ring: W tokens of every row, and the newest one.

    The token at position p is in slot p mod (W + 1), so that a new token takes the place of the one
    that has just left the window, and nothing else is moved. Heads come before slots, as in a
    `KVCache`.

    Args:
        key: float `[B, K, W + 1, H]`.
        value: float `[B, K, W + 1, Hv]`.
        lengths: int32 `[B]`, tokens of each row so far, including those no longer held.
        layer: index of this layer among several, as in a `KVCache`.

    References:
        Jiang et al., "Mistral 7B", 2023 (rolling buffer cache).

    Example:
        >>> cache = WindowCache.init(2, 4, num_kv_heads=1, head_dim=4)
        >>> _, cache = cache.extend(jnp.ones((2, 9, 1, 4)), jnp.ones((2, 9, 1, 4)))
        >>> cache.key.shape, cache.lengths.tolist()
        ((2, 1, 5, 4), [9, 9])
    """

    key: jax.Array
    value: jax.Array
    lengths: jax.Array
    layer: int | jax.Array | None = None

    @classmethod
    def init(
        cls, batch_size: int, window: int, *, num_kv_heads: int, head_dim: int,
        value_head_dim: int | None = None, dtype: jax.typing.DTypeLike = jnp.float32,
    ) -> "WindowCache":  # fmt: skip
        """Makes an empty cache; arguments and errors are those of `KVCache.init`, but for `window`.

        `window` is W, how many tokens before itself a query may attend to.
        """
        window = check_size("window", window)
        return cls(*KVCache.init(
            batch_size, window + 1, num_kv_heads=num_kv_heads, head_dim=head_dim,
            value_head_dim=value_head_dim, dtype=dtype,
        ))  # fmt: skip

    @property
    def window(self) -> int:
        """W, number of tokens held before the newest one."""
        return self.key.shape[-2] - 1

    @property
    def is_empty(self) -> bool:
        """Whether no row has a token yet, as far as it is known when the program is traced."""
        return has_no_tokens(self.lengths)

    def extend(
        self, key: jax.Array, value: jax.Array, num_tokens: Array | None = None,
        *, in_order: bool = True,
    ) -> tuple[CachedKeys, "WindowCache"]:  # fmt: skip
        """Appends new tokens, which attend to the W before them, and keeps the last W + 1.

        Arguments and errors are those of `KVCache.extend`, but no row can overflow, and a traced
        num_tokens beyond T counts as T.

        Keys are in order of position, `[B, W + T, K, H]`, with the first query at slot W. If they
        need not be `in_order`, a single token attends to the ring as it is, by the mask alone. Keys
        of a cache that is known to be empty are the new ones.
        """
        has_unequal_rows = num_tokens is not None
        num_new = key.shape[1]
        num_tokens = checked_new_tokens(self, key, value, num_tokens).clip(0, num_new)  # [B]
        if num_new == 1 and not in_order and not self.is_empty:
            return self._extend_in_place(key, value, num_tokens)
        lengths, num_old = self.lengths + num_tokens, 0 if self.is_empty else self.window
        positions = self.lengths[:, None] + jnp.arange(-num_old, num_new, dtype=jnp.int32)[None]
        keys, values, is_written = key, value, None
        if not self.is_empty:
            slots = positions[:, :num_old] % (self.window + 1)  # [B, W]
            keys, values = (  # [B, W + T, K, H]
                jnp.concatenate([_take_slots(old, slots), new.astype(old.dtype)], axis=1)
                for old, new in zip(self.keys_and_values, (key, value), strict=True)
            )
            is_written = (positions >= 0)[:, None, None]  # [B, 1, 1, W + T]
        first = (self.lengths - num_old)[:, None]  # position of the first of the keys
        index = (self._positions(lengths) - first).clip(0)  # [B, W + 1]

        def write(buffer: jax.Array, joined: jax.Array) -> jax.Array:
            block = swap_heads(_take_slots(joined, index).astype(buffer.dtype))
            return write_first_slots(buffer, block, self.layer)

        longer = WindowCache(write(self.key, keys), write(self.value, values), lengths, self.layer)
        num_keys = num_old + num_tokens if has_unequal_rows else None
        return CachedKeys(keys, values, num_old, num_keys, is_written), longer

    def _extend_in_place(
        self, key: jax.Array, value: jax.Array, num_tokens: jax.Array
    ) -> tuple[CachedKeys, "WindowCache"]:
        """As `extend`, of one token, which attends to the ring as it is."""
        lengths, size = self.lengths + num_tokens, self.window + 1
        slots = jnp.where(num_tokens > 0, self.lengths % size, size)[:, None]  # [B, 1]
        new_key, new_value = (
            write_slots(buffer, new.astype(buffer.dtype), slots, self.layer)
            for buffer, new in ((self.key, key), (self.value, value))
        )
        longer = WindowCache(new_key, new_value, lengths, self.layer)
        is_written = (self._positions(lengths) >= 0)[:, None, None]  # [B, 1, 1, W + 1]
        keys, values = longer.keys_and_values
        return CachedKeys(keys, values, self.window, None, is_written, in_order=False), longer

    @property
    def keys_and_values(self) -> tuple[jax.Array, jax.Array]:
        """Keys `[B, W + 1, K, H]` and values of all slots, as attention takes them."""
        key, value = (read_layer(buffer, self.layer) for buffer in (self.key, self.value))
        return swap_heads(key), swap_heads(value)

    def _positions(self, lengths: jax.Array) -> jax.Array:
        """Position of the token in each slot, `[B, W + 1]`; negative where there is none."""
        size, newest = self.window + 1, lengths[:, None] - 1
        return newest - (newest - jnp.arange(size, dtype=jnp.int32)[None]) % size

    def key_layout(self, num_tokens: int) -> tuple[int, int | jax.Array]:
        """Number of keys that new tokens attend to, and index of the first new one among them."""
        return (num_tokens, 0) if self.is_empty else (self.window + num_tokens, self.window)

    def by_slot(self, array: jax.Array, num_tokens: int) -> jax.Array:
        """Mask or bias `[..., S]` of keys by position, as `[..., W + T]` for T tokens to append.

        A last axis of size 1 stays. Unwritten slots have the first key's value. Tokens beyond S are
        False in a mask and NaN in a bias, like those beyond the capacity of a `KVCache`.
        """
        if array.shape[-1] == 1 or self.is_empty:
            return array[..., :num_tokens]
        slots = jnp.arange(self.window + num_tokens, dtype=jnp.int32)
        position = (self.lengths - self.window)[:, None] + slots[None]
        position = position.clip(0)[:, None, None]
        array = jnp.broadcast_to(array, (position.shape[0], *array.shape[1:]))
        beyond = False if array.dtype == bool else jnp.nan
        return jnp.take_along_axis(array, position, axis=-1, mode="fill", fill_value=beyond)


def _take_slots(array: jax.Array, slots: jax.Array) -> jax.Array:
    """Gathers `[B, S, K, H]` by slots `[B, s]` of each row."""
    return jnp.take_along_axis(array, slots[..., None, None], axis=1)

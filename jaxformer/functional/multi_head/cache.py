"""Key/value cache of one attention layer, and what every such cache does."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_axes,
    check_dtype,
    check_float_dtype,
    check_range,
    check_size,
    known_values,
)
from jaxformer.functional.dtypes import as_int32


class CachedKeys(NamedTuple):
    """Keys and values that new tokens attend to, from `extend` of a cache.

    Args:
        key: float `[B, S, K, H]`, cached keys and new ones.
        value: float `[B, S, K, Hv]`.
        query_offset: index of the first new token among the keys, int or int32 `[B]`.
        lengths: int32 `[B]`, number of keys of each row; None = S.
        mask: bool `[B, 1, 1, S]`, False for slots without a token; None = the lengths alone decide.
    """

    key: jax.Array
    value: jax.Array
    query_offset: int | jax.Array
    lengths: jax.Array | None
    mask: jax.Array | None


class KVCache(NamedTuple):
    """Key/value cache: the keys and values of all tokens so far.

    A pytree; the batch axis comes first in every leaf. Rows may hold different numbers of tokens.
    Slots at or beyond a row's length are unwritten.

    Heads come before slots, as attention reads them. In the order of `append`'s arguments, every
    decoding step would transpose the whole cache.

    Args:
        key: float `[B, K, S, H]`.
        value: float `[B, K, S, Hv]`.
        lengths: int32 `[B]`, number of tokens in each row.

    Example:
        >>> cache = KVCache.init(2, 8, num_kv_heads=1, head_dim=4)
        >>> cache = cache.append(jnp.ones((2, 3, 1, 4)), jnp.ones((2, 3, 1, 4)))
        >>> cache.lengths.tolist()
        [3, 3]
    """

    key: jax.Array
    value: jax.Array
    lengths: jax.Array

    @classmethod
    def init(
        cls, batch_size: int, capacity: int, *, num_kv_heads: int, head_dim: int,
        value_head_dim: int | None = None, dtype: jax.typing.DTypeLike = jnp.float32,
    ) -> "KVCache":  # fmt: skip
        """Makes an empty cache.

        Args:
            batch_size: B.
            capacity: S, maximum number of tokens per row.
            num_kv_heads: K.
            head_dim: H.
            value_head_dim: Hv; H when not given.
            dtype: dtype of keys and values.

        Returns:
            A cache with all lengths 0.

        Raises:
            ShapeError: a size is not positive, or the dtype is not floating.
        """
        value_dim = head_dim if value_head_dim is None else value_head_dim
        for name, size in {
            "batch_size": batch_size, "capacity": capacity, "num_kv_heads": num_kv_heads,
            "head_dim": head_dim, "value_head_dim": value_dim,
        }.items():  # fmt: skip
            check_size(name, size)
        dtype = check_float_dtype("dtype", dtype)
        return cls(
            key=jnp.zeros((batch_size, num_kv_heads, capacity, head_dim), dtype),
            value=jnp.zeros((batch_size, num_kv_heads, capacity, value_dim), dtype),
            lengths=jnp.zeros((batch_size,), jnp.int32),
        )

    @property
    def capacity(self) -> int:
        """S, maximum number of tokens per row."""
        return self.key.shape[2]

    @property
    def by_position(self) -> tuple[jax.Array, jax.Array]:
        """Keys `[B, S, K, H]` and values `[B, S, K, Hv]`, as attention takes them."""
        return swap_heads(self.key), swap_heads(self.value)

    def append(
        self, key: jax.Array, value: jax.Array, num_tokens: Array | None = None
    ) -> "KVCache":
        """Appends new tokens to every row.

        Args:
            key: float `[B, T, K, H]`.
            value: float `[B, T, K, Hv]`.
            num_tokens: int `[B]`, how many of the T tokens to append to each row, from the first;
                all when not given.

        Returns:
            The cache with longer rows. If a row overflows, or num_tokens exceeds T, and the numbers
            are traced, no error can be raised: the tokens are dropped and the row's last slots
            become NaN, so everything computed from it is NaN.

        Raises:
            ShapeError: the shapes do not fit, or known lengths overflow a row.
        """
        batch, capacity = self.lengths.shape[0], self.capacity
        num_tokens = checked_new_tokens(self, key, value, num_tokens)
        num_new = key.shape[1]
        self._raise_if_full(num_tokens)

        impossible = (num_tokens < 0) | (num_tokens > num_new)
        overflow = impossible | (self.lengths + num_tokens > capacity)
        num_tokens = jnp.where(impossible, num_new, num_tokens)
        lengths = jnp.minimum(self.lengths + num_tokens, capacity)
        step = jnp.arange(num_new, dtype=jnp.int32)[None]
        slot = (lengths - num_tokens)[:, None] + step
        slot = jnp.where(step < num_tokens[:, None], slot, capacity)  # dropped if beyond capacity

        def write(buffer: jax.Array, new: jax.Array) -> jax.Array:
            new = jnp.where(overflow[:, None, None, None], jnp.nan, new.astype(buffer.dtype))
            return buffer.at[jnp.arange(batch)[:, None], :, slot].set(new, mode="drop")

        return KVCache(write(self.key, key), write(self.value, value), lengths)

    def extend(
        self, key: jax.Array, value: jax.Array, num_tokens: Array | None = None
    ) -> tuple[CachedKeys, "KVCache"]:
        """Appends new tokens, as `append` does, and also returns what they attend to."""
        cache = self.append(key, value, num_tokens)
        first = cache.lengths - checked_new_tokens(self, key, value, num_tokens)
        return CachedKeys(*cache.by_position, first, cache.lengths, None), cache

    def key_layout(self, num_tokens: int) -> tuple[int, int | jax.Array]:
        """Number of keys that new tokens attend to, and index of the first new one among them."""
        return self.capacity, self.lengths

    def by_slot(self, array: jax.Array, num_tokens: int) -> jax.Array:
        """The array, because keys are in order of position."""
        return array

    def _raise_if_full(self, num_tokens: jax.Array) -> None:
        counts, lengths = known_values(num_tokens), known_values(self.lengths)
        if counts is None or lengths is None:
            return
        new_lengths = lengths + counts
        if (new_lengths > self.capacity).any():
            row = int(np.argmax(new_lengths))
            raise ShapeError(
                f"the cache holds {self.capacity} tokens a row, got {lengths[row]} in row "
                f"{row} and {counts[row]} more; make a larger one with KVCache.init"
            )


def swap_heads(array: jax.Array) -> jax.Array:
    """Swaps `[B, S, K, H]` and `[B, K, S, H]`."""
    return rearrange(array, "b s k h -> b k s h")


def checked_new_tokens(
    held: tuple[jax.Array, jax.Array, jax.Array], key: jax.Array, value: jax.Array,
    num_tokens: Array | None,
) -> jax.Array:  # fmt: skip
    """Checks the tokens to append to the arrays of a cache; returns their number per row, `[B]`."""
    held_keys, held_values, lengths = held
    batch = lengths.shape[0]
    known = {"B": batch, "K": held_keys.shape[1], "H": held_keys.shape[3]}
    sizes = check_axes("key", key, "B T K H", known)
    known = {"B": batch, "T": sizes["T"], "K": sizes["K"], "V": held_values.shape[3]}
    check_axes("value", value, "B T K V", known)
    check_dtype("key", key, "floating")
    check_dtype("value", value, "floating")
    if num_tokens is None:
        return jnp.full((batch,), sizes["T"], jnp.int32)
    num_tokens = as_array("num_tokens", num_tokens)
    check_dtype("num_tokens", num_tokens, "integer")
    check_axes("num_tokens", num_tokens, "B", {"B": batch})
    counts = known_values(num_tokens)
    if counts is not None:
        check_range("num_tokens", counts.tolist(), least=0, most=sizes["T"], bound="T")
    return as_int32(num_tokens)  # slots computed from it may exceed a uint8

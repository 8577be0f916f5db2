"""Key/value cache of one attention layer, and what every such cache does."""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from jax.experimental.layout import Layout, with_layout_constraint

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_array,
    check_float_dtype,
    check_row_counts,
    check_size,
    is_symbolic,
    known_values,
)
from jaxformer.functional.dtypes import as_int32
from jaxformer.functional.platforms import default_platform

_LANES = 128  # of a TPU's registers, to which it pads the last axis


class CachedKeys(NamedTuple):
    """Keys and values that new tokens attend to, from `extend` of a cache.

    Args:
        key: float `[B, S, K, H]`, cached keys and new ones.
        value: float `[B, S, K, Hv]`.
        query_offset: index of the first new token among the keys, int or int32 `[B]`.
        lengths: int32 `[B]`, number of keys of each row; None = S.
        mask: bool `[B, 1, 1, S]`, False for slots without a token; None = the lengths alone decide.
        in_order: whether keys are in order of position; if not, the mask alone hides keys.
    """

    key: jax.Array
    value: jax.Array
    query_offset: int | jax.Array
    lengths: jax.Array | None
    mask: jax.Array | None
    in_order: bool = True


class KVCache(NamedTuple):
    """Key/value cache: the keys and values of all tokens so far.

    A pytree; the batch axis comes first in every array. Rows may hold different numbers of tokens.
    Slots at or beyond a row's length are unwritten.

    Heads come before slots, as attention reads them. In the order of `extend`'s arguments, every
    decoding step would transpose the whole cache.

    Args:
        key: float `[B, K, S, H]`.
        value: float `[B, K, S, Hv]`.
        lengths: int32 `[B]`, number of tokens in each row.
        layer: index of this layer if key and value hold those of several, `[B, L, K, S, H]`; its
            tokens are then written in place.

    Example:
        >>> cache = KVCache.init(2, 8, num_kv_heads=1, head_dim=4)
        >>> _, cache = cache.extend(jnp.ones((2, 3, 1, 4)), jnp.ones((2, 3, 1, 4)))
        >>> cache.lengths.tolist()
        [3, 3]
    """

    key: jax.Array
    value: jax.Array
    lengths: jax.Array
    layer: int | jax.Array | None = None

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
            # NumPy's stay known under jit, where an empty cache is one without keys to attend to.
            lengths=cast(jax.Array, np.zeros((batch_size,), np.int32)),
        )

    @property
    def capacity(self) -> int:
        """S, maximum number of tokens per row."""
        return self.key.shape[-2]

    @property
    def is_empty(self) -> bool:
        """Whether no row has a token yet, as far as it is known when the program is traced."""
        return has_no_tokens(self.lengths)

    @property
    def keys_and_values(self) -> tuple[jax.Array, jax.Array]:
        """Keys `[B, S, K, H]` and values `[B, S, K, Hv]`, as attention takes them."""
        key, value = (read_layer(buffer, self.layer) for buffer in (self.key, self.value))
        return swap_heads(key), swap_heads(value)

    def extend(
        self, key: jax.Array, value: jax.Array, num_tokens: Array | None = None,
        *, in_order: bool = True,
    ) -> tuple[CachedKeys, "KVCache"]:  # fmt: skip
        """Appends new tokens to every row.

        Args:
            key: float `[B, T, K, H]`.
            value: float `[B, T, K, Hv]`.
            num_tokens: int `[B]`, how many of the T tokens to append to each row, from the first;
                all when not given.
            in_order: whether keys must be in order of position, as those of this cache always are.

        Returns:
            Keys and values that the new tokens attend to: the new ones alone, if the cache is known
            to be empty when the program is traced; and the cache with longer rows. If a row
            overflows, or num_tokens exceeds T, and the numbers are traced, no error can be raised:
            the tokens are dropped and the row's last slots become NaN, so everything computed from
            it is NaN.

        Raises:
            ShapeError: the shapes do not fit, or known lengths overflow a row.
        """
        counts = checked_new_tokens(self, key, value, num_tokens)
        self._raise_if_full(counts)
        capacity, num_new = self.capacity, key.shape[1]
        impossible = (counts < 0) | (counts > num_new)
        overflow = impossible | (self.lengths + counts > capacity)
        num_written = jnp.where(impossible, num_new, counts)
        lengths = jnp.minimum(self.lengths + num_written, capacity)
        step = jnp.arange(num_new, dtype=jnp.int32)[None]
        slots = (lengths - num_written)[:, None] + step  # [B, T]
        slots = jnp.where(step < num_written[:, None], slots, capacity)  # beyond it: not written
        at_start = self.is_empty and num_new <= capacity

        def write(buffer: jax.Array, new: jax.Array) -> jax.Array:
            new = jnp.where(overflow[:, None, None, None], jnp.nan, new.astype(buffer.dtype))
            if at_start:
                new = jnp.where((slots < capacity)[..., None, None], new, 0)
                return write_first_slots(buffer, swap_heads(new), self.layer)
            return write_slots(buffer, new, slots, self.layer)

        cache = KVCache(write(self.key, key), write(self.value, value), lengths, self.layer)
        if self.is_empty:
            return CachedKeys(key, value, 0, None if num_tokens is None else counts, None), cache
        return CachedKeys(*cache.keys_and_values, lengths - counts, lengths, None), cache

    def key_layout(self, num_tokens: int) -> tuple[int, int | jax.Array]:
        """Number of keys that new tokens attend to, and index of the first new one among them."""
        return (num_tokens, 0) if self.is_empty else (self.capacity, self.lengths)

    def by_slot(self, array: jax.Array, num_tokens: int) -> jax.Array:
        """The array, because keys are in order of position; of an empty cache, for new keys."""
        return array[..., :num_tokens] if self.is_empty else array

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


def has_no_tokens(lengths: jax.Array) -> bool:
    """Whether lengths `[B]` are known to be 0 when the program is traced."""
    values = known_values(lengths)
    return values is not None and not values.any()


def read_layer(buffer: jax.Array, layer: int | jax.Array | None) -> jax.Array:
    """`[B, K, S, H]` of a layer in `[B, L, K, S, H]`; the buffer itself if layer is None."""
    if layer is None:
        return buffer
    return jax.lax.dynamic_index_in_dim(buffer, layer, axis=1, keepdims=False)


def write_first_slots(
    buffer: jax.Array, block: jax.Array, layer: int | jax.Array | None
) -> jax.Array:
    """Writes `[B, K, t, H]` to the first slots of a buffer, in place."""
    if layer is None:
        return jax.lax.dynamic_update_slice(buffer, block, (0, 0, 0, 0))
    return jax.lax.dynamic_update_slice(buffer, jnp.expand_dims(block, 1), (0, layer, 0, 0, 0))


def write_slots(
    buffer: jax.Array, new: jax.Array, slots: jax.Array, layer: int | jax.Array | None
) -> jax.Array:
    """Writes tokens `[B, T, K, H]` to slots `[B, T]` of a buffer, to none at or beyond S."""
    batch, num_new, kv_heads, width = new.shape
    in_layer, layer_axis = ((), ()) if layer is None else ((layer,), (1,))
    if num_new != 1 or default_platform() != "tpu" or is_symbolic(batch):
        rows = jnp.arange(batch)[:, None]
        return buffer.at[rows, *in_layer, :, slots].set(new, mode="drop")
    # For a scatter, a TPU's compiler changes the layout of the cache, for which it copies it, and
    # pads it to up to three times its size. Slices written one by one keep the layout. What rows
    # keep is read before: for a fusion of both, XLA would copy the cache, too.
    buffer = _in_compact_layout(buffer)
    starts = [(row, *in_layer, 0, slots[row, 0], 0) for row in range(batch)]
    sizes = (1, *[1] * len(in_layer), kv_heads, 1, width)
    held = [jax.lax.dynamic_slice(buffer, start, sizes) for start in starts]
    held = [jnp.squeeze(block, layer_axis) for block in held]  # [1, K, 1, H] of each row
    held = jax.lax.optimization_barrier(held)
    for start, token, old in zip(starts, rearrange(new, "b 1 k h -> b 1 k 1 h"), held, strict=True):
        token = jnp.where(start[-2] < buffer.shape[-2], token, old)
        buffer = jax.lax.dynamic_update_slice(buffer, jnp.expand_dims(token, layer_axis), start)
    return _in_compact_layout(buffer)


def _in_compact_layout(buffer: jax.Array) -> jax.Array:
    """A buffer in the layout of a TPU that pads least: its last axis has whole lanes."""
    *first, slots, width = range(buffer.ndim)
    has_whole_lanes = buffer.shape[-1] % _LANES == 0
    last = (slots, width) if has_whole_lanes else (width, slots)
    return with_layout_constraint(buffer, Layout((*first, *last)))


def swap_heads(array: jax.Array) -> jax.Array:
    """Swaps `[B, S, K, H]` and `[B, K, S, H]`."""
    return rearrange(array, "b s k h -> b k s h")


def checked_new_tokens(
    held: Any, key: jax.Array, value: jax.Array, num_tokens: Array | None
) -> jax.Array:
    """Checks the tokens to append to a cache; returns their number per row, `[B]`."""
    batch = held.lengths.shape[0]
    sizes = {"B": batch, "K": held.key.shape[-3], "H": held.key.shape[-1]}
    sizes = check_array("key", key, "floating", "B T K H", sizes)
    check_array("value", value, "floating", "B T K V", {**sizes, "V": held.value.shape[-1]})
    if num_tokens is None:
        return jnp.full((batch,), sizes["T"], jnp.int32)
    num_tokens = as_array("num_tokens", num_tokens)
    check_row_counts("num_tokens", num_tokens, batch, most=sizes["T"], bound="T")
    return as_int32(num_tokens)  # slots computed from it may exceed a uint8

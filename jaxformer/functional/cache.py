"""The key/value cache of one attention layer."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ShapeError
from jaxformer.functional.shapes import Array, check_axes, check_dtype

__all__ = ["KVCache"]


class KVCache(NamedTuple):
    """Keys and values of the tokens so far; a pytree whose every leaf leads with the batch.

    Rows may hold different numbers of tokens. Slots at or beyond a row's length are unwritten.

    Args:
        key: float `[B, S, K, H]`.
        value: float `[B, S, K, Hv]`.
        lengths: int32 `[B]`, tokens in each row.

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
            capacity: S, the most tokens that a row can hold.
            num_kv_heads: K.
            head_dim: H.
            value_head_dim: Hv; H when not given.
            dtype: of keys and values.

        Returns:
            A cache with all lengths 0.

        Raises:
            ShapeError: a size is not positive.
        """
        value_dim = head_dim if value_head_dim is None else value_head_dim
        sizes = {"batch_size": batch_size, "capacity": capacity, "num_kv_heads": num_kv_heads,
                 "head_dim": head_dim, "value_head_dim": value_dim}  # fmt: skip
        for name, size in sizes.items():
            if size < 1:
                raise ShapeError(f"{name} must be positive, got {size}")
        return cls(
            key=jnp.zeros((batch_size, capacity, num_kv_heads, head_dim), dtype),
            value=jnp.zeros((batch_size, capacity, num_kv_heads, value_dim), dtype),
            lengths=jnp.zeros((batch_size,), jnp.int32),
        )

    @property
    def capacity(self) -> int:
        """S, the most tokens that a row can hold."""
        return self.key.shape[1]

    def append(
        self, key: jax.Array, value: jax.Array, num_tokens: Array | None = None
    ) -> "KVCache":
        """Writes the next tokens of every row behind its last one.

        Args:
            key: float `[B, T, K, H]`.
            value: float `[B, T, K, Hv]`.
            num_tokens: int `[B]`, how many of the T tokens each row takes, the first ones; all
                when not given.

        Returns:
            The cache with longer rows. A row whose tokens do not fit is an error, as are more
            tokens than T; where that cannot be raised because the numbers are traced, the tokens
            are dropped and the row's last slots become NaN, so that whatever is computed from it
            is NaN too.

        Raises:
            ShapeError: the shapes do not fit, or a row overflows and the lengths are known.
        """
        batch, capacity = self.lengths.shape[0], self.capacity
        sizes = check_axes(
            "key", key, "B T K H", {"B": batch, "K": self.key.shape[2], "H": self.key.shape[3]}
        )
        known = {"B": batch, "T": sizes["T"], "K": sizes["K"], "V": self.value.shape[3]}
        check_axes("value", value, "B T K V", known)
        if num_tokens is None:
            num_tokens = jnp.full((batch,), sizes["T"], jnp.int32)
        num_tokens = jnp.asarray(num_tokens)
        check_dtype("num_tokens", num_tokens, "integer")
        check_axes("num_tokens", num_tokens, "B", {"B": batch})
        self._raise_if_known_to_be_wrong(sizes["T"], num_tokens)

        impossible = (num_tokens < 0) | (num_tokens > sizes["T"])
        overflow = impossible | (self.lengths + num_tokens > capacity)
        num_tokens = jnp.where(impossible, sizes["T"], num_tokens)
        lengths = jnp.minimum(self.lengths + num_tokens, capacity)
        step = jnp.arange(sizes["T"], dtype=jnp.int32)[None]
        slot = (lengths - num_tokens)[:, None] + step
        slot = jnp.where(step < num_tokens[:, None], slot, capacity)  # beyond: dropped

        def write(buffer: jax.Array, new: jax.Array) -> jax.Array:
            new = jnp.where(overflow[:, None, None, None], jnp.nan, new.astype(buffer.dtype))
            return buffer.at[jnp.arange(batch)[:, None], slot].set(new, mode="drop")

        return KVCache(write(self.key, key), write(self.value, value), lengths)

    def _raise_if_known_to_be_wrong(self, num_new: int, num_tokens: jax.Array) -> None:
        if isinstance(num_tokens, jax.core.Tracer):
            return
        counts = np.asarray(num_tokens)
        if counts.size and not 0 <= counts.min() <= counts.max() <= num_new:
            raise ShapeError(f"num_tokens must be in 0 .. T={num_new}, got {counts.tolist()}")
        if isinstance(self.lengths, jax.core.Tracer):
            return
        wanted = np.asarray(self.lengths) + counts
        if (wanted > self.capacity).any():
            row = int(np.argmax(wanted))
            raise ShapeError(
                f"the cache holds {self.capacity} tokens a row, got {self.lengths[row]} in row "
                f"{row} and {counts[row]} more; make a larger one with KVCache.init"
            )

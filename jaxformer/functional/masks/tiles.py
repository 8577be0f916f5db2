"""Tiles of attention weights, a range of queries by a range of keys, and slices of arrays."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange

Slice = tuple[int | jax.Array, int]
"""Start (may be traced) and size of a slice along one axis."""


class Tile(NamedTuple):
    """Queries and keys of a part of the weights `[..., N, t, s]`; starts may be one per row."""

    queries: Slice
    keys: Slice
    leading: tuple[int, ...] = ()

    @property
    def positions(self) -> tuple[jax.Array, jax.Array]:
        """int32 positions of queries and keys, which broadcast to `[..., 1, t, s]`."""
        # XLA would compute the difference of two iotas `[t, s]` ahead of a loop over starts, and
        # hold it: starts are added before the axes meet.
        return self.along_queries(_span(self.queries)), self.along_keys(_span(self.keys))

    def along_queries(self, array: jax.Array) -> jax.Array:
        """`[..., t]` as `[..., 1, t, 1]`."""
        return self._aligned(array, "... t -> ... 1 t 1")

    def along_keys(self, array: jax.Array) -> jax.Array:
        """`[..., s]` as `[..., 1, 1, s]`."""
        return self._aligned(array, "... s -> ... 1 1 s")

    def along_rows(self, numbers: Any) -> int | jax.Array:
        """A number for each row, `[...]`, as `[..., 1, 1, 1]`."""
        return numbers if isinstance(numbers, int) else self._aligned(numbers, "... -> ... 1 1 1")

    def block_of(self, array: jax.Array) -> jax.Array:
        """Block `[..., t, s]` of a mask or bias `[..., T, S]`; axes of size 1 stay."""
        for axis, part in ((-2, self.queries), (-1, self.keys)):
            if array.shape[axis] != 1:
                array = slice_axis(array, part, axis=axis)
        return array

    def _aligned(self, array: jax.Array, pattern: str) -> jax.Array:
        return to_rank(rearrange(array, pattern), len(self.leading) + 3)


def _span(part: Slice) -> jax.Array:
    """Positions `[n]` of a slice, or `[..., n]` for one start per row."""
    start, size = part
    steps = jnp.arange(size, dtype=jnp.int32)
    if isinstance(start, int):
        return steps + start if start else steps
    return start[..., None] + to_rank(steps, start.ndim + 1)


def to_rank(array: jax.Array, rank: int) -> jax.Array:
    """The array with axes of size 1 in front, so that it has a rank."""
    return jnp.expand_dims(array, tuple(range(rank - array.ndim)))


def slice_axis(array: jax.Array, part: Slice, *, axis: int) -> jax.Array:
    """Slice along one axis, from a start that may be traced."""
    start, size = part
    if isinstance(start, int) and (start, size) == (0, array.shape[axis]):
        return array
    # The gradient of a static slice is a pad; of a dynamic one, an update of the whole array.
    if isinstance(start, int):
        return jax.lax.slice_in_dim(array, start, start + size, axis=axis)
    return jax.lax.dynamic_slice_in_dim(array, start, size, axis=axis)

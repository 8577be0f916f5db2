"""The rules of attention masks: windows, lengths, prefixes, segments and functions of positions."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import Array, as_array, check_broadcast, check_dtype, is_int
from jaxformer.functional.masks.base import Mask, Or, Part, Sizes, not_in_cache
from jaxformer.functional.masks.checks import (
    Integers,
    read_lengths,
    read_offset,
    read_segment_ids,
    window_sides,
)
from jaxformer.functional.masks.tiles import Tile, slice_axis
from jaxformer.functional.static_numbers import static_numbers


@static_numbers
class Window(Mask):
    """Keys up to `left` before and `right` after the query's position, None = unbounded.

    Args:
        left: int of 0 or more, or None.
        right: likewise.
        offset: position of the first query: int, or integer array that broadcasts to the leading
            axes, at most 2**30 from 0. `S - T` aligns the last query with the last key.

    References:
        Beltagy, Peters and Cohan, "Longformer: The Long-Document Transformer", 2020.

    Example:
        >>> Window(1, 0).array(3, 3).astype(int).tolist()
        [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """

    left: int | None
    right: int | None
    offset: Integers = 0

    def checked(self, sizes: Sizes) -> Mask:
        left, right = window_sides("(left, right) of Window", (self.left, self.right))
        return Window(left, right, read_offset("offset of a rule", self.offset, sizes.leading))

    def allows(self, tile: Tile) -> jax.Array:
        query, key = tile.positions
        distance, allowed = key - (query + tile.along_rows(self.offset)), _all_of(tile)
        if self.left is not None:
            allowed = allowed & (distance >= -self.left)
        if self.right is not None:
            allowed = allowed & (distance <= self.right)
        return allowed

    def visible_part(self, queries: range, keys: range) -> Part:
        if not isinstance(self.offset, int):
            return queries, keys
        start, stop = keys.start, keys.stop
        if self.left is not None:
            start = max(start, queries.start + self.offset - self.left)
        if self.right is not None:
            stop = min(stop, queries.stop + self.offset + self.right)
        return queries, range(start, stop)


@static_numbers
class Causal(Window):
    """Keys at or before the query's position: `Window(None, 0)`.

    Args:
        offset: position of the first query, as in `Window`.

    Example:
        >>> Causal().array(2, 3).astype(int).tolist()
        [[1, 0, 0], [1, 1, 0]]
    """

    left: int | None = dataclasses.field(default=None, init=False)
    right: int | None = dataclasses.field(default=0, init=False)


@static_numbers
class Lengths(Mask):
    """Hides queries and keys at or beyond the lengths of their rows, such as padding.

    Args:
        queries: number of real queries: int, or integer array that broadcasts to the leading axes;
            None = all. The others attend to nothing.
        keys: number of real keys, likewise.

    Example:
        >>> Lengths(keys=jnp.array([1, 3])).array(1, 3, leading=(2,)).astype(int).tolist()
        [[[[1, 0, 0]]], [[[1, 1, 1]]]]
    """

    queries: Integers | None = None
    keys: Integers | None = None

    def checked(self, sizes: Sizes) -> Mask:
        return Lengths(
            read_lengths("queries of Lengths", self.queries, sizes.leading, sizes.num_queries),
            read_lengths("keys of Lengths", self.keys, sizes.leading, sizes.num_keys),
        )

    def allows(self, tile: Tile) -> jax.Array:
        (query, key), allowed = tile.positions, _all_of(tile)
        if self.keys is not None:
            allowed = allowed & (key < tile.along_rows(self.keys))
        if self.queries is not None:
            allowed = allowed & (query < tile.along_rows(self.queries))
        return allowed

    def visible_part(self, queries: range, keys: range) -> Part:
        if isinstance(self.queries, int):
            queries = range(queries.start, min(queries.stop, self.queries))
        if isinstance(self.keys, int):
            keys = range(keys.start, min(keys.stop, self.keys))
        return queries, keys


@static_numbers
class Prefix(Mask):
    """Prefix language model: all queries see the keys of the prefix, and it is causal beyond.

    Args:
        lengths: number of tokens in the prefix: int, or integer array that broadcasts to the
            leading axes.
        offset: position of the first query, as in `Window`.

    References:
        Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
        Transformer", 2020, figure 4.

    Example:
        >>> Prefix(2).array(3, 3).astype(int).tolist()
        [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """

    lengths: Integers
    offset: Integers = 0

    def checked(self, sizes: Sizes) -> Mask:
        name = "lengths of Prefix"
        as_array(name, self.lengths)  # which may not be None
        lengths = read_lengths(name, self.lengths, sizes.leading, sizes.num_keys)
        return Or((Causal(self.offset).checked(sizes), Lengths(keys=lengths)))

    def allows(self, tile: Tile) -> jax.Array:
        # Attention asks the two rules that `checked` returns.
        return Or((Causal(self.offset), Lengths(keys=self.lengths))).allows(tile)


@static_numbers
class Segments(Mask):
    """A query attends to the keys of its own segment, such as a packed document.

    Args:
        query_ids: integer `[..., T]`.
        key_ids: integer `[..., S]`; the query_ids when not given.

    Example:
        >>> Segments(jnp.array([7, 7, 8])).array(3, 3).astype(int).tolist()
        [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """

    query_ids: Array
    key_ids: Array | None = None

    @property
    def _ids(self) -> tuple[Any, Any]:
        return self.query_ids, self.query_ids if self.key_ids is None else self.key_ids

    def checked(self, sizes: Sizes) -> Mask:
        if sizes.num_queries is None or sizes.num_keys is None:
            raise not_in_cache("segment ids")
        query_ids, key_ids = self._ids
        ids = {"query_ids of Segments": query_ids, "key_ids of Segments": key_ids}
        lengths = sizes.num_queries, sizes.num_keys
        return Segments(*read_segment_ids(ids, lengths, sizes.leading))

    def allows(self, tile: Tile) -> jax.Array:
        query_ids, key_ids = self._ids
        query = tile.along_queries(slice_axis(query_ids, tile.queries, axis=-1))
        return query == tile.along_keys(slice_axis(key_ids, tile.keys, axis=-1))


@static_numbers
class Rule(Mask):
    """A function of positions: `function(query, key, *arrays)`.

    It is called with int32 positions of queries `[..., 1, t, 1]` and of keys `[..., 1, 1, s]` of a
    block, of the rank of the weights, and returns a bool array that they broadcast to. Define it
    once: a new function is a new program.

    Args:
        function: the function, of elementwise operations.
        arrays: further arguments, which may be traced, such as `lengths[:, None, None, None]` for a
            number per row. An array that the function closes over must not be traced.
        key_range: function of the first query of a block and of the one after its last that returns
            the range of keys that these may see, also as (first, after the last). Chunked attention
            skips the keys outside of it.

    Example:
        >>> dilated = Rule(lambda query, key: (query - key) % 2 == 0)
        >>> (dilated & Causal()).array(3, 3).astype(int).tolist()
        [[1, 0, 0], [0, 1, 0], [1, 0, 1]]
    """

    function: Callable[..., Any]
    arrays: tuple[Any, ...] = ()
    key_range: Callable[[int, int], tuple[int, int]] | None = None

    def checked(self, sizes: Sizes) -> Mask:
        if not callable(self.function):
            raise ShapeError(
                "function of Rule must be a function of the positions of queries and keys, got "
                f"{self.function!r}"
            )
        arrays = tuple(as_array("arrays of Rule", array) for array in self.arrays)
        return Rule(self.function, arrays, self.key_range)

    def allows(self, tile: Tile) -> jax.Array:
        name = "the result of a Rule's function"
        allowed = as_array(name, self.function(*tile.positions, *self.arrays))
        check_dtype(name, allowed, "bool", remedy="True = attend")
        (_, num_queries), (_, num_keys) = tile.queries, tile.keys
        remedy = "compute it from the positions by elementwise operations"
        check_broadcast(
            name, allowed, (*tile.leading, 1, num_queries, num_keys), "... 1 t s", remedy=remedy
        )
        return allowed

    def visible_part(self, queries: range, keys: range) -> Part:
        if self.key_range is None:
            return queries, keys
        limits = self.key_range(queries.start, queries.stop)
        if not (isinstance(limits, tuple) and len(limits) == 2 and all(map(is_int, limits))):
            raise ShapeError(f"key_range of Rule must return (first, after the last), got {limits}")
        return queries, range(max(keys.start, limits[0]), min(keys.stop, limits[1]))


def _all_of(tile: Tile) -> jax.Array:
    return jnp.ones((1,) * (len(tile.leading) + 3), bool)

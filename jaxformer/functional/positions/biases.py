"""Position biases on attention scores: ALiBi, and T5's learned biases by relative position."""

import bisect
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange, repeat

from jaxformer.errors import ConfigError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_axes,
    check_int,
    check_size,
    is_symbolic,
    static_bool,
)
from jaxformer.functional.dtypes import widened
from jaxformer.functional.masks.checks import Integers, read_integers
from jaxformer.functional.masks.tiles import Tile, to_rank

_MAX_OFFSET = 3 * 2**29  # leaves a quarter of the int32 range for the positions themselves
_MOST_HEADS = 2**16
_MOST_BUCKETS = 1024  # finding the borders takes ever larger integers


def relative_positions(num_queries: int, num_keys: int, query_offset: Integers) -> jax.Array:
    """Position of each key relative to each query: int32 `[1, T, S]` or `[..., 1, T, S]`."""
    num_queries = check_size("num_queries", num_queries, least=0)
    num_keys = check_size("num_keys", num_keys, least=0)
    offset = read_integers("query_offset", query_offset, -_MAX_OFFSET, _MAX_OFFSET)
    query, key = Tile((offset, num_queries), (0, num_keys), jnp.shape(offset)).positions
    return key - query


def alibi_slopes(num_heads: int) -> jax.Array:
    r"""Slopes of the ALiBi bias: how steeply it falls with distance, per head.

    $$m_n = 2^{-8 n / N}, \quad n = 1 \dots N$$

    This holds for powers of two. For other N, take the slopes of the largest power of two P below
    N, then every other slope of 2 P heads, starting with the first.

    Args:
        num_heads: N.

    Returns:
        float32 `[N]`.

    Raises:
        ConfigError: num_heads is not a positive int.

    References:
        Press, Smith and Lewis, "Train Short, Test Long: Attention with Linear Biases Enables
        Input Length Extrapolation", 2022, section 3; for other N, its code.

    Example:
        >>> alibi_slopes(3).tolist()
        [0.0625, 0.00390625, 0.25]
    """
    num_heads = check_int("num_heads", num_heads, 1, _MOST_HEADS)
    power = 1 << (num_heads.bit_length() - 1)
    slopes, double = (2.0 ** (-8 * np.arange(1, n + 1) / n) for n in (power, 2 * power))
    return jnp.asarray(np.concatenate([slopes, double[0::2]])[:num_heads], jnp.float32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class AlibiBias:
    """ALiBi bias on attention scores: minus slope times distance.

    `dot_product_attention` takes it as `bias` in place of an array. Chunked attention then computes
    it block by block, in memory linear in T and S. It is a pytree, so the slopes may be learned.

    The bias falls on both sides of the query. With a causal mask, which you have to add, it is the
    bias of the paper.

    Args:
        slopes: array, float `[N]`, one per head, such as `alibi_slopes(N)`; finite.

    References:
        Press, Smith and Lewis, "Train Short, Test Long: Attention with Linear Biases Enables
        Input Length Extrapolation", 2022.

    Example:
        >>> from jaxformer.functional import dot_product_attention
        >>> query = key = value = jnp.ones((2, 5, 4, 8))
        >>> bias = AlibiBias(alibi_slopes(4))
        >>> dot_product_attention(query, key, value, bias, is_causal=True).shape
        (2, 5, 4, 8)
        >>> AlibiBias(alibi_slopes(1)).array(1, 3, query_offset=2).tolist()
        [[[-0.0078125, -0.00390625, 0.0]]]
    """

    slopes: Array

    def array(self, num_queries: int, num_keys: int, query_offset: Integers = 0) -> jax.Array:
        """The bias as an array.

        Args:
            num_queries: T.
            num_keys: S.
            query_offset: position of the first query: int, or integer array `[...]` with one offset
                per row, which may be traced.

        Returns:
            float32 (float64 for float64) `[N, T, S]`, or `[..., N, T, S]` for an array offset.

        Raises:
            ShapeError: a length is negative, an offset is not an integer, or the slopes are not
                `[N]`.
        """
        slopes = as_array("slopes", self.slopes)
        check_axes("slopes", slopes, "N")
        slopes = rearrange(widened(slopes), "n -> n 1 1")
        relative = relative_positions(num_queries, num_keys, query_offset)  # [..., 1, T, S]
        return to_rank(slopes, relative.ndim) * (-jnp.abs(relative)).astype(slopes.dtype)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class RelativeBias:
    r"""T5's relative position bias: one learned number per head and bucket of distances.

    Attention takes it as it does an `AlibiBias`. It is a pytree: the table is its only leaf. With n
    buckets per direction, the first m = n // 2 hold one distance d each; the others grow
    geometrically up to D, `max_distance`:

    $$b(d) = d \text{ for } d < m, \quad b(d) = \min\left(n - 1,\;
    m + \left\lfloor (n - m) \frac{\ln(d / m)}{\ln(D / m)} \right\rfloor\right) \text{ beyond}$$

    Args:
        table: array, float `[num_buckets, N]`, at most 1024 buckets of both directions together;
            finite: pass a mask to hide keys.
        bidirectional: True puts keys after the query in the upper half of the buckets (encoders);
            False puts them in bucket 0 (decoders, where the mask hides them).
        max_distance: D; distances at or beyond share the last bucket.

    References:
        Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
        Transformer", 2020, section 2.1; the formula is from its code.

    Example:
        >>> bias = RelativeBias(jnp.array([[0.0], [1.0], [2.0], [3.0]]), max_distance=16)
        >>> bias.array(2, 4).tolist()
        [[[0.0, 3.0, 3.0, 3.0], [1.0, 0.0, 3.0, 3.0]]]
    """

    table: Array
    bidirectional: bool = dataclasses.field(default=True, metadata={"static": True})
    max_distance: int = dataclasses.field(default=128, metadata={"static": True})

    def array(self, num_queries: int, num_keys: int, query_offset: Integers = 0) -> jax.Array:
        """The bias as an array; arguments and result are those of `AlibiBias.array`.

        Raises:
            ConfigError: there are too few or too many buckets, an odd number although
                bidirectional, or max_distance lies within the buckets of one distance each.
            ShapeError: a length is negative, an offset is not an integer, or the table is not
                `[num_buckets, N]`.
        """
        num_queries = check_size("num_queries", num_queries, least=0)
        num_keys = check_size("num_keys", num_keys, least=0)
        table = as_array("table", self.table)
        check_axes("table", table, "num_buckets N")
        if not is_symbolic(query_offset):
            query_offset = read_integers("query_offset", query_offset, -_MAX_OFFSET, _MAX_OFFSET)
        # The biases of all distances from -T to S are looked up once: a gather of T * S numbers
        # would be slow, most of all its gradient.
        distances = num_queries + num_keys + 1
        relative = relative_positions(1, distances, query_offset + num_queries)[..., 0, 0, :]
        buckets = relative_buckets(
            relative, num_buckets=table.shape[0], max_distance=self.max_distance,
            bidirectional=self.bidirectional,
        )  # fmt: skip
        by_distance = rearrange(widened(table)[buckets], "... d n -> ... n d")
        # Copies of all distances, cut into rows that are one shorter, move right by one in every
        # row, so that the matrix is constant along its diagonals.
        length = distances - 1
        copies = repeat(by_distance, "... d -> ... (t d)", t=num_queries)
        rows = copies[..., : num_queries * length]
        rows = rearrange(rows, "... (t d) -> ... t d", t=num_queries, d=length)
        return rows[..., num_queries:]  # [..., N, T, S]


PositionBias = AlibiBias | RelativeBias
"""A bias that depends on the distance between query and key."""


def relative_buckets(
    relative: jax.Array, *, num_buckets: int, max_distance: int, bidirectional: bool
) -> jax.Array:
    """Row of the table of a `RelativeBias` for each key position minus query position, int32."""
    directions = 2 if static_bool("bidirectional", bidirectional) else 1
    num_buckets = check_int("num_buckets", num_buckets, 2 * directions, _MOST_BUCKETS)
    if num_buckets % directions:
        raise ConfigError(
            f"num_buckets must be even for two directions, got {num_buckets}; half of them are "
            "for keys after the query"
        )
    buckets = num_buckets // directions
    max_distance = check_int("max_distance", max_distance, buckets // 2 + 1, 2**31 - 1)
    distance = jnp.abs(relative) if bidirectional else jnp.maximum(-relative, 0)
    borders = _bucket_borders(buckets, max_distance)
    bucket = jnp.searchsorted(borders, distance, side="right", method="compare_all")
    bucket = bucket.astype(jnp.int32)
    return bucket + jnp.where(relative > 0, buckets, 0) if bidirectional else bucket


def _bucket_borders(num_buckets: int, max_distance: int) -> np.ndarray:
    """Smallest distance of every bucket except the first, `[num_buckets - 1]`."""
    exact = num_buckets // 2
    wide = num_buckets - exact
    # In integers, because a float32 logarithm puts some distances in the wrong bucket: bucket
    # exact + k starts where (d / exact) ** wide >= (max_distance / exact) ** k.
    borders = [
        bisect.bisect_left(
            range(max_distance),
            max_distance**k * exact ** (wide - k),
            key=lambda distance: distance**wide,
        )
        for k in range(wide)
    ]
    return np.array([*range(1, exact), *borders], np.int32)

"""Arguments of attention, before and after checks and defaults."""

import dataclasses
import math
from typing import Any, Literal, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention.block import StaticOptions
from jaxformer.functional.checks import (
    Array,
    as_array,
    as_arrays,
    check_axes,
    check_broadcast,
    check_dtype,
    check_leading,
    check_range,
    check_rng,
    describe,
    static_bool,
    static_number,
    static_softcap,
)
from jaxformer.functional.dtypes import as_int32, at_least
from jaxformer.functional.masks import alike_ids, read_offset, to_rank, window_sides
from jaxformer.functional.positions.biases import AlibiBias, PositionBias, RelativeBias

Lengths = int | Array
WindowSize = int | tuple[int | None, int | None]
Bias = Array | PositionBias | tuple[Array, PositionBias]
"""Bias of the scores: an array, a position bias, or the sum of both as a pair."""
Implementation = Literal["auto", "dense", "chunked", "cudnn", "splash", "xla"] | None


class MaskKeywords(TypedDict, total=False):
    """Keywords of `dot_product_attention`, which documents them, that decide what queries see."""

    is_causal: bool
    query_offset: Lengths | None
    query_seq_lengths: Lengths | None
    key_value_seq_lengths: Lengths | None
    local_window_size: WindowSize | None
    query_segment_ids: Array | None
    key_value_segment_ids: Array | None


class ScoreKeywords(MaskKeywords, total=False):
    """The keywords that decide the weights before dropout."""

    scale: float | None
    softcap: float | None


class AttentionKeywords(ScoreKeywords, total=False):
    """All keywords but return_residual, which an attention function of one's own need not take."""

    dropout_rate: float
    dropout_rng: jax.Array | None
    implementation: Implementation


class Structure(NamedTuple):
    """Limits on the keys that a query may attend to; chunked attention skips blocks by its ints."""

    # Keys visible before and after a query's position, None = unbounded; causal: 0 after.
    window: tuple[int | None, int | None] = (None, None)
    offset: int | jax.Array = 0  # position of the first query; integer [...]: one per row
    query_lengths: int | jax.Array | None = None  # integer [...]; those at or beyond are not real
    key_lengths: int | jax.Array | None = None
    query_ids: jax.Array | None = None  # segment of each query, integer [..., T]
    key_ids: jax.Array | None = None  # [..., S]

    @property
    def transposed(self) -> "Structure":
        """The same limits with queries and keys exchanged: those of the mask `[S, T]`."""
        left, right = self.window
        return Structure(
            window=(right, left), offset=-self.offset,
            query_lengths=self.key_lengths, key_lengths=self.query_lengths,
            query_ids=self.key_ids, key_ids=self.query_ids,
        )  # fmt: skip


class AttentionInputs(NamedTuple):
    """Checked arguments, the input of every attention implementation."""

    query: jax.Array  # [..., T, N, H]
    key: jax.Array  # [..., S, K, H]
    value: jax.Array  # [..., S, K, Hv]
    bias: jax.Array | None  # rank of [..., N, T, S], size 1 where it does not vary
    position_bias: PositionBias | None  # float32, or 64 for float64
    mask: jax.Array | None  # like the bias
    structure: Structure
    static: StaticOptions


def prepare_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Bias | None,
    mask: Array | None,
    options: ScoreKeywords,
    *,
    dropout_rate: float = 0.0,
    return_residual: bool = False,
) -> AttentionInputs:
    """Checks the arguments of `dot_product_attention`, and fills in the defaults."""
    query, key, value = as_arrays(query=query, key=key, value=value)
    sizes = _check_arrays(query, key, value)
    static = _static_options(options, dropout_rate, return_residual, sizes["H"])
    leading = query.shape[:-3]
    weights_shape = (*leading, sizes["N"], sizes["T"], sizes["S"])
    array, position_bias = split_bias(bias)
    array = _align("bias", array, "floating", weights_shape)
    position_bias = _check_position_bias(position_bias, query.dtype, sizes)
    mask = _align("mask", mask, "bool", weights_shape)
    structure = _structure(options, sizes, leading, has_position_bias=position_bias is not None)
    return AttentionInputs(query, key, value, array, position_bias, mask, structure, static)


def add_biases(array: Array | None, other: Array | PositionBias | None) -> Bias | None:
    """The sum of two biases, of which the second may be a position bias; None = no bias."""
    if array is None or other is None:
        return other if array is None else array
    return (array, other) if isinstance(other, AlibiBias | RelativeBias) else array + other


def split_bias(bias: Any) -> tuple[Array | None, PositionBias | None]:
    """Splits a bias into an array and a position bias."""
    if isinstance(bias, AlibiBias | RelativeBias):
        return None, bias
    parts = bias if isinstance(bias, tuple) else ()
    are_values = [isinstance(part, AlibiBias | RelativeBias) for part in parts]
    if not any(are_values):
        return bias, None
    if are_values != [False, True]:
        names = ", ".join(type(part).__name__ for part in parts)
        raise ShapeError(
            f"a tuple of biases must be (array, AlibiBias or RelativeBias), got ({names}); add "
            "arrays, and pass the sum"
        )
    return bias


def used_rng(dropout_rate: float, dropout_rng: jax.Array | None) -> jax.Array | None:
    """Checked PRNG key of dropout; None if nothing is dropped."""
    if dropout_rng is not None:
        check_rng("dropout_rng", dropout_rng)
    if dropout_rate == 0:
        return None
    if dropout_rng is None:
        raise ConfigError(
            f"dropout_rate={dropout_rate} needs a dropout_rng; pass one, or a rate of 0"
        )
    return jnp.asarray(dropout_rng)  # chunks hash the key, and a raw NumPy key is not hashable


def _check_arrays(query: jax.Array, key: jax.Array, value: jax.Array) -> dict[str, int]:
    """Checks query, key and value against each other, and returns T, N, H, S, K and Hv."""
    sizes = check_axes("query", query, "... T N H")
    if sizes["H"] == 0:
        raise ShapeError(f"query [..., T, N, H] must have a positive H, got shape {query.shape}")
    remedy = f"query is {describe('... T N H', sizes)}"
    sizes |= check_axes("key", key, "... S K H", {"H": sizes["H"]}, remedy=remedy)
    check_leading("key", key, 3, query.shape[:-3])
    known = {"S": sizes["S"], "K": sizes["K"]}
    remedy = f"key is {describe('... S K H', sizes)}"
    sizes |= check_axes("value", value, "... S K Hv", known, remedy=remedy)
    check_leading("value", value, 3, query.shape[:-3])
    arrays = {"query": query, "key": key, "value": value}
    for name, array in arrays.items():
        check_dtype(name, array, "floating", remedy="cast it with .astype")
        if array.dtype != query.dtype:
            raise ShapeError(
                f"{name} must have the query's dtype {query.dtype}, got {array.dtype}; cast one "
                "with .astype"
            )
    if sizes["K"] == 0 or sizes["N"] % sizes["K"]:
        raise ShapeError(
            f"query heads N must be a multiple of key heads K, got N={sizes['N']} of query "
            f"{query.shape} and K={sizes['K']} of key {key.shape}"
        )
    return sizes


def _align(
    name: str, array: Array | None, kind: str, weights_shape: tuple[int, ...]
) -> jax.Array | None:
    """Checks a mask or bias and gives it the rank of the weights."""
    if array is None:
        return None
    array = as_array(name, array)
    remedy = "True = attend; an additive one is the argument bias" if kind == "bool" else ""
    check_dtype(name, array, kind, remedy=remedy)
    rank = len(weights_shape)
    # [B, T, S] is not aligned: if B equals N, it would be read as one mask per head.
    if array.ndim == 2 and rank > 2:
        array = to_rank(array, rank)
    remedy = "or pass a plain [T, S]"
    if array.ndim == rank - 1:
        remedy = f"add the head axis with {name}[..., None, :, :] ({name}[:, None] for [B, T, S])"
    letters = " ".join(["..."] * (rank - 3) + ["N", "T", "S"])
    check_broadcast(name, array, weights_shape, letters, remedy=remedy)
    return array


def _check_position_bias(
    bias: PositionBias | None, dtype: jnp.dtype, sizes: dict[str, int]
) -> PositionBias | None:
    """Checks a position bias, and widens its numbers, so that gradients are summed in them."""

    def checked(name: str, numbers: Array, axes: str) -> jax.Array:
        numbers = as_array(name, numbers)
        check_axes(name, numbers, axes, {"N": sizes["N"]}, remedy="N is the query's")
        check_dtype(name, numbers, "floating")
        return numbers.astype(at_least(dtype, jnp.float32))

    if bias is None:
        return None
    if isinstance(bias, AlibiBias):
        return AlibiBias(checked("slopes of AlibiBias", bias.slopes, "N"))
    table = checked("table of RelativeBias", bias.table, "num_buckets N")
    return dataclasses.replace(bias, table=table)


def _static_options(
    options: ScoreKeywords, dropout_rate: float, return_residual: bool, head_dim: int
) -> StaticOptions:
    """Checks the numbers that must be known when a program is traced."""
    scale = options.get("scale")
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    static = StaticOptions(
        scale=static_number("scale", scale, remedy="if it is learned, multiply the query by it"),
        softcap=static_softcap(options.get("softcap")),
        dropout_rate=static_number("dropout_rate", dropout_rate),
        return_residual=static_bool("return_residual", return_residual),
    )
    if not 0 <= static.dropout_rate < 1:
        raise ConfigError(f"dropout_rate must be in [0, 1), got {dropout_rate}")
    return static


def _structure(
    options: MaskKeywords,
    sizes: dict[str, int],
    leading: tuple[int, ...],
    *,
    has_position_bias: bool,
) -> Structure:
    """Checks causality, window, lengths and segments, and fills in the defaults."""
    num_queries, num_keys = sizes["T"], sizes["S"]
    is_causal = static_bool("is_causal", options.get("is_causal", False))
    left, right = window_sides("local_window_size", options.get("local_window_size"))
    query_offset = options.get("query_offset")
    offset: int | jax.Array = 0
    if query_offset is not None:
        # Leaves half of the int32 range for the positions themselves.
        offset = _per_row("query_offset", read_offset("query_offset", query_offset, 2**30), leading)
    if is_causal or has_position_bias or (left, right) != (None, None):
        if query_offset is None and num_queries != num_keys:
            raise ShapeError(
                "is_causal, local_window_size and position biases need query_offset when T and S "
                "differ, got "
                f"T={num_queries} and S={num_keys}; 0 aligns the first query with the first "
                f"key, S - T = {num_keys - num_queries} the last with the last"
            )
    else:
        offset = 0  # unused here, but a decoding loop always passes it
    query_lengths = read_lengths(
        "query_seq_lengths", options.get("query_seq_lengths"), leading, num_queries
    )
    key_lengths = read_lengths(
        "key_value_seq_lengths", options.get("key_value_seq_lengths"), leading, num_keys
    )
    query_ids, key_ids = _segment_ids(options, num_queries, num_keys, leading)
    return Structure(
        # Causal attention is a window that ends at the query itself.
        window=(left, 0 if is_causal else right),
        offset=offset,
        query_lengths=query_lengths,
        key_lengths=key_lengths,
        query_ids=query_ids,
        key_ids=key_ids,
    )


def _segment_ids(
    options: MaskKeywords, num_queries: int, num_keys: int, leading: tuple[int, ...]
) -> tuple[jax.Array, jax.Array] | tuple[None, None]:
    """Checks the segment ids of queries and keys, and returns them in one dtype."""

    def checked(name: str, ids: Array, axis: str, size: int) -> jax.Array:
        ids = as_array(name, ids)
        check_dtype(name, ids, "integer")
        check_axes(name, ids, f"... {axis}", {axis: size})
        check_leading(name, ids, 1, leading)
        return ids

    query_ids, key_ids = options.get("query_segment_ids"), options.get("key_value_segment_ids")
    if query_ids is None and key_ids is None:
        return None, None
    if query_ids is None or key_ids is None:
        only = "query" if key_ids is None else "key_value"
        raise ShapeError(
            "query_segment_ids and key_value_segment_ids go together, got only "
            f"{only}_segment_ids; for self-attention pass the same array twice"
        )
    return alike_ids(
        checked("query_segment_ids", query_ids, "T", num_queries),
        checked("key_value_segment_ids", key_ids, "S", num_keys),
    )


def read_lengths(
    name: str, values: Lengths | None, leading: tuple[int, ...], largest: int
) -> int | jax.Array | None:
    """Checked lengths: an int stays an int, to skip blocks by; an array becomes int32 `[...]`."""
    if values is None:
        return None
    array = as_array(name, values)
    check_dtype(name, array, "integer")
    check_range(name, values, least=0, most=largest)
    if isinstance(values, int | np.integer):
        return int(values)
    # As wide as the positions it is compared with: a uint8 length would wrap.
    return _per_row(name, as_int32(array), leading)


def _per_row(name: str, array: int | jax.Array, leading: tuple[int, ...]) -> int | jax.Array:
    """Broadcasts an integer array to the leading axes."""
    if isinstance(array, int):
        return array
    if array.ndim > len(leading):
        raise ShapeError(
            f"{name} must broadcast to the leading axes {leading}, got shape {array.shape}"
        )
    array = to_rank(array, len(leading))
    check_broadcast(name, array, leading, "...", remedy="one value per row, or a single one")
    return jnp.broadcast_to(array, leading)

"""Arguments of attention, before and after checks and defaults."""

import dataclasses
import math
from typing import Any, Literal, TypedDict, Unpack, get_args

import jax
import jax.numpy as jnp

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention.block import StaticOptions
from jaxformer.functional.checks import (
    Array,
    as_array,
    as_arrays,
    check_axes,
    check_dtype,
    check_leading,
    check_rng,
    checked_factor,
    describe,
    static_bool,
    static_number,
    static_softcap,
)
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.masks.base import AnyMask, Mask, Sizes, all_rules, as_rule
from jaxformer.functional.masks.checks import (
    Integers,
    aligned,
    read_lengths,
    read_offset,
    read_segment_ids,
    window_sides,
)
from jaxformer.functional.masks.rules import Lengths, Segments, Window
from jaxformer.functional.masks.tiles import Slice, Tile, to_rank
from jaxformer.functional.positions.biases import AlibiBias, PositionBias, RelativeBias
from jaxformer.functional.static_numbers import static_numbers

WindowSize = int | tuple[int | None, int | None]
Bias = Array | PositionBias | tuple[Array, PositionBias]
"""Bias of the scores: an array, a position bias, or the sum of both as a pair."""
ImplementationName = Literal["dense", "chunked", "cudnn", "splash"]
Implementation = ImplementationName | Literal["auto", "xla"] | None


class MaskKeywords(TypedDict, total=False):
    """Keywords of `dot_product_attention`, which documents them, that decide what queries see."""

    is_causal: bool
    query_offset: Integers | None
    query_seq_lengths: Integers | None
    key_value_seq_lengths: Integers | None
    local_window_size: WindowSize | None
    query_segment_ids: Array | None
    key_value_segment_ids: Array | None


class AttentionKeywords(MaskKeywords, total=False):
    """All keywords but return_residual, which an attention function of one's own need not take."""

    scale: float | jax.Array | None
    softcap: float | None
    dropout_rate: float
    dropout_rng: jax.Array | None
    precision: jax.lax.PrecisionLike
    implementation: Implementation


@static_numbers
class AttentionInputs:
    """Checked arguments, the input of every attention implementation."""

    query: jax.Array  # [..., T, N, H]
    key: jax.Array  # [..., S, K, H]
    value: jax.Array  # [..., S, K, Hv]
    bias: jax.Array | None  # rank of [..., N, T, S], size 1 where it does not vary
    position_bias: PositionBias | None  # float32, or 64 for float64
    mask: Mask | None  # what hides keys, all but a bias of -inf
    offset: int | jax.Array  # position of the first query for the position bias; integer [...]
    static: StaticOptions
    dropout_rng: jax.Array | None  # None if nothing is dropped
    implementation: str

    def mask_of(self, queries: Slice | None = None, keys: Slice | None = None) -> jax.Array | None:
        """Mask of a block, or of all: bool `[..., N, t, s]`, size 1 where it does not vary."""
        tile = self._tile(queries, keys)
        allowed = None if self.mask is None else self.mask.allows(tile)
        if self.bias is None:
            return allowed
        # Not `isfinite`: a NaN in a bias must reach the output, not be hidden.
        by_bias = tile.block_of(self.bias) != -jnp.inf
        return by_bias if allowed is None else allowed & by_bias

    def bias_of(
        self, queries: Slice | None = None, keys: Slice | None = None, zero: int | jax.Array = 0
    ) -> jax.Array | None:
        """Sum of the biases of a block, or of all, float32 or 64, broadcastable like `mask_of`."""
        tile, bias = self._tile(queries, keys), None
        if self.bias is not None:
            bias = tile.block_of(self.bias).astype(at_least(self.query.dtype, jnp.float32))
        if self.position_bias is None:
            return bias
        (first_query, num_queries), (first_key, num_keys) = tile.queries, tile.keys
        # A traced `zero` keeps XLA from computing the biases of all blocks before a loop.
        offset = self.offset + (first_query + zero - first_key)
        by_distance = self.position_bias.array(num_queries, num_keys, offset)
        by_distance = to_rank(by_distance, self.query.ndim)
        return by_distance if bias is None else bias + by_distance

    def _tile(self, queries: Slice | None, keys: Slice | None) -> Tile:
        *leading, num_queries, _, _ = self.query.shape
        return Tile(queries or (0, num_queries), keys or (0, self.key.shape[-3]), tuple(leading))


def prepare_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Bias | None = None,
    mask: AnyMask | None = None,
    *,
    return_residual: bool = False,
    **options: Unpack[AttentionKeywords],
) -> AttentionInputs:
    """Checks the arguments of `dot_product_attention`, and fills in the defaults."""
    implementation = _check_implementation(options.get("implementation", "auto"))
    query, key, value = as_arrays(query=query, key=key, value=value)
    axes = _check_arrays(query, key, value)
    wide = at_least(query.dtype, jnp.float32)
    scale: Any = options.get("scale")
    scale = 1 / math.sqrt(axes["H"]) if scale is None else checked_factor("scale", scale, wide)
    if isinstance(scale, jax.Array):  # traced, as a learned one is
        query, scale = (query.astype(wide) * scale).astype(query.dtype), 1.0
    static = StaticOptions(
        scale=scale,
        softcap=static_softcap(options.get("softcap")),
        dropout_rate=static_number("dropout_rate", options.get("dropout_rate", 0.0)),
        return_residual=static_bool("return_residual", return_residual),
        precision=options.get("precision"),
    )  # fmt: skip
    if not 0 <= static.dropout_rate < 1:
        raise ConfigError(f"dropout_rate must be in [0, 1), got {static.dropout_rate}")
    dropout_rng = _used_rng(static.dropout_rate, options.get("dropout_rng"))
    sizes = Sizes(query.shape[:-3], axes["N"], axes["T"], axes["S"])
    weights_shape = (*sizes.leading, axes["N"], axes["T"], axes["S"])
    array, position_bias = split_bias(bias)
    array = None if array is None else aligned("bias", array, "floating", weights_shape)
    position_bias = _check_position_bias(position_bias, query.dtype, axes)
    mask = None if mask is None else as_rule(mask).checked(sizes)
    rules, offset = _rules(options, weights_shape, has_position_bias=position_bias is not None)
    mask = all_rules(*rules, mask)
    return AttentionInputs(
        query, key, value, array, position_bias, mask, offset, static, dropout_rng, implementation
    )


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


def _used_rng(dropout_rate: float, dropout_rng: jax.Array | None) -> jax.Array | None:
    """Checked PRNG key of dropout; None if nothing is dropped."""
    if dropout_rng is not None:
        check_rng("dropout_rng", dropout_rng)
    if dropout_rate == 0:
        return None
    if dropout_rng is None:
        raise ConfigError(
            f"dropout_rate={dropout_rate} needs a dropout_rng; pass one, or a rate of 0"
        )
    return jnp.asarray(dropout_rng)  # also a raw key of NumPy


def _check_implementation(implementation: Implementation) -> str:
    """Checks the name of an implementation; "xla" and None mean dense."""
    name = "dense" if implementation in ("xla", None) else implementation
    if not isinstance(name, str) or name not in ("auto", *get_args(ImplementationName)):
        raise ConfigError(
            "implementation must be 'auto', 'dense', 'chunked', 'cudnn' or 'splash' (None and "
            f"'xla' mean dense), got {implementation!r}"
        )
    return name


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


def _check_position_bias(
    bias: PositionBias | None, dtype: jnp.dtype, sizes: dict[str, int]
) -> PositionBias | None:
    """Checks a position bias, and widens its numbers, so that gradients are summed in them."""
    if bias is None:
        return None
    field, axes = ("slopes", "N") if isinstance(bias, AlibiBias) else ("table", "num_buckets N")
    name = f"{field} of {type(bias).__name__}"
    numbers = as_array(name, getattr(bias, field))
    check_axes(name, numbers, axes, {"N": sizes["N"]}, remedy="N is the query's")
    check_dtype(name, numbers, "floating")
    widened: dict[str, Any] = {field: numbers.astype(at_least(dtype, jnp.float32))}
    return dataclasses.replace(bias, **widened)


def _rules(
    keywords: MaskKeywords, weights_shape: tuple[int, ...], *, has_position_bias: bool
) -> tuple[list[Mask], int | jax.Array]:
    """The rules that keywords stand for, checked by the names of these, and the query offset."""
    leading, (num_queries, num_keys) = weights_shape[:-3], weights_shape[-2:]
    rules: list[Mask] = []
    is_causal = static_bool("is_causal", keywords.get("is_causal", False))
    left, right = window_sides("local_window_size", keywords.get("local_window_size"))
    query_offset = keywords.get("query_offset")
    offset = 0 if query_offset is None else read_offset("query_offset", query_offset, leading)
    has_window = is_causal or (left, right) != (None, None)
    if (has_window or has_position_bias) and query_offset is None and num_queries != num_keys:
        raise ShapeError(
            "is_causal, local_window_size and position biases need query_offset when T and S "
            "differ, got "
            f"T={num_queries} and S={num_keys}; 0 aligns the first query with the first "
            f"key, S - T = {num_keys - num_queries} the last with the last"
        )
    if has_window:
        # Causal attention is a window that ends at the query itself.
        rules.append(Window(left, 0 if is_causal else right, offset))
    queries, keys = keywords.get("query_seq_lengths"), keywords.get("key_value_seq_lengths")
    if queries is not None or keys is not None:
        rules.append(Lengths(
            read_lengths("query_seq_lengths", queries, leading, num_queries),
            read_lengths("key_value_seq_lengths", keys, leading, num_keys),
        ))  # fmt: skip
    names = ("query_segment_ids", "key_value_segment_ids")
    ids = {name: keywords.get(name) for name in names if keywords.get(name) is not None}
    if len(ids) == 1:
        raise ShapeError(
            f"query_segment_ids and key_value_segment_ids go together, got only {min(ids)}; for "
            "self-attention pass the same array twice"
        )
    if ids:
        rules.append(Segments(*read_segment_ids(ids, (num_queries, num_keys), leading)))
    # A decoding loop always passes an offset, but only a bias uses it here.
    return rules, offset if has_position_bias else 0

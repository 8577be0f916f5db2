"""Token embeddings, and logits from hidden states by the same table."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jaxformer.errors import DataError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_array,
    check_fields,
    known_values,
    static_softcap,
)
from jaxformer.functional.dtypes import as_int32, at_least
from jaxformer.functional.linear import DEFAULT_PRODUCTS, Products, add_bias, on_rows
from jaxformer.functional.sharding import explicit_spec, has_explicit_axes, on_automatic_axes


def embed(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """Token embeddings: one row of the table for each token.

    Args:
        table: float `[V, D]`.
        tokens: integer `[...]`, each in 0 .. V-1.

    Returns:
        float `[..., D]`. A traced token out of range cannot raise an error and gives a row of NaN.

    Raises:
        ShapeError: the table is not float `[V, D]`, or tokens are not integers.
        DataError: a known token is out of range.

    Example:
        >>> embed(jnp.eye(3), jnp.array([2, 0])).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
        >>> jax.jit(embed)(jnp.eye(3), jnp.array([2, -1])).tolist()
        [[0.0, 0.0, 1.0], [nan, nan, nan]]
    """
    table = as_array("table", table)
    sizes = check_array("table", table, "floating", "V D")
    check_array("tokens", tokens, "integer", "...")
    check_known_tokens("tokens", tokens, sizes["V"])
    return table_rows(table, tokens)


def check_known_tokens(
    name: str, tokens: Array, vocab_size: int, lengths: Array | None = None
) -> None:
    """Raises DataError if known tokens `[...]`, up to lengths `[B]`, are not in the vocabulary."""
    ids = known_values(tokens)
    if ids is None:
        return
    bad = (ids < 0) | (ids >= vocab_size)
    if lengths is not None:
        counts = known_values(lengths)
        if counts is None:
            return
        bad &= np.arange(ids.shape[-1])[None] < counts[:, None]
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"{name} must be in 0 .. V-1 = {vocab_size - 1}, got {ids[index]} at index {index}; "
            "encode them with the tokenizer of the model"
        )


def table_rows(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """Rows `[..., D]` of a table by token; NaN for a token out of range, known or traced."""
    check_array("tokens", tokens, "integer", "...")
    # Negative indices count from the end in JAX, so move them to V, where "fill" catches them. As
    # int32, because V may not fit the tokens' dtype.
    tokens = as_int32(jnp.asarray(tokens))
    index, table = jnp.where(tokens < 0, table.shape[0], tokens), jnp.asarray(table)
    if not has_explicit_axes(table, index):
        return _gather(table, index)
    split = PartitionSpec(*explicit_spec(index), explicit_spec(table)[-1])
    return on_automatic_axes(_gather, split, table, index)


def _gather(table: jax.Array, index: jax.Array) -> jax.Array:
    return table.at[index].get(mode="fill", fill_value=jnp.nan)  # [..., D]


def unembed(
    table: jax.Array, x: jax.Array, bias: jax.Array | None = None,
    *, softcap: float | None = None, products: Products = DEFAULT_PRODUCTS,
) -> jax.Array:  # fmt: skip
    """Logits: dot products of hidden states with every row of an embedding table.

    Args:
        table: float `[V, D]`.
        x: float `[..., D]`.
        bias: float `[V]`, added to the products.
        softcap: c in c * tanh(logits / c), the last step; None = no cap.
        products: precision and function of the matrix product.

    Returns:
        float32 (float64 for float64) logits `[..., V]`.

    Raises:
        ShapeError: the widths do not match, or an array is not floating.
        ConfigError: softcap is not positive and finite.

    References:
        Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024 (soft cap).

    Example:
        >>> unembed(jnp.eye(3), jnp.array([1.0, 2.0, 3.0])).tolist()
        [1.0, 2.0, 3.0]
    """
    check_unembedding("x", x, table, bias, products)
    softcap, wide = static_softcap(softcap), at_least(x.dtype, jnp.float32)
    rows = table.astype(x.dtype)
    contract = functools.partial(
        products.contract, kernel=rows, kernel_axis=1, preferred_element_type=wide
    )
    logits = add_bias(on_rows(contract, x).astype(wide), bias)  # [..., V]
    return logits if softcap is None else softcap * jnp.tanh(logits / softcap)


def check_unembedding(
    name: str, hidden: jax.Array, table: jax.Array, bias: jax.Array | None, products: Products
) -> int:
    """Checks the arguments of `unembed`, with the caller's name for x, and returns V."""
    sizes = check_array("table", table, "floating", "V D")
    check_array(name, hidden, "floating", "... D", sizes, remedy="D is the table's width")
    if bias is not None:
        check_array("bias", bias, "floating", "V", sizes, remedy="V is the table's height")
    check_fields("products", products, Products)
    return sizes["V"]

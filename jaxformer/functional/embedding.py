"""Token embeddings, and logits of hidden states against the same table."""

import math

import jax
import jax.numpy as jnp
from einops import pack, unpack

from jaxformer.errors import ConfigError
from jaxformer.functional.shapes import as_array, check_axes, check_dtype

__all__ = ["embed", "unembed"]


def embed(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """Token embeddings: one row of the table for each token.

    Args:
        table: float `[V, D]`.
        tokens: integer `[...]`.

    Returns:
        float `[..., D]`; a token outside 0 .. V-1 gives a row of NaN rather than another
        token's row.

    Raises:
        ShapeError: the table is not `[V, D]`, or tokens are not integers.

    Example:
        >>> embed(jnp.eye(3), jnp.array([2, -1])).tolist()
        [[0.0, 0.0, 1.0], [nan, nan, nan]]
    """
    table = as_array("table", table)
    sizes = check_axes("table", table, "V D")
    check_dtype("tokens", tokens, "integer")
    # Negative indices count from the end in JAX: send them where "fill" catches them. At least
    # int32, because V may not fit in the tokens' own dtype.
    tokens = tokens.astype(jnp.promote_types(tokens.dtype, jnp.int32))
    index = jnp.where(tokens < 0, sizes["V"], tokens)
    return table.at[index].get(mode="fill", fill_value=jnp.nan)


def unembed(table: jax.Array, x: jax.Array, *, softcap: float | None = None) -> jax.Array:
    """Logits: products of hidden states and every row of an embedding table.

    Args:
        table: float `[V, D]`.
        x: float `[..., D]`.
        softcap: c in c * tanh(logits / c); None = no cap.

    Returns:
        float32 (float64 for float64) logits `[..., V]`.

    Raises:
        ShapeError: the widths do not match, or x is not of floats.
        ConfigError: softcap is not positive and finite.

    References:
        Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024 (soft cap).

    Example:
        >>> unembed(jnp.eye(3), jnp.array([1.0, 2.0, 3.0])).tolist()
        [1.0, 2.0, 3.0]
    """
    check_axes("table", table, "V D")
    if softcap is not None and not 0 < softcap < math.inf:
        raise ConfigError(f"softcap must be positive and finite, got {softcap}; None = no cap")
    check_dtype("x", x, "floating", remedy="cast it with .astype")
    check_axes("x", x, "... D", {"D": table.shape[-1]}, remedy="D is the table's width")
    wide = jnp.promote_types(x.dtype, jnp.float32)
    rows, leading = pack([x], "* d")  # one 2-D product, as in `linear`
    logits = jnp.einsum("id,vd->iv", rows, table.astype(x.dtype), preferred_element_type=wide)
    (result,) = unpack(logits, leading, "* v")
    return result if softcap is None else softcap * jnp.tanh(result / softcap)

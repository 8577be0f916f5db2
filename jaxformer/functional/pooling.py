"""Pooling: one vector per sequence from the hidden states of its tokens."""

import jax
import jax.numpy as jnp

from jaxformer.functional.checks import check_array, check_choice
from jaxformer.functional.dtypes import as_int32, widened


def pool(
    hidden: jax.Array, lengths: jax.Array | None = None, *, pooling: str = "mean"
) -> jax.Array:
    """Pools the hidden states of each row: the mean, the first, or the last.

    Args:
        hidden: float `[B, T, D]`.
        lengths: int `[B]`, number of real tokens at the start of each row; T when not given. The
            others are ignored, even if NaN.
        pooling: "mean" of the real tokens, "first" token, or "last" real token.

    Returns:
        float32 (float64 for float64) `[B, D]`; 0 for a row of length 0.

    Raises:
        ShapeError: an array does not fit.
        ConfigError: pooling is unknown.

    References:
        Devlin et al., "BERT", 2019 (first); Reimers and Gurevych, "Sentence-BERT", 2019 (mean);
        Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018 (last).

    Example:
        >>> hidden = jnp.array([[[1.0], [3.0], [jnp.nan]]])
        >>> pool(hidden, jnp.array([2])).tolist()
        [[2.0]]
    """
    check_choice("pooling", pooling, ("mean", "first", "last"))
    sizes = check_array("hidden", hidden, "floating", "B T D")
    if lengths is None:
        lengths = jnp.full(sizes["B"], sizes["T"])
    check_array("lengths", lengths, "integer", "B", sizes)
    lengths = as_int32(lengths)  # T may not fit their dtype
    # `where`, not a product, because padding may hold NaN, and 0 * NaN is NaN.
    is_real = (jnp.arange(sizes["T"])[None] < lengths[:, None])[..., None]  # [B, T, 1]
    wide = jnp.where(is_real, widened(hidden), 0)  # [B, T, D]
    if pooling == "first":
        return wide[:, 0]
    if pooling == "last":
        last = (lengths.clip(1, sizes["T"]) - 1)[:, None, None]
        return jnp.take_along_axis(wide, last, axis=1)[:, 0]
    return wide.sum(axis=1) / jnp.maximum(is_real.sum(axis=1), 1).astype(wide.dtype)

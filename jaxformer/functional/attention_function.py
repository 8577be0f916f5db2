"""Calls a user's own attention function in place of the library's, and checks its result."""

import inspect
from collections.abc import Callable
from typing import Any, TypedDict

import jax

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention import (
    Implementation,
    Lengths,
    WindowSize,
    dot_product_attention,
)
from jaxformer.functional.shapes import Array

__all__ = ["AttentionFunction", "AttentionKeywords", "call_attention", "function_name"]

AttentionFunction = Callable[..., jax.Array]
"""A function with the signature of `dot_product_attention`."""


class AttentionKeywords(TypedDict, total=False):
    """The keyword arguments of `dot_product_attention`, which documents them.

    Without return_residual: layers use the output only, and an attention function of one's own
    need not know more.
    """

    scale: float | None
    is_causal: bool
    query_offset: Lengths | None
    query_seq_lengths: Lengths | None
    key_value_seq_lengths: Lengths | None
    local_window_size: WindowSize | None
    query_segment_ids: Array | None
    key_value_segment_ids: Array | None
    softcap: float | None
    dropout_rate: float
    dropout_rng: jax.Array | None
    implementation: Implementation


_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(dot_product_attention).parameters.items()
}


def call_attention(
    attention_fn: AttentionFunction,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: Array | None,
    mask: Array | None,
    options: AttentionKeywords,
) -> jax.Array:
    """Calls a user's or the library's attention function, and checks that it fits the call.

    Args:
        attention_fn: with the signature of `dot_product_attention`.
        query: float `[..., T, N, H]`.
        key: float `[..., S, K, H]`.
        value: float `[..., S, K, Hv]`.
        bias: as in `dot_product_attention`.
        mask: as in `dot_product_attention`.
        options: its other arguments. They, bias and mask are passed on by name, and only where
            they are not at their defaults.

    Returns:
        float `[..., T, N, Hv]`.

    Raises:
        ConfigError: attention_fn is no function, or does not take these arguments.
        ShapeError: its result has another shape or dtype.

    Example:
        >>> import jax.numpy as jnp
        >>> def mean_of_values(query, key, value):
        ...     return jnp.broadcast_to(value.mean(axis=-3, keepdims=True), query.shape)
        >>> x = jnp.ones((2, 3, 4, 5))
        >>> call_attention(mean_of_values, x, x, x, None, None, {}).shape
        (2, 3, 4, 5)
    """
    if attention_fn is dot_product_attention:
        return dot_product_attention(query, key, value, bias, mask, **options)
    if not callable(attention_fn):
        raise ConfigError(f"attention_fn must be a function, got {attention_fn!r}")
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not _DEFAULTS[k]}
    if given.get("dropout_rate") == 0:
        del given["dropout_rate"]
    given |= {k: v for k, v in (("bias", bias), ("mask", mask)) if v is not None}
    name = function_name(attention_fn)
    try:
        inspect.signature(attention_fn).bind(query, key, value, **given)
    except TypeError as error:
        raise ConfigError(
            "attention_fn must take the arguments of dot_product_attention that the model uses, "
            f"here {', '.join(['query', 'key', 'value', *given])}, got {name}: {error}; add them, "
            "and honour each (functional.attention_mask makes one mask of all structure)"
        ) from None
    attended = attention_fn(query, key, value, **given)
    expected = (*query.shape[:-1], value.shape[-1])
    got = getattr(attended, "shape", None), getattr(attended, "dtype", type(attended).__name__)
    if got != (expected, query.dtype):
        raise ShapeError(
            f"attention_fn must return [..., T, N, Hv] = {expected} of dtype {query.dtype}, got "
            f"shape {got[0]} and dtype {got[1]} from {name}"
        )
    return attended


def function_name(function: Callable[..., Any]) -> str:
    """Name of a function for messages."""
    return getattr(function, "__qualname__", None) or repr(function)

"""Calls a user's attention function instead of the library's, and checks its result."""

import inspect
from collections.abc import Callable
from typing import Any, TypedDict

import jax
import jax.numpy as jnp

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention import (
    Implementation,
    Lengths,
    WindowSize,
    dot_product_attention,
)
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.shapes import Array

__all__ = ["AttentionFunction", "AttentionKeywords", "call_attention", "function_name"]

AttentionFunction = Callable[..., jax.Array]
"""A function with the signature of `dot_product_attention`."""


class AttentionKeywords(TypedDict, total=False):
    """The keyword arguments of `dot_product_attention`, which documents them.

    return_residual is left out: only layers with sinks pass it, so other attention functions need
    not support it.
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
    *,
    with_residual: bool = False,
) -> tuple[jax.Array, jax.Array | None]:
    """Calls a user's or the library's attention function, and checks that it fits the call.

    Args:
        attention_fn: function with the signature of `dot_product_attention`.
        query: float `[..., T, N, H]`.
        key: float `[..., S, K, H]`.
        value: float `[..., S, K, Hv]`.
        bias: as in `dot_product_attention`.
        mask: as in `dot_product_attention`.
        options: its other arguments. They, bias and mask are passed by name, and only if not at
            their
            defaults.
        with_residual: whether to pass return_residual, for the log-sum-exp of the scores.

    Returns:
        The output, float `[..., T, N, Hv]`, and the log-sum-exp, float32 (float64 for float64)
        `[..., T, N]`, or None.

    Raises:
        ConfigError: attention_fn is not a function, or does not accept these arguments.
        ShapeError: its result has a wrong shape or dtype.

    Example:
        >>> import jax.numpy as jnp
        >>> def mean_of_values(query, key, value):
        ...     return jnp.broadcast_to(value.mean(axis=-3, keepdims=True), query.shape)
        >>> x = jnp.ones((2, 3, 4, 5))
        >>> call_attention(mean_of_values, x, x, x, None, None, {})[0].shape
        (2, 3, 4, 5)
        >>> _, residual = call_attention(
        ...     dot_product_attention, x, x, x, None, None, {}, with_residual=True
        ... )
        >>> residual.shape
        (2, 3, 4)
    """
    result: Any
    given: dict[str, Any] = {**options, "return_residual": with_residual}
    if attention_fn is dot_product_attention:
        result = dot_product_attention(query, key, value, bias, mask, **given)
        return result if with_residual else (result, None)
    result = _call(attention_fn, query, key, value, bias, mask, given)
    if with_residual and not (isinstance(result, tuple) and len(result) == 2):
        raise ShapeError(
            "attention_fn with return_residual=True must return (output, residual), got "
            f"{type(result).__name__} from {function_name(attention_fn)}"
        )
    attended, residual = result if with_residual else (result, None)
    _check_result(attention_fn, "", attended, (*query.shape[:-1], value.shape[-1]), query.dtype)
    if with_residual:
        wide = at_least(query.dtype, jnp.float32)
        _check_result(attention_fn, " as residual", residual, query.shape[:-1], wide)
    return attended, residual


def _call(
    attention_fn: AttentionFunction, query: jax.Array, key: jax.Array, value: jax.Array,
    bias: Array | None, mask: Array | None, options: dict[str, Any],
) -> Any:  # fmt: skip
    """Calls a user's attention function with the options that are not at their defaults."""
    if not callable(attention_fn):
        raise ConfigError(f"attention_fn must be a function, got {attention_fn!r}")
    given = {k: v for k, v in options.items() if v is not _DEFAULTS[k]}
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
            "and honour each (functional.attention_mask combines them into one mask)"
        ) from None
    return attention_fn(query, key, value, **given)


def _check_result(
    attention_fn: AttentionFunction, what: str, result: Any, shape: tuple[int, ...], dtype: Any
) -> None:
    got = getattr(result, "shape", None), getattr(result, "dtype", type(result).__name__)
    if got != (shape, dtype):
        axes = "[..., T, N]" if what else "[..., T, N, Hv]"
        raise ShapeError(
            f"attention_fn must return {axes} = {shape} of dtype {dtype}{what}, got "
            f"shape {got[0]} and dtype {got[1]} from {function_name(attention_fn)}"
        )


def function_name(function: Callable[..., Any]) -> str:
    """Name of a function for messages."""
    return getattr(function, "__qualname__", None) or repr(function)

"""Calls a user's attention function instead of the library's, and checks its result."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention import (
    AttentionKeywords,
    Bias,
    dot_product_attention,
    sharded_attention,
)
from jaxformer.functional.attention.block_mask import full_bias, full_mask
from jaxformer.functional.attention.inputs import prepare_attention, split_bias
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.masks.base import AnyMask, Mask
from jaxformer.functional.multi_head.cached import uses_positions

AttentionFunction = Callable[..., jax.Array]
"""A function with the signature of `dot_product_attention`."""

_TAKE_RULES_AND_POSITION_BIASES = (dot_product_attention, sharded_attention)
_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(dot_product_attention).parameters.items()
}


def call_attention(
    attention_fn: AttentionFunction,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: Bias | None,
    mask: AnyMask | None,
    options: AttentionKeywords,
    *,
    with_residual: bool = False,
) -> tuple[jax.Array, jax.Array | None]:
    """Checked output `[..., T, N, Hv]` of any attention function, and residual or None."""
    result: Any
    keywords: dict[str, Any] = {**options, "return_residual": with_residual}
    if attention_fn is dot_product_attention:
        result = dot_product_attention(query, key, value, bias, mask, **keywords)
        return result if with_residual else (result, None)
    inner = attention_fn.func if isinstance(attention_fn, functools.partial) else attention_fn
    if inner not in _TAKE_RULES_AND_POSITION_BIASES:
        # A user's own function knows masks and biases as arrays only.
        if isinstance(mask, Mask):
            mask = full_mask(prepare_attention(query, key, value, mask=mask))
        if split_bias(bias)[1] is not None:
            offset = options.get("query_offset")
            bias = full_bias(prepare_attention(query, key, value, bias, query_offset=offset))
            if not uses_positions(options):
                keywords.pop("query_offset", None)
    result = _call(attention_fn, query, key, value, bias, mask, keywords)
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
    bias: Bias | None, mask: AnyMask | None, options: dict[str, Any],
) -> Any:  # fmt: skip
    """Calls a user's attention function with the options that are not at their defaults."""
    if not callable(attention_fn):
        raise ConfigError(f"attention_fn must be a function, got {attention_fn!r}")
    keywords = {k: v for k, v in options.items() if not _is_default(k, v)}
    keywords |= {k: v for k, v in (("bias", bias), ("mask", mask)) if v is not None}
    name = function_name(attention_fn)
    try:
        inspect.signature(attention_fn).bind(query, key, value, **keywords)
    except TypeError as error:
        raise ConfigError(
            "attention_fn must take the arguments of dot_product_attention that the model uses, "
            f"here {', '.join(['query', 'key', 'value', *keywords])}, got {name}: {error}; add "
            "them, and honour each (functional.attention_mask combines them into one mask)"
        ) from None
    return attention_fn(query, key, value, **keywords)


def _is_default(name: str, value: Any) -> bool:
    # By value, since a string that was read from a file is another object; but an array is none.
    return value is _DEFAULTS[name] or (np.isscalar(value) and value == _DEFAULTS[name])


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

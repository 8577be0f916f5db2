"""Calls a user's attention function instead of the library's, and checks its result."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention import (
    AttentionKeywords,
    Bias,
    dot_product_attention,
    ring_attention,
    sharded_attention,
    sharded_ring_attention,
)
from jaxformer.functional.attention.inputs import prepare_attention, split_bias
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.masks.base import AnyMask, Mask

AttentionFunction = Callable[..., jax.Array]
"""A function with the signature of `dot_product_attention`."""

_TAKE_RULES_AND_POSITION_BIASES = (
    dot_product_attention, sharded_attention, ring_attention, sharded_ring_attention,
)  # fmt: skip
_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(dot_product_attention).parameters.items()
}


class AttentionCall(NamedTuple):
    """Arguments of an attention function."""

    query: jax.Array  # [..., T, N, H]
    key: jax.Array  # [..., S, K, H]
    value: jax.Array  # [..., S, K, Hv]
    bias: Bias | None
    mask: AnyMask | None
    options: AttentionKeywords


def unwrap_partial(
    attention_fn: AttentionFunction, options: AttentionKeywords
) -> tuple[AttentionFunction, AttentionKeywords]:
    """A `functools.partial` of `dot_product_attention` as that function, and all its options."""
    if not isinstance(attention_fn, functools.partial) or attention_fn.args:
        return attention_fn, options
    keywords: Any = attention_fn.keywords
    known = AttentionKeywords.__annotations__.keys()
    if attention_fn.func is not dot_product_attention or not keywords.keys() <= known:
        return attention_fn, options
    of_call: Any = {name: value for name, value in options.items() if not _is_default(name, value)}
    return dot_product_attention, {**keywords, **of_call}


def attention_keywords(
    attention_fn: AttentionFunction, call: AttentionCall, *, with_residual: bool
) -> dict[str, Any]:
    """Keywords with which an attention function is called, beside query, key and value."""
    inner = attention_fn.func if isinstance(attention_fn, functools.partial) else attention_fn
    if inner not in _TAKE_RULES_AND_POSITION_BIASES:
        call = _without_rules(call)
    keywords = {
        **call.options, "bias": call.bias, "mask": call.mask, "return_residual": with_residual,
    }  # fmt: skip
    if attention_fn is dot_product_attention:
        return keywords
    keywords = {name: v for name, v in keywords.items() if not _is_default(name, v)}
    _check_signature(attention_fn, call, keywords)
    return keywords


def checked_result(
    attention_fn: AttentionFunction, call: AttentionCall, result: Any, *, with_residual: bool
) -> tuple[jax.Array, jax.Array | None]:
    """Output `[..., T, N, Hv]` of any attention function, and residual `[..., T, N]` or None."""
    if with_residual and not (isinstance(result, tuple) and len(result) == 2):
        raise ShapeError(
            "attention_fn with return_residual=True must return (output, residual), got "
            f"{type(result).__name__} from {function_name(attention_fn)}"
        )
    output, residual = result if with_residual else (result, None)
    rows, dtype = call.query.shape[:-1], call.query.dtype
    _check_array(attention_fn, "", output, (*rows, call.value.shape[-1]), dtype)
    if with_residual:
        _check_array(attention_fn, " as residual", residual, rows, at_least(dtype, jnp.float32))
    return output, residual


def uses_positions(options: AttentionKeywords) -> bool:
    """Whether a call depends on query_offset without a position bias."""
    return bool(options.get("is_causal")) or options.get("local_window_size") is not None


def _without_rules(call: AttentionCall) -> AttentionCall:
    """The call with arrays as mask and bias, since a user's own function knows no others."""
    arrays, bias, mask, options = call[:3], call.bias, call.mask, call.options
    if isinstance(mask, Mask):
        mask = prepare_attention(*arrays, mask=mask).mask_of()
    if split_bias(bias)[1] is not None:
        offset = options.get("query_offset")
        bias = prepare_attention(*arrays, bias, query_offset=offset).bias_of()
        if not uses_positions(options):
            options = {**options, "query_offset": None}
    return AttentionCall(*arrays, bias, mask, options)


def _check_signature(
    attention_fn: AttentionFunction, call: AttentionCall, keywords: dict[str, Any]
) -> None:
    """Raises ConfigError if a user's attention function does not take the arguments of a call."""
    if not callable(attention_fn):
        raise ConfigError(f"attention_fn must be a function, got {attention_fn!r}")
    try:
        inspect.signature(attention_fn).bind(*call[:3], **keywords)
    except TypeError as error:
        raise ConfigError(
            "attention_fn must take the arguments of dot_product_attention that the model uses, "
            f"here {', '.join(['query', 'key', 'value', *keywords])}, got "
            f"{function_name(attention_fn)}: {error}; add them, and honour each "
            "(functional.attention_mask combines them into one mask)"
        ) from None


def _is_default(name: str, value: Any) -> bool:
    # By value, since a string that was read from a file is another object; but an array is none.
    return value is _DEFAULTS[name] or (np.isscalar(value) and value == _DEFAULTS[name])


def _check_array(
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

"""Attention functions of a user's own, and attention weights in each head; axes as in `layer`."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.attention import (
    AttentionKeywords,
    Bias,
    dot_product_attention,
    ring_attention,
    sharded_attention,
    sharded_ring_attention,
)
from jaxformer.functional.attention.block import softmax_factors
from jaxformer.functional.attention.dense import average_values, dense_weights
from jaxformer.functional.attention.inputs import AttentionInputs, prepare_attention, split_bias
from jaxformer.functional.checks import check_array
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.masks.base import AnyMask, Mask
from jaxformer.functional.taps import LayerTaps

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


def attention_of(attention_fn: AttentionFunction, call: AttentionCall) -> Callable[..., Any]:
    """The attention of a call, to be called without arguments, or with return_residual."""
    if attention_fn is dot_product_attention:
        return functools.partial(attention_fn, *call[:-1], **call.options)
    return functools.partial(_attend_by_user, attention_fn, call)


def _attend_by_user(
    attention_fn: AttentionFunction, call: AttentionCall, *, return_residual: bool = False
) -> Any:
    """Calls a user's function with the arguments that it has to take, and checks its result."""
    inner = attention_fn.func if isinstance(attention_fn, functools.partial) else attention_fn
    if inner not in _TAKE_RULES_AND_POSITION_BIASES:
        call = _without_rules(call)
    keywords: dict[str, Any] = {
        **call.options, "bias": call.bias, "mask": call.mask, "return_residual": return_residual,
    }  # fmt: skip
    keywords = {name: v for name, v in keywords.items() if not _is_default(name, v)}
    _check_signature(attention_fn, call, keywords)
    result: Any = attention_fn(*call[:3], **keywords)
    rows, dtype, output = call.query.shape[:-1], call.query.dtype, result
    if return_residual:
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ShapeError(
                "attention_fn with return_residual=True must return (output, residual), got "
                f"{type(result).__name__} from {_function_name(attention_fn)}"
            )
        output, residual = result
        _check_array(attention_fn, " as residual", residual, rows, at_least(dtype, jnp.float32))
    _check_array(attention_fn, "", output, (*rows, call.value.shape[-1]), dtype)
    return result


def weights_in_heads(
    attention_fn: AttentionFunction, call: AttentionCall, sinks: jax.Array | None,
    tap: LayerTaps | None,
) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
    """Weights `[..., N, T, S]`, which a tap reads and edits; and head outputs by edited ones."""
    is_edited = tap is not None and tap.edits("scores", "weights")
    if attention_fn is dot_product_attention:
        inputs = prepare_attention(*call[:-1], **call.options)
        weights = _softmax_weights(inputs, sinks, tap)
        weights = weights if tap is None else tap("weights", weights)
        # Reading weights does not change how the output is computed; editing them does.
        return weights, average_values(inputs, weights) if is_edited else None
    if is_edited or (tap is not None and tap.asks("scores")):
        raise ConfigError(
            "scores of a custom attention_fn are not known, and its weights cannot be edited, "
            f"got {_function_name(attention_fn)}; do not request it, or use dot_product_attention"
        )
    weights = _weights_of_function(attention_fn, call, sinks)
    return weights if tap is None else tap("weights", weights), None


def _softmax_weights(
    inputs: AttentionInputs, sinks: jax.Array | None, tap: LayerTaps | None
) -> jax.Array:
    """Weights `[..., N, T, S]` before dropout; the tap reads and edits the scores."""
    factors = softmax_factors(dense_weights(inputs, "masked", tap))
    weights = factors.exponentials * factors.inverse
    if sinks is None:
        return weights
    shares = _share_of_keys(sinks, rearrange(factors.residual, "... n t 1 -> ... t n"))
    return weights * rearrange(shares, "... t n -> ... n t 1")


def _weights_of_function(
    attention_fn: AttentionFunction, call: AttentionCall, sinks: jax.Array | None
) -> jax.Array:
    """Weights `[..., N, T, S]` of a user's function, before dropout."""
    # Its output for the identity matrix as values, one row per key: exact if it is linear in them.
    (*leading, num_keys, kv_heads, _), wide = call.key.shape, at_least(call.key.dtype, jnp.float32)
    identity = rearrange(jnp.eye(num_keys, dtype=wide), "s v -> s 1 v")
    call = call._replace(
        query=call.query.astype(wide), key=call.key.astype(wide),
        value=jnp.broadcast_to(identity, (*leading, num_keys, kv_heads, num_keys)),
        options={**call.options, "dropout_rate": 0.0, "dropout_rng": None},
    )  # fmt: skip
    attend = attention_of(attention_fn, call)
    output = attend() if sinks is None else beside_sinks(sinks, *attend(return_residual=True))
    return rearrange(output, "... t n s -> ... n t s")


def beside_sinks(sinks: jax.Array, output: jax.Array, log_sum_exp: jax.Array) -> jax.Array:
    """Head outputs `[..., T, N, Hv]`, of which the sinks take their share."""
    return output * _share_of_keys(sinks, log_sum_exp)[..., None].astype(output.dtype)


def _share_of_keys(sinks: jax.Array, log_sum_exp: jax.Array) -> jax.Array:
    """Share of the softmax that goes to the keys, not the sink, of scores: float `[..., T, N]`."""
    check_array("sinks", sinks, "floating", "N", {"N": log_sum_exp.shape[-1]})
    # exp(log_sum_exp) / (exp(log_sum_exp) + exp(sink))
    sinks = jnp.broadcast_to(sinks.astype(log_sum_exp.dtype), log_sum_exp.shape)
    return jax.nn.sigmoid(log_sum_exp - sinks)


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
            f"{_function_name(attention_fn)}: {error}; add them, and honour each "
            "(functional.attention_mask combines them into one mask)"
        ) from error


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
            f"shape {got[0]} and dtype {got[1]} from {_function_name(attention_fn)}"
        )


def _function_name(function: Callable[..., Any]) -> str:
    """Name of a function for messages."""
    return getattr(function, "__qualname__", None) or repr(function)

"""Attention contexts: masks, biases and functions for each layer's attention."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import cast

import jax
import jax.numpy as jnp

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.attention import (
    RingLayout,
    add_biases,
    dot_product_attention,
    sharded_attention,
    sharded_ring_attention,
)
from jaxformer.functional.checks import is_symbolic
from jaxformer.functional.multi_head import AttentionFunction, KVCache, Rotation, WindowCache
from jaxformer.functional.platforms import default_platform
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.layer_caches import Cache, caches_of_layers
from jaxformer.modules.mesh import mesh_axes, num_parts
from jaxformer.modules.positions import Positions

AttentionFunctions = AttentionFunction | Mapping[str, AttentionFunction]
"""One attention function for all layers, or a dict of functions that layers choose by name."""

_DEFAULT_ATTENTION = "dot_product"


def layer_contexts(
    config: ModelConfig,
    shared: AttentionContext,
    positions: jax.Array,
    cache: Cache | None,
    *,
    attention_fn: AttentionFunctions,
    scheme_of: Callable[[LayerConfig], Positions],
    needs_weights: bool,
) -> list[AttentionContext]:
    """Attention context of each layer; layers with the same settings share one."""
    # Sharing avoids tracing the same tables and biases once per layer. A scan relies on it: it runs
    # every repeat of the pattern with the contexts of the first.
    functions = _functions_by_name(attention_fn, config)
    caches = caches_of_layers(cache)
    room = _room(config, positions.shape[1], cache)
    rotations: dict[int, Rotation | None] = {}
    contexts: dict[tuple[LayerConfig, type, int], AttentionContext] = {}
    result = []
    for index, layer in enumerate(config.layer_overrides):
        layer_cache = None if caches is None else caches[index]
        # Caches of equal kind and size have equal lengths, and so the same bias.
        slots = 0 if layer_cache is None else layer_cache.key.shape[-2]
        key = (layer, type(layer_cache), slots)
        if key not in contexts:
            scheme = scheme_of(layer)
            if id(scheme) not in rotations:
                rotations[id(scheme)] = scheme.rotation_for(positions, room)
            size = config.window_of(layer)
            context = dataclasses.replace(
                shared,
                local_window_size=None if size is None else (size, 0 if shared.is_causal else size),
                attention_fn=functions[layer.attention or _DEFAULT_ATTENTION],
                rotation=rotations[id(scheme)],
            )
            context = _with_bias(context, scheme, positions.shape[1], layer_cache)
            if layer_cache is None and not needs_weights:
                context = _over_devices(context, config, *positions.shape)
            contexts[key] = context
        result.append(contexts[key])
    return result


def _room(config: ModelConfig, num_tokens: int, cache: Cache | None) -> int:
    """Maximum row length: T, or the capacity of the caches; max_len if they have none."""
    if cache is None:
        return config.max_len if is_symbolic(num_tokens) else num_tokens
    layers = caches_of_layers(cache)
    whole = [layer.capacity for layer in layers if isinstance(layer, KVCache)]
    return min([config.max_len, *whole[:1]])  # capacities are rounded up


def _over_devices(
    context: AttentionContext, config: ModelConfig, num_rows: int, num_tokens: int
) -> AttentionContext:
    """Chooses the attention function where jit splits the program over devices."""
    # The logical axis rules of activations say which mesh axes split rows, tokens and heads.
    rows, tokens, heads = map(mesh_axes, ("batch", "sequence", "heads"))
    if context.attention_fn is not dot_product_attention:
        return context
    if context.mask is not None or context.bias is not None:
        return context
    parts, kernel = num_parts(heads), config.attention_implementation
    head_axes = heads if config.num_heads % parts == config.kv_heads % parts == 0 else ()
    attend: AttentionFunction
    if num_parts(tokens) == 1:
        # An attention that can call the kernel of TPUs, which jit cannot split.
        on_tpu = kernel == "auto" and default_platform() == "tpu"
        if num_parts(rows) * parts == 1 or not (on_tpu or kernel == "splash"):
            return context
        attend = functools.partial(sharded_attention, batch_axes=rows, head_axes=head_axes)
    else:
        # XLA would gather the keys and values of whole sequences on every device. A ring does not
        # return the residual that sinks need, and calls no kernel.
        if len(tokens) != 1 or config.attention_sinks or kernel in ("cudnn", "splash"):
            return context
        if not num_rows % num_parts(rows) == num_tokens % (2 * num_parts(tokens)) == 0:
            return context
        layout = RingLayout(
            sequence_axis=tokens[0], batch_axes=rows, head_axes=head_axes, in_ring_order=False
        )
        attend = functools.partial(sharded_ring_attention, layout=layout)
    return dataclasses.replace(context, attention_fn=attend)


def _functions_by_name(
    attention_fn: AttentionFunctions, config: ModelConfig
) -> dict[str, AttentionFunction]:
    """Attention functions by name, checked against the names that layers use."""
    if not isinstance(attention_fn, Mapping):
        attention_fn = {_DEFAULT_ATTENTION: attention_fn}
    functions: dict[str, AttentionFunction] = {
        _DEFAULT_ATTENTION: dot_product_attention,
        **attention_fn,
    }
    named = {layer.attention or _DEFAULT_ATTENTION for layer in config.layer_overrides}
    if unknown := sorted(named - functions.keys()):
        raise ConfigError(
            f"a layer's attention must be one of {', '.join(functions)}, got {unknown[0]!r}; pass "
            f"attention_fn={{{unknown[0]!r}: a function}} to the model"
        )
    if unused := sorted(functions.keys() - named - {_DEFAULT_ATTENTION}):
        raise ConfigError(
            f"attention_fn has {unused[0]!r}, which no layer names; give a layer in "
            f"config.layers attention={unused[0]!r}, or pass one function for all layers"
        )
    for function in functions.values():
        if not callable(function):
            raise ConfigError(f"an attention_fn must be a function, got {function!r}")
    return functions


def _with_bias(
    context: AttentionContext, scheme: Positions, num_queries: int,
    cache: KVCache | WindowCache | None,
) -> AttentionContext:  # fmt: skip
    """Adds the bias of a position scheme, and reorders bias and mask by the slots of a cache."""
    num_keys, offset = (num_queries, 0) if cache is None else cache.key_layout(num_queries)
    by_scheme = scheme.bias(num_queries, num_keys, offset)
    bias, mask = cast("jax.Array | None", context.bias), context.mask  # the caller's is an array
    if cache is not None:
        bias = None if bias is None else cache.by_slot(bias, num_queries)
        mask = cache.by_slot(mask, num_queries) if isinstance(mask, jax.Array) else mask
        if mask is None and not context.is_causal:
            # Cached attention must be causal or have a mask; this one hides no key.
            mask = jnp.ones((1, 1, 1, 1), bool)
    return dataclasses.replace(context, bias=add_biases(bias, by_scheme), mask=mask)

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
    add_biases,
    dot_product_attention,
    sharded_attention,
    sharded_ring_attention,
)
from jaxformer.functional.checks import is_symbolic
from jaxformer.functional.multi_head import AttentionFunction, KVCache, Rotation, WindowCache
from jaxformer.functional.platforms import default_platform
from jaxformer.models.ring import ring_layout
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.mesh import mesh_axes, num_parts
from jaxformer.modules.positions import Positions
from jaxformer.modules.stacked_layers import Cache, cache_capacity, caches_of_layers

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
        layer_cache = caches[index] if caches else None
        # Caches of equal kind and size have equal lengths, and so the same bias.
        slots = 0 if layer_cache is None else layer_cache.key.shape[-2]
        key = (layer, type(layer_cache), slots)
        if key not in contexts:
            scheme = scheme_of(layer)
            if id(scheme) not in rotations:
                rotations[id(scheme)] = scheme.rotation(positions, room)
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
    return min(config.max_len, cache_capacity(cache) or config.max_len)  # it is rounded up


def _over_devices(
    context: AttentionContext, config: ModelConfig, num_rows: int, num_tokens: int
) -> AttentionContext:
    """The context with the attention function for the devices that jit splits a program over."""
    if context.attention_fn is not dot_product_attention:
        return context
    attend: AttentionFunction
    if (layout := ring_layout(config, context, num_rows, num_tokens)) is not None:
        layout = dataclasses.replace(layout, in_ring_order=context.order is not None)
        attend = functools.partial(sharded_ring_attention, layout=layout)
        return dataclasses.replace(context, attention_fn=attend)
    kernel = config.attention_implementation
    has_kernel = kernel == "splash" or (kernel == "auto" and default_platform() == "tpu")
    rows, heads = mesh_axes("batch"), mesh_axes("heads")
    if num_parts(rows) * num_parts(heads) == 1 or num_parts(mesh_axes("sequence")) > 1:
        return context
    if not has_kernel or context.mask is not None or context.bias is not None:
        return context
    # Devices have a part each, in which attention can call the kernel of TPUs: jit cannot split it.
    divides = config.num_heads % num_parts(heads) == config.kv_heads % num_parts(heads) == 0
    attend = functools.partial(
        sharded_attention, batch_axes=rows, head_axes=heads if divides else ()
    )
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

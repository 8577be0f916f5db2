"""Attention contexts: masks, biases and functions for each layer's attention."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import cast

import jax
import jax.numpy as jnp

from jaxformer.config import LayerConfig, ModelConfig, PositionsConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.attention import (
    add_biases,
    dot_product_attention,
    sharded_attention,
    sharded_ring_attention,
)
from jaxformer.functional.checks import is_symbolic
from jaxformer.functional.multi_head import AttentionFunction
from jaxformer.functional.platforms import default_platform
from jaxformer.models.ring import ring_layout
from jaxformer.models.transformer_inputs import CheckedInputs
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.mesh import mesh_axes, num_parts
from jaxformer.modules.positions import Positions
from jaxformer.modules.stacked_layers import Cache, LayerCache, cache_capacity, caches_of_layers

AttentionFunctions = AttentionFunction | Mapping[str, AttentionFunction]
"""One attention function for all layers, or a dict of functions that layers choose by name."""

_DEFAULT_ATTENTION = "dot_product"


def layer_contexts(
    config: ModelConfig, inputs: CheckedInputs, *, attention_fn: AttentionFunctions,
    schemes: Mapping[PositionsConfig | None, Positions],
) -> list[AttentionContext]:  # fmt: skip
    """Attention context of each layer; `schemes` are by the `positions` of layers.

    Layers with the same settings share a context, so that the same tables and biases are not traced
    once per layer. A scan relies on it: it runs every repeat of the pattern with the contexts of
    the first.
    """
    layers, (num_rows, num_tokens) = config.layer_overrides, inputs.positions.shape
    caches = caches_of_layers(inputs.cache) or (None,) * len(layers)
    functions = _functions_by_name(attention_fn, config)
    room = _room(config, num_tokens, inputs.cache)
    rotations = {
        kind: schemes[kind].rotation(inputs.positions, room)
        for kind in dict.fromkeys(layer.positions for layer in layers)
    }

    def make(layer: LayerConfig, cache: LayerCache | None) -> AttentionContext:
        size = config.window_of(layer)
        sides = None if size is None else (size, 0 if inputs.context.is_causal else size)
        context = dataclasses.replace(
            inputs.context,
            local_window_size=sides,
            attention_fn=functions[layer.attention or _DEFAULT_ATTENTION],
            rotation=rotations[layer.positions],
        )
        context = _with_bias(context, schemes[layer.positions], num_tokens, cache)
        is_custom = context.attention_fn is not dot_product_attention
        if is_custom or cache is not None or inputs.needs_weights:
            return context
        attend = _attention_over_devices(context, config, num_rows, num_tokens)
        return dataclasses.replace(context, attention_fn=attend)

    shared: dict[tuple[LayerConfig, type, int], AttentionContext] = {}
    contexts = []
    for layer, cache in zip(layers, caches, strict=True):
        # Caches of equal kind and size have equal lengths, and so the same bias.
        key = layer, type(cache), 0 if cache is None else cache.key.shape[-2]
        if key not in shared:
            shared[key] = make(layer, cache)
        contexts.append(shared[key])
    return contexts


def _room(config: ModelConfig, num_tokens: int, cache: Cache | None) -> int:
    """Maximum row length: T, or the capacity of the caches; max_len if they have none."""
    if cache is None:
        return config.max_len if is_symbolic(num_tokens) else num_tokens
    return min(config.max_len, cache_capacity(cache) or config.max_len)  # it is rounded up


def _attention_over_devices(
    context: AttentionContext, config: ModelConfig, num_rows: int, num_tokens: int
) -> AttentionFunction:
    """`dot_product_attention` for the devices that jit splits a program over."""
    if (layout := ring_layout(config, context, num_rows, num_tokens)) is not None:
        return functools.partial(sharded_ring_attention, layout=layout)
    kernel = config.attention_implementation
    has_kernel = kernel == "splash" or (kernel == "auto" and default_platform() == "tpu")
    rows, heads = mesh_axes("batch"), mesh_axes("heads")
    is_split = num_parts(rows + heads) > 1 and num_parts(mesh_axes("sequence")) == 1
    if not has_kernel or not is_split or context.mask is not None or context.bias is not None:
        return dot_product_attention
    # Devices have a part each, in which attention can call the kernel of TPUs: jit cannot split it.
    divides = config.num_heads % num_parts(heads) == config.kv_heads % num_parts(heads) == 0
    return functools.partial(sharded_attention, batch_axes=rows, head_axes=heads if divides else ())


def _functions_by_name(
    attention_fn: AttentionFunctions, config: ModelConfig
) -> dict[str, AttentionFunction]:
    """Attention functions by name, checked against the names that layers use."""
    if not isinstance(attention_fn, Mapping):
        attention_fn = {_DEFAULT_ATTENTION: attention_fn}
    default: AttentionFunction = dot_product_attention
    functions = {_DEFAULT_ATTENTION: default, **attention_fn}
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
    context: AttentionContext, scheme: Positions, num_queries: int, cache: LayerCache | None
) -> AttentionContext:
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

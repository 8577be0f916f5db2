"""Keyword arguments of the models, and the checks of a forward pass."""

import dataclasses
from collections.abc import Mapping
from types import UnionType
from typing import Any, TypedDict, Unpack

import jax
import jax.numpy as jnp

from jaxformer.config import ModelConfig
from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    as_array,
    check_array,
    check_axes,
    check_keywords,
    check_row_counts,
    is_symbolic,
    static_bool,
)
from jaxformer.functional.embedding import check_known_tokens
from jaxformer.functional.masks.base import Mask
from jaxformer.functional.masks.checks import aligned
from jaxformer.functional.multi_head import KVCache, WindowCache
from jaxformer.functional.taps import Taps, check_taps
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.stacked_layers import (
    Cache,
    ScannedCache,
    cache_capacity,
    caches_of_layers,
    check_one_per_layer,
)


class TransformerInputs(TypedDict, total=False):
    """The keyword arguments of a model's call; all may be left out.

    Args:
        lengths: int `[B]`, number of real tokens at the start of each row; T when not given. The
            rest is padding and is ignored.
        positions: integer `[B, T]`; counted from 0, or from the cached tokens, when not given.
            ALiBi and relative biases ignore them and count tokens by their order in the row.
        segment_ids: integer `[B, T]`; tokens attend only to their own segment. Number them from 1:
            0 is padding, which the losses of a mixture of experts do not count.
        token_types: integer `[B, T]`, each in 0 .. num_token_types-1; all 0 when not given.
        mask: bool, True = attend: `[T, S]`, or of rank 4 and broadcastable to `[B, N, T, S]`. S is
            T, or the capacity of the cache. It applies in every layer, in addition to causal order,
            windows, lengths and segments.
        bias: float, added to the scores of every layer; shaped like the mask.
        cache: keys and values of earlier tokens, one cache per layer, from `init_cache` or an
            earlier call.
        encoded: float `[B, S, D]`, the encoder's output, for cross-attention.
        encoded_lengths: int `[B]`, number of real tokens at the start of each of its rows.
        encoded_mask: bool, True = attend; broadcasts to `[B, N, T, S]`, for cross-attention.
        cross_cache: keys and values of the encoder's output, from an earlier call with a cache;
            instead of `encoded` and its lengths.
        deterministic: whether dropout is off (the default); if not, pass `rngs={"dropout": key}`.
        return_weights: whether to return the attention weights of all layers.
        taps: what to read and edit inside the layers.
    """

    lengths: jax.Array | None
    positions: jax.Array | None
    segment_ids: jax.Array | None
    token_types: jax.Array | None
    mask: jax.Array | Mask | None
    bias: jax.Array | None
    cache: Cache | None
    encoded: jax.Array | None
    encoded_lengths: jax.Array | None
    encoded_mask: jax.Array | Mask | None
    cross_cache: Cache | None
    deterministic: bool
    return_weights: bool
    taps: Taps | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedInputs:
    """Arguments of a forward pass that fit the model and each other, with defaults filled in."""

    positions: jax.Array  # integer [B, T]
    token_types: jax.Array | None  # integer [B, T]
    context: AttentionContext  # masks and biases have rank 4
    cache: Cache | None
    cross_cache: Cache | None
    taps: Taps | None
    deterministic: bool
    return_weights: bool
    needs_weights: bool


def check_inputs(
    config: ModelConfig, tokens: jax.Array, *, is_causal: bool, **options: Unpack[TransformerInputs]
) -> CheckedInputs:
    """Checks all arguments of `Transformer.hidden_states` before any layer runs."""
    check_keywords("hidden_states", options, TransformerInputs)
    inputs: dict[str, Any] = dict.fromkeys(TransformerInputs.__annotations__)
    inputs |= {"deterministic": True, "return_weights": False, **options}
    lengths, cache, segment_ids = inputs["lengths"], inputs["cache"], inputs["segment_ids"]
    sizes = _check_tokens(config, tokens, lengths)
    deterministic = static_bool("deterministic", inputs["deterministic"])
    return_weights = static_bool("return_weights", inputs["return_weights"])
    tapped = check_taps(inputs["taps"])
    _check_caches("cache", cache, KVCache | WindowCache, config.num_layers)
    _check_caches("cross_cache", inputs["cross_cache"], KVCache, config.num_layers)
    _check_encoded(config, sizes, inputs)
    for index, layer in enumerate(caches_of_layers(cache)):
        _check_integers(f"cache[{index}].lengths", layer.lengths, "B", sizes)
    if segment_ids is not None and cache is not None:
        raise ShapeError(
            "segment_ids are for packed rows without a cache, got both; leave the cache out, "
            "or decode each segment in its own row"
        )
    positions = inputs["positions"]
    if positions is None:
        positions = _default_positions(cache, sizes)
    _check_integers("positions", positions, "B T", sizes)
    _check_integers("segment_ids", segment_ids, "B T", sizes)
    return CheckedInputs(
        positions=positions,
        token_types=_token_types(config, sizes, inputs["token_types"], lengths),
        context=AttentionContext(
            is_causal=is_causal,
            segment_ids=segment_ids,
            lengths=lengths,
            encoded=inputs["encoded"],
            encoded_lengths=inputs["encoded_lengths"],
            **_masks_and_bias(config, sizes, inputs),
        ),
        cache=cache,
        cross_cache=inputs["cross_cache"],
        taps=inputs["taps"],
        deterministic=deterministic,
        return_weights=return_weights,
        needs_weights=return_weights or not tapped.isdisjoint(("scores", "weights")),
    )


def _check_tokens(
    config: ModelConfig, tokens: jax.Array, lengths: jax.Array | None
) -> dict[str, int]:
    """Checks tokens, integer `[B, T]`, or vectors `[B, T, D]`, and lengths; returns the sizes."""
    if getattr(tokens, "ndim", 0) == 3 and jnp.issubdtype(tokens.dtype, jnp.floating):
        remedy = f"config.d_model={config.d_model} is D"
        sizes = check_axes("tokens", tokens, "B T D", {"D": config.d_model}, remedy=remedy)
    else:
        sizes = check_array("tokens", tokens, "integer", "B T")
    # A symbolic T (`jax.export`) cannot be compared; the caller must bound it.
    if not is_symbolic(sizes["T"]) and sizes["T"] > config.max_len:
        raise ShapeError(
            f"tokens [B, T] must have T of at most max_len={config.max_len}, got shape "
            f"{tokens.shape}; cut them into windows"
        )
    if lengths is not None:
        check_row_counts("lengths", lengths, sizes["B"], most=sizes["T"])
    if config.vocab_size is not None and tokens.ndim == 2:
        check_known_tokens("tokens", tokens, config.vocab_size, lengths)
    return sizes


def _check_integers(
    name: str, array: jax.Array | None, axes: str, sizes: Mapping[str, int]
) -> None:
    """Checks that an array, if given, is integer with these axes."""
    if array is not None:
        check_array(name, array, "integer", axes, sizes)


def _check_caches(name: str, caches: Any, kinds: type | UnionType, num_layers: int) -> None:
    """Checks that caches, if given, are a tuple with one per layer, or those of a scan."""
    if caches is None:
        return
    layers = caches_of_layers(caches) if isinstance(caches, ScannedCache) else caches
    if not isinstance(layers, tuple | list) or not all(isinstance(c, kinds) for c in layers):
        raise ShapeError(
            f"{name} must be a tuple of caches, one per layer, from init_cache or an earlier call, "
            f"got {type(caches).__name__}"
        )
    check_one_per_layer(name, len(layers), num_layers)


def _check_encoded(
    config: ModelConfig, sizes: Mapping[str, int], inputs: Mapping[str, Any]
) -> None:
    """Checks that the encoder's output fits and that the model has cross-attention."""
    arguments = ("encoded", "encoded_lengths", "cross_cache", "encoded_mask")
    names = [name for name in arguments if inputs[name] is not None]
    if names and not config.has_cross_attention:
        raise ShapeError(
            f"{names[0]} is for a model with cross-attention, got it for one without; leave it "
            "out, or use an EncoderDecoder"
        )
    if "cross_cache" in names[1:]:
        raise ShapeError(f"cross_cache replaces {names[0]}, got both; leave {names[0]} out")
    encoded, lengths, most = inputs["encoded"], inputs["encoded_lengths"], 2**31 - 1
    if encoded is not None:
        check_axes("encoded", encoded, "B S D", {"B": sizes["B"], "D": config.d_model})
        most = encoded.shape[1]
    if lengths is not None:
        check_row_counts("encoded_lengths", lengths, sizes["B"], most=most)


def _masks_and_bias(
    config: ModelConfig, sizes: Mapping[str, int], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Mask, bias and encoded_mask by name: None, a rule, or checked and with rank 4."""
    cache, encoded, cross_cache = inputs["cache"], inputs["encoded"], inputs["cross_cache"]

    def read(name: str, kind: str, num_keys: int | None) -> Any:
        array = inputs[name]
        if array is None or (isinstance(array, Mask) and name != "bias"):
            return array  # attention checks a rule
        array = as_array(name, array)
        if num_keys is None:  # caches of windows alone take masks of any length
            num_keys = array.shape[-1] if array.ndim else 1
        return aligned(name, array, kind, (sizes["B"], config.num_heads, sizes["T"], num_keys))

    num_keys = sizes["T"] if cache is None else cache_capacity(cache)
    num_encoded = 0 if encoded is None else encoded.shape[1]
    if cross_cache is not None:
        num_encoded = caches_of_layers(cross_cache)[0].key.shape[-2]
    return {
        "mask": read("mask", "bool", num_keys),
        "bias": read("bias", "floating", num_keys),
        "encoded_mask": read("encoded_mask", "bool", num_encoded),
    }


def _default_positions(cache: Cache | None, sizes: Mapping[str, int]) -> jax.Array:
    """Integer `[B, T]`, counted from 0, or from the cached tokens."""
    positions = jnp.arange(sizes["T"], dtype=jnp.int32)[None]
    if cache is not None:  # rows may have different numbers of cached tokens
        positions = positions + caches_of_layers(cache)[0].lengths[:, None]
    return jnp.broadcast_to(positions, (sizes["B"], sizes["T"]))


def _token_types(
    config: ModelConfig, sizes: Mapping[str, int], token_types: jax.Array | None,
    lengths: jax.Array | None,
) -> jax.Array | None:  # fmt: skip
    """Checked token types, all 0 when not given; None for a model without them."""
    if config.num_token_types is None:
        if token_types is not None:
            raise ShapeError(
                "token_types are for a model with num_token_types, got them for one without; "
                "leave them out, or set num_token_types"
            )
        return None
    if token_types is None:
        return jnp.zeros((sizes["B"], sizes["T"]), jnp.int32)
    _check_integers("token_types", token_types, "B T", sizes)
    check_known_tokens("token_types", token_types, config.num_token_types, lengths)
    return token_types

"""Keyword arguments of the models, and the checks of a forward pass."""

import dataclasses
from types import UnionType
from typing import Any, TypedDict, Unpack, cast

import jax
import jax.numpy as jnp

from jaxformer.config import ModelConfig
from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    as_array,
    check_axes,
    check_broadcast,
    check_dtype,
    check_keywords,
    check_range,
    is_symbolic,
    known_values,
    static_bool,
)
from jaxformer.functional.embedding import check_known_tokens
from jaxformer.functional.masks.base import Mask
from jaxformer.functional.multi_head import KVCache, WindowCache
from jaxformer.functional.taps import Taps, check_taps
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.stacked_layers import Cache, ScannedCache, cache_capacity, caches_of_layers


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

    are_vectors: bool
    positions: jax.Array  # integer [B, T]
    token_types: jax.Array | None  # integer [B, T]
    context: AttentionContext  # masks and biases have rank 4
    deterministic: bool
    return_weights: bool
    needs_weights: bool


def check_inputs(
    config: ModelConfig, tokens: jax.Array, *, is_causal: bool, cross_attention: bool,
    **options: Unpack[TransformerInputs],
) -> CheckedInputs:  # fmt: skip
    """Checks all arguments of `Transformer.hidden_states` before any layer runs."""
    check_keywords("hidden_states", options, TransformerInputs)
    absent = dict.fromkeys(TransformerInputs.__annotations__)
    defaults = {"deterministic": True, "return_weights": False}
    inputs = cast(TransformerInputs, {**absent, **defaults, **options})
    are_vectors = getattr(tokens, "ndim", 0) == 3 and jnp.issubdtype(tokens.dtype, jnp.floating)
    sizes = _check_tokens(config, tokens, are_vectors=are_vectors)
    lengths, cache, segment_ids = inputs["lengths"], inputs["cache"], inputs["segment_ids"]
    _check_lengths("lengths", lengths, sizes["B"], sizes["T"])
    deterministic = static_bool("deterministic", inputs["deterministic"])
    return_weights = static_bool("return_weights", inputs["return_weights"])
    tapped = check_taps(inputs["taps"])
    _check_caches("cache", cache, KVCache | WindowCache)
    _check_caches("cross_cache", inputs["cross_cache"], KVCache)
    if config.vocab_size is not None and not are_vectors:
        check_known_tokens("tokens", tokens, config.vocab_size, lengths)
    _check_encoded(config, sizes["B"], inputs, cross_attention)
    for index, layer in enumerate(caches_of_layers(cache)):
        _check_lengths(f"cache[{index}].lengths", layer.lengths, sizes["B"])
    if segment_ids is not None and cache is not None:
        raise ShapeError(
            "segment_ids are for packed rows without a cache, got both; leave the cache out, "
            "or decode each segment in its own row"
        )
    mask, bias, encoded_mask = _check_masks(config, sizes, inputs)
    positions = inputs["positions"]
    if positions is None:
        positions = _default_positions(cache, sizes)
    _check_per_token("positions", positions, sizes)
    if segment_ids is not None:
        _check_per_token("segment_ids", segment_ids, sizes)
    return CheckedInputs(
        are_vectors=are_vectors,
        positions=positions,
        token_types=_check_token_types(config, sizes, inputs),
        context=AttentionContext(
            is_causal=is_causal,
            mask=mask,
            bias=bias,
            segment_ids=segment_ids,
            lengths=lengths,
            encoded=inputs["encoded"],
            encoded_lengths=inputs["encoded_lengths"],
            encoded_mask=encoded_mask,
        ),
        deterministic=deterministic,
        return_weights=return_weights,
        needs_weights=return_weights or not tapped.isdisjoint(("scores", "weights")),
    )


def _check_tokens(config: ModelConfig, tokens: jax.Array, *, are_vectors: bool) -> dict[str, int]:
    """Checks tokens, integer `[B, T]`, or vectors `[B, T, D]`; returns the sizes."""
    if are_vectors:
        remedy = f"config.d_model={config.d_model} is D"
        sizes = check_axes("tokens", tokens, "B T D", {"D": config.d_model}, remedy=remedy)
    else:
        sizes = check_axes("tokens", tokens, "B T")
        check_dtype("tokens", tokens, "integer")
    # A symbolic T (`jax.export`) cannot be compared; the caller must bound it.
    if not is_symbolic(sizes["T"]) and sizes["T"] > config.max_len:
        raise ShapeError(
            f"tokens [B, T] must have T of at most max_len={config.max_len}, got shape "
            f"{tokens.shape}; cut them into windows"
        )
    return sizes


def _check_lengths(
    name: str, lengths: jax.Array | None, batch: int, most: int | None = None
) -> None:
    """Checks that lengths, if given, are integer `[B]` and, if known, in 0 .. most."""
    if lengths is None:
        return
    check_axes(name, lengths, "B", {"B": batch})
    check_dtype(name, lengths, "integer")
    known = known_values(lengths)
    if known is not None and most is not None:
        check_range(name, known.tolist(), least=0, most=most)


def _check_per_token(name: str, array: jax.Array, sizes: dict[str, int]) -> None:
    """Checks that an array is integer `[B, T]`."""
    check_axes(name, array, "B T", sizes)
    check_dtype(name, array, "integer")


def _check_caches(name: str, caches: object, kinds: type | UnionType) -> None:
    """Checks that caches, if given, are a tuple with one per layer."""
    if caches is None or isinstance(caches, ScannedCache):
        return
    if not isinstance(caches, tuple | list) or not all(isinstance(c, kinds) for c in caches):
        raise ShapeError(
            f"{name} must be a tuple of caches, one per layer, from init_cache or an earlier call, "
            f"got {type(caches).__name__}"
        )


def _check_encoded(
    config: ModelConfig, batch: int, inputs: TransformerInputs, cross_attention: bool
) -> None:
    """Checks that the encoder's output fits and that the model has cross-attention."""
    encoded, cross_cache = inputs["encoded"], inputs["cross_cache"]
    arguments = {
        "encoded": encoded, "encoded_lengths": inputs["encoded_lengths"],
        "cross_cache": cross_cache, "encoded_mask": inputs["encoded_mask"],
    }  # fmt: skip
    names = [name for name, value in arguments.items() if value is not None]
    if names and not cross_attention:
        raise ShapeError(
            f"{names[0]} is for a model with cross-attention, got it for one without; leave it "
            "out, or use an EncoderDecoder"
        )
    if cross_cache is not None and names[0] != "cross_cache":
        raise ShapeError(f"cross_cache replaces {names[0]}, got both; leave {names[0]} out")
    if encoded is not None:
        check_axes("encoded", encoded, "B S D", {"B": batch, "D": config.d_model})
    most = None if encoded is None else encoded.shape[1]
    _check_lengths("encoded_lengths", inputs["encoded_lengths"], batch, most)


def _check_masks(
    config: ModelConfig, sizes: dict[str, int], inputs: TransformerInputs
) -> tuple[jax.Array | Mask | None, jax.Array | None, jax.Array | Mask | None]:
    """Mask, bias and encoded_mask with rank 4, checked against the attention weights."""
    cache, encoded, cross_cache = inputs["cache"], inputs["encoded"], inputs["cross_cache"]
    mask, bias = inputs["mask"], inputs["bias"]
    mask = mask if mask is None or isinstance(mask, Mask) else as_array("mask", mask)
    bias = None if bias is None else as_array("bias", bias)
    num_keys = sizes["T"] if cache is None else _capacity(cache, mask, bias)
    shape = (sizes["B"], config.num_heads, sizes["T"], num_keys)
    cached = cache is not None
    mask = _attention_array("mask", mask, "bool", shape, cached=cached)
    bias = _attention_array("bias", bias, "floating", shape, cached=cached)
    if inputs["encoded_mask"] is None:
        return mask, bias, None
    num_encoded = 0 if encoded is None else encoded.shape[1]
    if cross_cache is not None:
        num_encoded = caches_of_layers(cross_cache)[0].key.shape[-2]
    shape = (*shape[:3], num_encoded)
    return mask, bias, _attention_array("encoded_mask", inputs["encoded_mask"], "bool", shape)


def _capacity(cache: Cache, mask: jax.Array | Mask | None, bias: jax.Array | None) -> int:
    """Capacity of the caches of all keys, for a mask or bias; with windows alone, its own size."""
    arrays = (array for array in (mask, bias) if isinstance(array, jax.Array))
    sizes = [array.shape[-1] for array in arrays if array.ndim]
    return cache_capacity(cache) or max(sizes, default=1)


def _attention_array(
    name: str, array: jax.Array | Mask | None, kind: str, shape: tuple[int, int, int, int],
    *, cached: bool = False,
) -> Any:  # fmt: skip
    """A mask or bias, if given, with rank 4; `shape` is that of the weights, (B, N, T, S)."""
    if array is None or isinstance(array, Mask):
        return array  # attention checks a rule
    array = as_array(name, array)
    remedy = "True = attend; an additive one is the argument bias" if kind == "bool" else ""
    check_dtype(name, array, kind, remedy=remedy)
    if array.ndim == 2:
        array = jnp.expand_dims(array, (0, 1))
    remedy = "or pass a plain [T, S]"
    if array.ndim == 3:
        remedy = f"add the head axis with {name}[:, None]"
    elif cached and array.ndim and array.shape[-1] not in (1, shape[-1]):
        remedy = "S is the capacity of the cache, so pad the keys up to it"
    check_broadcast(name, array, shape, "B N T S", remedy=remedy)
    return array


def _default_positions(cache: Cache | None, sizes: dict[str, int]) -> jax.Array:
    """Integer `[B, T]`, counted from 0, or from the cached tokens."""
    positions = jnp.arange(sizes["T"], dtype=jnp.int32)[None]
    if cache is not None:  # rows may have different numbers of cached tokens
        positions = positions + caches_of_layers(cache)[0].lengths[:, None]
    return jnp.broadcast_to(positions, (sizes["B"], sizes["T"]))


def _check_token_types(
    config: ModelConfig, sizes: dict[str, int], inputs: TransformerInputs
) -> Any:
    """Token types, all 0 when not given; None for a model without them."""
    token_types, count = inputs["token_types"], config.num_token_types
    if count is None:
        if token_types is not None:
            raise ShapeError(
                "token_types are for a model with num_token_types, got them for one without; "
                "leave them out, or set num_token_types"
            )
        return None
    if token_types is None:
        return jnp.zeros((sizes["B"], sizes["T"]), jnp.int32)
    check_axes("token_types", token_types, "B T", sizes)
    check_known_tokens("token_types", token_types, count, inputs["lengths"])
    return token_types

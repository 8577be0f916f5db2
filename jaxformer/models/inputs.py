"""Keyword arguments of the models, and the checks of their arrays."""

from types import UnionType
from typing import TypedDict

import jax
import jax.numpy as jnp

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    as_array,
    check_axes,
    check_broadcast,
    check_dtype,
    check_range,
    is_symbolic,
    known_values,
)
from jaxformer.functional.multi_head.cache import KVCache, WindowCache
from jaxformer.functional.taps import Taps

__all__ = [
    "TransformerInputs",
    "check_attention_array",
    "check_caches",
    "check_lengths",
    "check_tokens",
    "check_vectors",
]


class TransformerInputs(TypedDict, total=False):
    """The keyword arguments of `Transformer.hidden_states`, which documents them."""

    lengths: jax.Array | None
    positions: jax.Array | None
    segment_ids: jax.Array | None
    token_types: jax.Array | None
    mask: jax.Array | None
    bias: jax.Array | None
    cache: tuple[KVCache | WindowCache, ...] | None
    encoded: jax.Array | None
    encoded_lengths: jax.Array | None
    encoded_mask: jax.Array | None
    cross_cache: tuple[KVCache, ...] | None
    deterministic: bool
    return_weights: bool
    taps: Taps | None


def check_tokens(name: str, tokens: jax.Array, max_len: int) -> dict[str, int]:
    """Checks that tokens are integer `[B, T]` with T at most max_len; returns B and T.

    A symbolic T (`jax.export`) cannot be compared; the caller must bound it.
    """
    sizes = check_axes(name, tokens, "B T")
    check_dtype(name, tokens, "integer")
    return _check_max_len(name, tokens, sizes, max_len)


def check_vectors(name: str, vectors: jax.Array, width: int, max_len: int) -> dict[str, int]:
    """Checks that vectors are `[B, T, D]` with D = width and T at most max_len; returns B and T."""
    remedy = f"config.d_model={width} is D"
    sizes = check_axes(name, vectors, "B T D", {"D": width}, remedy=remedy)
    return _check_max_len(name, vectors, sizes, max_len)


def _check_max_len(
    name: str, array: jax.Array, sizes: dict[str, int], max_len: int
) -> dict[str, int]:
    if not is_symbolic(sizes["T"]) and sizes["T"] > max_len:
        raise ShapeError(
            f"{name} [B, T] must have T of at most max_len={max_len}, got shape {array.shape}; "
            "cut them into windows"
        )
    return sizes


def check_lengths(
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


def check_caches(name: str, caches: object, kinds: type | UnionType) -> None:
    """Checks that caches, if given, are a tuple with one per layer."""
    if caches is None:
        return
    if not isinstance(caches, tuple | list) or not all(isinstance(c, kinds) for c in caches):
        raise ShapeError(
            f"{name} must be a tuple of caches, one per layer, from init_cache or an earlier call, "
            f"got {type(caches).__name__}"
        )


def check_attention_array(
    name: str, array: jax.Array | None, kind: str, shape: tuple[int, int, int, int],
    *, cached: bool = False,
) -> jax.Array | None:  # fmt: skip
    """Checks that a mask or bias fits the attention weights before any layer runs.

    Args:
        name: name of the argument.
        array: mask or bias of rank 4, or `[T, S]`.
        kind: "bool" or "floating".
        shape: (B, N, T, S), the shape of the attention weights.
        cached: whether S is the capacity of a cache.

    Returns:
        The array with rank 4, or None.

    Raises:
        ShapeError: it does not broadcast to the shape, or has a wrong dtype.
    """
    if array is None:
        return None
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

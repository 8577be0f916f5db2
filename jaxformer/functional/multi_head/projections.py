"""Parameters of multi-head attention, and its projections to queries, keys and values."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    check_array,
    check_axes,
    check_fields,
    check_nonnegative,
    check_row_counts,
    check_size,
)
from jaxformer.functional.linear import DEFAULT_PRODUCTS, Kernel, Products, linear
from jaxformer.functional.multi_head.cache import KVCache, swap_heads
from jaxformer.functional.normalization import rms_norm

Rotation = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
"""A function from query `[..., T, N, H]` and key `[..., T, K, H]` to both, rotated."""


class MultiHeadParams(NamedTuple):
    """Parameters of `multi_head_attention`; heads are concatenated, `(n h)`.

    Each kernel may be a `LowRankKernel` of its shape.

    Args:
        query_kernel: float `[D, N*H]`.
        key_kernel: float `[D, K*H]`; D may differ for cross-attention.
        value_kernel: float `[D, K*Hv]`.
        output_kernel: float `[N*Hv, D]`.
        query_bias: float `[N*H]` or None.
        key_bias: float `[K*H]` or None.
        value_bias: float `[K*Hv]` or None.
        output_bias: float `[D]` or None.
        query_norm_scale: float `[H]` for an RMS norm over each query head, `[N*H]` for one over all
            heads at once; None = no norm.
        key_norm_scale: float `[H]` or `[K*H]`, likewise for the keys.
        sinks: float `[N]`, one extra score per head that enters the softmax but has no value;
            None = no sinks.
    """

    query_kernel: Kernel
    key_kernel: Kernel
    value_kernel: Kernel
    output_kernel: Kernel
    query_bias: jax.Array | None = None
    key_bias: jax.Array | None = None
    value_bias: jax.Array | None = None
    output_bias: jax.Array | None = None
    query_norm_scale: jax.Array | None = None
    key_norm_scale: jax.Array | None = None
    sinks: jax.Array | None = None


def project_memory(
    params: MultiHeadParams, key_value_inputs: jax.Array, lengths: jax.Array | None = None,
    *, num_heads: int, num_kv_heads: int | None = None, norm_eps: float = 1e-6,
    products: Products = DEFAULT_PRODUCTS,
) -> KVCache:  # fmt: skip
    """Cross-attention cache: another sequence, projected to keys and values once.

    Args:
        params: parameters of the layer; only the key and value projections are used.
        key_value_inputs: float `[B, S, D]`, such as an encoder's output.
        lengths: int `[B]`, real inputs at the start of each row; S when not given.
        num_heads: N.
        num_kv_heads: K; N when not given.
        norm_eps: epsilon of the key norm, added to the mean square.
        products: precision and function of the matrix products.

    Returns:
        A cache of keys, values and lengths; pass it as cross_cache to `multi_head_attention`.

    Raises:
        ShapeError: an argument does not fit.

    Example:
        >>> params = MultiHeadParams(*[jnp.eye(8)] * 4)
        >>> project_memory(params, jnp.ones((2, 5, 8)), num_heads=2).key.shape
        (2, 2, 5, 4)
    """
    check_fields("params", params, MultiHeadParams)
    check_nonnegative("norm_eps", norm_eps)
    sizes = check_array("key_value_inputs", key_value_inputs, "floating", "B S D")
    _, kv_heads = head_counts(num_heads, num_kv_heads)
    if lengths is None:
        lengths = jnp.full((sizes["B"],), sizes["S"], jnp.int32)
    check_row_counts("lengths", lengths, sizes["B"], most=sizes["S"], bound="S")
    key, value = (
        project_heads(params, name, key_value_inputs, kv_heads, norm_eps, products)
        for name in ("key", "value")
    )
    return KVCache(swap_heads(key), swap_heads(value), lengths)


def head_counts(num_heads: int, num_kv_heads: int | None) -> tuple[int, int]:
    """Checks the numbers of query and key/value heads, and fills in the default."""
    num_heads = check_size("num_heads", num_heads)
    kv_heads = num_heads if num_kv_heads is None else check_size("num_kv_heads", num_kv_heads)
    return num_heads, kv_heads


def project_heads(
    params: MultiHeadParams, projection: str, inputs: jax.Array, count: int, norm_eps: float,
    products: Products,
) -> jax.Array:  # fmt: skip
    """Projects, splits into heads, and normalizes the heads if there is a norm scale."""
    kernel, bias = (getattr(params, f"{projection}_{part}") for part in ("kernel", "bias"))
    flat = linear(inputs, kernel, bias, name=f"{projection}_kernel", products=products)
    if flat.shape[-1] % count:
        raise ShapeError(
            f"{projection}_kernel must be [D, heads * width], a multiple of {count} heads, got "
            f"shape {kernel.shape}"
        )
    scale_name = f"{projection}_norm_scale"
    scale = getattr(params, scale_name, None)  # values have none
    is_over_all_heads = getattr(scale, "shape", None) == flat.shape[-1:]
    if is_over_all_heads:
        flat = rms_norm(flat, scale, eps=norm_eps)
    heads = rearrange(flat, "... t (n h) -> ... t n h", n=count)
    if scale is None or is_over_all_heads:
        return heads
    check_axes(scale_name, scale, "H", {"H": heads.shape[-1]}, remedy="or heads * H, over all")
    return rms_norm(heads, scale, eps=norm_eps)


def rotate_heads(rotary: Rotation, query: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rotates `[..., T, N, H]` and `[..., T, K, H]` by a user's function, and checks its result."""
    if not callable(rotary):
        raise ShapeError(
            f"rotary must be a function from (query, key) to both, got {type(rotary).__name__}; "
            "rotate by tables with apply_rotary"
        )
    rotated = rotary(query, key)
    if not isinstance(rotated, tuple) or len(rotated) != 2:
        raise ShapeError(f"rotary must return (query, key), got {type(rotated).__name__}")
    for name, before, after in zip(("query", "key"), (query, key), rotated, strict=True):
        if (after.shape, after.dtype) != (before.shape, before.dtype):
            raise ShapeError(
                f"a rotation must keep the {name}'s shape {before.shape} and dtype "
                f"{before.dtype}, got {after.shape} and {after.dtype}"
            )
    return rotated

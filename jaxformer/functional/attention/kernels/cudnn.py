"""cuDNN's fused attention, through `jax.nn`, for the calls that it supports."""

import dataclasses

import jax
import jax.numpy as jnp
from einops import pack, rearrange, unpack

from jaxformer.functional import platforms
from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.attention.kernels.zeros import keep_real, zero_hidden
from jaxformer.functional.checks import is_symbolic
from jaxformer.functional.masks.parts import mask_parts
from jaxformer.functional.masks.rules import Lengths
from jaxformer.functional.masks.tiles import Tile

_DTYPES = ("bfloat16", "float16")
_LARGEST_HEAD = 128  # 256 from compute capability 9.0 (Hopper) on


def why_not_cudnn(inputs: AttentionInputs, platform: str) -> str | None:
    """First reason why cuDNN does not support a call on a platform, or None if it does."""
    # A query without visible keys must give 0, which cuDNN does not guarantee: each query up to its
    # length must be known at trace time to have a visible key.
    num_queries, _, width = inputs.query.shape[-3:]
    num_keys, parts = inputs.key.shape[-3], mask_parts(inputs.mask)
    value_width = inputs.value.shape[-1]
    left, right, offset = parts.window.left, parts.window.right, parts.window.offset
    backend = platforms.default_platform()
    capability = _compute_capability() if backend == "cuda" else 0.0
    largest = 2 * _LARGEST_HEAD if capability >= 9 else _LARGEST_HEAD
    position = offset if isinstance(offset, int) else "an array"
    if platform not in ("cuda", backend):
        return f"it needs an NVIDIA GPU, and the program is for {platform}"
    if backend != "cuda":  # JAX queries the cuDNN version while tracing the call
        return f"it needs an NVIDIA GPU, and the default backend is {backend}"
    if capability < 8:
        return f"it needs a GPU of compute capability 8.0 or more, and this one has {capability}"
    if inputs.query.dtype.name not in _DTYPES:
        return f"it needs {' or '.join(_DTYPES)}, and the query is {inputs.query.dtype}"
    if width % 8 != 0 or width > largest:
        return f"it needs a head width that is a multiple of 8 up to {largest}, got H={width}"
    if value_width != width:
        return f"it needs values as wide as keys, got Hv={value_width} and H={width}"
    if 0 in inputs.query.shape or num_keys == 0:
        return f"it needs queries and keys, got T={num_queries} and S={num_keys}"
    if is_symbolic(*inputs.query.shape, num_keys):
        return f"it needs sizes that are known, got a query {inputs.query.shape} and S={num_keys}"
    if inputs.static.return_residual:
        return "its log-sum-exp is rounded to half precision, and has no gradient"
    if inputs.static.precision is not None:
        return "the precision of its products cannot be chosen"
    if inputs.static.softcap is not None:
        return "it has no soft cap"
    if inputs.static.dropout_rate > 0:
        return "its dropout is not offered by jax.nn"
    if parts.rules:
        return (
            "it takes a mask as a bias of finite numbers, so a row with nothing to attend to would "
            "not be 0"
        )
    if inputs.bias is not None:
        return "a bias may hold -inf, and a row of them would not be 0"
    if inputs.position_bias is not None:
        return "it takes a bias only as an array [N, T, S]"
    if parts.segments is not None:
        return "it has no segment ids"
    if (left is not None or right is not None) and right != 0:
        return f"its window needs causal attention, got a window of {(left, right)}"
    if right is not None and not (position == 0 and num_queries == num_keys):
        return (
            "its causal attention starts queries and keys at the same position, got "
            f"T={num_queries}, S={num_keys} and query_offset={position}"
        )
    if left is not None and (parts.lengths.queries, parts.lengths.keys) != (None, None):
        return "with a window and lengths, some rows may see nothing"
    return None


def _compute_capability() -> float:
    """Compute capability of this process's NVIDIA GPUs; 8.0 when compiling for one elsewhere."""
    return float(getattr(jax.local_devices()[0], "compute_capability", "8.0"))


def cudnn_attention(inputs: AttentionInputs) -> tuple[jax.Array, None]:
    """`dot_product_attention` with cuDNN, for calls that `why_not_cudnn` allows."""
    parts, leading = mask_parts(inputs.mask), inputs.query.shape[:-3]
    num_queries, num_keys = inputs.query.shape[-3], inputs.key.shape[-3]
    query_lengths = key_lengths = real_lengths = None
    if parts.lengths.queries is not None or parts.lengths.keys is not None:
        query_lengths, key_lengths = (
            jnp.broadcast_to(jnp.asarray(size if lengths is None else lengths, jnp.int32), leading)
            for lengths, size in (
                (parts.lengths.queries, num_queries),
                (parts.lengths.keys, num_keys),
            )
        )
        # A query of a row without keys is not real, either.
        real_lengths = jnp.where(key_lengths == 0, 0, query_lengths)
        inputs = dataclasses.replace(inputs, query=keep_real(inputs.query, real_lengths))
        tile = Tile((0, 1), (0, num_keys), leading)
        inputs = zero_hidden(inputs, Lengths(keys=key_lengths).allows(tile)[..., 0, :])
        # cuDNN does not specify a length of 0. Such a row gets one key and value, zeroed above, so
        # its output is 0.
        query_lengths, key_lengths = (
            rearrange(jnp.maximum(x, 1), "... -> (...)") for x in (real_lengths, key_lengths)
        )
    query, leading_axes = pack([inputs.query], "* t n h")
    window = parts.window
    output = jax.nn.dot_product_attention(
        query,
        rearrange(inputs.key, "... s k h -> (...) s k h"),
        rearrange(inputs.value, "... s k h -> (...) s k h"),
        scale=inputs.static.scale,
        is_causal=window.right == 0,
        query_seq_lengths=query_lengths,
        key_value_seq_lengths=key_lengths,
        local_window_size=None if window.left is None else (window.left, 0),
        implementation="cudnn",
    )
    (output,) = unpack(output, leading_axes, "* t n h")
    # cuDNN does not specify rows beyond the query's length.
    return keep_real(output, real_lengths), None

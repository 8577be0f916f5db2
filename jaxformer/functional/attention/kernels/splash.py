"""JAX's Splash attention, a Pallas kernel for TPUs, for the calls that it supports.

Pallas is imported when the kernel is first used: it takes time, and CPUs and GPUs never need it.
"""

import concurrent.futures
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange, unpack

from jaxformer.functional.attention.block import OUTPUT
from jaxformer.functional.attention.inputs import AttentionInputs
from jaxformer.functional.attention.kernels.zeros import keep_real, visible_keys, zero_hidden
from jaxformer.functional.attention.plan import plan_loops, visible_key_range
from jaxformer.functional.checks import is_symbolic
from jaxformer.functional.masks.base import And, arrays_of
from jaxformer.functional.masks.parts import mask_parts
from jaxformer.functional.masks.rules import Lengths, Segments
from jaxformer.functional.masks.tiles import Tile
from jaxformer.functional.sharding import automatic_axes

_DTYPES = ("bfloat16", "float32")
_LANES = 128  # the kernel's blocks of queries and keys are multiples of this
_LARGEST_BLOCK = 512
_LARGEST_HEAD = 256  # compiled for TPUs; the blocks of wider ones may not fit into their VMEM
# The kernel's score of a hidden key. A sink is a further score in the softmax that has no value: at
# half of it, its weight is exactly 0 beside any visible key, and exactly 1 in a row that sees
# nothing, which then has output 0 and gradients of 0. Without it, that row would average values.
_HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)
_SINK = 0.5 * _HIDDEN
_INTERPRET = False  # tests interpret the kernel, which then runs on any platform


class _Setting(NamedTuple):
    """Numbers that a kernel is built for; lengths are padded."""

    num_heads: int
    num_queries: int
    num_keys: int
    window: tuple[int | None, int | None]
    offset: int
    softcap: float | None
    interpret: bool
    rules: Any  # structure of rules other than windows, which have no arrays
    lengths: tuple[int, int]  # before padding
    fill_lanes: tuple[bool, bool]  # whether keys and values are multiples of the lanes wide


def why_not_splash(inputs: AttentionInputs, platform: str) -> str | None:
    """First reason why Splash does not support a call on a platform, or None if it does."""
    num_queries, num_keys = inputs.query.shape[-3], inputs.key.shape[-3]
    parts, widths = mask_parts(inputs.mask), (inputs.query.shape[-1], inputs.value.shape[-1])
    arrays = jax.tree.leaves(inputs)
    # jit takes the mesh of its arguments, too, also without jax.set_mesh.
    meshes = [None, *(jax.typeof(array).sharding.mesh for array in arrays)]
    axes = max(map(automatic_axes, meshes), key=lambda sizes: math.prod(sizes.values()))
    if platform != "tpu":
        return f"it needs a TPU, and the program is for {platform}"
    if inputs.query.dtype.name not in _DTYPES:
        return f"it needs {' or '.join(_DTYPES)}, and the query is {inputs.query.dtype}"
    if is_symbolic(*inputs.query.shape, *inputs.value.shape):
        return (
            f"it needs sizes that are known, got a query {inputs.query.shape} and a value "
            f"{inputs.value.shape}"
        )
    if max(widths) > _LARGEST_HEAD:
        return f"it needs heads of at most {_LARGEST_HEAD}, got H={widths[0]} and Hv={widths[1]}"
    if 0 in inputs.query.shape or 0 in inputs.value.shape:
        return (
            f"it needs arrays that are not empty, got T={num_queries}, S={num_keys}, a query "
            f"{inputs.query.shape} and a value {inputs.value.shape}"
        )
    if inputs.static.return_residual:
        return "its log-sum-exp has no gradient"
    if inputs.static.precision is not None:
        return "the precision of its products cannot be chosen"
    if inputs.static.dropout_rate > 0:
        return "it has no dropout"
    if arrays_of(parts.rules):
        return "it takes no mask as an array"
    if jax.tree.leaves(parts.rules):
        return (
            "of masks other than windows, lengths and segments, all but the queries and keys must "
            "be known at trace time, got arrays"
        )
    if inputs.bias is not None or inputs.position_bias is not None:
        return "it takes no bias"
    if not isinstance(parts.window.offset, int):
        return "its causal attention and windows need a query_offset that is an int, got an array"
    if any(array.dtype.itemsize > 4 for array in jax.tree.leaves(parts.segments)):
        return "its segment ids have 32 bits, got integers of 64"
    if math.prod(axes.values()) > 1:
        return f"jit cannot split it over the devices of a mesh, got one of {axes}"
    if any(jax.typeof(array).manual_axis_type.varying for array in arrays):
        return (
            "it does not say which axes of a shard_map its output varies over; give check_vma=False"
        )
    return None


def splash_attention(inputs: AttentionInputs) -> tuple[jax.Array, None]:
    """`dot_product_attention` with Splash; Pallas refuses to compile it for other platforms."""
    return _attend(inputs, _INTERPRET), None


@functools.partial(jax.jit, static_argnums=1)
def _attend(inputs: AttentionInputs, interpret: bool) -> jax.Array:
    """Output `[..., T, N, Hv]`; lengths are padded to multiples of a block."""
    from jax.experimental.pallas.ops.tpu.splash_attention import SegmentIds

    parts, static = mask_parts(inputs.mask), inputs.static
    num_queries, num_heads = inputs.query.shape[-3:-1]
    num_keys = inputs.key.shape[-3]
    if not visible_key_range(inputs.mask, range(num_queries), num_keys):
        return jnp.zeros((*inputs.query.shape[:-1], inputs.value.shape[-1]), inputs.query.dtype)
    loops = plan_loops(inputs.mask, num_queries, num_keys, _LARGEST_BLOCK)
    inputs = zero_hidden(inputs, visible_keys(inputs, loops))
    # The kernel has no scale. The query is scaled in float32 and rounded once, which is exact if
    # the scale is a power of two (H = 64 or 256). A product in bfloat16 would round the scale, too.
    query = keep_real(inputs.query, parts.lengths.queries).astype(jnp.float32) * static.scale
    query = query.astype(inputs.query.dtype)
    query, key, value = (_padded_heads(array) for array in (query, inputs.key, inputs.value))
    left, right, offset = parts.window.left, parts.window.right, parts.window.offset
    offset = offset if isinstance(offset, int) else 0
    # A side that hides no key is dropped, since the kernel's positions have 32 bits.
    window = (
        None if left is None or left >= query.shape[-2] + offset else left,
        None if right is None or right + offset >= key.shape[-2] else right,
    )
    setting = _Setting(
        num_heads, query.shape[-2], key.shape[-2], window, offset, static.softcap, interpret,
        rules=jax.tree.structure(parts.rules), lengths=(num_queries, num_keys),
        fill_lanes=(key.shape[-1] % _LANES == 0, value.shape[-1] % _LANES == 0),
    )  # fmt: skip
    kernel, sinks = _kernel(setting), jnp.full(num_heads, _SINK, jnp.float32)
    ids = _segment_ids(inputs, setting)
    ids = None if ids is None else SegmentIds(*ids)
    output = jax.vmap(lambda *row: kernel(*row, sinks))(query, key, value, ids)  # [B, N, T', Hv]
    output = rearrange(output[:, :, :num_queries], "b n t v -> b t n v")
    (output,) = unpack(output, [inputs.query.shape[:-3]], "* t n v")
    return keep_real(output, parts.lengths.queries)


def _padded_heads(array: jax.Array) -> jax.Array:
    """`[B, N, T', H]` of `[..., T, N, H]`, padded with zeros to what blocks can divide."""
    array = rearrange(array, "... t n h -> (...) n t h")
    # Of many blocks, two units at least, since an odd number of units has small divisors.
    unit = _LANES if array.shape[-2] <= _LARGEST_BLOCK else 2 * _LANES
    return jnp.pad(array, ((0, 0), (0, 0), (0, -array.shape[-2] % unit), (0, 0)))


def _segment_ids(inputs: AttentionInputs, setting: _Setting) -> tuple[jax.Array, jax.Array] | None:
    """Ids of queries `[B, T']` and keys `[B, S']`; padding matches no query; None = one segment."""
    # Queries that are not real need no id: their outputs are replaced afterwards.
    parts, leading = mask_parts(inputs.mask), inputs.query.shape[:-3]
    num_keys = setting.lengths[1]
    lengths, segments = parts.lengths.keys, parts.segments
    if lengths is None and setting.num_keys > num_keys:
        lengths = num_keys
    if lengths is None and segments is None:
        return None

    def rows(ids: Any, padded: int) -> jax.Array:
        ids = rearrange(ids.astype(jnp.int32), "... t -> (...) t")
        return jnp.pad(ids, ((0, 0), (0, padded - ids.shape[1])))

    if segments is None:
        segments = Segments(*(jnp.zeros((*leading, n), jnp.int32) for n in setting.lengths))
    query_ids = rows(segments.query_ids, setting.num_queries)
    key_ids = rows(segments.key_ids, setting.num_keys)
    if lengths is None:
        return query_ids, key_ids
    # The smallest number that is no query's id: one of the first T' + 1.
    candidates = jnp.arange(setting.num_queries + 1)
    used = jax.vmap(lambda ids: jnp.isin(candidates, ids, method="sort"))(query_ids)
    unused = jnp.argmin(used, axis=-1, keepdims=True).astype(jnp.int32)
    lengths = jnp.broadcast_to(jnp.asarray(lengths, jnp.int32), leading)
    is_real = Lengths(keys=lengths).allows(Tile((0, 1), (0, setting.num_keys), leading))
    is_real = rearrange(is_real, "... 1 1 s -> (...) s")
    return query_ids, jnp.where(is_real, key_ids, unused)


@functools.lru_cache(maxsize=64)
def _kernel(setting: _Setting) -> Any:
    """Kernel of `[N, T', H]`, `[K, S', H]`, `[K, S', Hv]`, segment ids and sinks `[N]`."""
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    queries, keys = _block_size(setting.num_queries), _block_size(setting.num_keys)
    # Of the last axis, a TPU stores whole lanes: a width such as 64 is not last, but the length is.
    of_keys, of_values = (
        splash.QKVLayout.HEAD_DIM_MINOR if fills else splash.QKVLayout.SEQ_MINOR
        for fills in setting.fill_lanes
    )
    blocks = splash.BlockSizes(
        block_q=queries, block_kv=keys, block_kv_compute=keys,
        block_q_dkv=queries, block_kv_dkv=keys, block_kv_dkv_compute=keys,
        block_q_dq=queries, block_kv_dq=keys,
        q_layout=of_keys, k_layout=of_keys, v_layout=of_values,
    )  # fmt: skip
    build = functools.partial(
        splash.make_splash_mha_single_device,
        splash.MultiHeadMask([_splash_mask(setting)] * setting.num_heads),
        block_sizes=blocks,
        mask_value=_HIDDEN,
        attn_logits_soft_cap=setting.softcap,
        interpret=setting.interpret,
        residual_checkpoint_name=OUTPUT,  # of the output and the log-sum-exp
    )
    # The kernel holds arrays, which are kept from one trace to the next. In a thread of its own,
    # which knows neither the trace nor the mesh of this one, they belong to none.
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(build).result()


def _splash_mask(setting: _Setting) -> Any:
    """Splash's mask of padded lengths."""
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    shape = setting.num_queries, setting.num_keys
    window, offset = setting.window, setting.offset

    # The builder reads every block several times: at T = 32,768 that took 19 s with LocalMask.
    class Window(splash.LocalMask):
        """Window that compares positions only in blocks at its edges."""

        def __getitem__(self, block: tuple[slice, slice]) -> np.ndarray:
            queries, keys = (range(*part.indices(n)) for part, n in zip(block, shape, strict=True))
            left, right = (math.inf if side is None else side for side in window)
            # Distances of a key from a query, to the right, lie between these two.
            least = keys[0] - (queries[-1] + offset)
            most = keys[-1] - (queries[0] + offset)
            if -left <= least and most <= right:
                return np.ones((len(queries), len(keys)), bool)
            if most < -left or right < least:
                return np.zeros((len(queries), len(keys)), bool)
            return super().__getitem__(block)

    class Rules(splash.Mask):
        """Rules other than windows, whose blocks are stored."""

        rule = And(jax.tree.unflatten(setting.rules, []))
        shape = property(lambda _: shape)

        def __getitem__(self, block: tuple[slice, slice]) -> np.ndarray:
            parts = [range(*part.indices(n)) for part, n in zip(block, shape, strict=True)]
            allowed = np.zeros([len(part) for part in parts], bool)
            # Padding is not shown to a user's function.
            queries, keys = (
                part[: max(0, size - part.start)]
                for part, size in zip(parts, setting.lengths, strict=True)
            )
            if all(self.rule.visible_part(queries, keys)):
                tile = Tile((queries.start, len(queries)), (keys.start, len(keys)))
                allowed[: len(queries), : len(keys)] = self.rule.allows(tile)[0]
            return allowed

    windowed = window != (None, None)
    mask: splash.Mask
    mask = Window(shape, window, offset) if windowed else splash.FullMask(shape)
    if Rules.rule.rules:
        mask = mask & Rules() if windowed else Rules()
    return mask


def _block_size(length: int) -> int:
    """Largest multiple of the unit, up to the largest block, that divides a padded length."""
    return max(size for size in range(_LANES, _LARGEST_BLOCK + 1, _LANES) if length % size == 0)

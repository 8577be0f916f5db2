"""Multi-head attention with one fused projection, interleaved by head.

Axes: `B` batch, `T` query and `S` key length, `N` heads, `H` width of a head, `D` d_model.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from scores import weights_of_scores

from jaxformer import functional

BATCH, LENGTH, D_MODEL, HEADS = 30, 50, 512, 8

# What the document prints of `(product + mask)[0][0]` and of `attention[0][0]`: rows 0 to 2 are
# whole, of rows 47 to 49 only these columns are shown.
PRINTED_SCORES = np.array(
    [[-0.1269, -np.inf, -np.inf], [-0.2754, 0.6308, -np.inf], [-0.1359, 0.5563, -0.4251]]
)
PRINTED_WEIGHTS = np.array([[1.0, 0.0, 0.0], [0.2878, 0.7122, 0.0], [0.2669, 0.5333, 0.1999]])
PRINTED_PARTS = {  # row: (scores, weights) of columns 0, 1, 2, 47, 48, 49
    47: ([-0.5237, 0.0218, -0.2747, -0.1744], [0.0112, 0.0193, 0.0144, 0.0159]),
    48: ([-0.6314, 0.0886, -0.0256, 0.0645, -0.0662], [0.0106, 0.0217, 0.0193, 0.0212, 0.0186]),
    49: (
        [-0.1783, -0.1951, 0.0603, -0.0255, -0.3918, 0.2879],
        [0.0165, 0.0162, 0.0209, 0.0192, 0.0133, 0.0262],
    ),
}


class FusedProjection(NamedTuple):
    """The document's two linear layers, kernels as `[in, out]`.

    Args:
        kernel: float `[D, N*3*H]`: head n owns columns `[q_n k_n v_n]`, side by side.
        bias: float `[N*3*H]`, in the same order.
        output_kernel: float `[N*H, D]`.
        output_bias: float `[D]`.
    """

    kernel: jax.Array
    bias: jax.Array
    output_kernel: jax.Array
    output_bias: jax.Array


@functools.cache
def draw_inputs() -> jax.Array:
    return jax.random.normal(jax.random.key(0), (BATCH, LENGTH, D_MODEL))


@functools.cache
def draw_projection() -> FusedProjection:
    """Random layers, uniform within 1 / sqrt(D), as the document initializes them."""
    shapes = [(D_MODEL, 3 * D_MODEL), (3 * D_MODEL,), (D_MODEL, D_MODEL), (D_MODEL,)]
    keys = jax.random.split(jax.random.key(1), len(shapes))
    limit = D_MODEL**-0.5
    return FusedProjection(
        *[
            jax.random.uniform(key, shape, minval=-limit, maxval=limit)
            for key, shape in zip(keys, shapes, strict=True)
        ]
    )


def split_fused(fused: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Splits `[B, T, N*3*H]`, interleaved by head, into query, key and value `[B, T, N, H]`."""
    query, key, value = rearrange(fused, "b t (n three h) -> three b t n h", n=HEADS, three=3)
    return query, key, value


def to_params(layer: FusedProjection) -> functional.MultiHeadParams:
    """Converts the layer to the library's: one kernel each, the heads side by side."""
    kernels = rearrange(layer.kernel, "d (n three h) -> three d (n h)", n=HEADS, three=3)
    biases = rearrange(layer.bias, "(n three h) -> three (n h)", n=HEADS, three=3)
    return functional.MultiHeadParams(
        *kernels, layer.output_kernel, *biases, output_bias=layer.output_bias
    )


def to_params_as_thirds(layer: FusedProjection) -> functional.MultiHeadParams:
    """Reads the columns as `[Q K V]`, all queries first: another layer, of the same shapes."""
    kernels = rearrange(layer.kernel, "d (three n h) -> three d (n h)", n=HEADS, three=3)
    biases = rearrange(layer.bias, "(three n h) -> three (n h)", n=HEADS, three=3)
    return functional.MultiHeadParams(
        *kernels, layer.output_kernel, *biases, output_bias=layer.output_bias
    )


@functools.cache
def attend_step_by_step() -> dict[str, jax.Array]:
    """All intermediate arrays of attention, by the document's names."""
    return _attend(draw_projection(), draw_inputs())


@jax.jit
def _attend(layer: FusedProjection, x: jax.Array) -> dict[str, jax.Array]:
    qkv = functional.linear(x, layer.kernel, layer.bias)
    query, key, value = split_fused(qkv)
    product = functional.attention_weights(query, key, stage="scores")
    masked = functional.attention_weights(query, key, is_causal=True, stage="masked")
    attention = functional.attention_weights(query, key, is_causal=True)
    values = jnp.einsum("bnts,bsnh->btnh", attention, value)
    merged = rearrange(values, "b t n h -> b t (n h)")
    out = functional.linear(merged, layer.output_kernel, layer.output_bias)
    return {
        "x": x, "qkv": qkv, "query": query, "key": key, "value": value, "product": product,
        "masked": masked, "attention": attention, "values": values, "merged": merged, "out": out,
    }  # fmt: skip


def attend_in_one_call(params: functional.MultiHeadParams) -> jax.Array:
    """The output `[B, T, D]` by `functional.multi_head_attention`."""
    attend = jax.jit(functional.multi_head_attention, static_argnames=("num_heads", "is_causal"))
    return attend(params, draw_inputs(), num_heads=HEADS, is_causal=True).output


def mask_bytes() -> dict[str, int]:
    """Bytes of a causal mask, as the document stores it, and as computed from indices."""
    document = 4 * BATCH * HEADS * LENGTH * LENGTH
    return {"document": document, "causal": functional.Causal().array(LENGTH, LENGTH).nbytes}


def softmax_of_printed_scores() -> jax.Array:
    """Weights `[3, 3]` of the printed corner of scores, where -inf is masked."""
    seen = np.isfinite(PRINTED_SCORES)
    return weights_of_scores(np.where(seen, PRINTED_SCORES, 0.0), mask=seen)


def log_sum_bounds(row: int) -> tuple[float, float]:
    """Bounds of log(sum(exp(scores))) of a row, from its printed, rounded numbers."""
    scores, weights = (np.array(part) for part in PRINTED_PARTS[row])
    low = scores - 5e-5 - np.log(weights + 5e-5)
    high = scores + 5e-5 - np.log(weights - 5e-5)
    return float(low.max()), float(high.min())

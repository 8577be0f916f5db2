"""Inputs of assertions on attention; and those without a mask: shape, dtype, values, precision.

Every check calls `attention(query, key, value)` with query `[B, T, N, H]`, key `[B, S, K, H]` and
value `[B, S, K, Hv]`, like `jax.nn.dot_product_attention`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ConfigError
from jaxformer.testing.failures import check_close, fail, run

__tracebackhide__ = True  # a failure in pytest shows the test's own line, not this module's

Attention = Callable[..., jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionSizes:
    """Sizes and dtype of the arrays that attention is checked with.

    The defaults are small and all different, so that exchanged axes show. Change those that your
    function does not support, such as the head width of a kernel.

    Args:
        batch_size: B, at least 2.
        num_queries: T, at least 2.
        num_keys: S, at least 3; checks with is_causal use as many queries as keys.
        num_heads: N.
        num_kv_heads: K, a divisor of N; N when not given.
        head_dim: H.
        value_head_dim: Hv; H when not given.
        dtype: name of a floating dtype.

    Example:
        >>> AttentionSizes(num_heads=6, num_kv_heads=2).group_size
        3
    """

    batch_size: int = 2
    num_queries: int = 5
    num_keys: int = 7
    num_heads: int = 3
    num_kv_heads: int | None = None
    head_dim: int = 16
    value_head_dim: int | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        """Raises ConfigError if a size is too small or does not fit the others."""
        least = {"batch_size": 2, "num_queries": 2, "num_keys": 3}
        for field in dataclasses.fields(self)[:-1]:
            size, minimum = getattr(self, field.name), least.get(field.name, 1)
            if size is not None and size < minimum:
                raise ConfigError(
                    f"{field.name} must be at least {minimum}, got {size}; smaller arrays "
                    "would hide mistakes"
                )
        if self.num_heads % self.kv_heads:
            raise ConfigError(
                f"num_heads must be a multiple of num_kv_heads, got num_heads={self.num_heads} and "
                f"num_kv_heads={self.kv_heads}"
            )

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads, K."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def value_dim(self) -> int:
        """Width of a value head, Hv."""
        return self.head_dim if self.value_head_dim is None else self.value_head_dim

    @property
    def group_size(self) -> int:
        """Query heads per key head, N / K."""
        return self.num_heads // self.kv_heads


DEFAULT_SIZES = AttentionSizes()


def draw(sizes: AttentionSizes) -> tuple[jax.Array, ...]:
    """Standard normal query `[B, T, N, H]`, key `[B, S, K, H]` and value `[B, S, K, Hv]`."""
    generator = np.random.default_rng(0)
    query = (sizes.batch_size, sizes.num_queries, sizes.num_heads, sizes.head_dim)
    key = (sizes.batch_size, sizes.num_keys, sizes.kv_heads, sizes.head_dim)
    shapes = query, key, (*key[:-1], sizes.value_dim)
    return tuple(jnp.asarray(generator.standard_normal(shape), sizes.dtype) for shape in shapes)


def draw_mask(sizes: AttentionSizes) -> np.ndarray:
    """Random bool mask `[B, 1, T, S]`, True = attend, with a visible key for every query."""
    generator = np.random.default_rng(1)
    shape = (sizes.batch_size, 1, sizes.num_queries, sizes.num_keys)
    row, _, query, key = np.indices(shape)
    return (generator.random(shape) < 0.4) | (key == (row + query) % sizes.num_keys)


def tolerance_of(dtype: str) -> float:
    """Relative tolerance for a dtype: 1e-5, or more for lower precision."""
    return max(1e-5, 4 * float(jnp.finfo(dtype).eps))


def shaped(attention: Attention) -> Attention:
    """Wraps attention: raises AssertionError if the output is not one array `[B, T, N, Hv]`."""

    def call(query: jax.Array, key: jax.Array, value: jax.Array, **keywords: Any) -> jax.Array:
        output = attention(query, key, value, **keywords)
        expected = (*query.shape[:3], value.shape[-1])
        if getattr(output, "shape", None) != expected:
            is_array = hasattr(output, "shape")
            fail(
                "shape: the output of attention must be one array [B, T, N, Hv]",
                where=f"output for query {query.shape}, key {key.shape}, value {value.shape}",
                got=f"shape {output.shape}" if is_array else f"a {type(output).__name__}",
                expected=f"shape {expected}",
                cause="heads not moved back behind the time axis"
                if is_array
                else "weights returned with the output; pass lambda *args, **kw: f(*args, **kw)[0]",
            )
        return output

    return call


def check_shape(attention: Attention, sizes: AttentionSizes) -> None:
    """Asserts that the output is one array `[B, T, N, Hv]`, by tracing only."""
    jax.eval_shape(shaped(attention), *draw(sizes))


def check_dtype(attention: Attention, sizes: AttentionSizes) -> None:
    """Asserts that the output has the dtype of the inputs, by tracing only."""
    for dtype in ("float32", "bfloat16", "float16"):
        output = jax.eval_shape(shaped(attention), *draw(dataclasses.replace(sizes, dtype=dtype)))
        if output.dtype != dtype:
            fail(
                "dtype: the output of attention must have the dtype of the inputs",
                where=f"output for {dtype} inputs",
                got=output.dtype.name,
                expected=dtype,
                cause="a float32 softmax that is not cast back, or a float32 constant such as "
                "np.sqrt(head_dim) that promotes; end with output.astype(query.dtype)",
            )


def assert_scaled_dot_product(
    attention: Attention, sizes: AttentionSizes = DEFAULT_SIZES, *,
    scale: float | None = None, tolerance: float | None = None,
) -> None:  # fmt: skip
    r"""Asserts that the output equals a float64 NumPy reference.

    $$\mathrm{softmax}(\mathrm{scale} \cdot Q K^T) V$$

    where query head n attends to key head n // (N / K). If a common mistake explains the wrong
    output exactly, the message names it.

    Args:
        attention: called as `attention(query, key, value)`.
        sizes: sizes of the arrays.
        scale: factor of the scores; 1 / sqrt(H) when not given.
        tolerance: relative to the largest output; depends on the dtype when not given.

    Raises:
        AssertionError: an element differs by more than the tolerance.

    Example:
        >>> assert_scaled_dot_product(jax.nn.dot_product_attention)
    """
    inputs = draw(sizes)
    scale = sizes.head_dim**-0.5 if scale is None else scale
    tolerance = tolerance_of(sizes.dtype) if tolerance is None else tolerance
    query, key, value = (np.asarray(array, np.float64) for array in inputs)
    heads = np.arange(sizes.num_heads)

    def reference(scale: float, kv_heads: np.ndarray) -> np.ndarray:
        scores = scale * np.einsum("btnh,bsnh->bnts", query, key[:, :, kv_heads])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("bnts,bsnh->btnh", weights, value[:, :, kv_heads])

    grouped = heads // sizes.group_size
    expected = reference(scale, grouped)
    output = run(shaped(attention), *inputs)
    # Each mistake, with the output that it gives.
    mistakes = {
        "the scores are not scaled; multiply them by 1 / sqrt(head_dim)": reference(1.0, grouped),
        "query head n uses key head n % K, should use n // (N / K); repeat the key heads instead "
        "of tiling them": reference(scale, heads % sizes.kv_heads),
    }
    causes = [
        cause
        for cause, wrong in mistakes.items()
        if np.allclose(output, wrong, rtol=0, atol=10 * tolerance)
    ]
    check_close(
        "values: attention must be softmax(scale * query @ key) @ value",
        output,
        expected,
        axes="B T N H",
        tolerance=tolerance,
        cause=f"{causes[0]} (this mistake gives exactly the output found)"
        if causes
        else "another scale (pass scale=...), a softmax over another axis than the keys, axes of "
        "heads and time mixed up in a reshape, or positions that enter the function",
    )


def check_precision(attention: Attention, sizes: AttentionSizes) -> None:
    """Asserts that scores and softmax of bfloat16 inputs are computed in float32."""
    # Such inputs and the same numbers in float32 must give the same output, up to one rounding of
    # the weights and one of the result. All queries and keys share a component that adds 32 to
    # scores scaled by 1 / sqrt(H); there, a bfloat16 step is 1/4 and changes a weight by a quarter.
    query, key, value = draw(dataclasses.replace(sizes, dtype="bfloat16"))
    shared = jnp.asarray((32 / sizes.head_dim**0.5) ** 0.5, "bfloat16")
    inputs = query + shared, key + shared, value
    check_close(
        "precision: attention in bfloat16 must be as accurate as with float32 scores and softmax",
        run(shaped(attention), *inputs),
        run(shaped(attention), *(array.astype("float32") for array in inputs)),
        axes="B T N H",
        tolerance=2 * float(jnp.finfo("bfloat16").eps),
        cause="scores or softmax in bfloat16; compute the scores with "
        "jnp.einsum(..., preferred_element_type=jnp.float32) and keep them so through the softmax",
    )

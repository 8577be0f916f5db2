"""Assertions on attention without a mask: shape, dtype, values, permutation, precision.

Every check calls `attention(query, key, value)` with query `[B, T, N, H]`, key `[B, S, K, H]` and
value `[B, S, K, Hv]`, like `jax.nn.dot_product_attention`.
"""

import dataclasses
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.testing.attention_inputs import (
    DEFAULT_SIZES,
    Attention,
    AttentionSizes,
    draw,
    shaped,
    tolerance_of,
)
from jaxformer.testing.failures import check_close, fail, run

__tracebackhide__ = True  # a failure in pytest shows the test's own line, not this module's


def assert_attention_shape(attention: Attention, sizes: AttentionSizes = DEFAULT_SIZES) -> None:
    """Asserts that the output is one array `[B, T, N, Hv]`, by tracing only.

    Args:
        attention: called as `attention(query, key, value)`.
        sizes: sizes of the arrays.

    Raises:
        AssertionError: it is not.

    Example:
        >>> assert_attention_shape(jax.nn.dot_product_attention)
    """
    jax.eval_shape(shaped(attention), *draw(sizes))


def assert_dtype_preserved(
    attention: Attention, sizes: AttentionSizes = DEFAULT_SIZES, *,
    dtypes: Sequence[str] = ("float32", "bfloat16", "float16"),
) -> None:  # fmt: skip
    """Asserts that the output has the dtype of the inputs, by tracing only.

    Args:
        attention: called as `attention(query, key, value)`.
        sizes: sizes of the arrays; the dtype is not used.
        dtypes: names of floating dtypes.

    Raises:
        AssertionError: a dtype is not preserved.

    Example:
        >>> assert_dtype_preserved(jax.nn.dot_product_attention, dtypes=["bfloat16"])
    """
    for dtype in dtypes:
        output = jax.eval_shape(shaped(attention), *draw(dataclasses.replace(sizes, dtype=dtype)))
        try:
            chex.assert_trees_all_equal_dtypes(output, jax.ShapeDtypeStruct((), dtype))
        except AssertionError:
            fail(
                "dtype: the output of attention must have the dtype of the inputs",
                where=f"output for {dtype} inputs",
                got=str(jax.tree.map(lambda leaf: leaf.dtype.name, output)),
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

    def reference(scale: float, axis: int, kv_heads: np.ndarray) -> np.ndarray:
        scores = scale * np.einsum("btnh,bsnh->bnts", query, key[:, :, kv_heads])
        weights = np.exp(scores - scores.max(axis, keepdims=True))
        weights /= weights.sum(axis, keepdims=True)
        return np.einsum("bnts,bsnh->btnh", weights, value[:, :, kv_heads])

    # Each mistake, as the arguments with which the reference makes it.
    grouped = heads // sizes.group_size
    expected = reference(scale, -1, grouped)
    output = run(shaped(attention), *inputs)
    mistakes = {
        "the scores are not scaled; multiply them by 1 / sqrt(head_dim)": (1.0, -1, grouped),
        "the scores are scaled by 1 / head_dim, should be by 1 / sqrt(head_dim)": (
            1 / sizes.head_dim, -1, grouped
        ),
        "the scores are scaled by 1 / sqrt(num_heads * head_dim), should be by "
        "1 / sqrt(head_dim)": ((sizes.num_heads * sizes.head_dim) ** -0.5, -1, grouped),
        "the softmax runs over the queries, should run over the keys": (scale, 2, grouped),
        "the softmax runs over the heads, should run over the keys": (scale, 1, grouped),
        "query head n uses key head n % K, should use n // (N / K); repeat the key heads instead "
        "of tiling them": (
            scale, -1, heads % sizes.kv_heads
        ),
    }  # fmt: skip
    causes = [
        cause
        for cause, mistake in mistakes.items()
        if np.allclose(output, reference(*mistake), rtol=0, atol=10 * tolerance)
    ]
    check_close(
        "values: attention must be softmax(scale * query @ key) @ value",
        output,
        expected,
        name="output",
        axes="B T N H",
        tolerance=tolerance,
        cause=f"{causes[0]} (this mistake gives exactly the output found)"
        if causes
        else "another scale (pass scale=...), or axes of heads and time mixed up in a reshape",
    )


def assert_permutation_equivariant(
    attention: Attention, sizes: AttentionSizes = DEFAULT_SIZES, *, tolerance: float | None = None
) -> None:
    """Asserts that attention is invariant to key order and equivariant to query order.

    Permuted keys and values must give the same output, and permuted queries the output in the same
    permuted order, because without positions order has no meaning.

    Args:
        attention: called as `attention(query, key, value)`.
        sizes: sizes of the arrays.
        tolerance: relative to the largest output; depends on the dtype when not given.

    Raises:
        AssertionError: the order of keys matters, or queries depend on each other.

    Example:
        >>> assert_permutation_equivariant(jax.nn.dot_product_attention)
    """
    query, key, value = draw(sizes)
    queries = np.roll(np.arange(sizes.num_queries)[::-1], 2)
    keys = np.roll(np.arange(sizes.num_keys)[::-1], 2)
    cause = (
        "positions enter the function (a bias, rotary embeddings, a causal mask), or a reshape "
        "mixes time with heads where a transpose is needed"
    )

    def outputs(query: jax.Array, key: jax.Array, value: jax.Array) -> tuple[jax.Array, ...]:
        call = shaped(attention)
        return (
            call(query, key, value),
            call(query, key[:, keys], value[:, keys]),
            call(query[:, queries], key, value),
        )

    output, other_keys, other_queries = run(outputs, query, key, value)
    for rule, got, expected in (
        ("the order of the keys must not matter", other_keys, output),
        ("queries in another order must give outputs in that order", other_queries,
         output[:, queries]),
    ):  # fmt: skip
        check_close(
            f"permutation: {rule}, without positions",
            got,
            expected,
            name="output",
            axes="B T N H",
            tolerance=tolerance_of(sizes.dtype) if tolerance is None else tolerance,
            cause=cause,
        )


def assert_low_precision_accurate(
    attention: Attention, sizes: AttentionSizes = DEFAULT_SIZES, *, dtype: str = "bfloat16",
    tolerance: float | None = None,
) -> None:  # fmt: skip
    """Asserts that scores and softmax of low-precision inputs are computed in float32.

    Inputs in low precision and the same numbers in float32 must give the same output, up to one
    rounding of the weights and one of the result. All scores are near 32, where one bfloat16 step
    is 1/4 and changes a weight by a quarter.

    Args:
        attention: called as `attention(query, key, value)`.
        sizes: sizes of the arrays; the dtype is not used.
        dtype: "bfloat16" or "float16".
        tolerance: relative to the largest output; twice the dtype's epsilon when not given.

    Raises:
        AssertionError: the outputs differ by more than the tolerance.

    Example:
        >>> assert_low_precision_accurate(jax.nn.dot_product_attention)
    """
    query, key, value = draw(dataclasses.replace(sizes, dtype=dtype))
    # All queries and keys share a component that adds 32 to scores scaled by 1 / sqrt(H).
    shared = (32 / sizes.head_dim**0.5) ** 0.5
    query, key = query + jnp.asarray(shared, dtype), key + jnp.asarray(shared, dtype)
    low = run(shaped(attention), query, key, value)
    high = run(shaped(attention), *(array.astype("float32") for array in (query, key, value)))
    check_close(
        f"precision: attention in {dtype} must be as accurate as with float32 scores and softmax",
        low,
        high,
        name="output",
        axes="B T N H",
        tolerance=2 * float(jnp.finfo(dtype).eps) if tolerance is None else tolerance,
        cause=f"scores or softmax in {dtype}; compute the scores with "
        "jnp.einsum(..., preferred_element_type=jnp.float32) and keep them so through the softmax",
    )

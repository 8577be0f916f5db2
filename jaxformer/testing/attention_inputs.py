"""Inputs of the assertions on attention: sizes, arrays, masks, tolerances."""

import dataclasses
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ConfigError
from jaxformer.testing.failures import fail

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
        if not jnp.issubdtype(jnp.dtype(self.dtype), jnp.floating):
            raise ConfigError(f"dtype must be a floating dtype, got {self.dtype!r}")

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


def draw(sizes: AttentionSizes) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Standard normal query `[B, T, N, H]`, key `[B, S, K, H]` and value `[B, S, K, Hv]`."""
    generator = np.random.default_rng(0)
    query = (sizes.batch_size, sizes.num_queries, sizes.num_heads, sizes.head_dim)
    key = (sizes.batch_size, sizes.num_keys, sizes.kv_heads, sizes.head_dim)
    value = (*key[:-1], sizes.value_dim)
    query_array, key_array, value_array = (
        jnp.asarray(generator.standard_normal(shape), sizes.dtype) for shape in (query, key, value)
    )
    return query_array, key_array, value_array


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
        try:
            chex.assert_shape([output], expected)
        except (AssertionError, AttributeError):
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

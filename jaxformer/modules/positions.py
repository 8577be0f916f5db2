"""Positions: added to the embeddings, as tables that rotate the heads, or as a bias on the scores.

Each acts for its own kinds, and leaves the others alone.
"""

import dataclasses
from collections.abc import Callable

import jax
from einops import rearrange
from flax import linen as nn

from jaxformer.config import (
    AlibiConfig,
    LearnedConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    ModelConfig,
    RelativeConfig,
    RotaryConfig,
    RotaryScalingConfig,
    SinusoidalConfig,
    YarnScalingConfig,
)
from jaxformer.functional.embedding import embed
from jaxformer.functional.position_biases import alibi_bias, relative_position_buckets
from jaxformer.functional.positions import rotary_tables, sinusoidal_positions
from jaxformer.functional.rotary_scaling import (
    LinearScaling,
    Llama3Scaling,
    RotaryScaling,
    YarnScaling,
)
from jaxformer.modules.initializers import kernel_init, param_dtype

__all__ = ["AddPositions", "PositionBias", "rotary_for"]

_SCALINGS: dict[type, Callable[..., RotaryScaling]] = {
    LinearScalingConfig: LinearScaling,
    Llama3ScalingConfig: Llama3Scaling,
    YarnScalingConfig: YarnScaling,
}


class AddPositions(nn.Module):
    """Adds learned or sinusoidal positions; returns x as it is for kinds that act elsewhere.

    Args:
        config: kind, width and max_len.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(
        ...     max_len=8, num_layers=1, d_model=4, num_heads=2, positions="sinusoidal"
        ... )
        >>> AddPositions(config).apply({}, jnp.zeros((1, 3, 4)), jnp.arange(3)[None]).shape
        (1, 3, 4)
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Adds the encoding of integer `[B, T]` to float `[B, T, D]`.

        A position outside a learned table gives NaN, never another position's row.
        """
        config, scheme = self.config, self.config.positions
        if isinstance(scheme, LearnedConfig):
            shape = (config.max_len, config.d_model)
            table = self.param("embedding", kernel_init(config), shape, param_dtype(config))
            return x + embed(table, positions).astype(x.dtype)
        if isinstance(scheme, SinusoidalConfig):
            table = sinusoidal_positions(
                positions, config.d_model, base=scheme.base, layout=scheme.layout
            )
            return x + table.astype(x.dtype)
        return x


class PositionBias(nn.Module):
    """Makes the bias on the attention scores of all layers; None for kinds that act elsewhere.

    Args:
        config: kind, heads and buckets.

    Example:
        >>> config = ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2, positions="alibi")
        >>> PositionBias(config).apply({}, 3, 3).shape
        (1, 2, 3, 3)
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self, num_queries: int, num_keys: int, query_offset: int | jax.Array = 0
    ) -> jax.Array | None:
        """Makes the bias of T queries on S keys, which it counts from 0.

        Args:
            num_queries: T.
            num_keys: S.
            query_offset: index of the first query; an int, or int `[B]`, one for each row.

        Returns:
            float `[1, N, T, S]`, or `[B, N, T, S]` where the rows' offsets may differ.
        """
        config, scheme = self.config, self.config.positions
        if isinstance(scheme, AlibiConfig):
            bias = alibi_bias(config.num_heads, num_queries, num_keys, query_offset)
        elif isinstance(scheme, RelativeConfig):
            shape = (scheme.num_buckets, config.num_heads)
            table = self.param("table", kernel_init(config), shape, param_dtype(config))
            buckets = relative_position_buckets(
                num_queries, num_keys, query_offset, num_buckets=scheme.num_buckets,
                max_distance=scheme.max_distance,
                bidirectional=config.architecture == "encoder",
            )  # fmt: skip
            bias = rearrange(embed(table, buckets), "... t s n -> ... n t s")
        else:
            return None
        return bias if bias.ndim == 4 else bias[None]


def rotary_for(config: ModelConfig, positions: jax.Array) -> tuple[jax.Array, jax.Array] | None:
    """Computes the rotary tables of all layers at once.

    Args:
        config: kind of positions, head width, base and scaling.
        positions: integer `[B, T]`.

    Returns:
        (cos, sin), float32 `[B, T, H/2]`; None where positions are of another kind.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> [table.shape for table in rotary_for(config, jnp.arange(3)[None])]
        [(1, 3, 1), (1, 3, 1)]
    """
    scheme = config.positions
    if not isinstance(scheme, RotaryConfig):
        return None
    return rotary_tables(
        positions, config.key_dim, base=scheme.base, scaling=_scaling(scheme.scaling)
    )


def _scaling(config: RotaryScalingConfig | None) -> RotaryScaling | None:
    if config is None:
        return None
    values = dataclasses.asdict(config)
    del values["kind"]
    return _SCALINGS[type(config)](**values)

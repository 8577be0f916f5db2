"""Parameters of modules: initial values, dtype, and logical axis names.

`init` returns each parameter in a box with its axis names (`nn.with_logical_partitioning`):

| name | axis |
|---|---|
| embed | d_model |
| vocab | token ids |
| heads, kv | all query heads, all key or value heads: heads * head_dim |
| mlp | the inner width of feed-forward layers |
| experts, layers | experts of a mixture, layers of a stack |
| norm, table, positions, token_types, classes | as they say |

`nn.unbox` returns plain arrays. Modules read either.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional.dtypes import at_least

AxisNames = tuple[str | None, ...]
"""Logical name of each axis of a parameter; None = never split."""

KernelShape = Callable[[ModelConfig], tuple[int, ...]]
"""Shape `[..., in, out]` of a kernel in the model of a config, such as the base of μP."""


def normal_init(std: float) -> jax.nn.initializers.Initializer:
    """Normal with a standard deviation, rounded to the dtype of the parameter."""
    draw = nn.initializers.normal(std)

    # Drawn in float32 or wider, then rounded: draws in bfloat16 have 128 different values, with a
    # mean of -0.012 standard deviations.
    def init(
        key: jax.Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None
    ) -> jax.Array:
        wide = at_least(dtype, jnp.float32)
        return draw(key, shape, wide, out_sharding=out_sharding).astype(dtype)

    return init


def kernel_param(
    module: nn.Module,
    name: str,
    config: ModelConfig,
    axes: AxisNames,
    shape: KernelShape,
    *,
    into_residual: bool = False,
) -> jax.Array:
    """Declares a kernel `[..., in, out]`, of shape `shape(config)`; normal with std `init_std`."""
    # With μP, that is the std in the base model: for an input that is r times as wide, it is
    # divided by sqrt(r), or by r if the output does not grow (Yang et al., 2022, tables 3 and 8).
    sizes, base = shape(config), shape(config.base)
    ratio = sizes[-2] / base[-2]
    std = config.init_std / (ratio if sizes[-1] == base[-1] else ratio**0.5)
    if into_residual:
        # Each projection into the residual stream adds its variance (GPT-2, section 2.3).
        std /= (config.num_sublayers * config.num_layers) ** 0.5
    return named_param(module, name, config, axes, *sizes, init=normal_init(std))


def projection_params(
    module: nn.Module, name: str, config: ModelConfig, axes: AxisNames, shape: KernelShape,
    *, has_bias: bool, into_residual: bool = False,
) -> dict[str, jax.Array]:  # fmt: skip
    """Declares the kernel `[..., in, out]` of a projection, and its bias `[..., out]`, by name."""
    kernel = kernel_param(
        module, f"{name}_kernel", config, axes, shape, into_residual=into_residual
    )
    if not has_bias:
        return {f"{name}_kernel": kernel}
    (*leading, _, output), (*leading_axes, _, output_axis) = kernel.shape, axes
    bias_axes = (*leading_axes, output_axis)
    bias = bias_param(module, f"{name}_bias", config, bias_axes, *leading, output)
    return {f"{name}_kernel": kernel, f"{name}_bias": bias}


def bias_param(
    module: nn.Module, name: str, config: ModelConfig, axes: AxisNames, *shape: int
) -> jax.Array:
    """Declares a bias, 0 at first."""
    return named_param(module, name, config, axes, *shape, init=nn.initializers.zeros)


def table_param(
    module: nn.Module, name: str, config: ModelConfig, axes: AxisNames, *shape: int
) -> jax.Array:
    """Declares a table of embeddings or biases; normal with std `init_std`."""
    return named_param(module, name, config, axes, *shape, init=normal_init(config.init_std))


def named_param(
    module: nn.Module, name: str, config: ModelConfig, axes: AxisNames, *shape: int,
    init: jax.nn.initializers.Initializer,
) -> jax.Array:  # fmt: skip
    """Declares a parameter with logical axis names in a module, and returns its value."""
    init = nn.with_logical_partitioning(init, axes)
    return module.param(name, init, shape, jnp.dtype(config.param_dtype))

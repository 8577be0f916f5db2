"""Feed-forward module."""

from collections.abc import Callable
from typing import Any

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.functional.feed_forward import (
    FeedForwardParams,
    GatedFeedForwardParams,
    feed_forward,
    gated_feed_forward,
)
from jaxformer.functional.linear import DEFAULT_PRODUCTS, Products
from jaxformer.functional.taps import LayerTaps
from jaxformer.modules.initializers import AxisNames, bias_param, kernel_param

_GATE_ACTIVATIONS = {
    "swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "clamped_swiglu": "clamped_silu"
}  # fmt: skip


class FeedForward(nn.Module):
    """Two projections with an activation between them, or three with a gate.

    Args:
        config: widths, activation and biases.
        sublayers: number of sublayers per block, for the scale of the initial weights.
        products: precision and function of the matrix products.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(
        ...     max_len=8, num_layers=1, d_model=4, num_heads=2, activation="swiglu", use_bias=False
        ... )
        >>> variables = FeedForward(config).init(jax.random.key(0), jnp.ones((2, 4)))
        >>> sorted(variables["params"])
        ['down_kernel', 'gate_kernel', 'up_kernel']
    """

    config: ModelConfig
    sublayers: int = 2
    products: Products = DEFAULT_PRODUCTS

    @nn.compact
    def __call__(self, x: jax.Array, *, tap: LayerTaps | None = None) -> jax.Array:
        """Maps float `[..., D]` to `[..., D]`; tap as in `functional.feed_forward`."""
        config = self.config
        options: dict[str, Any] = {
            "activation": inner_activation(config), "tap": tap, "products": self.products,
        }  # fmt: skip

        def projection(
            name: str, axes: AxisNames, shape: Callable[[ModelConfig], tuple[int, int]],
            sublayers: int | None = None,
        ) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
            kernel = kernel_param(self, f"{name}_kernel", config, axes, shape, sublayers=sublayers)
            if not config.has_bias("feed_forward"):
                return kernel, None
            return kernel, bias_param(self, f"{name}_bias", config, axes[1:], kernel.shape[-1])

        inward, outward = ("embed", "mlp"), ("mlp", "embed")
        up_kernel, up_bias = projection("up", inward, lambda c: (c.d_model, c.ff_dim))
        down_kernel, down_bias = projection(
            "down", outward, lambda c: (c.ff_dim, c.d_model), self.sublayers
        )
        if not config.is_gated:
            params = FeedForwardParams(up_kernel, down_kernel, up_bias, down_bias)
            return feed_forward(params, x, **options)
        gate_kernel, gate_bias = projection("gate", inward, lambda c: (c.d_model, c.ff_dim))
        gated = GatedFeedForwardParams(
            gate_kernel, up_kernel, down_kernel, gate_bias, up_bias, down_bias
        )
        return gated_feed_forward(gated, x, **options)


def inner_activation(config: ModelConfig) -> str:
    """Activation function name of the hidden layer, or of its gate if there is one."""
    return _GATE_ACTIVATIONS.get(config.activation, config.activation)

"""Feed-forward module."""

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
from jaxformer.modules.initializers import AxisNames, KernelShape, projection_params

_KERNELS: dict[str, tuple[AxisNames, KernelShape]] = {
    "up": (("embed", "mlp"), lambda c: (c.d_model, c.ff_dim)),
    "down": (("mlp", "embed"), lambda c: (c.ff_dim, c.d_model)),
    "gate": (("embed", "mlp"), lambda c: (c.d_model, c.ff_dim)),
}

_GATE_ACTIVATIONS = {
    "swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "clamped_swiglu": "clamped_silu"
}  # fmt: skip


class FeedForward(nn.Module):
    """Two projections with an activation between them, or three with a gate.

    Args:
        config: widths, activation and biases.
        products: precision and function of the matrix products.

    Example:
        >>> import jax.numpy as jnp
        >>> config = ModelConfig(max_len=8, d_model=8, activation="swiglu", use_bias=False)
        >>> variables = FeedForward(config).init(jax.random.key(0), jnp.ones((2, 8)))
        >>> sorted(variables["params"])
        ['down_kernel', 'gate_kernel', 'up_kernel']
    """

    config: ModelConfig
    products: Products = DEFAULT_PRODUCTS

    @nn.compact
    def __call__(self, x: jax.Array, *, tap: LayerTaps | None = None) -> jax.Array:
        """Maps float `[..., D]` to `[..., D]`; tap as in `functional.feed_forward`."""
        config = self.config
        options: dict[str, Any] = {
            "activation": inner_activation(config), "tap": tap, "products": self.products,
        }  # fmt: skip
        # Flax numbers the RNG draws of a module, so the initial values depend on this order.
        params: dict[str, jax.Array] = {}
        for name in ("up", "down", "gate") if config.is_gated else ("up", "down"):
            params |= projection_params(
                self, name, config, *_KERNELS[name], has_bias=config.has_bias("feed_forward"),
                into_residual=name == "down",
            )  # fmt: skip
        if config.is_gated:
            return gated_feed_forward(GatedFeedForwardParams(**params), x, **options)
        return feed_forward(FeedForwardParams(**params), x, **options)


def inner_activation(config: ModelConfig) -> str:
    """Activation function name of the hidden layer, or of its gate if there is one."""
    return _GATE_ACTIVATIONS.get(config.activation, config.activation)

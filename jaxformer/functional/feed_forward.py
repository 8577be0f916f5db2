"""The position-wise feed-forward layer, plain and gated."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.functional.checks import check_choice, check_fields
from jaxformer.functional.linear import (
    DEFAULT_PRODUCTS,
    Kernel,
    Products,
    check_params,
    project,
)
from jaxformer.functional.taps import LayerTaps


class FeedForwardParams(NamedTuple):
    """Parameters of `feed_forward`; each kernel may be a `LowRankKernel` of its shape.

    Args:
        up_kernel: float `[D, F]`.
        down_kernel: float `[F, D]`.
        up_bias: float `[F]` or None.
        down_bias: float `[D]` or None.
    """

    up_kernel: Kernel
    down_kernel: Kernel
    up_bias: jax.Array | None = None
    down_bias: jax.Array | None = None


class GatedFeedForwardParams(NamedTuple):
    """Parameters of `gated_feed_forward`: a gate, and those of `FeedForwardParams`.

    Args:
        gate_kernel: float `[D, F]`.
        gate_bias: float `[F]` or None.
    """

    gate_kernel: Kernel
    up_kernel: Kernel
    down_kernel: Kernel
    gate_bias: jax.Array | None = None
    up_bias: jax.Array | None = None
    down_bias: jax.Array | None = None


_AXES = {"up_kernel": "D F", "up_bias": "F", "down_kernel": "F D", "down_bias": "D"}
_GATED_AXES = {"gate_kernel": "D F", "gate_bias": "F", **_AXES}

Activation = Callable[[jax.Array], jax.Array]

_ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    # So et al., "Primer: Searching for Efficient Transformers for Language Modeling", 2021.
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": jax.nn.gelu,
    "silu": jax.nn.silu,
}


def _clamped_silu(gate: jax.Array, up: jax.Array) -> jax.Array:
    """SwiGLU of OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025."""
    gate, up = jnp.minimum(gate, 7.0), jnp.clip(up, -7.0, 7.0)
    return gate * jax.nn.sigmoid(1.702 * gate) * (up + 1)


def gate_function(name: str) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Function of the gate and up projections, by the activation of the gate."""
    check_choice("activation", name, (*_ACTIVATIONS, "clamped_silu"))
    if name == "clamped_silu":
        return _clamped_silu
    return lambda gate, up: _ACTIVATIONS[name](gate) * up


def activation_function(name: str) -> Activation:
    """Activation function by name."""
    check_choice("activation", name, _ACTIVATIONS)
    return _ACTIVATIONS[name]


def feed_forward(
    params: FeedForwardParams, x: jax.Array, *, activation: str = "relu",
    tap: LayerTaps | None = None, products: Products = DEFAULT_PRODUCTS,
) -> jax.Array:  # fmt: skip
    r"""Position-wise feed-forward layer: `activation(x W_up + b_up) W_down + b_down`.

    Args:
        params: the two projections.
        x: float `[..., D]`.
        activation: "relu", "relu2" (its square), "gelu" (with the error function), "gelu_tanh"
            or "silu".
        tap: reads and edits "feed_forward_activations", float `[..., F]`.
        products: precision and function of the matrix products.

    Returns:
        float `[..., D]`, in the dtype of x.

    Raises:
        ShapeError: the widths do not match.
        ConfigError: the activation is unknown.

    References:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.3.

    Example:
        >>> import jax.numpy as jnp
        >>> params = FeedForwardParams(jnp.ones((2, 3)), jnp.ones((3, 2)))
        >>> feed_forward(params, jnp.array([[1.0, 2.0], [-1.0, -2.0]])).tolist()
        [[9.0, 9.0], [0.0, 0.0]]
    """
    activate = activation_function(activation)
    check_params(params, FeedForwardParams, _AXES, x)
    check_fields("products", products, Products)
    up = project(x, params.up_kernel, params.up_bias, products)  # [..., F]
    return _project_down(params, activate(up), tap, products)


def gated_feed_forward(
    params: GatedFeedForwardParams, x: jax.Array, *, activation: str = "silu",
    tap: LayerTaps | None = None, products: Products = DEFAULT_PRODUCTS,
) -> jax.Array:  # fmt: skip
    """Gated feed-forward layer: SwiGLU with the activation "silu", GEGLU with "gelu".

    It computes `(activation(x W_gate + b_gate) * (x W_up + b_up)) W_down + b_down`. With
    "clamped_silu", both projections g and u are clamped to at most 7, and u to at least -7, and the
    product is `g sigmoid(1.702 g) (u + 1)`, as in gpt-oss (OpenAI, 2025).

    Args:
        params: the three projections.
        x: float `[..., D]`.
        activation: as in `feed_forward`, or "clamped_silu".
        tap: reads and edits "feed_forward_activations", float `[..., F]`.
        products: precision and function of the matrix products.

    Returns:
        float `[..., D]`, in the dtype of x.

    Raises:
        ShapeError: the widths do not match.
        ConfigError: the activation is unknown.

    References:
        Shazeer, "GLU Variants Improve Transformer", 2020.

    Example:
        >>> import jax.numpy as jnp
        >>> params = GatedFeedForwardParams(*[jnp.ones((2, 2))] * 3)
        >>> gated_feed_forward(params, jnp.ones(2), activation="relu").tolist()
        [8.0, 8.0]
    """
    activate = gate_function(activation)
    check_params(params, GatedFeedForwardParams, _GATED_AXES, x)
    check_fields("products", products, Products)
    gate = project(x, params.gate_kernel, params.gate_bias, products)  # [..., F]
    up = project(x, params.up_kernel, params.up_bias, products)  # [..., F]
    return _project_down(params, activate(gate, up), tap, products)


def _project_down(
    params: FeedForwardParams | GatedFeedForwardParams, hidden: jax.Array, tap: LayerTaps | None,
    products: Products,
) -> jax.Array:  # fmt: skip
    """Output `[..., D]` of activations `[..., F]`."""
    hidden = hidden if tap is None else tap("feed_forward_activations", hidden)
    return project(hidden, params.down_kernel, params.down_bias, products)

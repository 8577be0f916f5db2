"""Sparse mixture of experts: each token is routed to a few of many feed-forward networks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_dtype,
    check_fields,
    check_int,
    check_leading,
    static_number,
)
from jaxformer.functional.dtypes import widened
from jaxformer.functional.experts.devices import ExpertsLayout, compute_on_devices
from jaxformer.functional.experts.grouped import Experts
from jaxformer.functional.experts.routing import Routing, check_routing, route
from jaxformer.functional.feed_forward import activation_function, gate_function
from jaxformer.functional.linear import (
    DEFAULT_PRODUCTS,
    Kernel,
    Products,
    check_params,
    project,
)


class ExpertsParams(NamedTuple):
    """Parameters of `mixture_of_experts`; with a gate_kernel, experts are gated, as in SwiGLU.

    Each kernel may be a `LowRankKernel` of its shape.

    Args:
        router_kernel: float `[D, E]`.
        up_kernel: float `[E, D, F]`.
        down_kernel: float `[E, F, D]`.
        gate_kernel: float `[E, D, F]` or None.
        router_bias: float `[E]` or None.
        up_bias: float `[E, F]` or None.
        down_bias: float `[E, D]` or None.
        gate_bias: float `[E, F]` or None.
        selection_bias: float `[E]` or None, added to the scores that experts are chosen by. It has
            no gradient, and needs `Routing(scores="sigmoid")`.
    """

    router_kernel: Kernel
    up_kernel: Kernel
    down_kernel: Kernel
    gate_kernel: Kernel | None = None
    router_bias: jax.Array | None = None
    up_bias: jax.Array | None = None
    down_bias: jax.Array | None = None
    gate_bias: jax.Array | None = None
    selection_bias: jax.Array | None = None


_AXES = {
    "router_kernel": "D E", "up_kernel": "E D F", "down_kernel": "E F D", "gate_kernel": "E D F",
    "router_bias": "E", "up_bias": "E F", "down_bias": "E D", "gate_bias": "E F",
    "selection_bias": "E",
}  # fmt: skip


class ExpertsOutput(NamedTuple):
    """Result of `mixture_of_experts`; statistics cover real tokens only, in float32 or better.

    Args:
        output: float `[..., D]`, in the dtype of x.
        load_balancing_loss: float `[]`. With k experts per token, it is k if tokens are spread
            evenly, and E if all tokens choose the same k experts with all their probability.
        router_z_loss: float `[]`, the mean of `logsumexp(router logits)^2`.
        expert_load: float `[E]`, the share of tokens that chose each expert; its sum is k.
        dropped: float `[]`, the share of the choices that were dropped; 0 without a capacity.
    """

    output: jax.Array
    load_balancing_loss: jax.Array
    router_z_loss: jax.Array
    expert_load: jax.Array
    dropped: jax.Array


SOFTMAX = Routing()


def mixture_of_experts(
    params: ExpertsParams, x: jax.Array,
    *, num_experts_per_token: int, activation: str = "silu", routing: Routing = SOFTMAX,
    mask: Array | None = None, capacity_factor: float | None = None,
    layout: ExpertsLayout | None = None, products: Products = DEFAULT_PRODUCTS,
) -> ExpertsOutput:  # fmt: skip
    r"""Sparse mixture of experts: the router sends each token to k experts.

    With $p = \mathrm{softmax}(x W_{router} + b_{router})$ over all E experts and $K$ the set of the
    k most probable (ties go to the lower index), it computes
    $\sum_{e \in K} w_e \, \mathrm{expert}_e(x)$. The weights $w_e$ are $p_e / \sum_{i \in K} p_i$
    as in Mixtral; `Routing` has other scores and weights. A softmax over only the k chosen logits,
    as in gpt-oss, gives the same. An expert is `feed_forward`, or `gated_feed_forward` if there
    is a gate kernel.

    Router, softmax and weighted sum are computed in float32 or better, the router at full precision
    on every backend. What an expert computes for tokens that did not choose it affects neither the
    output nor a gradient, even if it is NaN.

    Each expert is computed only for the tokens that chose it, so the FLOPs are about k / E of those
    of all experts. TPUs, and GPUs with the package tokamax and 16-bit floats, use a grouped matrix
    product; others a scan over blocks of up to 256 tokens of one expert. The backward pass computes
    the experts again.

    No token is dropped unless you set a capacity. Then every expert takes C = ceil(capacity_factor
    * N k / E) of the choices of N tokens: first choices come first, and earlier tokens before later
    ones. Choices beyond it add nothing to the output. Padding, by the mask, then takes no room, and
    its output is 0.

    The auxiliary losses are statistics of the real tokens of this call: of one device and one
    micro-batch, as in published implementations. `load_balancing_loss` is
    $E \sum_e f_e P_e$, where $f_e$ is the share of tokens that chose expert e and $P_e$ its mean
    probability, or, with sigmoid, its mean share in the scores of all experts. Each layer has its
    own; Hugging Face's `transformers` pools $f$ and $P$ over all layers.

    Args:
        params: router and experts.
        x: float `[..., D]`.
        num_experts_per_token: k, in 1 .. E.
        activation: as in `feed_forward`, or with gates as in `gated_feed_forward`.
        routing: scores and weights of the experts.
        mask: bool `[...]`, True = real token, which counts in the losses and the load; None = all.
        capacity_factor: positive; 1.25 as in Switch Transformers, or None to drop nothing.
        layout: mesh axes that split tokens and experts over devices; None if each device has all.
            With a capacity, C is for the tokens of each device.
        products: precision and function of the matrix products of the experts, not of the router;
            with a function of your own, they are computed in blocks.

    Returns:
        The output with the auxiliary losses, which are 0 if there is no real token.

    Raises:
        ShapeError: the shapes or dtypes do not fit.
        ConfigError: an option is invalid.

    References:
        Shazeer et al., "Outrageously Large Neural Networks", 2017; Jiang et al., "Mixtral of
        Experts", 2024; Fedus et al., "Switch Transformers", 2021, equation 4 (load balancing);
        Zoph et al., "ST-MoE", 2022, equation 5 (router z-loss); Gale et al., "MegaBlocks", 2022
        (blocks of one expert); Lepikhin et al., "GShard", 2020 (capacity and exchange).

    Example:
        >>> kernel = jnp.stack([jnp.eye(2), 3 * jnp.eye(2)])
        >>> params = ExpertsParams(jnp.eye(2), kernel, kernel)
        >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0]])
        >>> options = {"num_experts_per_token": 1, "activation": "relu"}
        >>> result = mixture_of_experts(params, x, **options)
        >>> result.output.tolist(), result.load_balancing_loss.item()
        ([[1.0, 0.0], [0.0, 9.0]], 1.0)
    """
    num_experts = check_params(params, ExpertsParams, _AXES, x)["E"]
    if params.gate_bias is not None and params.gate_kernel is None:
        raise ShapeError(
            f"gate_bias is for experts with a gate_kernel, got gate_bias {params.gate_bias.shape} "
            "and no gate_kernel; remove it"
        )
    check_fields("products", products, Products)
    function = activation_function if params.gate_kernel is None else gate_function
    activate = function(activation)
    count = check_int("num_experts_per_token", num_experts_per_token, 1, num_experts)
    check_fields("routing", routing, Routing)
    has_bias = params.selection_bias is not None
    routing = check_routing(routing, num_experts, count, has_bias)
    x = jnp.asarray(x)
    if mask is not None:
        mask = as_array("mask", mask)
        check_dtype("mask", mask, "bool")
        check_leading("mask", mask, 0, x.shape[:-1], of="x")
    if capacity_factor is not None:
        capacity_factor = static_number(
            "capacity_factor", capacity_factor, positive=True, remedy="None = drop nothing"
        )
    # At full precision, because rounding a logit can change the choice of experts.
    router = params.router_kernel, params.router_bias, Products(jax.lax.Precision.HIGHEST)
    logits = project(widened(x), *router)  # [..., E]
    # Of the shapes [..., k], [..., k] and [..., E].
    chosen, weights, shares = route(logits, params.selection_bias, count, routing)
    routed = chosen
    if capacity_factor is not None and mask is not None:
        routed = jnp.where(mask[..., None], chosen, num_experts)
    experts = Experts(
        params.up_kernel, params.up_bias, params.gate_kernel, params.gate_bias,
        params.down_kernel, params.down_bias, activate, products,
    )  # fmt: skip
    output, num_dropped = compute_on_devices(experts, x, routed, weights, capacity_factor, layout)
    statistics = _statistics(logits, shares, chosen, num_dropped, mask)
    return ExpertsOutput(output.astype(x.dtype), *statistics)


def _statistics(
    logits: jax.Array, shares: jax.Array, chosen: jax.Array, num_dropped: jax.Array,
    mask: jax.Array | None,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Load balancing loss, router z-loss, expert load and dropped share of the real tokens."""
    is_real = jnp.ones(logits.shape[:-1], bool) if mask is None else mask
    num_experts, dtype = logits.shape[-1], logits.dtype
    num_tokens = jnp.maximum(is_real.sum(dtype=jnp.int32), 1).astype(dtype)

    def mean(values: jax.Array) -> jax.Array:
        axes = tuple(range(values.ndim - 1))
        return jnp.where(is_real[..., None], values, 0).sum(axis=axes) / num_tokens

    load = mean(jax.nn.one_hot(chosen, num_experts, dtype=dtype).sum(axis=-2))
    load_balancing = num_experts * jnp.sum(load * mean(shares))
    (z_loss,) = mean(jnp.square(jax.nn.logsumexp(logits, axis=-1, keepdims=True)))
    dropped = num_dropped.astype(dtype) / (num_tokens * chosen.shape[-1])
    return load_balancing, z_loss, load, dropped

"""Sparse mixture of experts: each token is routed to a few of many feed-forward networks."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from einops import pack, rearrange, unpack

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_axes,
    check_dtype,
    check_fields,
    is_int,
    is_symbolic,
    static_bool,
)
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.feed_forward import Activation, activation_function, input_width
from jaxformer.functional.linear import Kernel, checked_base, linear, matmul, on_rows


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
    """

    router_kernel: Kernel
    up_kernel: Kernel
    down_kernel: Kernel
    gate_kernel: Kernel | None = None
    router_bias: jax.Array | None = None
    up_bias: jax.Array | None = None
    down_bias: jax.Array | None = None
    gate_bias: jax.Array | None = None


class ExpertsOutput(NamedTuple):
    """Result of `mixture_of_experts`; statistics cover real tokens only, in float32 or better.

    Args:
        output: float `[..., D]`, in the dtype of x.
        load_balancing_loss: float `[]`. With k experts per token, it is k if tokens are spread
            evenly, and E if all tokens choose the same k experts with all their probability.
        router_z_loss: float `[]`, the mean of `logsumexp(router logits)^2`.
        expert_load: float `[E]`, the share of tokens that chose each expert; its sum is k.
    """

    output: jax.Array
    load_balancing_loss: jax.Array
    router_z_loss: jax.Array
    expert_load: jax.Array


def mixture_of_experts(
    params: ExpertsParams, x: jax.Array,
    *, num_experts_per_token: int, activation: str = "silu", normalize_weights: bool = True,
    mask: Array | None = None,
) -> ExpertsOutput:  # fmt: skip
    r"""Sparse mixture of experts: the router sends each token to k experts.

    With $p = \mathrm{softmax}(x W_{router} + b_{router})$ over all E experts and $K$ the set of the
    k most probable (ties go to the lower index), it computes
    $\sum_{e \in K} w_e \, \mathrm{expert}_e(x)$. The weights $w_e$ are $p_e / \sum_{i \in K} p_i$
    as in Mixtral, or, unnormalized, $p_e$ as in Switch Transformers. A softmax over only the k
    chosen logits, as in gpt-oss, equals the normalized weights. An expert is `feed_forward`, or
    `gated_feed_forward` if there is a gate kernel.

    Router, softmax and weighted sum are computed in float32 or better, the router at full
    precision on every backend, because rounding a logit can change the choice of experts. No token
    is ever dropped. What an expert computes for tokens that did not choose it affects neither the
    output nor a gradient, even if it is NaN.

    Every expert is computed for every token, one expert after the other. The backward pass
    recomputes them, so memory holds the activations of only one expert. If there are fewer choices
    in total than experts, as in decoding, only the chosen experts are computed.

    The auxiliary losses are statistics of the real tokens of this call. With several devices or
    micro-batches they cover one of them, as in published implementations. `load_balancing_loss` is
    $E \sum_e f_e P_e$, where $f_e$ is the share of tokens that chose expert e and $P_e$ its mean
    probability. It is not a mean over tokens, so the losses of two batches cannot be combined.
    Each layer has its own loss, as in the papers; Hugging Face's `transformers` pools $f$ and $P$
    over all layers.

    Args:
        params: router and experts.
        x: float `[..., D]`.
        num_experts_per_token: k, in 1 .. E.
        activation: "relu", "relu2" (its square), "gelu" (with the error function), "gelu_tanh"
            or "silu".
        normalize_weights: whether to scale the weights of a token's k experts to sum to 1. With
            k = 1 that weight is always 1, so the router gets no gradient from the output.
        mask: bool `[...]`, True = real token, which counts in the losses and the load; None = all.
            It does not change the output.

    Returns:
        The output with the auxiliary losses, which are 0 if there is no real token.

    Raises:
        ShapeError: the shapes or dtypes do not fit.
        ConfigError: an option is invalid.

    References:
        Shazeer et al., "Outrageously Large Neural Networks", 2017; Jiang et al., "Mixtral of
        Experts", 2024; Fedus et al., "Switch Transformers", 2021, equation 4 (load balancing);
        Zoph et al., "ST-MoE", 2022, equation 5 (router z-loss).

    Example:
        >>> kernel = jnp.stack([jnp.eye(2), 3 * jnp.eye(2)])
        >>> params = ExpertsParams(jnp.eye(2), kernel, kernel)
        >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0]])
        >>> options = {"num_experts_per_token": 1, "activation": "relu"}
        >>> result = mixture_of_experts(params, x, **options)
        >>> result.output.tolist(), result.load_balancing_loss.item()
        ([[1.0, 0.0], [0.0, 9.0]], 1.0)
    """
    activate = activation_function(activation)
    num_experts = _check_params(params, x)
    if not is_int(num_experts_per_token, 1, num_experts):
        raise ConfigError(
            f"num_experts_per_token must be an int in 1 .. E={num_experts}, got "
            f"{num_experts_per_token!r}"
        )
    normalize = static_bool("normalize_weights", normalize_weights)
    x = jnp.asarray(x)
    if mask is not None:
        mask = as_array("mask", mask)
        check_dtype("mask", mask, "bool")
        if mask.shape != x.shape[:-1]:
            raise ShapeError(f"mask must be [...] = {x.shape[:-1]} for x, got shape {mask.shape}")

    routing = _route(params, x, int(num_experts_per_token), normalize)
    num_tokens = math.prod(x.shape[:-1])
    # Each scan step reads the kernels of one expert, so fewer steps are faster.
    few = not is_symbolic(num_tokens) and num_tokens * num_experts_per_token < num_experts
    compute = _chosen_experts if few else _all_experts
    output = compute(params, x, routing, activate).astype(x.dtype)
    return ExpertsOutput(output, *_statistics(routing, mask))


class _Experts(NamedTuple):
    """Parameters of all experts, or, without the first axis, of one."""

    up_kernel: Kernel
    up_bias: jax.Array | None
    gate_kernel: Kernel | None
    gate_bias: jax.Array | None
    down_kernel: Kernel
    down_bias: jax.Array | None


def _experts(params: ExpertsParams) -> _Experts:
    return _Experts(**{name: getattr(params, name) for name in _Experts._fields})


class _Routing(NamedTuple):
    """Router logits `[..., E]`, and the chosen experts `[..., k]` with their weights."""

    logits: jax.Array
    experts: jax.Array
    weights: jax.Array


def _route(params: ExpertsParams, x: jax.Array, num_chosen: int, normalize: bool) -> _Routing:
    dtype = at_least(x.dtype, jnp.float32)
    kernel, precision = params.router_kernel, jax.lax.Precision.HIGHEST
    logits = on_rows(lambda rows: matmul(rows, kernel, precision=precision), x.astype(dtype))
    if params.router_bias is not None:
        logits = logits + jnp.broadcast_to(params.router_bias.astype(dtype), logits.shape)
    # Ranks logits: probabilities far below the largest all round to 0.
    largest, experts = jax.lax.top_k(logits, num_chosen)
    if normalize:
        return _Routing(logits, experts, jax.nn.softmax(largest, axis=-1))
    log_normalizer = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    return _Routing(logits, experts, jnp.exp(largest - log_normalizer))


def _all_experts(
    params: ExpertsParams, x: jax.Array, routing: _Routing, activate: Activation
) -> jax.Array:
    """Weighted sum `[..., D]` of all experts, in a scan over them."""

    # Without remat the scan would keep the activations of every expert for the backward pass. XLA
    # merges nothing across scan iterations, so no barriers against CSE are needed.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def contribution(x: jax.Array, index: jax.Array, expert: _Experts) -> jax.Array:
        slots = routing.experts == index  # [..., k]
        weight = jnp.where(slots, routing.weights, 0).sum(axis=-1, keepdims=True)
        chosen = slots.any(axis=-1, keepdims=True)
        return weight * _apply_expert(expert, x, chosen, activate).astype(weight.dtype)

    def add(total: jax.Array, indexed_expert: Any) -> tuple[jax.Array, None]:
        return total + contribution(x, *indexed_expert), None

    experts = _experts(params)
    indices = jnp.arange(experts.up_kernel.shape[0], dtype=routing.experts.dtype)
    start = jnp.zeros(x.shape, routing.weights.dtype)
    total, _ = jax.lax.scan(add, start, (indices, experts))
    return total


def _chosen_experts(
    params: ExpertsParams, x: jax.Array, routing: _Routing, activate: Activation
) -> jax.Array:
    """Weighted sum `[..., D]` of the chosen experts, in a scan over the choices of all tokens."""
    experts = _experts(params)

    # Kernels are sliced one by one. Gathering those of all choices into one array is slower than
    # computing all experts (measured on a CPU).
    def apply_choice(choice: tuple[jax.Array, jax.Array]) -> jax.Array:
        index, token = choice  # [], [D]
        expert = jax.tree.map(
            lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), experts
        )
        return _apply_expert(expert, token, jnp.bool_(True), activate)

    slots = jnp.broadcast_to(x[..., None, :], (*routing.experts.shape, x.shape[-1]))
    tokens, leading = pack([slots], "* d")
    outputs = jax.lax.map(apply_choice, (rearrange(routing.experts, "... k -> (... k)"), tokens))
    (outputs,) = unpack(outputs, leading, "* d")  # [..., k, D]
    return jnp.sum(routing.weights[..., None] * outputs.astype(routing.weights.dtype), axis=-2)


def _apply_expert(
    expert: _Experts, x: jax.Array, chosen: jax.Array, activate: Activation
) -> jax.Array:
    """Output of one expert `[..., D]`, 0 where chosen, bool `[..., 1]`, is False."""

    # In the gradient, 0 times an expert's NaN would be NaN, so zero it after each product.
    def cut(array: jax.Array) -> jax.Array:
        return jnp.where(chosen, array, 0)

    x = cut(x)
    up = cut(linear(x, expert.up_kernel, expert.up_bias, name="up_kernel"))
    if expert.gate_kernel is None:
        hidden = activate(up)
    else:
        gate = cut(linear(x, expert.gate_kernel, expert.gate_bias, name="gate_kernel"))
        hidden = activate(gate) * up
    return cut(linear(hidden, expert.down_kernel, expert.down_bias, name="down_kernel"))


def _statistics(
    routing: _Routing, mask: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Load balancing loss, router z-loss and expert load over the real tokens."""
    logits = routing.logits
    real = jnp.ones(logits.shape[:-1], bool) if mask is None else mask
    num_experts, dtype = logits.shape[-1], logits.dtype
    num_tokens = jnp.maximum(real.sum(dtype=jnp.int32), 1).astype(dtype)

    def mean(values: jax.Array) -> jax.Array:
        axes = tuple(range(values.ndim - 1))
        return jnp.where(real[..., None], values, 0).sum(axis=axes) / num_tokens

    load = mean(jax.nn.one_hot(routing.experts, num_experts, dtype=dtype).sum(axis=-2))
    load_balancing = num_experts * jnp.sum(load * mean(jax.nn.softmax(logits, axis=-1)))
    (z_loss,) = mean(jnp.square(jax.nn.logsumexp(logits, axis=-1, keepdims=True)))
    return load_balancing, z_loss, load


def _check_params(params: ExpertsParams, x: jax.Array) -> int:
    """Checks the widths of x and all parameters, and returns E."""
    sizes = {"D": input_width(x)}
    check_fields("params", params, ExpertsParams)
    axes = {
        "router_kernel": "D E", "up_kernel": "E D F", "down_kernel": "E F D",
        "gate_kernel": "E D F", "router_bias": "E", "up_bias": "E F", "down_bias": "E D",
        "gate_bias": "E F",
    }  # fmt: skip
    for name, letters in axes.items():
        array = getattr(params, name)
        if array is None and name in ExpertsParams._field_defaults:
            continue
        base = checked_base(name, array)
        remedy = "D is x's last axis" if name == "router_kernel" else ""
        sizes = check_axes(name, base, letters, sizes, remedy=remedy)
        check_dtype(name, base, "floating")
    if params.gate_bias is not None and params.gate_kernel is None:
        raise ShapeError(
            f"gate_bias is for experts with a gate_kernel, got gate_bias {params.gate_bias.shape} "
            "and no gate_kernel; remove it"
        )
    return sizes["E"]

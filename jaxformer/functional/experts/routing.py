"""The router of a mixture of experts, and statistics of its choices."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.functional.dtypes import at_least
from jaxformer.functional.linear import Kernel, Products, matmul, on_rows


class Routing(NamedTuple):
    """Router logits `[..., E]`, and the chosen experts `[..., k]` with their weights."""

    logits: jax.Array
    experts: jax.Array
    weights: jax.Array


def route(
    kernel: Kernel, bias: jax.Array | None, x: jax.Array, num_chosen: int, normalize: bool
) -> Routing:
    """Chooses the k experts of largest logit for each token of x `[..., D]`."""
    dtype = at_least(x.dtype, jnp.float32)
    product = Products(jax.lax.Precision.HIGHEST).matmul
    logits = on_rows(lambda rows: matmul(rows, kernel, product), x.astype(dtype))  # [..., E]
    if bias is not None:
        logits = logits + jnp.broadcast_to(bias.astype(dtype), logits.shape)
    # Ranks logits: probabilities far below the largest all round to 0.
    largest, experts = jax.lax.top_k(logits, num_chosen)  # [..., k]
    if normalize:
        return Routing(logits, experts, jax.nn.softmax(largest, axis=-1))
    log_normalizer = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    return Routing(logits, experts, jnp.exp(largest - log_normalizer))


def statistics(
    routing: Routing, num_dropped: jax.Array, mask: jax.Array | None
) -> tuple[jax.Array, ...]:
    """Load balancing loss, router z-loss, expert load and dropped share of the real tokens."""
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
    dropped = num_dropped.astype(dtype) / (num_tokens * routing.experts.shape[-1])
    return load_balancing, z_loss, load, dropped

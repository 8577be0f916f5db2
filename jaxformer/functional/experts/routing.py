"""Routing of tokens: which experts the logits of a router choose, and with which weights."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.errors import ConfigError
from jaxformer.functional.checks import check_choice, is_int, static_bool, static_number

_TINY = 1e-20  # so that scores that are all 0 are not divided by 0; as in DeepSeek-V3


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Routing:
    r"""How `mixture_of_experts` chooses the experts of a token, and weighs their outputs.

    With "softmax", the score of an expert is its probability, as in Mixtral. With "sigmoid", it is
    $s_e = \sigma(z_e)$ of its own logit, as in DeepSeek-V3, and experts are chosen by $s_e + b_e$
    with the selection bias b, which changes no weight. The experts are then in `num_groups` groups
    of equal size, in order. Only those of the `num_groups_per_token` groups whose two highest sums
    $s_e + b_e$ add up to the most can be chosen.

    Args:
        scores: "softmax" or "sigmoid".
        normalize_weights: whether the weights of a token's k experts are their scores scaled to sum
            to 1, or the scores themselves, as in Switch Transformers. With softmax and k = 1 a
            scaled weight is always 1, so the router gets no gradient from the output.
        scale: positive factor of the weights.
        num_groups: number of groups; 1 for softmax.
        num_groups_per_token: number of groups of which a token can choose experts.

    References:
        DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, equations 13 to 16.

    Example:
        >>> Routing(scores="sigmoid", num_groups=8, num_groups_per_token=4).scale
        1.0
    """

    scores: Literal["softmax", "sigmoid"] = "softmax"
    normalize_weights: bool = True
    scale: float = 1.0
    num_groups: int = 1
    num_groups_per_token: int = 1


def check_routing(routing: Routing, num_experts: int, chosen: int, has_bias: bool) -> Routing:
    """Checks the options of a routing of so many experts, of which a token has `chosen`."""
    check_choice("routing.scores", routing.scores, ("softmax", "sigmoid"))
    groups, open_groups = routing.num_groups, routing.num_groups_per_token
    got = f"got num_groups={groups!r} and num_groups_per_token={open_groups!r}"
    if not is_int(groups, 1, num_experts) or num_experts % groups:
        raise ConfigError(f"routing.num_groups must be an int that divides E={num_experts}, {got}")
    if not is_int(open_groups, 1, groups) or open_groups * (num_experts // groups) < chosen:
        raise ConfigError(
            "routing.num_groups_per_token must be an int in 1 .. num_groups whose groups have "
            f"num_experts_per_token={chosen} experts, {got}"
        )
    if groups > 1 and 2 * groups > num_experts:
        raise ConfigError(f"each of routing.num_groups must have two experts, {got}")
    if routing.scores == "softmax" and (groups > 1 or has_bias):
        raise ConfigError(
            "num_groups and selection_bias are for routing.scores 'sigmoid', got 'softmax'"
        )
    static_bool("routing.normalize_weights", routing.normalize_weights)
    scale = static_number("routing.scale", routing.scale, positive=True)
    return dataclasses.replace(routing, scale=scale)


def route(
    logits: jax.Array, selection_bias: jax.Array | None, num_chosen: int, routing: Routing
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Chosen experts `[..., k]`, their weights, and the share `[..., E]` of each in all scores."""
    if routing.scores == "softmax":
        # Ranks logits: probabilities far below the largest all round to 0.
        largest, chosen = jax.lax.top_k(logits, num_chosen)  # [..., k]
        shares = jax.nn.softmax(logits, axis=-1)
        if routing.normalize_weights:
            weights = jax.nn.softmax(largest, axis=-1)
        else:
            weights = jnp.exp(largest - jax.nn.logsumexp(logits, axis=-1, keepdims=True))
    else:
        scores = jax.nn.sigmoid(logits)
        _, chosen = jax.lax.top_k(_ranks(scores, selection_bias, routing), num_chosen)
        weights = jnp.take_along_axis(scores, chosen, axis=-1)  # [..., k]
        shares = scores / (scores.sum(axis=-1, keepdims=True) + _TINY)
        if routing.normalize_weights:
            weights = weights / (weights.sum(axis=-1, keepdims=True) + _TINY)
    return chosen, routing.scale * weights, shares


def _ranks(scores: jax.Array, selection_bias: jax.Array | None, routing: Routing) -> jax.Array:
    """What experts `[..., E]` are chosen by; -inf in groups that are not."""
    ranks = scores
    if selection_bias is not None:
        ranks = scores + jnp.broadcast_to(selection_bias.astype(scores.dtype), scores.shape)
    if routing.num_groups == 1:
        return ranks
    groups = rearrange(ranks, "... (g e) -> ... g e", g=routing.num_groups)
    best_two, _ = jax.lax.top_k(groups, 2)  # [..., G, 2]
    _, open_groups = jax.lax.top_k(best_two.sum(axis=-1), routing.num_groups_per_token)
    is_open = jax.nn.one_hot(open_groups, routing.num_groups, dtype=bool).any(axis=-2)  # [..., G]
    return rearrange(jnp.where(is_open[..., None], groups, -jnp.inf), "... g e -> ... (g e)")

"""Choices of experts sorted by expert, and the rows that hold their tokens in that order.

A token makes k choices, each of one expert; choice j of token n has number j N + n.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.functional.linear_map import linear_map


class Choices(NamedTuple):
    """Choices sorted by expert; those of expert E, which does not exist, come last."""

    experts: jax.Array  # int [k, N], the expert of each choice
    order: jax.Array  # int [k N], the choices in the order of their experts, then of their numbers
    rank: jax.Array  # int [k, N], the place of each choice among those of its expert
    sizes: jax.Array  # int [E], the number of choices of each expert
    first: jax.Array  # int [E], the place in the order where each expert's choices begin


class Rows(NamedTuple):
    """Which choice is in which row."""

    choices: jax.Array  # int [R], the choice in each row; k N where a row is padding
    rows: jax.Array  # int [k, N], the row of each choice; R where it has none


def sort_choices(chosen: jax.Array, num_experts: int) -> Choices:
    """Sorts choices `[N, k]` by expert."""
    experts = rearrange(chosen, "n k -> k n").astype(jnp.int32)
    order = jnp.argsort(experts, axis=None, stable=True)
    sizes = jax.nn.one_hot(experts, num_experts, dtype=jnp.int32).sum(axis=(0, 1))  # [E]
    first = jnp.cumsum(sizes) - sizes  # [E]
    # The inverse of a permutation sorts it.
    places = rearrange(jnp.argsort(order), "(k n) -> k n", k=experts.shape[0])
    rank = places - first.at[experts].get(mode="clip")  # [k, N]
    return Choices(experts, order, rank, sizes, first)


def group_rows(
    choices: Choices,
    groups: jax.Array,  # int [G], the expert of each group
    ranks: jax.Array,  # int [G, B], the rank of the choice in each row
    starts: jax.Array,  # int [E], the row of each expert's choice of rank 0
) -> Rows:
    """Rows `[G * B]` of G groups of B rows."""
    (num_choices,), num_rows = choices.order.shape, ranks.size
    places = choices.first[groups][:, None] + ranks  # [G, B]
    in_rows = choices.order.at[places].get(mode="clip")
    in_rows = jnp.where(ranks < choices.sizes[groups][:, None], in_rows, num_choices)
    rows = starts.at[choices.experts].get(mode="clip") + choices.rank  # [k, N]
    rows = jnp.where(choices.experts < choices.sizes.shape[0], rows, num_rows)
    return Rows(rearrange(in_rows, "g b -> (g b)"), rows)


# The transpose of a gather is a scatter, which is slow; each map has the inverse gather instead.
def to_rows(x: jax.Array, rows: Rows) -> jax.Array:
    """Copies tokens `[N, D]` to rows `[R, D]`; padding is 0."""
    return linear_map(
        _rows_of_tokens, lambda rows, x: _choices_of_rows(rows, x).sum(axis=0), rows, x
    )


def from_rows(outputs: jax.Array, rows: Rows) -> jax.Array:
    """Copies rows `[R, D]` to the choices `[k, N, D]`; a choice without a row gets 0."""
    return linear_map(_choices_of_rows, _rows_of_choices, rows, outputs)


def _rows_of_tokens(rows: Rows, x: jax.Array) -> jax.Array:
    num_choices, num_tokens = rows.rows.size, x.shape[0]
    tokens = jnp.where(rows.choices < num_choices, rows.choices % num_tokens, num_tokens)
    return x.at[tokens].get(mode="fill", fill_value=0)  # [R, D]


def _choices_of_rows(rows: Rows, x: jax.Array) -> jax.Array:
    return x.at[rows.rows].get(mode="fill", fill_value=0)  # [k, N, D]


def _rows_of_choices(rows: Rows, x: jax.Array) -> jax.Array:
    flat = rearrange(x, "k n d -> (k n) d")
    return flat.at[rows.choices].get(mode="fill", fill_value=0)  # [R, D]


def weighted_sum(outputs: jax.Array, weights: jax.Array) -> jax.Array:
    """Weighted sum `[N, D]` of the outputs `[k, N, D]` of each token's choices."""
    weights = rearrange(weights, "n k -> k n 1")
    return jnp.sum(weights * outputs.astype(weights.dtype), axis=0)  # [N, D]

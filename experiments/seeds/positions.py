"""Sinusoidal positions, by a loop and vectorized, as in the documents."""

import functools
import math

import jax
import numpy as np

from jaxformer.functional import sinusoidal_positions

__all__ = ["positions_by_array", "positions_by_loop"]


@functools.partial(jax.jit, static_argnames=("num_positions", "d_model", "base"))
def positions_by_array(num_positions: int, d_model: int, base: float = 10_000.0) -> jax.Array:
    """Sinusoidal positions `[P, D]` by the library, all numbers at once."""
    return sinusoidal_positions(num_positions, d_model, base=base)


def positions_by_loop(num_positions: int, d_model: int, base: float = 10_000.0) -> np.ndarray:
    """Sinusoidal positions `[P, D]`, one number at a time."""
    table = np.zeros((num_positions, d_model))
    for position in range(num_positions):
        for column in range(d_model):
            angle = position / base ** (2 * (column // 2) / d_model)
            table[position, column] = math.cos(angle) if column % 2 else math.sin(angle)
    return table

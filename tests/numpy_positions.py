"""Positions of the transformers in float64 NumPy, which share no code with the library.

But for the tables of scaled rotary positions.
"""

import math

import numpy as np

from jaxformer.functional import YarnScaling, rotary_tables


def rotated(config, x):
    """One head `[B, T, H]`, of which pairs i and i + R/2 of the first R features are turned."""
    scheme, width = config.positions, config.positions.rotary_dim or config.key_dim
    half = width // 2
    if scheme.scaling is None:
        angles = np.arange(x.shape[1])[:, None] * scheme.base ** (-np.arange(half) / half)
        turn = np.exp(1j * angles)
    else:  # scaled tables are held against published ones elsewhere
        scaling = YarnScaling(scheme.scaling.factor, scheme.scaling.original_max_len)
        tables = rotary_tables(x.shape[1], width, base=scheme.base, scaling=scaling)
        cosine, sine = (np.asarray(table, np.float64) for table in tables)
        turn = cosine + 1j * sine
    turned = (x[..., :half] + 1j * x[..., half:width]) * turn
    return np.concatenate([turned.real, turned.imag, x[..., width:]], axis=-1)


def sinusoidal(length, width, offset):
    table = np.zeros((length, width))
    for position in range(length):
        for feature in range(width):
            angle = (position + offset) / 10_000 ** ((feature - feature % 2) / width)
            table[position, feature] = math.cos(angle) if feature % 2 else math.sin(angle)
    return table


def position_bias(config, params, length, causal):
    """What the position adds to the scores: `[N, T, S]`, or 0."""
    ahead = np.arange(length) - np.arange(length)[:, None]
    if config.positions.kind == "alibi":
        slopes = 2.0 ** (-8 * np.arange(1, config.num_heads + 1) / config.num_heads)
        if config.num_heads == 3:  # of three heads: two of two, and the first of four
            slopes = np.array([2.0**-4, 2.0**-8, 2.0**-2])
        return -slopes[:, None, None] * abs(ahead)
    if config.positions.kind == "relative":
        table = params["positions"]["table"]
        bucket = np.vectorize(lambda d: _bucket(config, int(d), causal))(ahead)
        return np.moveaxis(table[bucket], -1, 0)
    return 0.0


def _bucket(config, ahead, causal):
    """T5's bucket of a key so many tokens ahead of its query."""
    count = config.positions.num_buckets if causal else config.positions.num_buckets // 2
    start = 0 if causal or ahead <= 0 else count
    distance = max(-ahead, 0) if causal else abs(ahead)
    exact = count // 2
    if distance < exact:
        return start + distance
    ratio = math.log(distance / exact) / math.log(config.positions.max_distance / exact)
    return start + min(exact + int(ratio * (count - exact)), count - 1)

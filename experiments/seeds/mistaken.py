"""The documents' mistakes, each in the few lines that make it, and all else in them right.

Every function is what a document computes, in NumPy; what it should be is in `mistakes`.
"""

import math

import numpy as np


def softmax(scores: np.ndarray) -> np.ndarray:
    """Stable, for where softmax is not the mistake; a row of -inf is NaN, as in the documents."""
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)


def scaled_scores(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Scores `[..., T, S]` of `[..., T, H]` and `[..., S, H]`."""
    return query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])


def positions_in_pairs(length: int, d_model: int) -> np.ndarray:
    """Fills d_model // 2 pairs of columns, so that an odd width keeps a column of 0."""
    table = np.zeros((length, d_model))
    positions = np.arange(length)
    for pair in range(d_model // 2):
        angle = positions / 10_000 ** (2 * pair / d_model)
        table[:, 2 * pair] = np.sin(angle)
        table[:, 2 * pair + 1] = np.cos(angle)
    return table


def softmax_without_maximum(scores: np.ndarray) -> np.ndarray:
    """In float32 e^89 is infinite, and e^-200 is 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)


def mask_by_value(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Hides what is 0 after the upper triangle was set to 0, also what was 0 before."""
    scores = scaled_scores(query, key)
    return softmax(np.where(np.tril(scores) == 0, -np.inf, scores))


def layer_norm_minus_epsilon(x: np.ndarray) -> np.ndarray:
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return (x - mean) / np.sqrt(variance - 1e-5)


def feed_forward_of_the_input(x: np.ndarray, params: dict[str, np.ndarray]) -> np.ndarray:
    """What a block gives that feeds X itself, and adds and normalizes nothing afterwards."""
    hidden = np.maximum(0, x @ params["up_kernel"] + params["up_bias"])
    return hidden @ params["down_kernel"] + params["down_bias"]


def attend_with_leaked_width(
    inputs: np.ndarray, query_kernel: np.ndarray, key_kernel: np.ndarray, value_kernel: np.ndarray
) -> np.ndarray:
    """Weights and contexts `[T, T + Hv]`, scaled by the d_k that an earlier loop ended with."""
    d_k = 256  # left behind by the loop of lines 202 to 205; keys are 2 wide
    query, key, value = inputs @ query_kernel, inputs @ key_kernel, inputs @ value_kernel
    weights = softmax(query @ key.T / math.sqrt(d_k))
    return np.concatenate([weights, weights @ value], axis=-1)


def attend_by_not_none(query: np.ndarray, key: np.ndarray, to_mask: bool | None) -> np.ndarray:
    """Masks unless the switch is None: False is not None."""
    scores = scaled_scores(query, key)
    if to_mask is not None:
        scores = scores + np.triu(np.full(scores.shape, -np.inf), k=1)
    return softmax(scores)


def positions_of_even_width(length: int, d_model: int) -> np.ndarray:
    """Has as many cosines as sines to write, and for an odd width one column less."""
    position = np.arange(length)[:, None]
    denominator = 10_000 ** (np.arange(0, d_model, 2) / d_model)
    table = np.zeros((length, d_model))
    table[:, 0::2] = np.sin(position / denominator)
    table[:, 1::2] = np.cos(position / denominator)
    return table


def layer_norm_over_batch(x: np.ndarray) -> np.ndarray:
    """Normalizes a word `[B, D]` over all sentences and features."""
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def attend_with_swapped_edits(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Edits the mask in place, the second line before the first: the new 0s are hidden too."""
    mask = np.tril(np.ones((len(query), len(key))))
    mask[mask == 1] = 0
    mask[mask == 0] = -np.inf
    return softmax(scaled_scores(query, key) + mask)


def softmax_by_transposing(x: np.ndarray) -> np.ndarray:
    """Divides rows by their sums only while x has two axes; overflows besides."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (np.exp(x).T / np.sum(np.exp(x), axis=-1)).T


def attend_by_transposing(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """`.T` turns all axes round, those of the batch as well."""
    return softmax_by_transposing(np.matmul(query, key.T) / math.sqrt(query.shape[-1]))


def attend_where_not_zero(query: np.ndarray, key: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Hides where the mask is 0, which in a mask to be added is what may be seen."""
    return softmax(np.where(mask == 0, -np.inf, scaled_scores(query, key)))


def weights_after_dropout(
    x: np.ndarray, params: dict[str, np.ndarray], heads: int, seed: int
) -> np.ndarray:
    """The first head's weights `[T, S]`; dropout asks nobody whether this is training."""
    query = x @ params["query_kernel"] + params["query_bias"]
    key = x @ params["key_kernel"] + params["key_bias"]
    width = query.shape[-1] // heads
    weights = softmax(scaled_scores(query[:, :width], key[:, :width]))
    kept = np.random.default_rng(seed).random(weights.shape) >= 0.1
    return weights * kept / 0.9

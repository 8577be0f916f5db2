"""The documents' mistakes, each isolated in one NumPy function, which is otherwise correct.

Their corrections are in `cures`, and both stand side by side in `exhibits`.
"""

import math

import numpy as np


def softmax(scores: np.ndarray) -> np.ndarray:
    """Correct softmax; a row of -inf gives NaN, as in the documents."""
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)


def scaled_scores(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Scores `[..., T, S]` of `[..., T, H]` and `[..., S, H]`."""
    return query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])


def positions_in_pairs(length: int, d_model: int) -> np.ndarray:
    """Sinusoidal positions of d_model // 2 pairs, so the last column of an odd width stays 0."""
    table = np.zeros((length, d_model))
    positions = np.arange(length)
    for pair in range(d_model // 2):
        angle = positions / 10_000 ** (2 * pair / d_model)
        table[:, 2 * pair] = np.sin(angle)
        table[:, 2 * pair + 1] = np.cos(angle)
    return table


def softmax_without_maximum(scores: np.ndarray) -> np.ndarray:
    """Softmax without subtracting the maximum: in float32 e^89 is infinite, and e^-200 is 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)


def mask_by_value(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Sets later scores to 0, and masks all scores that are 0, earlier ones as well."""
    scores = scaled_scores(query, key)
    return softmax(np.where(np.tril(scores) == 0, -np.inf, scores))


def layer_norm_minus_epsilon(x: np.ndarray) -> np.ndarray:
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return (x - mean) / np.sqrt(variance - 1e-5)


def feed_forward_of_the_input(x: np.ndarray, params: dict[str, np.ndarray]) -> np.ndarray:
    """A block whose feed-forward layer gets X itself, and has no residual sum or norm."""
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
    """Masks unless the switch is None, so also where it is False."""
    scores = scaled_scores(query, key)
    if to_mask is not None:
        scores = scores + np.triu(np.full(scores.shape, -np.inf), k=1)
    return softmax(scores)


def positions_of_even_width(length: int, d_model: int) -> np.ndarray:
    """Computes as many cosines as sines, although an odd width has a column less for them."""
    position = np.arange(length)[:, None]
    denominator = 10_000 ** (np.arange(0, d_model, 2) / d_model)
    table = np.zeros((length, d_model))
    table[:, 0::2] = np.sin(position / denominator)
    table[:, 1::2] = np.cos(position / denominator)
    return table


def layer_norm_over_batch(x: np.ndarray) -> np.ndarray:
    """Layer norm of a word `[B, D]` over all sentences and features."""
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def attend_with_swapped_edits(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Edits the mask in place in the wrong order, so that the new 0s are masked, too."""
    mask = np.tril(np.ones((len(query), len(key))))
    mask[mask == 1] = 0
    mask[mask == 0] = -np.inf
    return softmax(scaled_scores(query, key) + mask)


def softmax_by_transposing(x: np.ndarray) -> np.ndarray:
    """Softmax by `.T`, which is right only for two axes; it overflows, too."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (np.exp(x).T / np.sum(np.exp(x), axis=-1)).T


def attend_by_transposing(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Attention by `.T`, which reverses all axes, those of the batch as well."""
    return softmax_by_transposing(np.matmul(query, key.T) / math.sqrt(query.shape[-1]))


def attend_where_not_zero(query: np.ndarray, key: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Masks where the mask is 0, although in an additive mask 0 means attend."""
    return softmax(np.where(mask == 0, -np.inf, scaled_scores(query, key)))


def weights_after_dropout(
    x: np.ndarray, params: dict[str, np.ndarray], heads: int, seed: int
) -> np.ndarray:
    """Weights `[T, S]` of the first head, with dropout also in evaluation."""
    query = x @ params["query_kernel"] + params["query_bias"]
    key = x @ params["key_kernel"] + params["key_bias"]
    width = query.shape[-1] // heads
    weights = softmax(scaled_scores(query[:, :width], key[:, :width]))
    is_kept = np.random.default_rng(seed).random(weights.shape) >= 0.1
    return weights * is_kept / 0.9

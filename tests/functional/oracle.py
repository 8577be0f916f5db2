"""Attention and losses in float64 NumPy, row by row: what the fast versions are held against."""

import numpy as np


def attention_weights(
    query,
    key,
    bias=None,
    mask=None,
    *,
    scale=None,
    is_causal=False,
    query_offset=None,
    query_seq_lengths=None,
    key_value_seq_lengths=None,
    local_window_size=None,
    query_segment_ids=None,
    key_value_segment_ids=None,
    softcap=None,
    stage="softmax",
):
    """Returns float64 [..., N, T, S]: the weights, or the scores of an earlier stage."""
    query, key = np.asarray(query, np.float64), np.asarray(key, np.float64)
    *leading, num_queries, num_heads, head_dim = query.shape
    num_keys, num_kv_heads = key.shape[-3:-1]
    shape = (*leading, num_heads, num_queries, num_keys)
    bias = np.broadcast_to(0.0 if bias is None else np.asarray(bias, np.float64), shape)
    mask = np.broadcast_to(True if mask is None else np.asarray(mask), shape)
    offset = np.broadcast_to(0 if query_offset is None else query_offset, leading)
    num_real_queries = np.broadcast_to(
        num_queries if query_seq_lengths is None else query_seq_lengths, leading
    )
    num_real_keys = np.broadcast_to(
        num_keys if key_value_seq_lengths is None else key_value_seq_lengths, leading
    )
    if isinstance(local_window_size, int):
        local_window_size = (local_window_size, local_window_size)
    left, right = local_window_size or (None, None)
    scale = head_dim**-0.5 if scale is None else scale

    def may_attend(row, head, t, s):
        position = offset[row] + t
        if t >= num_real_queries[row] or s >= num_real_keys[row]:
            return False
        if is_causal and s > position:
            return False
        if left is not None and s < position - left:
            return False
        if right is not None and s > position + right:
            return False
        if query_segment_ids is not None:
            if query_segment_ids[row][t] != key_value_segment_ids[row][s]:
                return False
        return mask[row][head, t, s] and bias[row][head, t, s] > -np.inf

    weights = np.full(shape, -np.inf if stage == "masked" else 0.0)
    for row in np.ndindex(*leading):
        for head in range(num_heads):
            kv_head = head // (num_heads // num_kv_heads)
            for t in range(num_queries):
                visible = [s for s in range(num_keys) if may_attend(row, head, t, s)]
                kept_keys = visible if stage in ("masked", "softmax") else list(range(num_keys))
                scores = scale * (key[row][kept_keys, kv_head] @ query[row][t, head])
                if stage != "scores" and softcap is not None:
                    scores = softcap * np.tanh(scores / softcap)
                if stage in ("biased", "masked", "softmax"):
                    scores = scores + bias[row][head, t, kept_keys]
                if stage == "softmax" and kept_keys:
                    scores = np.exp(scores - scores.max())
                    scores = scores / scores.sum()
                weights[row][head, t, kept_keys] = scores
    return weights


def attention(query, key, value, bias=None, mask=None, **options):
    """Returns float64 [..., T, N, Hv]."""
    value = np.asarray(value, np.float64)
    weights = attention_weights(query, key, bias, mask, **options)
    *leading, num_heads, num_queries, _ = weights.shape
    group = num_heads // value.shape[-2]
    output = np.zeros((*leading, num_queries, num_heads, value.shape[-1]))
    for row in np.ndindex(*leading):
        for head in range(num_heads):
            for t in range(num_queries):
                for s in np.flatnonzero(weights[row][head, t]):
                    output[row][t, head] += weights[row][head, t, s] * value[row][s, head // group]
    return output


def cross_entropy(
    hidden, table, labels, label_smoothing=0.0, ignore_label=-1, z_loss=0.0, softcap=None,
    cotangent=None,
):  # fmt: skip
    """Returns (loss, weight) and its gradients by hidden states and table; or, with a cotangent,
    (losses, weights) and the gradients of their product with it."""
    hidden, table = np.float64(hidden), np.float64(table)
    losses, weights = np.zeros(labels.shape), np.zeros(labels.shape)
    by_hidden, by_table = np.zeros_like(hidden), np.zeros_like(table)
    for index in np.ndindex(labels.shape):
        if ignore_label is not None and labels[index] == ignore_label:
            continue
        logits, slope = table @ hidden[index], 1.0
        if softcap is not None:
            logits = softcap * np.tanh(logits / softcap)
            slope = 1 - (logits / softcap) ** 2
        log_normalizer = logits.max() + np.log(np.exp(logits - logits.max()).sum())
        target = np.full(len(table), label_smoothing / len(table))
        target[labels[index]] += 1 - label_smoothing
        losses[index] = target @ (log_normalizer - logits) + z_loss * log_normalizer**2
        weights[index] = 1
        probabilities = np.exp(logits - log_normalizer)
        by_logits = slope * (probabilities * (1 + 2 * z_loss * log_normalizer) - target)
        by_logits = by_logits * (1 if cotangent is None else cotangent[index])
        by_hidden[index] = by_logits @ table
        by_table += np.outer(by_logits, hidden[index])
    results = (losses.sum(), weights.sum()) if cotangent is None else (losses, weights)
    return results, (by_hidden, by_table)


def slope(function, inputs, directions, step=1e-5):
    """Derivative of a scalar function of named arrays along directions, by central differences."""

    def moved(distance):
        return function(
            {
                name: np.asarray(array, np.float64) + distance * directions[name].astype(np.float64)
                for name, array in inputs.items()
            }
        )

    return (moved(step) - moved(-step)) / (2 * step)

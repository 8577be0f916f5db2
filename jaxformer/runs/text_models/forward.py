"""Forward passes over texts of any length, in batches of few shapes."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxformer import text
from jaxformer.models import AttentionMap
from jaxformer.text.store.ragged import example_length

_ROWS = 32  # texts at a time
_SHORTEST = 16  # tokens; shorter rows are padded to this


@functools.partial(jax.jit, static_argnums=(0, 1))
def apply_model(
    model: nn.Module, method: Callable[..., Any], params: Any, /, **inputs: jax.Array
) -> Any:
    """Calls method(model, **inputs) with the parameters, compiled once per shape.

    `method` must be a module-level function: a new one at each call would compile again.
    """
    return nn.apply(method, model)({"params": params}, **inputs)


def padded_batches(
    rows: Sequence[Mapping[str, np.ndarray]], max_len: int
) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
    """Batches and pads rows of similar length together; yields their indices and the batch.

    Lengths are rounded up to powers of two, and all batches have 32 rows, of which the last may be
    padding. So there are few shapes to compile, whatever the texts. "labels" are padded with
    `text.IGNORE`, other arrays with 0.
    """
    sizes = [example_length(row) for row in rows]
    order = sorted(range(len(rows)), key=sizes.__getitem__)
    for start in range(0, len(order), _ROWS):
        indices = order[start : start + _ROWS]
        batch = {}
        for name, first in rows[indices[0]].items():
            arrays = [rows[i][name] for i in indices]
            longest = max(array.size for array in arrays)
            width = min(max(_SHORTEST, 1 << (longest - 1).bit_length()), max_len)
            fill = text.IGNORE if name == "labels" else 0
            batch[name] = np.full((_ROWS, width)[: 1 + first.ndim], fill, first.dtype)
            for row, array in enumerate(arrays):
                batch[name][(row, slice(array.size))[: 1 + first.ndim]] = array
        yield indices, batch


def hidden_states(
    model: nn.Module, method: Callable[..., jax.Array], params: Any, ids: Sequence[np.ndarray],
    max_len: int,
) -> list[np.ndarray]:  # fmt: skip
    """Computes the hidden states of texts, int `[T]` each: float32 `[T, D]` for each.

    `apply_model` calls `method` with (model, tokens, lengths); it returns `[B, T, D]`.
    """
    rows = [{"tokens": one, "lengths": np.array(one.size, np.int32)} for one in ids]
    found = [np.zeros(0, np.float32)] * len(rows)
    for indices, batch in padded_batches(rows, max_len):
        hidden = np.asarray(apply_model(model, method, params, **batch))
        for row, i in enumerate(indices):
            found[i] = hidden[row, : ids[i].size].astype(np.float32)
    return found


def _log_likelihoods(model: Any, labels: jax.Array, **inputs: jax.Array) -> jax.Array:
    """Log-probabilities of labels `[B, T]`: float32 `[B, T]`, 0 where there is no label."""

    def of_row(row: tuple[jax.Array, jax.Array]) -> jax.Array:
        hidden, labels = row
        scores = jax.nn.log_softmax(model.logits(hidden).astype(jnp.float32))
        taken = jnp.take_along_axis(scores, labels.clip(0)[:, None], axis=-1)[:, 0]
        return jnp.where(labels >= 0, taken, 0)

    # Row by row, because the logits of all rows may not fit in memory.
    return jax.lax.map(of_row, (model.hidden_states(**inputs).hidden, labels))


def label_log_likelihoods(
    model: nn.Module, params: Any, rows: Sequence[Mapping[str, np.ndarray]], max_len: int
) -> list[float]:
    """Sums the log-probabilities of the labels of each row, in nats.

    A row has the inputs of the model's `hidden_states`, and "labels": int `[T]`, of which
    `text.IGNORE` is not counted.
    """
    found = [0.0] * len(rows)
    for indices, batch in padded_batches(rows, max_len):
        nats = np.asarray(apply_model(model, _log_likelihoods, params, **batch), np.float64)
        for row, i in enumerate(indices):
            found[i] = float(nats[row].sum())
    return found


def self_attention_map(
    name: str, weights: jax.Array, tokenizer: text.Tokenizer, ids: np.ndarray,
    next_ids: np.ndarray | None = None,
) -> AttentionMap:  # fmt: skip
    """Makes a self-attention map of weights, float `[L, 1, N, T, T]`, and token ids, int `[T]`.

    A decoder's map also has the token after each, `next_ids`.
    """
    tokens = tokenizer.token_texts(ids)
    next_tokens = None if next_ids is None else tokenizer.token_texts(next_ids)
    return AttentionMap(name, np.asarray(weights)[:, 0], tokens, tokens, next_tokens)


def with_weights(model: Any, **inputs: jax.Array) -> Any:
    """Output of a model with its attention weights, for `apply_model`."""
    return model(**inputs, return_weights=True)


def encoder_attention(
    model: nn.Module, params: Any, tokenizer: text.Tokenizer, ids: np.ndarray
) -> list[AttentionMap]:
    """Makes the attention map of an encoder for tokens `[T]`."""
    output = apply_model(model, with_weights, params, tokens=ids[None])
    weights = output.weights.self_attention
    return [self_attention_map("encoder self-attention", weights, tokenizer, ids)]

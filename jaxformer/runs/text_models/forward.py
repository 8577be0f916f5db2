"""Forward passes over texts of any length: outputs, likelihoods."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxformer.text import IGNORE, Tokenizer
from jaxformer.text.store.arrays import ExampleArrays, RaggedArray, example_length
from jaxformer.viz import AttentionMap

_ROWS = 32  # texts at a time
_SHORTEST = 16  # tokens; shorter rows are padded to this


@functools.partial(jax.jit, static_argnums=(0, 1))  # a new function would compile again
def apply_model(
    model: nn.Module, method: Callable[..., Any], params: Any, /, **inputs: jax.Array
) -> Any:
    """Output of the module-level `method`(model, **inputs), compiled once per shape."""
    return nn.apply(method, model)({"params": params}, **inputs)


def apply_to_rows(
    model: nn.Module,
    method: Callable[..., jax.Array],
    params: Any,
    rows: Sequence[Mapping[str, np.ndarray]],
    max_len: int,
) -> list[np.ndarray]:
    """Output of the module-level `method`(model, **rows) for each row, with its padding."""
    outputs = [np.zeros(0)] * len(rows)
    order = sorted(range(len(rows)), key=lambda i: example_length(rows[i]))
    for start in range(0, len(rows), _ROWS):  # rows of similar length
        indices, batch = order[start : start + _ROWS], dict[str, np.ndarray]()
        for name in rows[0]:
            column = RaggedArray.of([rows[i][name] for i in indices])
            longest = int(column.sizes.max())
            # Powers of two, so that there are few shapes to compile.
            width = min(max(_SHORTEST, 1 << (longest - 1).bit_length()), max_len)
            batch |= ExampleArrays({name: column}).padded(np.arange(len(indices)), _ROWS, width)
        computed = np.asarray(apply_model(model, method, params, **batch))
        for i, output in zip(indices, computed, strict=False):
            outputs[i] = output
    return outputs


def self_attention_map(
    name: str, weights: jax.Array, tokenizer: Tokenizer, ids: np.ndarray,
    next_ids: np.ndarray | None = None,
) -> AttentionMap:  # fmt: skip
    """Map of weights, float `[L, 1, N, T, T]`, and ids, int `[T]`; a decoder has next ids."""
    tokens = tokenizer.token_texts(ids)
    next_tokens = None if next_ids is None else tokenizer.token_texts(next_ids)
    return AttentionMap(name, np.asarray(weights)[:, 0], tokens, tokens, next_tokens)


def with_weights(model: Any, **inputs: jax.Array) -> Any:
    """Output of a model with its attention weights, for `apply_model`."""
    return model(**inputs, return_weights=True)


class LogLikelihood(NamedTuple):
    """Log-likelihood of a text under a model.

    Args:
        log_likelihood: natural logarithm of the text's probability, in nats.
        num_tokens: number of tokens summed over.
    """

    log_likelihood: float
    num_tokens: int


def _log_likelihoods(model: Any, labels: jax.Array, **inputs: jax.Array) -> jax.Array:
    """Log-probabilities of labels `[B, T]`: float32 `[B, T]`, 0 where there is no label."""

    def row_nats(row: tuple[jax.Array, jax.Array]) -> jax.Array:
        hidden, labels = row
        scores = jax.nn.log_softmax(model.logits(hidden).astype(jnp.float32))
        nats = jnp.take_along_axis(scores, labels.clip(0)[:, None], axis=-1)[:, 0]
        return jnp.where(labels >= 0, nats, 0)

    # Row by row, because the logits of all rows may not fit in memory.
    return jax.lax.map(row_nats, (model.hidden_states(**inputs).hidden, labels))


def label_log_likelihoods(
    model: nn.Module, params: Any, rows: Sequence[Mapping[str, np.ndarray]], max_len: int
) -> list[LogLikelihood]:
    """Log-probability of each row's labels, in nats, and their number without `IGNORE`."""
    nats = apply_to_rows(model, _log_likelihoods, params, rows, max_len)
    return [
        LogLikelihood(float(values.sum(dtype=np.float64)), int((row["labels"] != IGNORE).sum()))
        for values, row in zip(nats, rows, strict=True)
    ]

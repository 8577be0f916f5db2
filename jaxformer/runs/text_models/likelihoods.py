"""Log-likelihoods of texts under a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxformer.errors import DataError
from jaxformer.runs.data.values import LogLikelihood
from jaxformer.runs.text_models.forward import apply_to_rows
from jaxformer.text import IGNORE, SurroundingTokens, Tokenizer


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


def labelled_row(ids: np.ndarray, start: int = 0) -> dict[str, np.ndarray]:
    """Tokens of a sequence and the tokens that follow, without the first `start` of these."""
    labels = ids[1:].copy()
    labels[:start] = IGNORE
    return {"tokens": ids[:-1], "labels": labels}


def scored_tokens(
    tokenizer: Tokenizer, surrounding: SurroundingTokens, max_len: int,
    text: str, prompt: str = "", prompt_ids: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Tokens of a text after its prompt; the last is only predicted, so max_len + 1 fit."""
    (ids,) = tokenizer.encode_documents([text], is_start=not prompt)
    if prompt_ids is None and ids.size:
        ids = surrounding.around(ids)
    if prompt_ids is not None:
        if not ids.size:
            raise DataError(f"a text after a prompt must have tokens, got {text!r}; write one")
        ids = np.concatenate([prompt_ids, ids]).astype(np.int32)
    if not 2 <= ids.size <= max_len + 1:
        raise DataError(
            f"a text to score must have 2 to max_len + 1 = {max_len + 1} tokens, its prompt "
            f"included, got {ids.size} for {text[:20]!r}; "
            + ("shorten it" if ids.size > 1 else "write more, or give a prompt")
        )
    return ids

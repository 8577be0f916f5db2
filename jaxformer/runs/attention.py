"""Where the tokens of a text look: what runs of all kinds share."""

import functools
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.viz import AttentionMap

__all__ = ["check_length", "self_attention_map", "with_weights"]


def check_length(what: str, num_tokens: int, most: int) -> None:
    """Raises DataError where a text has no token, or more than the model can read.

    Args:
        what: the text is, in words.
        num_tokens: that it has.
        most: tokens that it may have.
    """
    if not 1 <= num_tokens <= most:
        raise DataError(
            f"{what} must have 1 to {most} tokens, got {num_tokens}; "
            + ("shorten it" if num_tokens else "write some text")
        )


@functools.partial(jax.jit, static_argnums=0)
def with_weights(model: nn.Module, params: Any, *tokens: jax.Array) -> Any:
    """Applies a model to integer `[1, T]` tokens, of which none is padding, for its weights."""
    return model.apply({"params": params}, *tokens, return_weights=True)


def self_attention_map(
    name: str, weights: jax.Array, tokenizer: text.Tokenizer, ids: np.ndarray
) -> AttentionMap:
    """Makes the map of tokens that look at each other.

    Args:
        name: of the attention.
        weights: float `[L, 1, N, T, T]`.
        tokenizer: of the tokens.
        ids: int `[T]`.
    """
    tokens = tokenizer.token_texts(ids)
    return AttentionMap(name, np.asarray(weights)[:, 0], tokens, tokens)

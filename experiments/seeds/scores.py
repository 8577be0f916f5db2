"""Attention weights of given scores, such as those that a document prints.

Compiled, because many small arrays are faster in one program than in many small ones.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.functional import attention_weights

__all__ = ["compiled_attention_weights", "weights_of_scores"]


@functools.partial(jax.jit, static_argnames=("scale", "is_causal", "stage"))
def compiled_attention_weights(query: Any, key: Any, **options: Any) -> jax.Array:
    """Weights `[..., N, T, S]` of `[..., T, N, H]` and `[..., S, N, H]` by the library."""
    return attention_weights(query, key, **options)


def weights_of_scores(scores: Any, *, scale: float = 1.0, **options: Any) -> jax.Array:
    """Weights by the library's attention, of given scores.

    Key s is the unit vector of axis s, so that the dot product of a query with it is entry s of
    the query: with rows of scores as queries, the scores of attention are those rows.

    Args:
        scores: `[T, S]`, finite.
        scale: factor of the scores.
        **options: of `attention_weights`, such as a mask, or the stage to stop at.

    Returns:
        float32 `[T, S]`; after softmax, where no stage is named.

    Example:
        >>> weights_of_scores([[0.0, 0.0], [3.0, 3.0]]).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    queries = np.asarray(scores, np.float32)
    keys = np.eye(queries.shape[1], dtype=np.float32)
    weights = compiled_attention_weights(queries[:, None], keys[:, None], scale=scale, **options)
    return jnp.asarray(np.asarray(weights)[0])

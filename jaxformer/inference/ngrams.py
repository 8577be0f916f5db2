"""Detection of tokens that would repeat an n-gram of their row."""

import jax
import jax.numpy as jnp

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import Array, as_array, check_axes, check_dtype, check_int
from jaxformer.functional.dtypes import as_int32


def repeated_ngrams(tokens: Array, lengths: Array, size: int, vocab_size: int) -> jax.Array:
    """Next tokens that would complete an n-gram that a row already has.

    Args:
        tokens: int `[..., T]`, the tokens so far; the rest of each row is ignored.
        lengths: int `[...]`, number of tokens so far, at most T.
        size: n, number of tokens in an n-gram; 1 = every token so far.
        vocab_size: V; tokens outside the vocabulary are ignored.

    Returns:
        bool `[..., V]`; all False for a row shorter than n.

    Raises:
        ConfigError: size or vocab_size is not a positive int.
        ShapeError: tokens and lengths do not fit.

    References:
        Paulus et al., "A Deep Reinforced Model for Abstractive Summarization", 2018, section 2.5.

    Example:
        >>> repeated_ngrams(jnp.array([1, 2, 0, 1]), jnp.array(4), size=2, vocab_size=3).tolist()
        [False, False, True]
    """
    check_int("size", size, 1)
    check_int("vocab_size", vocab_size, 1)
    tokens, lengths = as_array("tokens", tokens), as_array("lengths", lengths)
    check_dtype("tokens", tokens, "integer")
    check_dtype("lengths", lengths, "integer")
    tokens, lengths = as_int32(tokens), as_int32(lengths)  # a narrow dtype may not hold V or T
    check_axes("tokens", tokens, "... T")
    if lengths.shape != tokens.shape[:-1]:
        raise ShapeError(
            f"lengths must have the shape of tokens without its last axis, {tokens.shape[:-1]}, "
            f"got {lengths.shape}; broadcast it with jnp.broadcast_to"
        )
    places = tokens.shape[-1] - size + 1  # where an n-gram can start
    if places < 1:
        return jnp.zeros((*lengths.shape, vocab_size), bool)
    shape = (*lengths.shape, places)
    # Whole n-grams end within the tokens so far, [..., places].
    repeats = jax.lax.broadcasted_iota(jnp.int32, shape, lengths.ndim) + size <= lengths[..., None]
    for index in range(size - 1):
        # Compares each of the n - 1 newest tokens with the same index of every n-gram.
        newest = jnp.take_along_axis(
            tokens, jnp.maximum(lengths - size + 1 + index, 0)[..., None], axis=-1
        )
        repeats &= tokens[..., index : index + places] == newest
    last = tokens[..., size - 1 :]
    last = jnp.where(repeats & (last >= 0), last, vocab_size)  # out of range: dropped
    none = jnp.zeros((*lengths.shape, vocab_size), bool)
    return jnp.put_along_axis(none, last, True, axis=-1, inplace=False, mode="drop")

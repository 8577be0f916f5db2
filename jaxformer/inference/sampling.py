"""Sampling of the next token: repetition penalty, logit filters, and the draw."""

import math

import jax
import jax.numpy as jnp

from jaxformer.config import SamplingConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.checks import check_array, check_rng
from jaxformer.functional.dtypes import widened


def sample(
    logits: jax.Array, rngs: jax.Array, sampling: SamplingConfig, seen: jax.Array | None = None
) -> jax.Array:
    """Samples a token for every row, or takes the most probable if the temperature is 0.

    Args:
        logits: float `[B, V]`; filters and draw are computed in float32 (float64 for float64).
        rngs: PRNG keys `[B]`, one per row, so that a row's draw does not depend on the others.
        sampling: temperature, filters and penalty. Its n-gram and length rules are ignored here;
            `generate` applies them.
        seen: bool `[B, V]`, tokens already in the row; required by a repetition penalty.

    Returns:
        int32 `[B]`; -1 if the largest logit of a row is NaN or infinite, so that no token can be
        drawn. No model accepts -1 as a token.

    Raises:
        ConfigError: sampling has a wrong type, or a repetition penalty without `seen`.
        ShapeError: the shapes or dtypes do not fit.

    Example:
        >>> rngs = jax.random.split(jax.random.key(0), 2)
        >>> sample(jnp.eye(2), rngs, SamplingConfig(temperature=0)).tolist()
        [0, 1]
    """
    if not isinstance(sampling, SamplingConfig):
        raise ConfigError(f"sampling must be a SamplingConfig, got {sampling!r}")
    sizes = check_array("logits", logits, "floating", "B V")
    if not hasattr(rngs, "dtype") or rngs.shape[:1] != logits.shape[:1]:
        got = rngs.shape if hasattr(rngs, "shape") else type(rngs).__name__
        raise ShapeError(
            f"rngs must be a key for each of the {len(logits)} rows of logits, got {got}; make "
            "them with jax.random.split"
        )
    check_rng("rngs", rngs[0] if len(rngs) else jax.random.key(0))
    if seen is None and sampling.repetition_penalty != 1:
        raise ConfigError(
            f"a repetition penalty needs seen, got repetition_penalty="
            f"{sampling.repetition_penalty} without it; pass the tokens in each row, bool [B, V]"
        )
    # In half precision, many tokens would draw the same noise, and the first of them would win.
    logits = widened(logits)
    if seen is not None:
        check_array("seen", seen, "bool", "B V", sizes)
        logits = penalize_repetition(logits, seen, sampling.repetition_penalty)
    # XLA's maximum of some 4,000 logits on a CPU leaves out a NaN; argmax gives the index of one.
    token = jnp.argmax(logits, axis=-1)
    largest = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
    if sampling.temperature > 0:
        # Relative to the largest, so that a small temperature does not overflow.
        token = _draw((logits - largest[:, None]) / sampling.temperature, rngs, sampling)
    return jnp.where(jnp.isfinite(largest), token, -1).astype(jnp.int32)


def penalize_repetition(logits: jax.Array, seen: jax.Array, penalty: float) -> jax.Array:
    """Makes tokens that are in the row, bool `[B, V]`, less likely (Keskar et al., CTRL, 2019)."""
    return jnp.where(seen, jnp.where(logits > 0, logits / penalty, logits * penalty), logits)


def keep_top_k(logits: jax.Array, k: int) -> jax.Array:
    """Sets all but the k largest logits `[B, V]` to -inf; keeps ties with the k-th."""
    smallest = jax.lax.top_k(logits, min(k, logits.shape[-1]))[0][..., -1:]
    return jnp.where(logits < smallest, -jnp.inf, logits)


def keep_top_p(logits: jax.Array, p: float) -> jax.Array:
    """Keeps the fewest most probable tokens that sum to p, at least one; keeps ties.

    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020.
    """
    if p == 1:
        return logits
    descending = -jnp.sort(-logits, axis=-1)
    probabilities = jax.nn.softmax(descending, axis=-1)
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    # A token stays if those before it do not reach p; the first always stays.
    smallest = jnp.where(before < p, descending, descending[..., :1]).min(axis=-1, keepdims=True)
    return jnp.where(logits < smallest, -jnp.inf, logits)


def keep_min_p(logits: jax.Array, p: float) -> jax.Array:
    """Keeps tokens at least p times as probable as the most probable one.

    Nguyen et al., "Turning Up the Heat: Min-p Sampling", 2024.
    """
    if p == 0:
        return logits
    threshold = logits.max(axis=-1, keepdims=True) + math.log(p)
    return jnp.where(logits < threshold, -jnp.inf, logits)


def _draw(logits: jax.Array, rngs: jax.Array, sampling: SamplingConfig) -> jax.Array:
    """Filters logits and draws from the rest: int `[B]`."""
    if sampling.top_k is not None:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p is not None:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p is not None:
        logits = keep_min_p(logits, sampling.min_p)
    return jax.vmap(jax.random.categorical)(rngs, logits)

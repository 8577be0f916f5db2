"""Generation: prefill of the prompts, then a compiled loop with a key/value cache."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.config import ModelConfig, SamplingConfig
from jaxformer.errors import DataError
from jaxformer.functional.cache import KVCache
from jaxformer.inference.sampling import sample
from jaxformer.models.decoder import Decoder, init_cache
from jaxformer.modules.stack import unstack_layers

__all__ = ["check_prompts", "generate", "generate_stream"]

_AS_THE_MODEL_SAYS = SamplingConfig()
_CAPACITY_STEP = 64  # capacities and prompt lengths are rounded up, to compile few shapes


class _State(NamedTuple):
    """What the decoding loop carries; every leaf leads with the batch."""

    cache: tuple[KVCache, ...]
    logits: jax.Array  # [B, V], of the next token
    rngs: jax.Array  # [B]
    generated: jax.Array  # [B], tokens so far
    done: jax.Array  # [B], whether a stop token came
    seen: jax.Array | None  # [B, V], with a repetition penalty


def generate(
    config: ModelConfig,
    params: Any,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    rng: jax.Array,
    sampling: SamplingConfig = _AS_THE_MODEL_SAYS,
    stop_tokens: Sequence[int] = (),
    num_tokens: int | None = None,
) -> list[np.ndarray]:
    """Continues prompts of any, also unequal, lengths.

    Args:
        config: the decoder.
        params: its parameters, scanned or looped.
        prompts: token ids, at least one per prompt.
        max_new_tokens: longest continuation.
        rng: one PRNG key, from which row i uses fold_in(rng, i); or an array of keys `[B]`. A
            row's tokens depend on its own prompt and key only.
        sampling: how tokens are chosen.
        stop_tokens: a row ends with the first of these.
        num_tokens: ids at or above are never drawn, such as those of a padded vocabulary.

    Returns:
        For every prompt its new tokens, int32, the stop token included.

    Raises:
        DataError: a prompt is empty, has an unknown token, or is too long for the context.

    Example:
        >>> config = ModelConfig(vocab_size=5, max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> params = Decoder(config).init(jax.random.key(0), jnp.zeros((1, 2), int))["params"]
        >>> new = generate(config, params, [[1], [2, 3]], max_new_tokens=4, rng=jax.random.key(0))
        >>> [tokens.shape for tokens in new]
        [(4,), (4,)]
    """
    chunks = list(
        generate_stream(
            config,
            params,
            prompts,
            max_new_tokens=max_new_tokens,
            rng=rng,
            sampling=sampling,
            stop_tokens=stop_tokens,
            num_tokens=num_tokens,
            chunk_size=_CAPACITY_STEP,
        )
    )
    return [np.concatenate(rows) for rows in zip(*chunks, strict=True)]


def generate_stream(
    config: ModelConfig,
    params: Any,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    rng: jax.Array,
    sampling: SamplingConfig = _AS_THE_MODEL_SAYS,
    stop_tokens: Sequence[int] = (),
    num_tokens: int | None = None,
    chunk_size: int = 4,
) -> Iterator[list[np.ndarray]]:
    """Continues prompts as `generate` does, yielding tokens as they come.

    Args:
        config: the decoder.
        params: its parameters, scanned or looped.
        prompts: token ids, at least one per prompt.
        max_new_tokens: longest continuation.
        rng: one PRNG key or one per prompt.
        sampling: how tokens are chosen.
        stop_tokens: a row ends with the first of these.
        num_tokens: ids at or above are never drawn, such as those of a padded vocabulary.
        chunk_size: tokens per row between two yields.

    Yields:
        For every prompt its next tokens, int32; empty once the row has ended.

    Raises:
        DataError: a prompt is empty, has an unknown token, or is too long for the context; rng is
            not one key or one per prompt; or the model's logits are NaN.
    """
    lengths = check_prompts(config, prompts, max_new_tokens)
    if not jnp.issubdtype(rng.dtype, jax.dtypes.prng_key) or rng.shape not in ((), (len(prompts),)):
        raise DataError(
            f"rng must be a key or {len(prompts)} of them, got {rng.dtype} of shape {rng.shape}; "
            "make one with jax.random.key, and more with jax.random.split"
        )
    if config.scan_layers:
        params = unstack_layers(params)
        config = dataclasses.replace(config, scan_layers=False)
    keys = rng
    if rng.ndim == 0:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(rng, jnp.arange(len(prompts)))
    tokens = np.zeros((len(prompts), min(_round_up(max(lengths)), config.max_len)), np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    capacity = _round_up(max(lengths) + max_new_tokens)
    state = _prefill(
        config, params, tokens, np.asarray(lengths, np.int32), keys, capacity=capacity,
        vocab_size=None if sampling.repetition_penalty == 1 else config.vocab_size,
    )  # fmt: skip

    produced = 0
    while produced < max_new_tokens:
        limit = min(chunk_size, max_new_tokens - produced)
        before = np.asarray(state.generated)
        state, chunk = _decode(
            config, params, state, limit, chunk_size=chunk_size, sampling=sampling,
            stop_tokens=tuple(sorted(set(stop_tokens))), num_tokens=num_tokens,
        )  # fmt: skip
        if jnp.isnan(state.logits).any():
            raise DataError("the model's logits are NaN; its parameters are damaged or diverged")
        taken = np.asarray(state.generated) - before
        yield [row[:count] for row, count in zip(np.asarray(chunk), taken, strict=True)]
        produced += limit
        if np.asarray(state.done).all():
            return


def _round_up(length: int) -> int:
    return -(-length // _CAPACITY_STEP) * _CAPACITY_STEP


def check_prompts(
    config: ModelConfig, prompts: Sequence[Sequence[int]], max_new_tokens: int
) -> list[int]:
    """Checks prompts against vocabulary and context.

    Args:
        config: the decoder.
        prompts: token ids.
        max_new_tokens: longest continuation.

    Returns:
        The length of every prompt.

    Raises:
        DataError: a prompt is empty, has an unknown token, or is too long for the context.
    """
    if not prompts:
        raise DataError("prompts must have at least one prompt, got none")
    if max_new_tokens < 1:
        raise DataError(f"max_new_tokens must be positive, got {max_new_tokens}")
    for row, prompt in enumerate(prompts):
        ids = np.asarray(prompt)
        if ids.size == 0:
            raise DataError(f"prompt {row} is empty; a continuation needs at least one token")
        if config.vocab_size is not None and (ids.min() < 0 or ids.max() >= config.vocab_size):
            raise DataError(
                f"tokens must be in 0 .. {config.vocab_size - 1}, got {ids.min()} .. {ids.max()} "
                f"in prompt {row}; encode it with the tokenizer of the model"
            )
        if ids.size + max_new_tokens > config.max_len:
            room = config.max_len - ids.size
            remedy = f"ask for at most {room} new tokens" if room > 0 else "shorten the prompt"
            raise DataError(
                f"prompt {row} has {ids.size} tokens and max_new_tokens={max_new_tokens}, together "
                f"more than the model's context of {config.max_len}; {remedy}"
            )
    return [len(prompt) for prompt in prompts]


@functools.partial(jax.jit, static_argnames=("config", "capacity", "vocab_size"))
def _prefill(
    config: ModelConfig,
    params: Any,
    tokens: jax.Array,
    lengths: jax.Array,
    rngs: jax.Array,
    *,
    capacity: int,
    vocab_size: int | None,
) -> _State:
    """Reads prompts `[B, T]`, padded on the right, into a cache; scores each row's next token."""
    model, batch = Decoder(config), tokens.shape[0]
    hidden, cache = model.apply(
        {"params": params},
        tokens,
        cache=init_cache(config, batch, capacity),
        num_tokens=lengths,
        method="hidden_states",
    )
    last = hidden[jnp.arange(batch), lengths - 1]
    seen = None
    if vocab_size is not None:  # remember the prompt's tokens, for the repetition penalty
        real = jnp.arange(tokens.shape[1])[None] < lengths[:, None]
        ids = jnp.where(real, tokens, vocab_size)  # out of range: dropped
        seen = jnp.zeros((batch, vocab_size), bool)
        seen = seen.at[jnp.arange(batch)[:, None], ids].set(True, mode="drop")
    return _State(
        cache=cache,
        logits=model.apply({"params": params}, last, method="logits"),
        rngs=rngs,
        generated=jnp.zeros(batch, jnp.int32),
        done=jnp.zeros(batch, bool),
        seen=seen,
    )


@functools.partial(
    jax.jit,
    static_argnames=("config", "chunk_size", "sampling", "stop_tokens", "num_tokens"),
    donate_argnames="state",
)
def _decode(
    config: ModelConfig,
    params: Any,
    state: _State,
    limit: jax.Array,
    *,
    chunk_size: int,
    sampling: SamplingConfig,
    stop_tokens: tuple[int, ...],
    num_tokens: int | None,
) -> tuple[_State, jax.Array]:
    """Generates up to `limit` tokens per row: the new state and tokens `[B, chunk_size]`."""
    model, batch = Decoder(config), state.logits.shape[0]

    def unfinished(carry: tuple[jax.Array, _State, jax.Array]) -> jax.Array:
        index, state, _ = carry
        return (index < limit) & ~state.done.all()

    def step(
        carry: tuple[jax.Array, _State, jax.Array],
    ) -> tuple[jax.Array, _State, jax.Array]:
        index, state, chunk = carry
        rngs = jax.vmap(jax.random.fold_in)(state.rngs, state.generated)
        logits = state.logits
        if num_tokens is not None:
            known = jnp.arange(logits.shape[1])[None] < num_tokens
            logits = jnp.where(known, logits, -jnp.inf)
        token = sample(logits, rngs, sampling, state.seen)
        stopped = jnp.isin(token, jnp.asarray(stop_tokens, jnp.int32))
        # Rows that are done write nothing more: their cache and count stay as they are.
        active = (~state.done).astype(jnp.int32)
        output = model.apply(
            {"params": params}, token[:, None], cache=state.cache, num_tokens=active
        )
        seen = state.seen
        if seen is not None:
            seen = seen.at[jnp.arange(batch), token].set(True)
        new = _State(
            cache=output.cache,
            logits=output.logits[:, 0],
            rngs=state.rngs,
            generated=state.generated + active,
            done=state.done | stopped,
            seen=seen,
        )
        return index + 1, new, chunk.at[:, index].set(token)

    chunk = jnp.zeros((batch, chunk_size), jnp.int32)
    _, state, chunk = jax.lax.while_loop(unfinished, step, (jnp.int32(0), state, chunk))
    return state, chunk

"""Generation: prefill of the prompts, then a compiled loop with a key/value cache."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.config import ModelConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.functional.cache import KVCache
from jaxformer.inference.sampling import sample
from jaxformer.inference.token_rows import check_prompts, check_sources, pad_rows
from jaxformer.models.decoder import Decoder, init_cache
from jaxformer.models.encoder_decoder import EncoderDecoder
from jaxformer.modules.stack import unstack_layers

__all__ = ["generate", "generate_stream"]

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
    memory: tuple[KVCache, ...] | None  # of the encoded sources, in an encoder-decoder


def generate(
    config: ModelConfig,
    params: Any,
    prompts: Sequence[Sequence[int]],
    *,
    sources: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int,
    rng: jax.Array,
    sampling: SamplingConfig = _AS_THE_MODEL_SAYS,
    stop_tokens: Sequence[int] = (),
    num_tokens: int | None = None,
) -> list[np.ndarray]:
    """Continues prompts of any, also unequal, lengths.

    Args:
        config: the decoder, or encoder-decoder.
        params: its parameters, scanned or looped.
        prompts: token ids, at least one per prompt; in an encoder-decoder the beginnings of the
            targets, each with the start token first.
        sources: token ids that an encoder-decoder reads, one source per prompt; not given to a
            decoder.
        max_new_tokens: longest continuation.
        rng: one PRNG key, from which row i uses fold_in(rng, i); or an array of keys `[B]`. A
            row's tokens depend on its own prompt, source and key only.
        sampling: how tokens are chosen.
        stop_tokens: a row ends with the first of these.
        num_tokens: ids at or above are never drawn, such as those of a padded vocabulary.

    Returns:
        For every prompt its new tokens, int32, the stop token included.

    Raises:
        ConfigError: sources are given to a decoder, or not to an encoder-decoder.
        DataError: a prompt or a source is empty, has an unknown token, or is too long for the
            context; or there are not as many of both.

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
            sources=sources,
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
    sources: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int,
    rng: jax.Array,
    sampling: SamplingConfig = _AS_THE_MODEL_SAYS,
    stop_tokens: Sequence[int] = (),
    num_tokens: int | None = None,
    chunk_size: int = 4,
) -> Iterator[list[np.ndarray]]:
    """Continues prompts as `generate` does, yielding tokens as they come.

    Args:
        config: the decoder, or encoder-decoder.
        params: its parameters, scanned or looped.
        prompts: token ids, at least one per prompt; in an encoder-decoder the beginnings of the
            targets, each with the start token first.
        sources: token ids that an encoder-decoder reads, one source per prompt; not given to a
            decoder.
        max_new_tokens: longest continuation.
        rng: one PRNG key or one per prompt.
        sampling: how tokens are chosen.
        stop_tokens: a row ends with the first of these.
        num_tokens: ids at or above are never drawn, such as those of a padded vocabulary.
        chunk_size: tokens per row between two yields.

    Yields:
        For every prompt its next tokens, int32; empty once the row has ended.

    Raises:
        ConfigError: sources are given to a decoder, or not to an encoder-decoder.
        DataError: a prompt or a source is empty, has an unknown token, or is too long for the
            context; there are not as many of both; rng is not one key or one per prompt; or the
            model's logits are NaN.
    """
    lengths = check_prompts(config, prompts, max_new_tokens)
    encoder_inputs = _encoder_inputs(config, sources, len(prompts))
    if not jnp.issubdtype(rng.dtype, jax.dtypes.prng_key) or rng.shape not in ((), (len(prompts),)):
        raise DataError(
            f"rng must be a key or {len(prompts)} of them, got {rng.dtype} of shape {rng.shape}; "
            "make one with jax.random.key, and more with jax.random.split"
        )
    if config.layer_execution != "loop":
        params = unstack_layers(params)
    config = dataclasses.replace(config, layer_execution="loop", attention_implementation="auto")
    keys = rng
    if rng.ndim == 0:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(rng, jnp.arange(len(prompts)))
    tokens = pad_rows(prompts, min(_round_up(max(lengths)), config.max_len))
    capacity = _round_up(max(lengths) + max_new_tokens)
    state = _prefill(
        config, params, tokens, np.asarray(lengths, np.int32), keys, encoder_inputs,
        capacity=capacity,
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


def _model(config: ModelConfig) -> Decoder | EncoderDecoder:
    return (EncoderDecoder if config.architecture == "encoder_decoder" else Decoder)(config)


def _encoder_inputs(
    config: ModelConfig, sources: Sequence[Sequence[int]] | None, count: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Checked and padded sources `[B, S]` and their lengths `[B]`; None for a decoder."""
    if (config.architecture == "encoder_decoder") != (sources is not None):
        got = "none" if sources is None else f"{len(sources)}"
        raise ConfigError(
            f"sources are what an encoder-decoder reads, and only that, got {got} for "
            f"architecture {config.architecture!r}"
        )
    if sources is None:
        return None
    if len(sources) != count:
        raise DataError(
            f"there must be one source per prompt, got {len(sources)} sources and {count} prompts"
        )
    lengths = check_sources(config, sources)
    width = min(_round_up(max(lengths)), config.max_len)
    return pad_rows(sources, width), np.asarray(lengths, np.int32)


@functools.partial(jax.jit, static_argnames=("config", "capacity", "vocab_size"))
def _prefill(
    config: ModelConfig,
    params: Any,
    tokens: jax.Array,
    lengths: jax.Array,
    rngs: jax.Array,
    encoder_inputs: tuple[jax.Array, jax.Array] | None,
    *,
    capacity: int,
    vocab_size: int | None,
) -> _State:
    """Reads prompts `[B, T]`, padded on the right, into a cache; scores each row's next token."""
    model, batch = _model(config), tokens.shape[0]
    encoded = {}
    if encoder_inputs is not None:
        encoded["encoded"] = model.apply({"params": params}, *encoder_inputs, method="encode")
        encoded["encoded_lengths"] = encoder_inputs[1]
    output = model.apply(
        {"params": params},
        tokens,
        **encoded,
        cache=init_cache(config, batch, capacity),
        num_tokens=lengths,
        method="decode",
    )
    last = output.x[jnp.arange(batch), lengths - 1]
    seen = None
    if vocab_size is not None:  # remember the prompt's tokens, for the repetition penalty
        real = jnp.arange(tokens.shape[1])[None] < lengths[:, None]
        ids = jnp.where(real, tokens, vocab_size)  # out of range: dropped
        seen = jnp.zeros((batch, vocab_size), bool)
        seen = seen.at[jnp.arange(batch)[:, None], ids].set(True, mode="drop")
    return _State(
        cache=output.cache,
        logits=model.apply({"params": params}, last, method="logits"),
        rngs=rngs,
        generated=jnp.zeros(batch, jnp.int32),
        done=jnp.zeros(batch, bool),
        seen=seen,
        memory=output.memory,
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
    model, batch = _model(config), state.logits.shape[0]

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
            {"params": params},
            token[:, None],
            memory=state.memory,
            cache=state.cache,
            num_tokens=active,
            method="decode",
        )
        seen = state.seen
        if seen is not None:
            seen = seen.at[jnp.arange(batch), token].set(True)
        new = _State(
            cache=output.cache,
            logits=model.apply({"params": params}, output.x[:, 0], method="logits"),
            rngs=state.rngs,
            generated=state.generated + active,
            done=state.done | stopped,
            seen=seen,
            memory=state.memory,
        )
        return index + 1, new, chunk.at[:, index].set(token)

    chunk = jnp.zeros((batch, chunk_size), jnp.int32)
    _, state, chunk = jax.lax.while_loop(unfinished, step, (jnp.int32(0), state, chunk))
    return state, chunk

"""Text generation: continues prompts, by sampling or greedily."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxformer.config import SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.functional.checks import check_int, check_rng, typed_key
from jaxformer.inference.decodable import (
    check_decodable,
    params_for_steps,
    with_automatic_attention,
)
from jaxformer.inference.decoding_loop import Prompts, decode, prefill
from jaxformer.inference.token_ids import (
    as_ids,
    check_prompts,
    check_sources,
    pad_rows,
    padded_width,
    round_up,
)
from jaxformer.inference.token_rules import TokenRules

_DEFAULT_SAMPLING = SamplingConfig()
_LENGTH_STEP = 64  # capacities are rounded up to it, so that few shapes compile


def generate(
    model: nn.Module, params: Any, prompts: Sequence[Sequence[int]], **options: Any
) -> list[np.ndarray]:
    """Generates continuations of prompts of any lengths.

    Arguments and errors are those of `generate_stream`, but for chunk_size.

    Returns:
        The new tokens of every prompt, int32, including the stop token.

    Example:
        >>> from jaxformer.config import ModelConfig
        >>> from jaxformer.models import Decoder
        >>> config = ModelConfig(vocab_size=5, max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> model = Decoder(config)
        >>> params = model.init_params(jax.random.key(0))
        >>> new = generate(model, params, [[1], [2, 3]], max_new_tokens=4, rng=jax.random.key(0))
        >>> [tokens.shape for tokens in new]
        [(4,), (4,)]
    """
    chunks = generate_stream(model, params, prompts, **options, chunk_size=_LENGTH_STEP)
    return [np.concatenate(rows) for rows in zip(*chunks, strict=True)]


def generate_stream(
    model: nn.Module,
    params: Any,
    prompts: Sequence[Sequence[int]],
    *,
    sources: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int,
    rng: jax.Array,
    sampling: SamplingConfig = _DEFAULT_SAMPLING,
    stop_tokens: Sequence[int] = (),
    vocab_size: int | None = None,
    forbidden_tokens: Sequence[int] = (),
    chunk_size: int = 4,
) -> Iterator[list[np.ndarray]]:
    """Generates continuations of prompts, yielding tokens chunk by chunk.

    The arguments are checked at the call, before the first token is asked for.

    Args:
        model: a decoder or encoder-decoder, with custom parts if any; or your own module with a
            `config` of such an architecture. Decoding does not call the module itself, but its
            methods, which must match those of `models.Decoder` (`hidden_states`, `logits`) or
            `models.EncoderDecoder` (`encode`, `logits`, and `hidden_states` of its attribute
            `decoder`).
        params: its parameters.
        prompts: token ids, at least one per prompt; for an encoder-decoder, the beginnings of the
            targets, each including the start token.
        sources: token ids for the encoder, one source per prompt; only for an encoder-decoder.
        max_new_tokens: maximum number of new tokens per prompt.
        rng: PRNG key, new-style or raw; row i uses fold_in(rng, i). A row's tokens depend only on
            its own prompt, source and key; with longrope scaling, also on the length of the longest
            prompt.
        sampling: temperature, filters, penalty, and rules for n-grams and ends.
        stop_tokens: generation of a row stops after any of these. None is generated before
            sampling.min_length and sampling.min_new_tokens are reached.
        vocab_size: ids at or above it (vocabulary padding) are never generated.
        forbidden_tokens: ids that are never generated, such as padding.
        chunk_size: tokens per row between two yields.

    Yields:
        The next tokens of every prompt, int32; none for a row that has stopped.

    Raises:
        ConfigError: model, params or sampling has a wrong type; sources are given to a decoder, or
            missing for an encoder-decoder; a stop token, a forbidden token, vocab_size or
            chunk_size is invalid.
        DataError: a prompt or a source is empty, has an unknown token, or is too long for the
            context; their numbers differ; or the model's logits are NaN or infinite.
        ShapeError: rng is not one PRNG key.
    """
    check_decodable(model, params, "generation", "decoder", "encoder_decoder")
    if not isinstance(sampling, SamplingConfig):
        raise ConfigError(f"sampling must be a SamplingConfig, got {sampling!r}")
    check_int("chunk_size", chunk_size, 1, 2**31 - 1)
    if vocab_size is not None:
        check_int("vocab_size", vocab_size, 1, model.config.vocab_size)
    num_tokens = model.config.vocab_size if vocab_size is None else vocab_size
    stops = as_ids("stop_tokens", stop_tokens, num_tokens)
    forbidden = as_ids("forbidden_tokens", forbidden_tokens, num_tokens)
    if len({*forbidden}) == num_tokens:
        raise ConfigError(
            f"forbidden_tokens must leave a token to generate, got all {num_tokens}; leave some out"
        )
    lengths = check_prompts(model.config, prompts, max_new_tokens)
    encoder_inputs = _encoder_inputs(model, sources, len(prompts))
    check_rng("rng", rng)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(typed_key(rng), jnp.arange(len(prompts)))  # [B]
    capacity = round_up(max(lengths) + max_new_tokens, _LENGTH_STEP)
    model = with_automatic_attention(model)
    params = params_for_steps(model, params)
    rows = Prompts(
        *pad_rows(prompts, padded_width(max(lengths), model.config.max_len)), keys,
        encoder_inputs, _min_new_tokens(sampling, lengths) if stops else None,
    )  # fmt: skip
    rules = TokenRules(
        end_tokens=stops, vocab_size=vocab_size, forbidden_tokens=forbidden,
        no_repeat_ngram_size=sampling.no_repeat_ngram_size,
    )  # fmt: skip
    limits_repetition = sampling.repetition_penalty != 1 or sampling.no_repeat_ngram_size > 0

    def chunks() -> Iterator[list[np.ndarray]]:
        state = prefill(model, params, rows, capacity=capacity, track_history=limits_repetition)
        for produced in range(0, max_new_tokens, chunk_size):
            # Traced, so that a shorter last chunk does not recompile.
            limit = min(chunk_size, max_new_tokens - produced)
            before = np.asarray(state.generated)
            state, chunk = decode(
                model, params, state, limit, chunk_size=chunk_size, sampling=sampling, rules=rules
            )
            counts = np.asarray(state.generated) - before
            new = [row[:count] for row, count in zip(np.asarray(chunk), counts, strict=True)]
            _check_drawn(new, before, sampling)
            yield new
            if np.asarray(state.done).all():
                return

    return chunks()


def _min_new_tokens(sampling: SamplingConfig, lengths: list[int]) -> jax.Array | None:
    """Minimum number of new tokens before a stop token, int32 `[B]`; None = no minimum."""
    if sampling.min_new_tokens:
        return jnp.full(len(lengths), sampling.min_new_tokens, jnp.int32)
    if sampling.min_length:
        return sampling.min_length - jnp.asarray(lengths, jnp.int32)
    return None


def _check_drawn(rows: list[np.ndarray], before: np.ndarray, sampling: SamplingConfig) -> None:
    """Raises if `sample` could not draw a token; `before`: number of tokens of the rows so far."""
    size = sampling.no_repeat_ngram_size
    remedy = f", or no_repeat_ngram_size={size} leaves no token; raise it" if size else ""
    for row, tokens in enumerate(rows):
        if (tokens < 0).any():
            step = before[row] + np.argmax(tokens < 0)
            raise DataError(
                f"the model's logits are NaN or infinite at new token {step} of row {row}; it has "
                f"diverged, or its parameters are damaged{remedy}"
            )


def _encoder_inputs(
    model: nn.Module, sources: Sequence[Sequence[int]] | None, count: int
) -> tuple[jax.Array, jax.Array] | None:
    """Checks and pads sources: `[B, S]` and their lengths `[B]`; None for a decoder."""
    if model.config.has_cross_attention != (sources is not None):
        got = "none" if sources is None else len(sources) if isinstance(sources, Sequence) else "1"
        raise ConfigError(
            f"sources are for an EncoderDecoder, which needs them, got {got} for "
            f"{type(model).__name__}"
        )
    if sources is None:
        return None
    lengths = check_sources(model.config, sources)
    if len(sources) != count:
        raise DataError(
            f"there must be one source per prompt, got {len(sources)} sources and {count} prompts"
        )
    return pad_rows(sources, padded_width(max(lengths), model.config.max_len))

"""Translation: beam search over an encoder-decoder, for any number of sources at a time."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from einops import repeat

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.functional.cache import KVCache
from jaxformer.inference.beam_search import Beams, beam_search
from jaxformer.inference.token_rows import check_sources, pad_rows
from jaxformer.models.decoder import init_cache
from jaxformer.models.encoder_decoder import EncoderDecoder
from jaxformer.modules.stack import unstack_layers

__all__ = ["Hypothesis", "translate", "translate_stream"]

_LENGTH_STEP = 16  # lengths of sources are rounded up, to compile few shapes


class Hypothesis(NamedTuple):
    """One translation.

    Args:
        tokens: int32 `[T]`, without the start token and the end token.
        score: log-probability in nats / length ** length_penalty; the length counts the end
            token, where there is one.
        finished: whether it ended with the end token, rather than at max_new_tokens.
    """

    tokens: np.ndarray
    score: float
    finished: bool


def translate(
    config: ModelConfig,
    params: Any,
    sources: Sequence[Sequence[int]],
    *,
    start_token: int,
    end_token: int,
    beam_size: int = 4,
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = False,
    num_return: int = 1,
    max_new_tokens: int | None = None,
    num_tokens: int | None = None,
    rows: int = 32,
) -> list[list[Hypothesis]]:
    """Looks for the likeliest translations of sources of any, also unequal, lengths.

    Sources of about the same length are translated together; what comes out for one does not
    depend on the others. All attention is computed by the best implementation that can do it,
    whatever the model was trained with.

    Args:
        config: the encoder-decoder.
        params: its parameters, scanned or looped.
        sources: token ids, at least one per source.
        start_token: the first input of the decoder.
        end_token: ends a translation.
        beam_size: hypotheses that are followed at a time.
        length_penalty: exponent of the length that log-probabilities are divided by.
        early_stopping: when a source is done, as in `beam_search`.
        num_return: hypotheses per source, at most beam_size.
        max_new_tokens: longest translation, the end token included; when not given, twice the
            length of the source, rounded up to a multiple of 16, and 16 more, at most max_len.
        num_tokens: ids at or above are never chosen, such as those of a padded vocabulary.
        rows: most sources that are translated at a time.

    Returns:
        For every source, in the order given, its hypotheses, best first: num_return of them,
        fewer only where the model makes all others impossible.

    Raises:
        ConfigError: an option is impossible, or the model is no encoder-decoder.
        DataError: a source is empty, has an unknown token, or is too long; start_token or
            max_new_tokens does not fit the model; or the model's logits are NaN.

    Example:
        >>> config = ModelConfig(
        ...     architecture="encoder_decoder", vocab_size=5, max_len=8, num_layers=1, d_model=4,
        ...     num_heads=2,
        ... )
        >>> tokens = np.zeros((1, 2), int)
        >>> params = EncoderDecoder(config).init(jax.random.key(0), tokens, tokens)["params"]
        >>> found = translate(config, params, [[1], [2, 3]], start_token=0, end_token=0)
        >>> [len(hypotheses) for hypotheses in found]
        [1, 1]
    """
    results: list[list[Hypothesis]] = [[] for _ in sources]
    for batch in translate_stream(
        config,
        params,
        sources,
        start_token=start_token,
        end_token=end_token,
        beam_size=beam_size,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        num_return=num_return,
        max_new_tokens=max_new_tokens,
        num_tokens=num_tokens,
        rows=rows,
    ):
        for index, hypotheses in batch:
            results[index] = hypotheses
    return results


def translate_stream(
    config: ModelConfig,
    params: Any,
    sources: Sequence[Sequence[int]],
    *,
    start_token: int,
    end_token: int,
    beam_size: int = 4,
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = False,
    num_return: int = 1,
    max_new_tokens: int | None = None,
    num_tokens: int | None = None,
    rows: int = 32,
) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
    """Translates as `translate` does, yielding batches as they are done, the longest first.

    Args:
        config: the encoder-decoder.
        params: its parameters, scanned or looped.
        sources: token ids, at least one per source.
        start_token: the first input of the decoder.
        end_token: ends a translation.
        beam_size: hypotheses that are followed at a time.
        length_penalty: exponent of the length that log-probabilities are divided by.
        early_stopping: when a source is done, as in `beam_search`.
        num_return: hypotheses per source, at most beam_size.
        max_new_tokens: longest translation; by the length of the source when not given.
        num_tokens: ids at or above are never chosen, such as those of a padded vocabulary.
        rows: most sources that are translated at a time.

    Yields:
        For every source of a batch, its index among the sources and its hypotheses.

    Raises:
        ConfigError: as in `translate`.
        DataError: as in `translate`.
    """
    lengths = _check(config, sources, start_token, max_new_tokens, rows)
    if config.layer_execution != "loop":
        params = unstack_layers(params)
    config = dataclasses.replace(config, layer_execution="loop", attention_implementation="auto")
    size = min(rows, len(sources))
    for width, indices in _batches(lengths, config.max_len, size):
        # A batch that is not full repeats a source: one that is done no later than the others.
        filled = indices + [indices[0]] * (size - len(indices))
        limit = min(config.max_len, 2 * width + 16) if max_new_tokens is None else max_new_tokens
        beams = _search(
            config,
            params,
            pad_rows([sources[index] for index in filled], width),
            np.asarray([lengths[index] for index in filled], np.int32),
            np.full(size, start_token, np.int32),
            beam_size=beam_size,
            max_new_tokens=limit,
            end_token=end_token,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            num_return=num_return,
            num_tokens=num_tokens,
        )
        beams = jax.tree.map(np.asarray, beams)
        if np.isnan(beams.scores).any():
            raise DataError("the model's logits are NaN; its parameters are damaged or diverged")
        yield [(index, _hypotheses(beams, row, end_token)) for row, index in enumerate(indices)]


def _check(
    config: ModelConfig,
    sources: Sequence[Sequence[int]],
    start_token: int,
    max_new_tokens: int | None,
    rows: int,
) -> list[int]:
    """Checks what the search itself does not; the length of every source."""
    if config.architecture != "encoder_decoder":
        raise ConfigError(
            f"translation needs architecture 'encoder_decoder', got {config.architecture!r}"
        )
    if rows < 1:
        raise ConfigError(f"rows must be positive, got {rows}")
    if max_new_tokens is not None and not 1 <= max_new_tokens <= config.max_len:
        raise DataError(
            f"max_new_tokens must be in 1 .. max_len={config.max_len}, got {max_new_tokens}"
        )
    if config.vocab_size is not None and not 0 <= start_token < config.vocab_size:
        raise DataError(
            f"start_token must be in 0 .. {config.vocab_size - 1}, got {start_token}; "
            "take it from the tokenizer of the model"
        )
    return check_sources(config, sources)


def _batches(lengths: list[int], max_len: int, size: int) -> Iterator[tuple[int, list[int]]]:
    """Widths, and the indices of up to `size` sources that fit; what needs most memory first."""

    def width(index: int) -> int:
        return min(-(-lengths[index] // _LENGTH_STEP) * _LENGTH_STEP, max_len)

    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    for shared, group in itertools.groupby(order, key=width):
        indices = list(group)
        for start in range(0, len(indices), size):
            yield shared, indices[start : start + size]


@functools.partial(
    jax.jit,
    static_argnames=(
        "config", "beam_size", "max_new_tokens", "end_token", "length_penalty", "early_stopping",
        "num_return", "num_tokens",
    ),
)  # fmt: skip
def _search(
    config: ModelConfig,
    params: Any,
    sources: jax.Array,
    lengths: jax.Array,
    start_tokens: jax.Array,
    *,
    beam_size: int,
    max_new_tokens: int,
    **options: Any,
) -> Beams:
    """Translates sources `[B, S]`, padded on the right, of `lengths` `[B]`."""
    model, variables = EncoderDecoder(config), {"params": params}
    encoded = model.apply(variables, sources, lengths, method="encode")
    # Of this pass only the memory is used; the compiler drops the rest.
    memory = model.apply(
        variables, start_tokens[:, None], encoded=encoded, encoded_lengths=lengths, method="decode"
    ).memory
    # All beams of a row see the same: the memory is not gathered as they are chosen.
    memory = jax.tree.map(lambda leaf: repeat(leaf, "b ... -> (b w) ...", w=beam_size), memory)

    def step(
        tokens: jax.Array, cache: tuple[KVCache, ...]
    ) -> tuple[jax.Array, tuple[KVCache, ...]]:
        output = model.apply(
            variables, tokens[:, None], memory=memory, cache=cache, method="decode"
        )
        return model.apply(variables, output.x[:, 0], method="logits"), output.cache

    return beam_search(
        step,
        init_cache(config, len(sources), max_new_tokens),
        start_tokens,
        beam_size=beam_size,
        max_new_tokens=max_new_tokens,
        **options,
    )


def _hypotheses(beams: Beams, row: int, end_token: int) -> list[Hypothesis]:
    """The hypotheses of a row, those that there are."""
    found = []
    for tokens, length, score in zip(
        beams.tokens[row], beams.lengths[row], beams.scores[row], strict=True
    ):
        if length:
            finished = bool(tokens[length - 1] == end_token)
            end = length - finished
            found.append(Hypothesis(np.array(tokens[:end]), float(score), finished))
    return found

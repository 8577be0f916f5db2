"""Translation: batched beam search over an encoder-decoder."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Unpack

import jax
import numpy as np
from einops import repeat
from flax import linen as nn
from flax.core import FrozenDict

from jaxformer.config import BeamSearchConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.functional.checks import check_int, check_keywords, is_int
from jaxformer.inference.beam_search import DEFAULT_SEARCH, beam_search
from jaxformer.inference.beams import Beams
from jaxformer.inference.decodable import (
    check_decodable,
    decoder_states,
    empty_cache,
    encode,
    params_for_steps,
    with_automatic_attention,
)
from jaxformer.inference.token_ids import as_ids, check_sources, pad_rows, round_up
from jaxformer.inference.token_rules import TokenOptions
from jaxformer.models.transformer_inputs import TransformerInputs
from jaxformer.modules.stacked_layers import Cache

_LENGTH_STEP = 16  # source lengths are rounded up to it, so that few shapes compile


class Hypothesis(NamedTuple):
    """One translation.

    Args:
        tokens: int32 `[T]`, without the start token and its end token.
        score: log-probability in nats / length ** length_penalty; the length includes the end
            token, if any.
        end_token: the token that ends it; None = cut off at max_new_tokens.
    """

    tokens: np.ndarray
    score: float
    end_token: int | None

    @property
    def finished(self) -> bool:
        """Whether it ends with an end token."""
        return self.end_token is not None


def translate(
    model: nn.Module, params: Any, sources: Sequence[Sequence[int]], **options: Any
) -> list[list[Hypothesis]]:
    """Translates sources by beam search; arguments and errors are those of `translate_stream`.

    Returns:
        For every source, in the given order, its hypotheses, best first: search.num_best of them,
        or fewer if the model makes all others impossible.

    Example:
        >>> from jaxformer.config import ModelConfig
        >>> from jaxformer.models import EncoderDecoder
        >>> config = ModelConfig(architecture="encoder_decoder", vocab_size=5, max_len=8,
        ...                      num_layers=1)
        >>> model = EncoderDecoder(config)
        >>> params = model.init_params(jax.random.key(0))
        >>> rows = translate(model, params, [[1], [2, 3]], start_token=0, end_tokens=[0])
        >>> [len(hypotheses) for hypotheses in rows]
        [1, 1]
    """
    translations = dict(itertools.chain(*translate_stream(model, params, sources, **options)))
    return [translations[index] for index in range(len(sources))]


def translate_stream(
    model: nn.Module,
    params: Any,
    sources: Sequence[Sequence[int]],
    *,
    start_token: int,
    end_tokens: Sequence[int],
    search: BeamSearchConfig = DEFAULT_SEARCH,
    max_new_tokens: int | None = None,
    rows: int = 32,
    **options: Unpack[TokenOptions],
) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
    """Translates sources by beam search, yielding each finished batch, longest sources first.

    Sources of similar length are translated together; a translation does not depend on the other
    sources. All attention uses the implementation "auto", whatever the model was trained with.
    Shapes, lengths and types of the arguments are checked at the call.

    Args:
        model: the encoder-decoder, with custom parts if any; or your own module, as in
            `generate_stream`.
        params: its parameters.
        sources: token ids, at least one per source.
        start_token: the first input of the decoder.
        end_tokens: ids that end a translation; none = all have max_new_tokens.
        search: options of the beam search.
        max_new_tokens: maximum length of a translation, including the end token. When not given:
            2 W + 16, with W the source length rounded up to a multiple of 16; or more if
            search.min_new_tokens plus the end token need it; at most max_len.
        rows: maximum number of sources in a batch.
        **options: as in `TokenOptions`.

    Yields:
        For every source of a batch, its index and its hypotheses.

    Raises:
        ConfigError: an option is invalid, or the model is not an encoder-decoder.
        DataError: a source is empty, has an unknown token, or is too long; start_token or
            max_new_tokens does not fit the model; the model's logits are NaN or infinite; or a
            source has no translation, because every next token is ruled out.
    """
    check_decodable(model, params, "translation", "encoder_decoder")
    if not isinstance(search, BeamSearchConfig):
        raise ConfigError(
            f"search must be a BeamSearchConfig, got {search!r}; leave it out for the default"
        )
    check_keywords("translate", options, TokenOptions)
    check_int("rows", rows, 1)
    vocab_size, max_len = model.config.vocab_size, model.config.max_len
    if max_new_tokens is not None and not is_int(max_new_tokens, 1, max_len):
        raise DataError(f"max_new_tokens must be in 1 .. max_len={max_len}, got {max_new_tokens!r}")
    if vocab_size is not None and not is_int(start_token, 0, vocab_size - 1):
        raise DataError(
            f"start_token must be in 0 .. {vocab_size - 1}, got {start_token!r}; "
            "take it from the tokenizer of the model"
        )
    lengths = check_sources(model.config, sources)
    ends = as_ids("end_tokens", end_tokens)
    forbidden = as_ids("forbidden_tokens", options.get("forbidden_tokens", ()))
    options = {**options, "forbidden_tokens": forbidden}
    size = min(rows, len(sources))
    model = with_automatic_attention(model)
    params = params_for_steps(model, params)

    def translations() -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        for width, indices in _batches(lengths, max_len, size):
            # A batch that is not full repeats a source: no new shape to compile, and the search
            # takes no longer.
            filled = indices + [indices[0]] * (size - len(indices))
            longest = max(2 * width + 16, search.min_new_tokens + 1)
            limit = min(max_len, longest) if max_new_tokens is None else max_new_tokens
            beams = _search(
                model, params, *pad_rows([sources[index] for index in filled], width),
                np.full(size, start_token, np.int32),
                options=FrozenDict(
                    search=search, max_new_tokens=limit, end_tokens=ends, **options
                ),
            )  # fmt: skip
            beams = jax.tree.map(np.asarray, beams)
            _check_beams(beams, indices, limit, search, len(forbidden))
            yield [(index, _hypotheses(beams, row, ends)) for row, index in enumerate(indices)]

    return translations()


def _batches(lengths: list[int], max_len: int, size: int) -> Iterator[tuple[int, list[int]]]:
    """Batches as (padded width, source indices); the widest, which needs most memory, first."""

    def width(index: int) -> int:
        return min(round_up(lengths[index], _LENGTH_STEP), max_len)

    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    for shared, group in itertools.groupby(order, key=width):
        indices = list(group)
        for start in range(0, len(indices), size):
            yield shared, indices[start : start + size]


@functools.partial(jax.jit, static_argnames=("model", "options"))
def _search(
    model: nn.Module,
    params: Any,
    sources: jax.Array,  # int [B, S], padded on the right
    lengths: jax.Array,  # int [B]
    start_tokens: jax.Array,  # int [B]
    *,
    options: FrozenDict[str, Any],  # keywords of `beam_search`
) -> Beams:
    """Beam search for a batch of sources."""
    batch, beam_size = len(sources), options["search"].beam_size

    def project_encoded(model: nn.Module) -> Cache | None:
        # Only the cross-attention cache of this pass is used; XLA drops the rest.
        memory = encode(model, sources, lengths)
        cache = empty_cache(model, params, batch, 1)
        return decoder_states(model, start_tokens[:, None], {**memory, "cache": cache}).cross_cache

    # Closed over, not in the search's cache: all beams of a row share it, so it need not be
    # gathered at every step.
    cross_cache = jax.tree.map(
        lambda leaf: repeat(leaf, "b ... -> (b w) ...", w=beam_size),
        nn.apply(project_encoded, model)({"params": params}),
    )

    def step(tokens: jax.Array, cache: Cache) -> tuple[jax.Array, Cache | None]:
        def forward(model: nn.Module) -> tuple[jax.Array, Cache | None]:
            inputs: TransformerInputs = {"cache": cache, "cross_cache": cross_cache}
            output = decoder_states(model, tokens[:, None], inputs)
            return model.logits(output.hidden[:, 0]), output.cache

        return nn.apply(forward, model)({"params": params})

    cache = empty_cache(model, params, batch, options["max_new_tokens"])
    return beam_search(step, cache, start_tokens, **options)


def _check_beams(
    beams: Beams, indices: list[int], limit: int, search: BeamSearchConfig, num_forbidden: int
) -> None:
    """Raises DataError unless each source, of these indices, has a translation."""
    for row, index in enumerate(indices):
        if np.isnan(beams.scores[row]).any():
            raise DataError(
                f"the model's logits are NaN or infinite for source {index}; it has diverged, or "
                "its parameters are damaged"
            )
        if beams.lengths[row, 0] == 0:
            raise DataError(
                f"source {index} has no translation of up to {limit} tokens: no_repeat_ngram_size="
                f"{search.no_repeat_ngram_size} and {num_forbidden} forbidden tokens leave none to "
                "choose; raise the size, or set it to 0"
            )


def _hypotheses(beams: Beams, row: int, end_tokens: tuple[int, ...]) -> list[Hypothesis]:
    """Hypotheses of a row, without entries of length 0."""
    hypotheses = []
    for tokens, length, score in zip(
        beams.tokens[row], beams.lengths[row], beams.scores[row], strict=True
    ):
        if length:
            last = int(tokens[length - 1])
            end_token = last if last in end_tokens else None
            end = length if end_token is None else length - 1
            hypotheses.append(Hypothesis(np.array(tokens[:end]), float(score), end_token))
    return hypotheses

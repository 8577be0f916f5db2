"""Translation: batched beam search over an encoder-decoder."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from einops import repeat
from flax import linen as nn

from jaxformer.config import BeamSearchConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.functional.checks import is_int
from jaxformer.inference.beam_search import beam_search
from jaxformer.inference.beams import Beams
from jaxformer.inference.decodable import (
    check_decodable,
    check_params,
    decoder_states,
    scans_layers,
    with_automatic_attention,
)
from jaxformer.inference.token_rows import as_ids, check_sources, pad_rows, require_int, round_up
from jaxformer.models import init_cache
from jaxformer.models.decoder import computation_dtype
from jaxformer.models.inputs import TransformerInputs
from jaxformer.modules.layer_caches import Cache
from jaxformer.modules.layer_variables import split_layers

_DEFAULT_SEARCH = BeamSearchConfig()
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
    """Translates sources by beam search.

    Args:
        model: as in `translate_stream`.
        params: as in `translate_stream`.
        sources: as in `translate_stream`.
        **options: start_token, end_tokens, search, max_new_tokens, vocab_size, forbidden_tokens,
            renormalize, forced_first_token, forced_last_token and rows, as in `translate_stream`.

    Returns:
        For every source, in the given order, its hypotheses, best first: search.num_best of them,
        or fewer if the model makes all others impossible.

    Raises:
        ConfigError: as in `translate_stream`.
        DataError: as in `translate_stream`.

    Example:
        >>> from jaxformer.config import ModelConfig
        >>> from jaxformer.models import EncoderDecoder
        >>> config = ModelConfig(
        ...     architecture="encoder_decoder", vocab_size=5, max_len=8, num_layers=1, d_model=4,
        ...     num_heads=2,
        ... )
        >>> tokens = np.zeros((1, 2), int)
        >>> model = EncoderDecoder(config)
        >>> params = model.init(jax.random.key(0), tokens, tokens)["params"]
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
    search: BeamSearchConfig = _DEFAULT_SEARCH,
    max_new_tokens: int | None = None,
    vocab_size: int | None = None,
    forbidden_tokens: tuple[int, ...] = (),
    renormalize: bool = False,
    forced_first_token: int | None = None,
    forced_last_token: int | None = None,
    rows: int = 32,
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
        vocab_size: ids at or above it (vocabulary padding) are never generated.
        forbidden_tokens: ids that are never generated, such as padding in Marian.
        renormalize: whether to scale the probabilities of the tokens that are not ruled out (by
            forbidden_tokens, for example) to sum to 1.
        forced_first_token: id that starts every translation, such as the language in NLLB; it is
            part of the hypothesis.
        forced_last_token: id that ends a translation of max_new_tokens, as in BART and Marian.
        rows: maximum number of sources in a batch.

    Yields:
        For every source of a batch, its index and its hypotheses.

    Raises:
        ConfigError: an option is invalid, or the model is not an encoder-decoder.
        DataError: a source is empty, has an unknown token, or is too long; start_token or
            max_new_tokens does not fit the model; the model's logits are NaN or infinite; or a
            source has no translation, because every next token is ruled out.
    """
    check_params(params)
    if not isinstance(search, BeamSearchConfig):
        raise ConfigError(
            f"search must be a BeamSearchConfig, got {search!r}; leave it out for the default"
        )
    forbidden_tokens = as_ids("forbidden_tokens", forbidden_tokens)
    end_tokens = as_ids("end_tokens", end_tokens)
    options = _TokenOptions(
        end_tokens, vocab_size, forbidden_tokens, renormalize, forced_first_token, forced_last_token
    )
    lengths = _check(model, sources, start_token, max_new_tokens, rows)
    return _translations(
        with_automatic_attention(model), params, sources, lengths, start_token, search=search,
        max_new_tokens=max_new_tokens, options=options, rows=rows,
    )  # fmt: skip


def _translations(
    model: nn.Module, params: Any, sources: Sequence[Sequence[int]], lengths: list[int],
    start_token: int, *, search: BeamSearchConfig, max_new_tokens: int | None,
    options: "_TokenOptions", rows: int,
) -> Iterator[list[tuple[int, list[Hypothesis]]]]:  # fmt: skip
    """The batches of `translate_stream`, whose arguments were checked."""
    config = model.config
    if not scans_layers(model):
        params = split_layers(params)
    size = min(rows, len(sources))
    for width, indices in _batches(lengths, config.max_len, size):
        # A batch that is not full repeats a source: no new shape to compile, and the search takes
        # no longer.
        filled = indices + [indices[0]] * (size - len(indices))
        longest = max(2 * width + 16, search.min_new_tokens + 1)
        limit = min(config.max_len, longest) if max_new_tokens is None else max_new_tokens
        beams = _search(
            model,
            params,
            (
                pad_rows([sources[index] for index in filled], width),
                np.asarray([lengths[index] for index in filled], np.int32),
            ),
            np.full(size, start_token, np.int32),
            search=search,
            max_new_tokens=limit,
            options=options,
        )
        beams = jax.tree.map(np.asarray, beams)
        damaged = np.isnan(beams.scores[: len(indices)]).any(axis=1)
        if damaged.any():
            raise DataError(
                f"the model's logits are NaN or infinite for source {indices[damaged.argmax()]}; "
                "it has diverged, or its parameters are damaged"
            )
        without = beams.lengths[: len(indices), 0] == 0
        if without.any():
            raise DataError(
                f"source {indices[without.argmax()]} has no translation of up to {limit} tokens: "
                f"no_repeat_ngram_size={search.no_repeat_ngram_size} and "
                f"{len(options.forbidden_tokens)} forbidden tokens leave none to choose; raise the "
                "size, or set it to 0"
            )
        yield [
            (index, _hypotheses(beams, row, options.end_tokens))
            for row, index in enumerate(indices)
        ]


def _check(
    model: nn.Module,
    sources: Sequence[Sequence[int]],
    start_token: int,
    max_new_tokens: int | None,
    rows: int,
) -> list[int]:
    """Checks arguments that the search itself does not; returns the length of every source."""
    check_decodable(model, "translation", "encoder_decoder")
    config = model.config
    require_int("rows", rows, 1)
    most = config.max_len
    if max_new_tokens is not None and not is_int(max_new_tokens, 1, most):
        raise DataError(f"max_new_tokens must be in 1 .. max_len={most}, got {max_new_tokens!r}")
    if config.vocab_size is not None and not is_int(start_token, 0, config.vocab_size - 1):
        raise DataError(
            f"start_token must be in 0 .. {config.vocab_size - 1}, got {start_token!r}; "
            "take it from the tokenizer of the model"
        )
    return check_sources(config, sources)


def _batches(lengths: list[int], max_len: int, size: int) -> Iterator[tuple[int, list[int]]]:
    """Batches as (padded width, source indices); the widest, which needs most memory, first."""

    def width(index: int) -> int:
        return min(round_up(lengths[index], _LENGTH_STEP), max_len)

    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    for shared, group in itertools.groupby(order, key=width):
        indices = list(group)
        for start in range(0, len(indices), size):
            yield shared, indices[start : start + size]


class _TokenOptions(NamedTuple):
    """Arguments of `beam_search` about single tokens."""

    end_tokens: tuple[int, ...]
    vocab_size: int | None
    forbidden_tokens: tuple[int, ...]
    renormalize: bool
    forced_first_token: int | None
    forced_last_token: int | None


@functools.partial(jax.jit, static_argnames=("model", "search", "max_new_tokens", "options"))
def _search(
    model: nn.Module,
    params: Any,
    encoder_inputs: tuple[jax.Array, jax.Array],
    start_tokens: jax.Array,
    *,
    search: BeamSearchConfig,
    max_new_tokens: int,
    options: _TokenOptions,
) -> Beams:
    """Beam search for sources `[B, S]`, padded on the right, and their lengths `[B]`."""
    config, variables = model.config, {"params": params}
    sources, lengths = encoder_inputs
    empty_cache = functools.partial(
        init_cache, config, len(sources), dtype=computation_dtype(config, params),
        scanned=scans_layers(model),
    )  # fmt: skip

    def project_encoded(model: nn.Module) -> Cache | None:
        # Only the cross-attention cache of this pass is used; XLA drops the rest.
        inputs: TransformerInputs = {
            "encoded": model.encode(sources, lengths=lengths).hidden,
            "encoded_lengths": lengths,
            "cache": empty_cache(1),
        }
        return decoder_states(model, start_tokens[:, None], inputs).cross_cache

    # Closed over, not in the search's cache: all beams of a row share it, so it need not be
    # gathered at every step.
    cross_cache = jax.tree.map(
        lambda leaf: repeat(leaf, "b ... -> (b w) ...", w=search.beam_size),
        nn.apply(project_encoded, model)(variables),
    )

    def step(tokens: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        def forward(model: nn.Module) -> tuple[jax.Array, Cache]:
            inputs: TransformerInputs = {"cache": cache, "cross_cache": cross_cache}
            output = decoder_states(model, tokens[:, None], inputs)
            assert output.cache is not None  # a cache was passed
            return model.logits(output.hidden[:, 0]), output.cache

        return nn.apply(forward, model)(variables)

    # A subclass, such as the config of translation, has other fields, too.
    settings: dict[str, Any] = {
        field.name: getattr(search, field.name) for field in dataclasses.fields(BeamSearchConfig)
    }
    return beam_search(
        step,
        empty_cache(max_new_tokens),
        start_tokens,
        max_new_tokens=max_new_tokens,
        **settings,
        **options._asdict(),
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

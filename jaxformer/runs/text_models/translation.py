"""An encoder-decoder, which translates: search, sampling, likelihoods, attention."""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import tokenizers
from tokenizers import processors

from jaxformer import text
from jaxformer.config import BeamSearchConfig, ExperimentConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.inference import Hypothesis, generate, translate_stream
from jaxformer.interop import SpecialTokens
from jaxformer.models import AttentionMap, EncoderDecoder
from jaxformer.runs.data.prepare import encode_each, fill_vocab_size
from jaxformer.runs.data.values import LogLikelihood
from jaxformer.runs.data.words import KnownWords
from jaxformer.runs.text_models.forward import (
    apply_model,
    label_log_likelihoods,
    self_attention_map,
    with_weights,
)
from jaxformer.runs.text_models.text_model import TextModel, as_kind
from jaxformer.training import language_model_loss
from jaxformer.training.losses import LossFunction

_ROWS = 32  # sentences sampled at a time


class Translation(NamedTuple):
    """A translation of a sentence.

    Args:
        text: the translation.
        score: its log-probability in nats / length ** length_penalty.
        finished: whether it ended within the longest length.
    """

    text: str
    score: float
    finished: bool


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TranslationModel(TextModel):
    """An encoder-decoder with tokenizers of sources and targets. `Run` documents its methods.

    Args:
        known_words: words of the training sources.
    """

    known_words: KnownWords = KnownWords()

    kind: ClassVar[str] = "an encoder-decoder, which translates"
    num_tokenizers: ClassVar[int] = 2

    @property
    def module(self) -> EncoderDecoder:
        """The encoder-decoder."""
        return EncoderDecoder(self.config.model)

    def loss(self, label_smoothing: float) -> LossFunction:
        """Cross-entropy of the targets' tokens."""
        return language_model_loss(self.module, label_smoothing=label_smoothing)

    @property
    def init_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """A source and a target."""
        return 2 * super().init_inputs

    @classmethod
    def with_vocab_sizes(
        cls, config: ExperimentConfig, tokenizers: tuple[text.Tokenizer, ...]
    ) -> ExperimentConfig:
        """Fills in the vocabulary size, and that of the sources if it is separate."""
        config = super().with_vocab_sizes(config, tokenizers)
        if config.tokenizer.joint:
            return config
        size = fill_vocab_size("source_vocab_size", config.model, tokenizers[0])
        model = dataclasses.replace(config.model, source_vocab_size=size)
        return dataclasses.replace(config, model=model)

    @classmethod
    def without_data(cls, config: ExperimentConfig) -> Self:
        """Makes a model before its pairs are read, with the size of both vocabularies."""
        made = super().without_data(config)
        if config.tokenizer.joint:
            return made
        size = cls.most_tokens(config, "source_vocab_size")
        model = dataclasses.replace(made.config.model, source_vocab_size=size)
        return dataclasses.replace(made, config=dataclasses.replace(config, model=model))

    def batch_shapes(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Tokens and lengths of sources and targets, and the targets' labels."""
        batch, of_rows = super().batch_shapes(rows), jax.ShapeDtypeStruct((rows,), jnp.int32)
        source = {"source_tokens": batch["tokens"], "source_lengths": of_rows}
        return batch | {"lengths": of_rows} | source

    @classmethod
    def create(cls, config: ExperimentConfig, tokenizers: tuple[text.Tokenizer, ...]) -> Self:
        """Makes a model that knows no words yet."""
        made = super().create(config, tokenizers)
        return dataclasses.replace(made, known_words=KnownWords(frozenset()))

    def started_from(self, start: TextModel) -> Self:
        """Keeps the words that the start knows."""
        words = start.known_words if isinstance(start, TranslationModel) else KnownWords()
        return dataclasses.replace(super().started_from(start), known_words=words)

    def save(self, folder: pathlib.Path) -> None:
        """Writes tokenizers and the words of the training sources."""
        super().save(folder)
        self.known_words.save(folder)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Reads tokenizers and words."""
        words = KnownWords.load(folder)
        return dataclasses.replace(super().load(folder, config), known_words=words)

    def unseen_words(self, sentences: Sequence[str]) -> list[str]:
        """Words of sentences that never occur in the training sources, in order, each once."""
        return self.known_words.find_new(sentences, self.tokenizers[0])

    def encode(self, one: str) -> np.ndarray:
        """Encodes a source: int32 [tokens]."""
        return text.encode_source(one, self.tokenizers[0], self.max_len)

    @property
    def _end_of_text(self) -> int:
        """The token that ends a target."""
        end = self.tokenizer.end_of_text
        assert end is not None  # checked by encode_source
        return end

    def decoding_to_export(self) -> SpecialTokens:
        """Special tokens of the exported model, and the search of the config's translation."""
        special, end = super().decoding_to_export(), self.tokenizer.end_of_text
        longest = special.max_length
        if longest is None and special.max_new_tokens is None:
            longest = 1 + self.max_len  # it counts the start token
        return dataclasses.replace(
            special,
            decoder_start=end if special.decoder_start is None else special.decoder_start,
            search=as_kind(BeamSearchConfig, self.config.translation),
            max_length=longest,
        )

    def tokenizer_to_export(self) -> text.Tokenizer:
        """Tokenizer of the sources, which puts the end of text behind a source by itself."""
        tokenizer = self.tokenizers[0]
        if tokenizer.roles.surrounded:
            return tokenizer
        made, end = tokenizers.Tokenizer.from_str(tokenizer.to_json()), tokenizer.roles.end_of_text
        made.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", special_tokens=[(end, made.token_to_id(end))]
        )
        return text.Tokenizer(made, dataclasses.replace(tokenizer.roles, surrounded=True))

    @property
    def start_tokens(self) -> list[int] | None:
        """Tokens that the decoder reads before a target; None for the end of text."""
        decoding = self.decoding
        if decoding.decoder_start is None:
            return None
        first = decoding.forced_first
        return [decoding.decoder_start] if first is None else [decoding.decoder_start, first]

    @property
    def _starts(self) -> list[int]:
        """Tokens that the decoder reads before a target."""
        return self.start_tokens or [self._end_of_text]

    @property
    def max_new_tokens(self) -> int:
        """Largest number of tokens of a translation, including its end."""
        special = self.decoding
        if special.max_new_tokens is not None or special.max_length is None:
            return min(self.max_len, special.max_new_tokens or self.max_len)
        if special.max_length == 1:
            raise ConfigError(
                "max_length must be more than 1, as it counts the start token, got 1; change it in "
                "the folder's generation_config.json"
            )
        return min(self.max_len, special.max_length - 1)

    @property
    def _vocabulary(self) -> dict[str, Any]:
        """Options for the tokens that a search may choose, and whose probabilities sum to 1."""
        forbidden = self.in_vocabulary(self.decoding.forbidden)
        size = self.tokenizer.vocab_size
        if not self.tokenizer.roles.surrounded:
            return {"vocab_size": size, "forbidden_tokens": forbidden}
        # For models made elsewhere, ids without a token are part of the softmax, too.
        beyond = range(size, self.config.model.vocab_size or size)
        return {"forbidden_tokens": (*forbidden, *beyond)}

    def translate(
        self, params: Any, sentences: Sequence[str], *, search: BeamSearchConfig | None = None
    ) -> list[list[Translation]]:
        """Translates sentences by beam search; the default settings are those of the config."""
        found = dict(self.translate_stream(params, sentences, search=search))
        return [found[i] for i in range(len(sentences))]

    def translate_stream(
        self, params: Any, sentences: Sequence[str], *, search: BeamSearchConfig | None = None
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Translates sentences by beam search, yielding each as it is done."""
        found = self._search(params, sentences, search)
        return ((i, [self._translation(each) for each in hypotheses]) for i, hypotheses in found)

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        """A hypothesis as text, which has the end if that is an ordinary token."""
        ends = [] if hypothesis.end_token is None else [hypothesis.end_token]
        decoded = self.tokenizer.decode([*hypothesis.tokens, *ends])
        return Translation(decoded, hypothesis.score, hypothesis.finished)

    def _search(
        self, params: Any, sentences: Sequence[str], search: BeamSearchConfig | None = None
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Translates into tokens, yielding (index, hypotheses) as they are done."""
        search = self.config.translation if search is None else search
        batches = translate_stream(
            self.module,
            params,
            [ids.tolist() for ids in encode_each(sentences, self.encode)],
            start_token=self._starts[0],
            end_tokens=self.in_vocabulary(self.stop_tokens),
            search=search,
            max_new_tokens=self.max_new_tokens,
            **self._vocabulary,
            renormalize=self.decoding.renormalize,
            forced_first_token=self.decoding.forced_first,
            forced_last_token=self.decoding.forced_last,
        )
        return itertools.chain.from_iterable(batches)

    def sample_translations(
        self, params: Any, sentences: Sequence[str], *, rng: jax.Array, sampling: SamplingConfig
    ) -> list[str]:
        """Translates by sampling instead of beam search."""
        drawn = self.sample_translations_stream(params, sentences, rng=rng, sampling=sampling)
        return [translation for _, translation in drawn]

    def sample_translations_stream(
        self, params: Any, sentences: Sequence[str], *, rng: jax.Array, sampling: SamplingConfig
    ) -> Iterator[tuple[int, str]]:
        """Translates by sampling, yielding (index, translation) as they are done."""
        sources = [ids.tolist() for ids in encode_each(sentences, self.encode)]
        return self._draw(params, sources, rng, sampling)

    def _draw(
        self, params: Any, sources: list[list[int]], rng: jax.Array, sampling: SamplingConfig
    ) -> Iterator[tuple[int, str]]:
        """Samples translations of tokens, yielding (index, translation) as they are done."""
        starts, last = self._starts, self.decoding.forced_last
        ends = self.in_vocabulary(self.stop_tokens)
        # Tokens that are forced, first or last, are not drawn.
        longest = self.max_new_tokens - len(starts[1:]) - (last is not None)
        longest = max(1, min(longest, self.max_len - len(starts)))
        for start in range(0, len(sources), _ROWS):
            some = sources[start : start + _ROWS]
            indices = start + jnp.arange(len(some))
            rows = generate(
                self.module, params, [starts] * len(some), sources=some,
                rng=jax.vmap(jax.random.fold_in, (None, 0))(rng, indices),
                sampling=sampling, max_new_tokens=longest, stop_tokens=ends,
                vocab_size=self.tokenizer.vocab_size,
                forbidden_tokens=self.in_vocabulary(self.decoding.forbidden),
            )  # fmt: skip
            for index, tokens in enumerate(rows, start):
                if last is not None and tokens[-1] not in ends:
                    tokens = np.append(tokens, last)
                yield index, self.tokenizer.decode(tokens)

    def sample(self, params: Any, prompt: str, rng: jax.Array) -> str:
        """Shows a sentence and its translation."""
        return f"{prompt}\n{self.translate(params, [prompt])[0][0].text}"

    def log_likelihood(
        self, params: Any, texts: Sequence[str], *, prompts: Sequence[str] | None = None
    ) -> list[LogLikelihood]:
        """Scores targets, including their ends, as translations of the prompts."""
        if prompts is None:
            raise ConfigError(
                f"{self.kind}, scores targets as translations of sources; give those as prompts"
            )
        rows, starts = [], self._starts
        for source, target in zip(
            encode_each(prompts, self.encode), encode_each(texts, self._encode_target), strict=True
        ):
            rows.append(
                {
                    "source_tokens": source,
                    "source_lengths": np.array(source.size, np.int32),
                    "tokens": np.concatenate([starts, target]).astype(np.int32),
                    "lengths": np.array(len(starts) + target.size, np.int32),
                    "labels": np.append(
                        [text.IGNORE] * len(starts[1:]) + target.tolist(), self._end_of_text
                    ).astype(np.int32),
                }
            )
        sums = label_log_likelihoods(self.module, params, rows, self.max_len)
        return [
            LogLikelihood(nats, int((row["labels"] != text.IGNORE).sum()))
            for nats, row in zip(sums, rows, strict=True)
        ]

    def _encode_target(self, target: str) -> np.ndarray:
        """Encodes a target without its end, leaving room for it."""
        ids = self.tokenizer.encode(target.strip())
        most = self.max_len - len(self._starts)
        if not 1 <= ids.size <= most:
            raise DataError(
                f"a target must have 1 to {most} tokens, got {ids.size}; "
                + ("shorten it" if ids.size else "write some text")
            )
        return ids

    @staticmethod
    def read_hidden(module: EncoderDecoder, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        """Hidden states of sources, by the encoder."""
        return module.encode(tokens, lengths=lengths).hidden

    def attention(self, params: Any, one: str, *, target: str | None = None) -> list[AttentionMap]:
        """Attention weights of a source and its translation."""
        source, source_ids = self.tokenizers[0], self.encode(one)
        end = self._end_of_text
        if target is None:
            ((_, (best, *_)),) = self._search(params, [one])
            found = np.concatenate([self._starts[:1], best.tokens])  # includes a forced token
            end = end if best.end_token is None else best.end_token
        else:
            found = np.concatenate([self._starts, self._encode_target(target)])
        # The last token is only predicted; another end of text would be one too many.
        both = np.append(found, end)[: self.max_len + 1].astype(np.int32)
        ids, next_ids = both[:-1], both[1:]
        output = apply_model(
            self.module, with_weights, params, source_tokens=source_ids[None], tokens=ids[None]
        )
        cross = np.asarray(output.decoder_weights.cross_attention)[:, 0]
        source_tokens = source.token_texts(source_ids)
        tokens, next_tokens = (self.tokenizer.token_texts(some) for some in (ids, next_ids))
        encoder, decoder = output.encoder_weights, output.decoder_weights.self_attention
        return [
            AttentionMap("cross-attention", cross, tokens, source_tokens, next_tokens),
            self_attention_map("encoder self-attention", encoder, source, source_ids),
            self_attention_map("decoder self-attention", decoder, self.tokenizer, ids, next_ids),
        ]

"""An encoder-decoder, which translates: search, likelihoods, attention."""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import tokenizers
from tokenizers import processors

from jaxformer import text
from jaxformer.config import BeamSearchConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.inference import Hypothesis, translate_stream
from jaxformer.interop import HuggingFaceModel
from jaxformer.interop.generation_config import require_supported
from jaxformer.models import EncoderDecoder
from jaxformer.runs.data.prepare import encode_each
from jaxformer.runs.text_models.forward import (
    LogLikelihood,
    apply_model,
    label_log_likelihoods,
    self_attention_map,
    with_weights,
)
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.text.tables.pairs import around_source, require_end_of_text
from jaxformer.text.translation_scores import exact_matches, translation_scores
from jaxformer.training import Evaluation
from jaxformer.viz import AttentionMap

_MOST = 5000  # validation pairs translated in an evaluation


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


class Translator(TextModel):
    """An encoder-decoder with tokenizers of sources and targets, which translates sentences."""

    kind: ClassVar[str] = "an encoder-decoder, which translates"
    uses: ClassVar[tuple[str, ...]] = ("to translate: jaxformer translate {} TEXT",)
    num_tokenizers: ClassVar[int] = 2

    @property
    def module(self) -> EncoderDecoder:
        """The encoder-decoder."""
        return EncoderDecoder(self.config.model)

    @property
    def init_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """A source and a target."""
        return 2 * super().init_inputs

    def batch_shapes(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Tokens and lengths of sources and targets, and the targets' labels."""
        batch, lengths = super().batch_shapes(rows), jax.ShapeDtypeStruct((rows,), np.int32)
        names = ("lengths", "source_lengths")
        return batch | dict.fromkeys(names, lengths) | {"source_tokens": batch["tokens"]}

    @property
    def surrounding_tokens(self) -> text.SurroundingTokens:
        """Special tokens around a source, such as its end of text."""
        return around_source(self.tokenizers[0])

    def to_huggingface(self) -> HuggingFaceModel:
        """The model, with the search of the config's translation."""
        model, tokenizer = super().to_huggingface(), self.tokenizers[0]
        special = model.unchecked_special_tokens
        longest = special.max_length
        if longest is None and special.max_new_tokens is None:
            longest = 1 + self.max_len  # it counts the start token
        special = dataclasses.replace(
            special,
            decoder_start=self.start_tokens[0],
            search=self.config.translation,
            max_length=longest,
        )
        if not tokenizer.roles.surrounded:  # there, a tokenizer adds the end of a source itself
            tokenizer = _with_end_behind(tokenizer)
        return model._replace(tokenizer=tokenizer, unchecked_special_tokens=special)

    @property
    def start_tokens(self) -> list[int]:
        """Tokens that the decoder reads before a target; by default the end of text."""
        decoding = self.decoding
        if decoding.decoder_start is None:
            return [require_end_of_text(self.tokenizer)]
        first = decoding.forced_first
        return [decoding.decoder_start] if first is None else [decoding.decoder_start, first]

    @property
    def max_new_tokens(self) -> int:
        """Largest number of tokens of a translation, including its end."""
        special = self.decoding
        with_start = special.max_length or 1 + self.max_len
        return min(self.max_len, special.max_new_tokens or with_start - 1)

    def search(
        self, sentences: Sequence[str], search: BeamSearchConfig
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Translates by beam search into tokens, yielding (index, hypotheses) as they are done."""
        forbidden, size = self.in_vocabulary(self.decoding.forbidden), self.tokenizer.vocab_size
        if is_foreign := self.tokenizer.roles.surrounded:
            # For models made elsewhere, ids without a token are part of the softmax, too.
            forbidden = (*forbidden, *range(size, self.config.model.vocab_size or size))
        batches = translate_stream(
            self.module,
            self.params,
            [ids.tolist() for ids in encode_each(sentences, self.encode)],
            start_token=self.start_tokens[0],
            end_tokens=self.in_vocabulary(self.stop_tokens),
            search=search,
            max_new_tokens=self.max_new_tokens,
            vocab_size=None if is_foreign else size,
            forbidden_tokens=forbidden,
            renormalize=self.decoding.renormalize,
            forced_first_token=self.decoding.forced_first,
            forced_last_token=self.decoding.forced_last,
        )
        return itertools.chain.from_iterable(batches)

    def encode_target(self, target: str) -> np.ndarray:
        """Encodes a target without its end, leaving room for it."""
        ids = self.tokenizer.encode(target.strip())
        most = self.max_len - len(self.start_tokens)
        if not 1 <= ids.size <= most:
            remedy = "shorten it" if ids.size else "write some text"
            raise DataError(f"a target must have 1 to {most} tokens, got {ids.size}; {remedy}")
        return ids

    @staticmethod
    def read_hidden(module: EncoderDecoder, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        """Hidden states of sources, by the encoder."""
        return module.encode(tokens, lengths=lengths).hidden

    def translate(self, sentences: Sequence[str], **search: Any) -> list[list[Translation]]:
        """Translates sentences by beam search. The other sentences do not affect a result.

        Args:
            sentences: list of sentences.
            **search: beam_size, num_best, length_penalty, early_stopping, no_repeat_ngram_size and
                min_new_tokens, as in `BeamSearchConfig`; default: those of the run's config.

        Returns:
            The translations of each sentence, best first.

        Raises:
            ConfigError: the model comes from a folder with unsupported generation settings; or an
                option is unknown or out of range.
            DataError: a sentence is empty or too long, or cannot be encoded.
        """
        translations = dict(self.translate_stream(sentences, **search))
        return [translations[i] for i in range(len(sentences))]

    def translate_stream(
        self, sentences: Sequence[str], **search: Any
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Translates a list like `translate`, yielding (index, translations) as they are done."""
        require_supported(self.decoding.unsupported)
        settings = dataclasses.replace(self.config.translation, **search)
        results = self.search(sentences, settings)
        return ((i, list(map(self._translation, hypotheses))) for i, hypotheses in results)

    def _best(self, sentences: Sequence[str], search: BeamSearchConfig) -> list[Translation]:
        """The best translations, whatever the model's folder says of generation."""
        best = {i: hypotheses[0] for i, hypotheses in self.search(sentences, search)}
        return [self._translation(best[i]) for i in range(len(sentences))]

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        """A hypothesis as text, which has the end if that is an ordinary token."""
        ends = [] if hypothesis.end_token is None else [hypothesis.end_token]
        decoded = self.decode([*hypothesis.tokens, *ends])
        return Translation(decoded, hypothesis.score, hypothesis.finished)

    def sample(self, prompt: str, seed: int = 0) -> str:
        """Shows a sentence and its translation."""
        (best,) = self._best([prompt], self.config.translation)
        return f"{prompt}\n{best.text}"

    def evaluate(self, data: Sequence[str | pathlib.Path] | None = None) -> Evaluation:
        """Evaluates the model; translations of other data need supported generation settings."""
        if data is not None:
            require_supported(self.decoding.unsupported)
        return super().evaluate(data)

    def with_scores(self, result: Evaluation, validation: Any) -> Evaluation:
        """Adds BLEU, chrF and the share of exact translations, by beam search."""
        pairs = validation.rows
        sources, references = pairs.sources[:_MOST], pairs.targets[:_MOST]
        best = self._best(sources, self.config.translation)
        translations = [translation.text for translation in best]
        try:
            scores = translation_scores(translations, references)
        except ConfigError as error:
            figures, details = {}, [f"no BLEU and chrF: {error}"]
        else:
            figures = {"bleu": scores.bleu, "chrf": scores.chrf}
            details = [f"BLEU: {scores.bleu_signature}", f"chrF: {scores.chrf_signature}"]
        figures["exact"] = exact_matches(translations, references)
        if len(pairs) > _MOST:
            details.append(f"translated: the first {_MOST:,} of {len(pairs):,} validation pairs")
        if unfinished := sum(not translation.finished for translation in best):
            details.append(
                f"{unfinished:,} translations did not end within {self.max_new_tokens} tokens"
            )
        return result._replace(scores=figures, details=tuple(details))

    def greedy_scores(self, sources: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """BLEU, chrF and the share of exact translations, greedily."""
        best = self._best(sources, BeamSearchConfig(beam_size=1))
        translations = [translation.text for translation in best]
        scores = translation_scores(translations, references)
        exact = exact_matches(translations, references)
        return {"bleu": scores.bleu, "chrf": scores.chrf, "exact": exact}

    def log_likelihood(
        self, texts: Sequence[str], *, prompts: Sequence[str]
    ) -> list[LogLikelihood]:
        """Computes the log-likelihoods of targets, as translations of sources.

        Args:
            texts: list of targets. Padding in batches does not affect the result.
            prompts: list of their sources.

        Returns:
            The log-probability of each target and its end, in nats.

        Raises:
            DataError: a text is empty or too long, or cannot be encoded; the message has its index.
        """
        for column, encode in ((prompts, self.encode), (texts, self.encode_target)):
            encode_each(column, encode)  # names the text that cannot be used
        pairs = text.Pairs(*(tuple(map(str.strip, column)) for column in (prompts, texts)))
        rows = [*filter(None, text.encode_pairs(pairs, *self.tokenizers, start=self.start_tokens))]
        return label_log_likelihoods(self.module, self.params, rows, self.max_len)

    def attention(self, text: str, *, target: str | None = None) -> list[AttentionMap]:
        """Computes the attention weights of a source and its translation, in all layers and heads.

        Args:
            text: the source.
            target: a translation of it; default: the model's best one. The decoder reads the end of
                text, which starts it, and the target.

        Returns:
            Maps for `viz.attention_page`: cross-attention, then self-attention of encoder and
            decoder. Those of the decoder also have the next token of each.

        Raises:
            ConfigError: there is no target, and the model comes from a folder with unsupported
                generation settings.
            DataError: a text is empty or too long, or cannot be encoded.
        """
        source, source_ids = self.tokenizers[0], self.encode(text)
        end = require_end_of_text(self.tokenizer)
        if target is None:
            require_supported(self.decoding.unsupported)
            ((_, (best, *_)),) = self.search([text], self.config.translation)
            target_ids = [*self.start_tokens[:1], *best.tokens]  # with a forced token
            end = end if best.end_token is None else best.end_token
        else:
            target_ids = [*self.start_tokens, *self.encode_target(target)]
        # The last token is only predicted; another end of text would be one too many.
        target_ids = [*target_ids, end][: self.max_len + 1]
        ids, next_ids = (np.array(part, np.int32) for part in (target_ids[:-1], target_ids[1:]))
        output = apply_model(
            self.module, with_weights, self.params, source_tokens=source_ids[None], tokens=ids[None]
        )
        cross = np.asarray(output.decoder_weights.cross_attention)[:, 0]
        source_tokens = source.token_texts(source_ids)
        tokens, next_tokens = map(self.tokenizer.token_texts, (ids, next_ids))
        encoder, decoder = output.encoder_weights, output.decoder_weights.self_attention
        return [
            AttentionMap("cross-attention", cross, tokens, source_tokens, next_tokens),
            self_attention_map("encoder self-attention", encoder, source, source_ids),
            self_attention_map("decoder self-attention", decoder, self.tokenizer, ids, next_ids),
        ]


def _with_end_behind(tokenizer: text.Tokenizer) -> text.Tokenizer:
    """The tokenizer, which puts the end of text behind every text."""
    library, end = tokenizers.Tokenizer.from_str(tokenizer.to_json()), tokenizer.roles.end_of_text
    library.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, library.token_to_id(end))]
    )
    return text.Tokenizer(library, dataclasses.replace(tokenizer.roles, surrounded=True))

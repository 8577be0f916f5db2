"""An encoder-decoder, which translates: search, likelihoods, attention."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jaxformer import text
from jaxformer.config import BeamSearchConfig
from jaxformer.errors import ConfigError
from jaxformer.inference import Hypothesis
from jaxformer.interop.generation_config import require_supported
from jaxformer.models import AttentionMap
from jaxformer.runs.data.prepare import encode_each
from jaxformer.runs.data.values import LogLikelihood
from jaxformer.runs.text_models.forward import apply_model, self_attention_map, with_weights
from jaxformer.runs.text_models.likelihoods import label_log_likelihoods
from jaxformer.runs.text_models.options import with_options
from jaxformer.runs.text_models.pair_model import PairModel
from jaxformer.text.translation_scores import exact_matches, translation_scores
from jaxformer.training import Evaluation

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


class Translator(PairModel):
    """An encoder-decoder, which translates sentences."""

    kind: ClassVar[str] = "an encoder-decoder, which translates"
    uses: ClassVar[tuple[str, ...]] = ("to translate: jaxformer translate {} TEXT",)

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
        settings = with_options(BeamSearchConfig, self.config.translation, search)
        results = self.search(sentences, settings)
        return ((i, list(map(self._translation, hypotheses))) for i, hypotheses in results)

    def _best(self, sentences: Sequence[str], search: BeamSearchConfig) -> list[Translation]:
        """The best translations, whatever the model's folder says of generation."""
        best = {i: hypotheses[0] for i, hypotheses in self.search(sentences, search)}
        return [self._translation(best[i]) for i in range(len(sentences))]

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        """A hypothesis as text, which has the end if that is an ordinary token."""
        ends = [] if hypothesis.end_token is None else [hypothesis.end_token]
        decoded = self.tokenizer.decode([*hypothesis.tokens, *ends])
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
        figures, details = {"exact": exact_matches(translations, references)}, []
        try:
            scores = translation_scores(translations, references)
        except ConfigError as error:
            details.append(f"no BLEU and chrF: {error}")
        else:
            figures = {"bleu": scores.bleu, "chrf": scores.chrf, **figures}
            details += [f"BLEU: {scores.bleu_signature}", f"chrF: {scores.chrf_signature}"]
        if len(pairs) > _MOST:
            details.append(f"translated: the first {_MOST:,} of {len(pairs):,} validation pairs")
        if unfinished := sum(not translation.finished for translation in best):
            details.append(
                f"{unfinished:,} translations did not end within {self.max_new_tokens} tokens"
            )
        return result._replace(scores=figures, details=tuple(details))

    def greedy_scores(self, sources: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """BLEU, chrF and the share of exact translations, greedily."""
        greedy = BeamSearchConfig(beam_size=1)
        translations = [best.text for best in self._best(sources, greedy)]
        scores = translation_scores(translations, references)
        exact = exact_matches(translations, references)
        return {"bleu": scores.bleu, "chrf": scores.chrf, "exact": exact}

    def log_likelihood(
        self, texts: Sequence[str], *, prompts: Sequence[str] | None = None
    ) -> list[LogLikelihood]:
        """Computes the log-likelihoods of targets, as translations of sources.

        Args:
            texts: list of targets. Padding in batches does not affect the result.
            prompts: list of their sources.

        Returns:
            The log-probability of each target and its end, in nats.

        Raises:
            ConfigError: there are no sources.
            DataError: a text is empty or too long, or cannot be encoded; the message has its index.
        """
        if prompts is None:
            raise ConfigError(
                f"{self.kind}, scores targets as translations of sources; give those as prompts"
            )
        for column, encode in ((prompts, self.encode), (texts, self.encode_target)):
            encode_each(column, encode)  # names the text that cannot be used
        pairs = text.Pairs(*(tuple(map(str.strip, column)) for column in (prompts, texts)))
        encoded = text.encode_pairs(pairs, *self.tokenizers, start=self.start_tokens)
        rows = [row for row in encoded if row is not None]
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
        end = self.end_of_text
        if target is None:
            require_supported(self.decoding.unsupported)
            ((_, (best, *_)),) = self.search([text], self.config.translation)
            target_ids = np.concatenate([self.starts[:1], best.tokens])  # includes a forced token
            end = end if best.end_token is None else best.end_token
        else:
            target_ids = np.concatenate([self.starts, self.encode_target(target)])
        # The last token is only predicted; another end of text would be one too many.
        target_ids = np.append(target_ids, end)[: self.max_len + 1].astype(np.int32)
        ids, next_ids = target_ids[:-1], target_ids[1:]
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

"""Pairs of texts as the data of a translator."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.runs.data.prepare import cache_dir, train_tokenizer
from jaxformer.runs.data.view import DataView, plain_text, real_tokens
from jaxformer.runs.tasks.tables import EncodedRows, TableTask
from jaxformer.runs.tasks.task import Split
from jaxformer.runs.text_models.translator import Translator
from jaxformer.text.store.arrays import Example
from jaxformer.text.synthetic import synthetic_pairs
from jaxformer.text.translation_scores import translation_scores


class TranslationTask(TableTask):
    """Pairs of texts, for an encoder-decoder that translates."""

    model: Translator
    text_model = Translator
    table: ClassVar[type[text.Table]] = text.Pairs
    marks: ClassVar[str] = "the targets are predicted, the sources are not; ‖ is the end of text"

    @classmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads pairs from files or the phrasebook, or makes synthetic pairs."""
        if config.data.source in ("pairs", "phrasebook"):
            return super().read(config)
        options = dataclasses.asdict(config.data.synthetic)
        parts = synthetic_pairs(config.data.source, **options, seed=config.seed)
        train, validation = (text.Pairs(*part) for part in parts)
        return Split(text.Corpus.of(train), validation)

    @classmethod
    def phrase_rows(cls, phrases: Sequence[text.Phrase]) -> text.Pairs:
        """English phrases with their translations into Kannada."""
        return text.Pairs(
            *zip(*((phrase.english, phrase.kannada) for phrase in phrases), strict=True)
        )

    @classmethod
    def make_tokenizers(cls, config: ExperimentConfig, data: Split) -> tuple[text.Tokenizer, ...]:
        """Trains one tokenizer for both languages, or one for each."""
        train, validation, settings = data.train.train, data.validation, config.tokenizer
        cache = cache_dir(config.data)
        if settings.joint:
            texts = train.sources + train.targets, validation.sources + validation.targets
            tokenizer = train_tokenizer(settings, *texts, cache)
            return tokenizer, tokenizer
        return (
            train_tokenizer(settings, train.sources, validation.sources, cache),
            train_tokenizer(settings, train.targets, validation.targets, cache),
        )

    def encode_rows(self, rows: text.Pairs) -> Sequence[Example | None]:
        """Encodes pairs."""
        return text.encode_pairs(rows, *self.model.tokenizers, start=self.model.start_tokens)

    def encoding_key(self) -> tuple[str, ...]:
        """Tokenizers and start tokens."""
        start = str(self.model.start_tokens)
        return "pairs", start, *(tokenizer.identity for tokenizer in self.model.tokenizers)

    def data_view(self) -> DataView:
        """Describes the pairs, with sources and targets separately."""
        sizes = self.train.examples.sizes
        lengths = {"sources": sizes("source_tokens"), "targets": sizes("labels")}
        return super().data_view()._replace(lengths=lengths)

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Sources and targets."""
        sources = real_tokens(batch, "source_tokens", "source_lengths")
        are_real, labels = real_tokens(batch), batch["labels"]
        ids = batch["source_tokens"]
        return [
            {
                "source": plain_text(self.model.tokenizers[0], ids[row, sources[row]]),
                "target": plain_text(self.tokenizer, labels[row, are_real[row]]),
            }
            for row in np.flatnonzero(are_real.any(axis=1))[:count]
        ]

    def num_bytes(self, validation: EncodedRows) -> int:
        """UTF-8 bytes of the targets."""
        return sum(len(target.encode()) for target in validation.rows.targets)

    def training_scores(self) -> Callable[[Any], dict[str, float]] | None:
        """Greedy scores of the first pairs, if the config asks for them."""
        count, pairs = self.config.translation.metrics_pairs, self.validation.rows
        if not count:
            return None
        sources, references = pairs.sources[:count], pairs.targets[:count]
        translation_scores(references, references)  # raises now if sacrebleu is missing
        return lambda params: dataclasses.replace(self.model, params=params).greedy_scores(
            sources, references
        )

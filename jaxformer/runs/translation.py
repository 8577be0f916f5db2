"""The task of an encoder-decoder, which translates."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer import text
from jaxformer.config import BeamSearchConfig, ExperimentConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.inference import Hypothesis, generate, translate_stream
from jaxformer.inference.beam_search import length_divisors
from jaxformer.models import AttentionMap, EncoderDecoder
from jaxformer.runs.data_view import DataView, TextColumn, real_tokens
from jaxformer.runs.forward import (
    apply_model,
    label_log_likelihoods,
    self_attention_map,
    with_weights,
)
from jaxformer.runs.known_words import KnownWords
from jaxformer.runs.prepare import cache_dir, encode_each, fill_vocab_size, train_tokenizer
from jaxformer.runs.row_data import EncodedRows, table_of
from jaxformer.runs.row_texts import plain_text
from jaxformer.runs.tables import TableTask
from jaxformer.runs.task import SOURCE_TOKENIZER
from jaxformer.runs.task_values import LogLikelihood, Split
from jaxformer.training import Evaluation, TrainingData, language_model_loss
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner

__all__ = ["Translation", "TranslationTask"]

_MOST = 5000  # validation pairs that are translated in an evaluation
_ROWS = 32  # sentences that are drawn at a time


class Translation(NamedTuple):
    """A translation of a sentence.

    Args:
        text: what the model writes.
        score: its log-probability in nats / length ** length_penalty.
        finished: whether it came to an end before the longest length.
    """

    text: str
    score: float
    finished: bool


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TranslationTask(TableTask):
    """An encoder-decoder on pairs; its tokenizers are that of the sources and of the targets.

    Args:
        known_words: those of the training sources.
    """

    known_words: KnownWords = KnownWords()

    kind: ClassVar[str] = "an encoder-decoder, which translates"
    table: ClassVar[type[text.Table]] = text.Pairs
    marks: ClassVar[str] = "the targets are predicted, the sources are not; ‖ is the end of text"

    @property
    def model(self) -> EncoderDecoder:
        """The encoder-decoder."""
        return EncoderDecoder(self.config.model)

    def loss(self, label_smoothing: float) -> LossFunction:
        """Cross-entropy of the targets' tokens."""
        return language_model_loss(self.model, label_smoothing=label_smoothing)

    @classmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads pairs from files or the phrasebook, or makes those of a task on symbols."""
        data = config.data
        if data.source == "phrasebook":
            book = text.load_phrasebook()
            train, validation = (
                text.Pairs(
                    tuple(phrase.english for phrase in phrases),
                    tuple(phrase.kannada for phrase in phrases),
                )
                for phrases in (book.train, book.validation)
            )
            return Split(train, validation)
        if data.source != "pairs":
            options = dataclasses.asdict(data.synthetic)
            made = text.synthetic_pairs(data.source, **options, seed=config.seed)
            train, validation = (text.Pairs(*part) for part in made)
            return Split(train, validation)
        if not data.paths:
            raise ConfigError(
                "data.source 'pairs' needs data.paths: a TSV file of source, tab, target, or a "
                "file of sources and one of targets; for example --data.paths train.en train.de"
            )
        return cls.split_rows(config)

    @classmethod
    def make_tokenizers(cls, config: ExperimentConfig, data: Split) -> tuple[text.Tokenizer, ...]:
        """Trains one tokenizer for both languages, or one for each."""
        train, validation, wanted = table_of(data.train), data.validation, config.tokenizer
        cache = cache_dir(config.data)
        if wanted.joint:
            both = train.sources + train.targets, validation.sources + validation.targets
            tokenizer = train_tokenizer(wanted, *both, cache)
            return tokenizer, tokenizer
        return (
            train_tokenizer(wanted, train.sources, validation.sources, cache),
            train_tokenizer(wanted, train.targets, validation.targets, cache),
        )

    @classmethod
    def load_tokenizers(
        cls, config: ExperimentConfig, folder: pathlib.Path
    ) -> tuple[text.Tokenizer, ...]:
        """Reads the tokenizers of a run folder."""
        (target,) = super().load_tokenizers(config, folder)
        if config.tokenizer.joint:
            return target, target
        return text.Tokenizer.load(folder / SOURCE_TOKENIZER), target

    @classmethod
    def with_vocab_sizes(
        cls, config: ExperimentConfig, tokenizers: tuple[text.Tokenizer, ...]
    ) -> ExperimentConfig:
        """Fills in the number of tokens, and that of the sources where they have their own."""
        config = super().with_vocab_sizes(config, tokenizers)
        if config.tokenizer.joint:
            return config
        size = fill_vocab_size("source_vocab_size", config.model, tokenizers[0])
        model = dataclasses.replace(config.model, source_vocab_size=size)
        return dataclasses.replace(config, model=model)

    @classmethod
    def prepare(cls, config: ExperimentConfig, folder: pathlib.Path | None = None) -> Self:
        """Prepares the pairs, and collects the words of the sources and of the run in folder."""
        task = super().prepare(config, folder)
        words = KnownWords()  # not known of pairs that are not in memory
        if task.train.folder is None:
            words = KnownWords.collect(task.train.rows.sources, task.tokenizers[0])
        if folder is not None:
            words = words.union(KnownWords.load(folder))
        return dataclasses.replace(task, known_words=words)

    def save(self, folder: pathlib.Path) -> None:
        """Writes tokenizers, validation pairs and the words of the training sources."""
        super().save(folder)
        self.known_words.save(folder)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Reads tokenizers and words."""
        task = super().load(folder, config)
        return dataclasses.replace(task, known_words=KnownWords.load(folder))

    def unseen_words(self, sentences: Sequence[str]) -> list[str]:
        """Words of sources that training never had, in their order, each once."""
        return self.known_words.find_new(sentences, self.tokenizers[0])

    def encode_rows(
        self, rows: text.Pairs, counts: text.RowCounts
    ) -> tuple[Any, text.Pairs, text.RowCounts]:
        """Encodes pairs; drops those that are too long."""
        source, target = self.tokenizers
        return text.encode_pairs(rows, source, target, self.max_len, counts)

    def encoding_key(self) -> tuple[str, ...]:
        """The tokenizers, and the most tokens of a sentence."""
        return "pairs", str(self.max_len), *(one.to_json() for one in self.tokenizers)

    def data_view(self) -> DataView:
        """Describes the pairs, source and target each by itself."""
        columns = tuple(
            TextColumn(
                name, tokenizer, getattr(self.train.rows, name), getattr(self.validation.rows, name)
            )
            for name, tokenizer in zip(("sources", "targets"), self.tokenizers, strict=True)
        )
        lengths = {"sources": self.lengths("source_tokens"), "targets": self.lengths("labels")}
        return super().data_view()._replace(columns=columns, lengths=lengths)

    def real_tokens(self, batch: Any) -> dict[str, np.ndarray]:
        """Which positions of the sources and of the targets are tokens."""
        sources = real_tokens(batch, "source_tokens", "source_lengths")
        return {"sources": sources, "targets": real_tokens(batch)}

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Sources and targets."""
        (sources, are_real), labels = self.real_tokens(batch).values(), batch["labels"]
        ids = batch["source_tokens"]
        return [
            {
                "source": plain_text(self.tokenizers[0], ids[row, sources[row]]),
                "target": plain_text(self.tokenizer, labels[row, are_real[row]]),
            }
            for row in np.flatnonzero(are_real.any(axis=1))[:count]
        ]

    @property
    def embedding_path(self) -> tuple[str, ...]:
        """That of the sources, where they have a table of their own."""
        return ("embedding",) if self.config.tokenizer.joint else ("source_embedding",)

    def draw_params(self, rng: jax.Array) -> Any:
        """Draws the encoder-decoder's parameters."""
        tokens = jnp.zeros((1, min(2, self.max_len)), jnp.int32)
        return self.model.init(rng, tokens, tokens)["params"]

    def num_bytes(self, rows: text.Pairs) -> int:
        """UTF-8 bytes of the targets."""
        return sum(len(target.encode()) for target in rows.targets)

    def training_data(self, runner: Runner) -> TrainingData:
        """Makes batches; the scores are of the first pairs, greedily, if the config asks."""
        data, count = super().training_data(runner), self.config.translation.metrics_pairs
        # Raises now where the search that follows on training could not score its hypotheses.
        length_divisors(self.max_len, self.config.translation.length_penalty)
        if not count:
            return data
        pairs = self.validation.rows
        sources, references = pairs.sources[:count], pairs.targets[:count]
        text.translation_scores(references, references)  # raises now if sacrebleu is missing

        def scores(params: Any) -> dict[str, float]:
            found = self.translate(params, sources, search=BeamSearchConfig(beam_size=1))
            translations = [best[0].text for best in found]
            result = text.translation_scores(translations, references)
            exact = text.exact_matches(translations, references)
            return {"bleu": result.bleu, "chrf": result.chrf, "exact": exact}

        return data._replace(scores=scores)

    def evaluate(
        self, params: Any, validation: EncodedRows, runner: Runner | None = None
    ) -> Evaluation:
        """Measures the loss, and translates the sources."""
        result, pairs = super().evaluate(params, validation, runner), validation.rows
        assert isinstance(pairs, text.Pairs)
        best = [hypotheses[0] for hypotheses in self.translate(params, pairs.sources[:_MOST])]
        translations, references = [one.text for one in best], pairs.targets[:_MOST]
        figures, details = {"exact": text.exact_matches(translations, references)}, []
        try:
            scores = text.translation_scores(translations, references)
        except ConfigError as error:
            details.append(f"no BLEU and chrF: {error}")
        else:
            figures = {"bleu": scores.bleu, "chrf": scores.chrf, **figures}
            details += [f"BLEU: {scores.bleu_signature}", f"chrF: {scores.chrf_signature}"]
        if len(pairs) > _MOST:
            details.append(f"translated: the first {_MOST:,} of {len(pairs):,} validation pairs")
        if unfinished := sum(not one.finished for one in best):
            details.append(f"{unfinished:,} translations did not end within {self.max_len} tokens")
        return result._replace(scores=figures, details=tuple(details))

    def encode(self, one: str) -> np.ndarray:
        """Encodes a source: int32 [tokens]."""
        return text.encode_source(one, self.tokenizers[0], self.max_len)

    @property
    def _end_of_text(self) -> int:
        """The token that starts and ends a target."""
        end = self.tokenizer.end_of_text
        assert end is not None  # encode_source has seen to it
        return end

    def translate(
        self, params: Any, sentences: Sequence[str], *, search: BeamSearchConfig | None = None
    ) -> list[list[Translation]]:
        """Translates sentences by beam search; with the options of the config if not given."""
        found = dict(self.translate_stream(params, sentences, search=search))
        return [found[i] for i in range(len(sentences))]

    def translate_stream(
        self, params: Any, sentences: Sequence[str], *, search: BeamSearchConfig | None = None
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Translates sentences by beam search, yielding each as it is done."""
        decode = self.tokenizer.decode
        for i, hypotheses in self._search(params, sentences, search):
            yield i, [Translation(decode(h.tokens), h.score, h.finished) for h in hypotheses]

    def _search(
        self, params: Any, sentences: Sequence[str], search: BeamSearchConfig | None = None
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Translates into tokens, yielding (index, hypotheses) as they are done."""
        search = self.config.translation if search is None else search
        for batch in translate_stream(
            self.model,
            params,
            [ids.tolist() for ids in encode_each(sentences, self.encode)],
            start_token=self._end_of_text,
            end_token=self._end_of_text,
            search=search,
            max_new_tokens=self.max_len,
            vocab_size=self.tokenizer.vocab_size,
        ):
            yield from batch

    def sample_translations(
        self, params: Any, sentences: Sequence[str], *, rng: jax.Array, sampling: SamplingConfig
    ) -> list[str]:
        """Translates by drawing tokens rather than by a search."""
        drawn = self.sample_translations_stream(params, sentences, rng=rng, sampling=sampling)
        return [translation for _, translation in drawn]

    def sample_translations_stream(
        self, params: Any, sentences: Sequence[str], *, rng: jax.Array, sampling: SamplingConfig
    ) -> Iterator[tuple[int, str]]:
        """Translates by drawing tokens, yielding (index, translation) as they are done."""
        sources = [ids.tolist() for ids in encode_each(sentences, self.encode)]
        for start in range(0, len(sources), _ROWS):
            some = sources[start : start + _ROWS]
            indices = start + jnp.arange(len(some))
            drawn = generate(
                self.model, params, [[self._end_of_text]] * len(some), sources=some,
                rng=jax.vmap(jax.random.fold_in, (None, 0))(rng, indices),
                sampling=sampling, max_new_tokens=self.max_len - 1,
                stop_tokens=(self._end_of_text,), vocab_size=self.tokenizer.vocab_size,
            )  # fmt: skip
            yield from enumerate(map(self.tokenizer.decode, drawn), start)

    def sample(self, params: Any, prompt: str, rng: jax.Array) -> str:
        """Shows a sentence and its translation."""
        return f"{prompt}\n{self.translate(params, [prompt])[0][0].text}"

    def log_likelihood(
        self, params: Any, texts: Sequence[str], *, prompts: Sequence[str] | None = None
    ) -> list[LogLikelihood]:
        """Scores targets, their ends included, as translations of the prompts."""
        if prompts is None:
            raise ConfigError(
                f"{self.kind}, scores targets as translations of sources; give those as prompts"
            )
        rows = []
        for source, target in zip(
            encode_each(prompts, self.encode), encode_each(texts, self._encode_target), strict=True
        ):
            rows.append(
                {
                    "source_tokens": source,
                    "source_lengths": np.array(source.size, np.int32),
                    "tokens": np.insert(target, 0, self._end_of_text),
                    "lengths": np.array(target.size + 1, np.int32),
                    "labels": np.append(target, np.int32(self._end_of_text)),
                }
            )
        sums = label_log_likelihoods(self.model, params, rows, self.max_len)
        return [
            LogLikelihood(nats, row["labels"].size) for nats, row in zip(sums, rows, strict=True)
        ]

    def _encode_target(self, target: str) -> np.ndarray:
        """Encodes a target, without its end, behind which there is room for one more token."""
        ids = self.tokenizer.encode(target.strip())
        if not 1 <= ids.size <= self.max_len - 1:
            raise DataError(
                f"a target must have 1 to {self.max_len - 1} tokens, got {ids.size}; "
                + ("shorten it" if ids.size else "write some text")
            )
        return ids

    @staticmethod
    def read_hidden(model: EncoderDecoder, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        """Hidden states of sources, by the encoder."""
        return model.encode(tokens, lengths=lengths).hidden

    def attention(self, params: Any, one: str, *, target: str | None = None) -> list[AttentionMap]:
        """Attention weights of a source and its translation."""
        source, source_ids = self.tokenizers[0], self.encode(one)
        if target is None:
            ((_, (best,)),) = self._search(params, [one])
            found = best.tokens
        else:
            found = self._encode_target(target)
        # The last token is predicted, and not read; an end of text would be one too many.
        next_ids = np.append(found, self._end_of_text)[: self.max_len].astype(np.int32)
        ids = np.insert(next_ids[:-1], 0, self._end_of_text)
        output = apply_model(
            self.model, with_weights, params, source_tokens=source_ids[None], tokens=ids[None]
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

"""Runs of an encoder-decoder, which translates."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer import run_folder, text
from jaxformer.config import ExperimentConfig, ModelConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.inference import Hypothesis, generate, translate_stream
from jaxformer.models import EncoderDecoder
from jaxformer.runs.attention import check_length, self_attention_map, with_weights
from jaxformer.runs.base import (
    PreparedRun,
    Run,
    check_samples,
    evaluate_on_one_device,
    fingerprint,
    fitting_vocab_size,
    spread,
    train_tokenizer,
    training_buckets,
    validation_buckets,
)
from jaxformer.runs.word_vectors import StartVectors
from jaxformer.training import Evaluation, TrainingData, language_model_loss
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner
from jaxformer.viz import AttentionMap

__all__ = ["PreparedTranslation", "Translation", "TranslationRun", "init_params"]

_SHOWN = 3
_MOST = 5000  # validation pairs that are translated in an evaluation
_ROWS = 32  # sentences that are drawn at a time
Examples = list[dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedTranslation(PreparedRun):
    """An encoder-decoder and its pairs, before the first step.

    Args:
        tokenizers: of sources and targets; the same where the vocabulary is joint.
        train: examples to train on.
        validation: examples to validate on.
        validation_pairs: what they are made of.
    """

    tokenizers: tuple[text.Tokenizer, text.Tokenizer]
    train: Examples
    validation: Examples
    validation_pairs: text.Pairs

    @classmethod
    def prepare(
        cls, config: ExperimentConfig, folder: pathlib.Path | None
    ) -> "PreparedTranslation":
        """Reads the pairs; takes the tokenizers of the folder where a run goes on."""
        train, validation, counts, validation_counts = _read(config)
        tokenizers = _tokenizers(config, folder, train, validation)
        source, target = tokenizers
        model = config.model
        size = fitting_vocab_size("model.vocab_size", model.vocab_size, target)
        model = dataclasses.replace(model, vocab_size=size)
        if not config.tokenizer.joint:
            wanted = model.source_vocab_size
            size = fitting_vocab_size("model.source_vocab_size", wanted, source)
            model = dataclasses.replace(model, source_vocab_size=size)
        vectors, config = StartVectors.read(dataclasses.replace(config, model=model), source)
        train_examples, train, counts = text.encode_pairs(
            train, source, target, model.max_len, counts
        )
        validation_examples, validation, validation_counts = text.encode_pairs(
            validation, source, target, model.max_len, validation_counts
        )
        prompts = config.samples.prompts or spread(validation.sources, _SHOWN)
        check_samples(prompts, lambda prompt: text.encode_source(prompt, source, model.max_len))
        samples = dataclasses.replace(config.samples, prompts=prompts)
        report = [
            f"training on {len(train):,} pairs ({counts})",
            f"validating on {len(validation):,} pairs ({validation_counts})",
            *vectors.report,
        ]
        if shared := text.count_shared(train.sources, validation.sources):
            report.insert(2, f"{shared:,} validation sources are also in the training pairs")
        summary = run_folder.DataSummary(
            fingerprint=fingerprint(
                train.sources, train.targets, validation.sources, validation.targets
            ),
            documents=len(train),
            train_tokens=sum(example["labels"].size for example in train_examples),
            validation_tokens=sum(example["labels"].size for example in validation_examples),
        )
        return cls(
            config=dataclasses.replace(config, samples=samples), vectors=vectors,
            summary=summary, report=tuple(report), tokenizers=tokenizers, train=train_examples,
            validation=validation_examples, validation_pairs=validation,
        )  # fmt: skip

    def write(self, folder: pathlib.Path) -> None:
        """Writes tokenizers and validation pairs into a new run folder."""
        source, target = self.tokenizers
        run_folder.save_tokenizer(folder, target, None if source is target else source)
        run_folder.save_rows(folder, self.validation_pairs.sources, self.validation_pairs.targets)

    def training_data(self, runner: Runner) -> TrainingData:
        """Makes batches of pairs of about one length."""
        return TrainingData(
            batches=training_buckets(self.config, runner, self.train),
            validation=validation_buckets(self.config, self.validation, runner),
            validation_bytes=_num_bytes(self.validation_pairs),
            scores=self._scores(),
        )

    def _scores(self) -> Callable[[Any], dict[str, float]] | None:
        """Translates the first validation pairs, greedily, if the config asks for that."""
        count, config, tokenizers = (
            self.config.translation.metrics_pairs, self.config, self.tokenizers
        )  # fmt: skip
        if not count:
            return None
        sources, references = (
            column[:count]
            for column in (self.validation_pairs.sources, self.validation_pairs.targets)
        )
        text.translation_scores(references, references)  # raises now if sacrebleu is missing

        def scores(params: Any) -> dict[str, float]:
            found = dict(_translate(config, params, tokenizers, sources, beam_size=1))
            translations = [found[i][0].text for i in range(len(sources))]
            result = text.translation_scores(translations, references)
            exact = text.exact_matches(translations, references)
            return {"bleu": result.bleu, "chrf": result.chrf, "exact": exact}

        return scores

    def loss(self, label_smoothing: float) -> LossFunction:
        """Makes the loss of the targets."""
        model = EncoderDecoder(self.config.model)
        return language_model_loss(model, label_smoothing=label_smoothing)

    def draw_params(self, rng: jax.Array) -> Any:
        """Draws the encoder-decoder's parameters."""
        return init_params(self.config.model, rng)

    @property
    def embedding_path(self) -> tuple[str, ...]:
        """That of the sources, where they have a table of their own."""
        return ("embedding",) if self.config.tokenizer.joint else ("source_embedding",)


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


@dataclasses.dataclass(frozen=True)
class TranslationRun(Run):
    """A trained encoder-decoder, with its tokenizers.

    Args:
        tokenizers: of sources and targets.
    """

    tokenizers: tuple[text.Tokenizer, text.Tokenizer]
    kind: ClassVar[str] = "an encoder-decoder, which translates"

    @classmethod
    def open(
        cls, folder: pathlib.Path, config: ExperimentConfig, params: Any, step: int
    ) -> "TranslationRun":
        """Reads what else the run folder has."""
        target = source = run_folder.load_tokenizer(folder)
        if not config.tokenizer.joint:
            source = run_folder.load_tokenizer(folder, of_sources=True)
        return cls(folder, config, params, step, (source, target))

    def evaluate(self) -> Evaluation:
        """Measures the loss on the run's validation pairs, and translates them, on one device."""
        validation, model = text.Pairs(*run_folder.load_rows(self.folder)), self.config.model
        counts = text.RowCounts("pairs", len(validation))
        examples, *_ = text.encode_pairs(validation, *self.tokenizers, model.max_len, counts)
        data = TrainingData(
            batches={},
            validation=validation_buckets(self.config, examples),
            validation_bytes=_num_bytes(validation),
        )
        loss = language_model_loss(EncoderDecoder(model))
        result = evaluate_on_one_device(loss, self.params, data)
        best = [hypotheses[0] for hypotheses in self.translate(validation.sources[:_MOST])]
        translations, references = [one.text for one in best], validation.targets[:_MOST]
        figures, details = {"exact": text.exact_matches(translations, references)}, []
        try:
            scores = text.translation_scores(translations, references)
        except ConfigError as error:
            details.append(f"no BLEU and chrF: {error}")
        else:
            figures = {"bleu": scores.bleu, "chrf": scores.chrf, **figures}
            details += [f"BLEU: {scores.bleu_signature}", f"chrF: {scores.chrf_signature}"]
        if len(validation) > _MOST:
            details.append(
                f"translated: the first {_MOST:,} of {len(validation):,} validation pairs"
            )
        if unfinished := sum(not one.finished for one in best):
            details.append(f"{unfinished:,} translations did not end within {model.max_len} tokens")
        return result._replace(scores=figures, details=tuple(details))

    def encode(self, sentence: str) -> np.ndarray:
        """Encodes a source: int32 [tokens].

        Raises:
            DataError: it is empty or too long, or cannot be encoded.
        """
        return text.encode_source(sentence, self.tokenizers[0], self.config.model.max_len)

    def translate(
        self,
        sentences: Sequence[str],
        *,
        beam_size: int | None = None,
        num_best: int = 1,
        length_penalty: float | None = None,
        early_stopping: bool | Literal["never"] = False,
    ) -> list[list[Translation]]:
        """Translates sentences by beam search, each as it would be alone.

        Args:
            sentences: any number.
            beam_size: hypotheses that are followed at a time; the config's when not given.
            num_best: how many translations of each to return, at most beam_size.
            length_penalty: exponent of the length; the config's when not given.
            early_stopping: when a search ends, as in `beam_search`.

        Returns:
            For every sentence its best translations, best first.

        Raises:
            DataError: a sentence is empty or too long, or cannot be encoded.
            ConfigError: an option is impossible.
        """
        found = dict(
            self.translate_stream(
                sentences, beam_size=beam_size, num_best=num_best, length_penalty=length_penalty,
                early_stopping=early_stopping,
            )
        )  # fmt: skip
        return [found[i] for i in range(len(sentences))]

    def translate_stream(
        self,
        sentences: Sequence[str],
        *,
        beam_size: int | None = None,
        num_best: int = 1,
        length_penalty: float | None = None,
        early_stopping: bool | Literal["never"] = False,
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Translates as `translate` does, yielding (index, translations) as they are done."""
        return _translate(
            self.config, self.params, self.tokenizers, sentences, beam_size=beam_size,
            num_best=num_best, length_penalty=length_penalty, early_stopping=early_stopping,
        )  # fmt: skip

    def sample_translations(
        self, sentences: Sequence[str], *, rng: jax.Array, sampling: SamplingConfig
    ) -> list[str]:
        """Translates by drawing tokens rather than by a search.

        Args:
            sentences: any number.
            rng: PRNG key of the draws.
            sampling: how tokens are chosen.

        Returns:
            A translation of each.

        Raises:
            DataError: a sentence is empty or too long, or cannot be encoded.
        """
        model, target = self.config.model, self.tokenizers[1]
        end = _end_of_text(target)
        sources = [self.encode(sentence).tolist() for sentence in sentences]
        drawn: list[np.ndarray] = []
        for start in range(0, len(sources), _ROWS):
            some = sources[start : start + _ROWS]
            indices = start + jnp.arange(len(some))
            drawn += generate(
                model, self.params, [[end]] * len(some), sources=some,
                rng=jax.vmap(jax.random.fold_in, (None, 0))(rng, indices),
                sampling=sampling, max_new_tokens=model.max_len - 1, stop_tokens=(end,),
                num_tokens=target.vocab_size,
            )  # fmt: skip
        return [target.decode(tokens) for tokens in drawn]

    def sample(self, prompt: str, rng: jax.Array) -> str:
        """Shows a sentence and its translation."""
        return f"{prompt}\n{self.translate([prompt])[0][0].text}"

    def attention(self, prompt: str, *, target: str | None = None) -> list[AttentionMap]:
        """Computes where the tokens of a sentence and of its translation look.

        Args:
            prompt: the source.
            target: its translation; the one that the model finds best when not given.

        Returns:
            Cross-attention, then the encoder's and the decoder's self-attention. The decoder's
            tokens are those that it reads: the end of text, which starts it, and the translation.

        Raises:
            DataError: the sentence or the target is empty or too long, or cannot be encoded.
        """
        model, (source, target_tokenizer) = self.config.model, self.tokenizers
        source_ids = self.encode(prompt)
        if target is None:
            ((_, (best,)),) = _search(self.config, self.params, self.tokenizers, [prompt])
            found = best.tokens[: model.max_len - 1]  # one that has no end was not read to its last
        else:
            found = target_tokenizer.encode(target.strip())
            check_length("a target to look into", found.size, model.max_len - 1)
        ids = np.insert(found, 0, _end_of_text(target_tokenizer)).astype(np.int32)
        output = with_weights(EncoderDecoder(model), self.params, source_ids[None], ids[None])
        cross = np.asarray(output.decoder_weights.cross_attention)[:, 0]
        tokens, source_tokens = target_tokenizer.token_texts(ids), source.token_texts(source_ids)
        encoder, decoder = output.encoder_weights, output.decoder_weights.self_attention
        return [
            AttentionMap("cross-attention", cross, tokens, source_tokens),
            self_attention_map("encoder self-attention", encoder, source, source_ids),
            self_attention_map("decoder self-attention", decoder, target_tokenizer, ids),
        ]


def init_params(model: ModelConfig, rng: jax.Array) -> Any:
    """Makes the parameters of an encoder-decoder."""
    tokens = jnp.zeros((1, min(2, model.max_len)), jnp.int32)
    return EncoderDecoder(model).init(rng, tokens, tokens)["params"]


def _read(
    config: ExperimentConfig,
) -> tuple[text.Pairs, text.Pairs, text.RowCounts, text.RowCounts]:
    """Reads the pairs to train on and those to validate on, and how many of each were dropped."""
    data = config.data
    if data.source == "phrasebook":
        book = text.load_phrasebook()
        train, validation = (
            text.Pairs(
                tuple(phrase.english for phrase in phrases),
                tuple(phrase.kannada for phrase in phrases),
            )
            for phrases in (book.train, book.held_out)
        )
        counts = text.RowCounts("pairs", len(train))
    elif data.source == "pairs":
        if not data.paths:
            raise ConfigError(
                "data.source 'pairs' needs data.paths: a TSV file of source, tab, target, or a "
                "file of sources and one of targets; for example --data.paths train.en train.de"
            )
        train, counts = text.Pairs.read(data.paths)
        if data.validation_paths:
            validation, validation_counts = text.Pairs.read(data.validation_paths)
            return train, validation, counts, validation_counts
        train, validation, counts = train.split(data.validation_fraction, counts)
    else:
        task = dataclasses.asdict(data.synthetic)
        parts = text.synthetic_pairs(data.source, **task, seed=config.seed)
        train, validation = (text.Pairs(*part) for part in parts)
        counts = text.RowCounts("pairs", len(train))
    return train, validation, counts, text.RowCounts("pairs", len(validation))


def _tokenizers(
    config: ExperimentConfig, folder: pathlib.Path | None, train: text.Pairs, validation: text.Pairs
) -> tuple[text.Tokenizer, text.Tokenizer]:
    """Trains the tokenizers of sources and targets, or reads those of a run that goes on."""
    make = functools.partial(train_tokenizer, config.tokenizer)
    if config.tokenizer.joint:
        if folder is not None:
            tokenizer = run_folder.load_tokenizer(folder)
        else:
            tokenizer = make(train.sources + train.targets, validation.sources + validation.targets)
        return tokenizer, tokenizer
    if folder is not None:
        source = run_folder.load_tokenizer(folder, of_sources=True)
        return source, run_folder.load_tokenizer(folder)
    return make(train.sources, validation.sources), make(train.targets, validation.targets)


def _translate(
    config: ExperimentConfig,
    params: Any,
    tokenizers: tuple[text.Tokenizer, text.Tokenizer],
    sentences: Sequence[str],
    **options: Any,
) -> Iterator[tuple[int, list[Translation]]]:
    """Decodes what `_search` finds."""
    decode = tokenizers[1].decode
    for index, hypotheses in _search(config, params, tokenizers, sentences, **options):
        yield (
            index,
            [Translation(decode(one.tokens), one.score, one.finished) for one in hypotheses],
        )


def _search(
    config: ExperimentConfig,
    params: Any,
    tokenizers: tuple[text.Tokenizer, text.Tokenizer],
    sentences: Sequence[str],
    *,
    beam_size: int | None = None,
    num_best: int = 1,
    length_penalty: float | None = None,
    early_stopping: bool | Literal["never"] = False,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Translates into tokens, yielding (index, hypotheses) as they are done."""
    source, target = tokenizers
    end, default = _end_of_text(target), config.translation
    encoded = [text.encode_source(one, source, config.model.max_len) for one in sentences]
    for batch in translate_stream(
        config.model,
        params,
        [ids.tolist() for ids in encoded],
        start_token=end,
        end_token=end,
        beam_size=default.beam_size if beam_size is None else beam_size,
        length_penalty=default.length_penalty if length_penalty is None else length_penalty,
        early_stopping=early_stopping,
        num_return=num_best,
        max_new_tokens=config.model.max_len,
        num_tokens=target.vocab_size,
    ):
        yield from batch


def _end_of_text(tokenizer: text.Tokenizer) -> int:
    end = tokenizer.end_of_text
    assert end is not None  # encode_source has seen to it
    return end


def _num_bytes(pairs: text.Pairs) -> int:
    return sum(len(target.encode()) for target in pairs.targets)

"""Runs of an encoder that classifies texts."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer import run_folder, text
from jaxformer.config import ExperimentConfig, ModelConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.models import SequenceClassifier
from jaxformer.runs.attention import self_attention_map, with_weights
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
from jaxformer.training import Evaluation, TrainingData, classification_loss
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner
from jaxformer.viz import AttentionMap

__all__ = ["ClassificationRun", "ClassScore", "PreparedClassifier", "init_params"]

_ROWS = 32  # texts that are classified at a time
_SHOWN = 3
Examples = list[dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedClassifier(PreparedRun):
    """An encoder and its labelled texts, before the first step.

    Args:
        tokenizer: of the texts.
        train: examples to train on.
        validation: examples to validate on.
        validation_texts: what they are made of.
    """

    tokenizer: text.Tokenizer
    train: Examples
    validation: Examples
    validation_texts: text.Labelled

    @property
    def embedding_path(self) -> tuple[str, ...]:
        """That of the encoder."""
        return ("encoder", "embedding")

    @classmethod
    def prepare(cls, config: ExperimentConfig, folder: pathlib.Path | None) -> "PreparedClassifier":
        """Reads the texts; takes the tokenizer of the folder where a run goes on."""
        train, validation, counts, validation_counts, classes = _read(config)
        if folder is None:
            tokenizer = train_tokenizer(config.tokenizer, train.texts, validation.texts)
        else:
            tokenizer = run_folder.load_tokenizer(folder)
        model = config.model
        if model.num_classes not in (None, len(classes)):
            raise ConfigError(
                f"model.num_classes must be the number of labels, {len(classes)} "
                f"({', '.join(classes[:5])}{', ...' if len(classes) > 5 else ''}), got "
                f"{model.num_classes}; remove it"
            )
        size = fitting_vocab_size("model.vocab_size", model.vocab_size, tokenizer)
        model = dataclasses.replace(model, vocab_size=size, num_classes=len(classes))
        config = dataclasses.replace(config, model=model)
        vectors, config = StartVectors.read(config, tokenizer)
        encode = functools.partial(
            text.encode_labelled, tokenizer=tokenizer, classes=classes, max_len=model.max_len
        )
        train_examples, train, counts = encode(train, counts=counts)
        validation_examples, validation, validation_counts = encode(
            validation, counts=validation_counts
        )
        prompts = config.samples.prompts or spread(validation.texts, _SHOWN)
        samples = dataclasses.replace(config.samples, prompts=prompts)
        summary = run_folder.DataSummary(
            fingerprint=fingerprint(train.texts, train.labels, validation.texts, validation.labels),
            documents=len(train),
            train_tokens=sum(example["tokens"].size for example in train_examples),
            validation_tokens=sum(example["tokens"].size for example in validation_examples),
            classes=classes,
        )
        report = [
            f"training on {len(train):,} texts ({counts})",
            f"validating on {len(validation):,} texts ({validation_counts})",
            *vectors.report,
        ]
        if shared := text.count_shared(train.texts, validation.texts):
            report.insert(2, f"{shared:,} validation texts are also in the training texts")
        check_samples(prompts, lambda prompt: _encode(prompt, tokenizer, model.max_len))
        return cls(
            config=dataclasses.replace(config, samples=samples), vectors=vectors,
            summary=summary, report=tuple(report), tokenizer=tokenizer, train=train_examples,
            validation=validation_examples, validation_texts=validation,
        )  # fmt: skip

    def write(self, folder: pathlib.Path) -> None:
        """Writes tokenizer and validation texts into a new run folder."""
        run_folder.save_tokenizer(folder, self.tokenizer)
        run_folder.save_rows(folder, self.validation_texts.texts, self.validation_texts.labels)

    def training_data(self, runner: Runner) -> TrainingData:
        """Makes batches of texts of about one length."""
        return TrainingData(
            batches=training_buckets(self.config, runner, self.train),
            validation=validation_buckets(self.config, self.validation, runner),
            validation_bytes=None,
            unit=ClassificationRun.unit,
            scores=_accuracy(self.config.model, self.validation),
        )

    def loss(self, label_smoothing: float) -> LossFunction:
        """Makes the loss of the classes."""
        model = SequenceClassifier(self.config.model)
        return classification_loss(model, label_smoothing=label_smoothing)

    def draw_params(self, rng: jax.Array) -> Any:
        """Draws the encoder's and its head's parameters."""
        return init_params(self.config.model, rng)


class ClassScore(NamedTuple):
    """A class of a text.

    Args:
        name: of the class.
        probability: that the model gives it.
    """

    name: str
    probability: float


@dataclasses.dataclass(frozen=True)
class ClassificationRun(Run):
    """A trained classifier, with its tokenizer and classes.

    Args:
        tokenizer: the run's own.
        classes: names, in the order of the model's scores.
    """

    tokenizer: text.Tokenizer
    classes: tuple[str, ...]
    kind: ClassVar[str] = "a classifier, which labels texts"
    unit: ClassVar[str] = "text"

    @classmethod
    def open(
        cls, folder: pathlib.Path, config: ExperimentConfig, params: Any, step: int
    ) -> "ClassificationRun":
        """Reads what else the run folder has."""
        tokenizer = run_folder.load_tokenizer(folder)
        classes = run_folder.load_summary(folder).classes
        return cls(folder, config, params, step, tokenizer, classes)

    def evaluate(self) -> Evaluation:
        """Measures loss and accuracy on the run's validation texts, on one device."""
        texts, labels = run_folder.load_rows(self.folder)
        validation, model = text.Labelled(texts, labels), self.config.model
        counts = text.RowCounts("texts", len(validation))
        examples, *_ = text.encode_labelled(
            validation, self.tokenizer, self.classes, model.max_len, counts
        )
        data = TrainingData(
            batches={},
            validation=validation_buckets(self.config, examples),
            validation_bytes=None,
            unit=self.unit,
            scores=_accuracy(model, examples),
        )
        loss = classification_loss(SequenceClassifier(model))
        return evaluate_on_one_device(loss, self.params, data)

    def encode(self, one: str) -> np.ndarray:
        """Encodes a text: int32 [tokens].

        Raises:
            DataError: it is empty or too long, or cannot be encoded.
        """
        return _encode(one, self.tokenizer, self.config.model.max_len)

    def classify(self, texts: Sequence[str], num_best: int = 1) -> list[list[ClassScore]]:
        """Labels texts.

        Args:
            texts: any number, each of which is labelled as it would be alone.
            num_best: how many classes to return for each; all, where there are fewer.

        Returns:
            For every text its likeliest classes, best first.

        Raises:
            DataError: a text is empty or too long, or num_best is not positive.
        """
        if num_best < 1:
            raise DataError(f"num_best must be positive, got {num_best}")
        encoded = [self.encode(one) for one in texts]
        results = []
        for logits in _scores(self.config.model, self.params, encoded):
            shares = np.exp(logits - logits.max())
            probabilities = shares / shares.sum()
            best = np.argsort(-probabilities, kind="stable")[:num_best]
            results.append([ClassScore(self.classes[i], float(probabilities[i])) for i in best])
        return results

    def sample(self, prompt: str, rng: jax.Array) -> str:
        """Shows a text and its likeliest classes."""
        (classes,) = self.classify([prompt], _SHOWN)
        return f"{prompt}\n" + ", ".join(f"{c.name} {c.probability:.1%}" for c in classes)

    def attention(self, prompt: str) -> list[AttentionMap]:
        """Computes where each token of a text looks, before it is classified."""
        ids = self.encode(prompt)
        output = with_weights(SequenceClassifier(self.config.model), self.params, ids[None])
        return [self_attention_map("encoder self-attention", output.weights, self.tokenizer, ids)]


def init_params(model: ModelConfig, rng: jax.Array) -> Any:
    """Makes the parameters of a classifier."""
    tokens = jnp.zeros((1, min(2, model.max_len)), jnp.int32)
    return SequenceClassifier(model).init(rng, tokens)["params"]


def _encode(one: str, tokenizer: text.Tokenizer, max_len: int) -> np.ndarray:
    """Encodes a text to classify as `text.encode_labelled` does: int32 [tokens]."""
    ids = tokenizer.encode(one.strip())
    start = one if len(one) <= 20 else f"{one[:20]}..."
    if not 0 < ids.size <= max_len:
        raise DataError(
            f"a text to classify must have 1 to max_len={max_len} tokens, got {ids.size} for "
            f"{start!r}; " + ("shorten it" if ids.size else "write one")
        )
    return ids


def _read(
    config: ExperimentConfig,
) -> tuple[text.Labelled, text.Labelled, text.RowCounts, text.RowCounts, tuple[str, ...]]:
    """Reads training and validation texts, how many were dropped, and the classes."""
    data = config.data
    if data.source == "phrasebook":
        book = text.load_phrasebook()
        train, validation = (
            text.Labelled(
                tuple(phrase.english for phrase in phrases),
                tuple(phrase.topic for phrase in phrases),
            )
            for phrases in (book.train, book.held_out)
        )
        counts, classes = text.RowCounts("texts", len(train)), train.classes
    else:
        if not data.paths:
            raise ConfigError(
                "data.source 'labelled' needs data.paths: TSV files of text, tab, label; for "
                "example --data.paths reviews.tsv"
            )
        train, counts = text.Labelled.read(data.paths)
        classes = (
            train.classes
        )  # before the split, which may take all texts of a rare one for validation
        if data.validation_paths:
            validation, validation_counts = text.Labelled.read(data.validation_paths)
            return train, validation, counts, validation_counts, classes
        train, validation, counts = train.split(data.validation_fraction, counts)
    return train, validation, counts, text.RowCounts("texts", len(validation)), classes


def _accuracy(model: ModelConfig, examples: Examples) -> Callable[[Any], dict[str, float]]:
    tokens = [example["tokens"] for example in examples]
    labels = np.array([example["labels"] for example in examples])

    def scores(params: Any) -> dict[str, float]:
        best = _scores(model, params, tokens).argmax(axis=-1)
        return {"accuracy": float((best == labels).mean())}

    return scores


def _scores(model: ModelConfig, params: Any, texts: Sequence[np.ndarray]) -> np.ndarray:
    """Scores texts of any lengths, a few at a time: float64 [texts, classes]."""
    order = sorted(range(len(texts)), key=lambda i: texts[i].size)
    logits = np.zeros((len(texts), model.num_classes or 0))
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        width = min(-(-texts[rows[-1]].size // 16) * 16, model.max_len)
        tokens, lengths = np.zeros((_ROWS, width), np.int32), np.zeros(_ROWS, np.int32)
        for row, i in enumerate(rows):
            tokens[row, : texts[i].size], lengths[row] = texts[i], texts[i].size
        logits[rows] = _score(model, params, tokens, lengths)[: len(rows)]
    return logits


@functools.partial(jax.jit, static_argnums=0)
def _score(model: ModelConfig, params: Any, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
    return SequenceClassifier(model).apply({"params": params}, tokens, lengths=lengths).logits

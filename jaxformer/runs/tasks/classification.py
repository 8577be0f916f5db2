"""The task of an encoder that classifies texts."""

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpy as np

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.interop.conversion.config_fields import PROBLEM_TYPES, ProblemType
from jaxformer.models import AttentionMap, SequenceClassifier
from jaxformer.runs.data.prepare import encode_each
from jaxformer.runs.data.row_data import EncodedRows, RowPart, row_part, split_phrasebook
from jaxformer.runs.data.values import Split
from jaxformer.runs.tasks.forward import apply_model, encoder_attention, padded_batches
from jaxformer.runs.tasks.tables import TableTask
from jaxformer.storage import read_json, write_json
from jaxformer.training import classification_loss
from jaxformer.training.losses import LossFunction

__all__ = ["ClassScore", "ClassificationTask"]

_CLASSES = "classes.json"
_SHOWN = 3
_LISTED = 20  # classes listed in the report


class ClassScore(NamedTuple):
    """A class of a text.

    Args:
        name: name of the class.
        probability: its probability. If a text may have several labels, it is independent of the
            others.
    """

    name: str
    probability: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ClassificationTask(TableTask):
    """An encoder that classifies texts.

    Args:
        classes: the labels, in the order of the model's scores.
        problem_type: meaning of the scores: one label per text, any number of labels, or
            regression. Models trained here have one label per text.
    """

    classes: tuple[str, ...] = ()
    problem_type: ProblemType = PROBLEM_TYPES[0]

    kind: ClassVar[str] = "a classifier, which labels texts"
    unit: ClassVar[str] = "text"
    table: ClassVar[type[text.Table]] = text.Labelled
    marks: ClassVar[str] = "the label is predicted"

    @property
    def model(self) -> SequenceClassifier:
        """The encoder with its head."""
        return SequenceClassifier(self.config.model)

    @property
    def embedding_path(self) -> tuple[str, ...]:
        """Path of the encoder's embedding."""
        return ("encoder", "embedding")

    @property
    def gives_scores(self) -> bool:
        """Whether its logits are scores (regression), not logits of classes."""
        return self.problem_type == "regression"

    def loss(self, label_smoothing: float) -> LossFunction:
        """Cross-entropy of the classes."""
        return classification_loss(self.model, label_smoothing=label_smoothing)

    @classmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads labelled texts from files, or the phrasebook with its topics as labels."""
        if config.data.source == "phrasebook":
            return split_phrasebook(
                lambda phrases: text.Labelled(
                    tuple(phrase.english for phrase in phrases),
                    tuple(phrase.topic for phrase in phrases),
                )
            )
        if not config.data.paths:
            raise ConfigError(
                "data.source 'labelled' needs data.paths: TSV files of text, tab, label; for "
                "example --data.paths reviews.tsv"
            )
        return cls.split_rows(config)

    def with_data(self, data: Split) -> Self:
        """Numbers the classes, encodes the texts, and reports the number of texts per class."""
        known = _labels(row_part(data.train))
        if not self.config.data.validation_paths:  # a split may lack a class in training
            known += data.validation.labels
        classes, model = text.Labelled(known, known).classes, self.config.model
        if model.num_classes not in (None, len(classes)):
            raise ConfigError(
                f"model.num_classes must be the number of labels, {len(classes)} "
                f"({', '.join(classes[:5])}{', ...' if len(classes) > 5 else ''}), got "
                f"{model.num_classes}; remove it"
            )
        model = dataclasses.replace(model, num_classes=len(classes))
        config = dataclasses.replace(self.config, model=model)
        numbered = dataclasses.replace(self, config=config, classes=classes)
        made = super(ClassificationTask, numbered).with_data(data)
        return dataclasses.replace(made, report=(*made.report, *_class_report(data, classes)))

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Texts and their labels."""
        shown = super().row_texts(batch, count)
        return [
            {"label": self.classes[label], **row}
            for row, label in zip(shown, batch["labels"], strict=False)
        ]

    def encode_rows(
        self, rows: text.Labelled, counts: text.RowCounts
    ) -> tuple[Any, text.Labelled, text.RowCounts]:
        """Encodes texts and labels; drops texts that are too long."""
        if self.problem_type != PROBLEM_TYPES[0]:
            raise ConfigError(
                "labelled texts are for a classifier that gives each text one label, got one of "
                f"problem_type {self.problem_type!r}; score texts by Run.score instead"
            )
        return text.encode_labelled(rows, self.tokenizer, self.classes, self.max_len, counts)

    def encoding_key(self) -> tuple[str, ...]:
        """Tokenizer, classes and max_len."""
        return "labelled", str(self.max_len), self.tokenizer.identity, *self.classes

    def scores(self, validation: EncodedRows) -> Callable[[Any], dict[str, float]]:
        """The accuracy."""
        tokens = [example["tokens"] for example in validation.examples]
        labels = np.array([example["labels"] for example in validation.examples])

        def accuracy(params: Any) -> dict[str, float]:
            best = self._logits(params, tokens).argmax(axis=-1)
            return {"accuracy": float((best == labels).mean())}

        return accuracy

    def save(self, folder: pathlib.Path) -> None:
        """Writes tokenizer, validation texts and classes."""
        super().save(folder)
        exclusive = self.problem_type == PROBLEM_TYPES[0]
        said = {"classes": self.classes, "problem_type": self.problem_type}
        write_json(folder / _CLASSES, self.classes if exclusive else said)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Reads tokenizer and classes."""
        classes, kind = read_json(folder / _CLASSES, _stored_classes)
        return dataclasses.replace(super().load(folder, config), classes=classes, problem_type=kind)

    def classify(
        self, params: Any, texts: Sequence[str], num_best: int = 1
    ) -> list[list[ClassScore]]:
        """Classifies texts."""
        if num_best < 1:
            raise DataError(f"num_best must be positive, got {num_best}")
        if self.gives_scores:
            raise ConfigError(
                f"this model scores texts ({', '.join(self.classes[:_SHOWN])}), and its scores are "
                "no probabilities of classes; call score instead"
            )
        results = []
        for logits in self.score(params, texts):
            if self.problem_type == "multi_label_classification":
                probabilities = np.exp(-np.logaddexp(0.0, -logits))
            else:
                shares = np.exp(logits - logits.max())
                probabilities = shares / shares.sum()
            best = np.argsort(-probabilities, kind="stable")[:num_best]
            results.append([ClassScore(self.classes[i], float(probabilities[i])) for i in best])
        return results

    def score(
        self, params: Any, texts: Sequence[str], second_texts: Sequence[str] | None = None
    ) -> np.ndarray:
        """Scores texts, or pairs of texts: float64 [texts, classes]."""
        if second_texts is None:
            return self._logits(params, encode_each(texts, self.encode))
        if len(second_texts) != len(texts) or isinstance(second_texts, str):
            raise DataError(
                f"second_texts must be a list with one for each text, got {len(second_texts)} and "
                f"{len(texts)} texts"
            )
        return self._logits(params, encode_each(texts, self._encode_pair, second_texts))

    def _encode_pair(self, first: str, second: str) -> np.ndarray:
        """Tokens of two texts and their token types: int32 [2, tokens]."""
        both = [self.tokenizer.encode(one.strip()) for one in (first, second)]
        ids, types = self.tokenizer.surrounding_tokens.around_pair(*both)
        if not all(one.size for one in both) or ids.size > self.max_len:
            raise DataError(
                f"a pair of texts must have tokens in both and at most max_len={self.max_len} in "
                f"all, got {both[0].size} and {both[1].size}, and {ids.size} with special tokens"
            )
        return np.stack([ids, types])

    def _logits(self, params: Any, texts: Sequence[np.ndarray]) -> np.ndarray:
        """Logits of encoded texts, [tokens] or [2, tokens] with types: float64 [texts, classes]."""
        names = ["tokens", "token_types"]
        if self.config.model.num_token_types is None:
            names = ["tokens"]
        rows = [dict(zip(names, np.atleast_2d(ids), strict=False)) for ids in texts]
        rows = [row | {"lengths": np.array(row["tokens"].size, np.int32)} for row in rows]
        logits = np.zeros((len(rows), len(self.classes)))
        for indices, batch in padded_batches(rows, self.max_len):
            scores = apply_model(self.model, _class_logits, params, **batch)
            logits[indices] = scores[: len(indices)]
        return logits

    def sample(self, params: Any, prompt: str, rng: jax.Array) -> str:
        """Shows a text with its likeliest classes, or its scores."""
        if self.gives_scores:
            pairs = zip(self.classes, *self.score(params, [prompt]), strict=True)
            return f"{prompt}\n" + ", ".join(f"{name} {score:.4f}" for name, score in pairs)
        (classes,) = self.classify(params, [prompt], _SHOWN)
        return f"{prompt}\n" + ", ".join(f"{c.name} {c.probability:.1%}" for c in classes)

    def attention(self, params: Any, one: str) -> list[AttentionMap]:
        """Attention weights of a text."""
        return encoder_attention(self.model, params, self.tokenizer, self.encode(one))


def _labels(rows: RowPart) -> tuple[str, ...]:
    """The labels of rows, some of them repeated."""
    labels = rows.distinct("labels")
    if labels is None:
        raise DataError(
            "labels must be of at most 10,000 classes, got more; check that the label comes after "
            "the tab"
        )
    return tuple(labels)


def _class_report(data: Split, classes: Sequence[str]) -> Iterator[str]:
    """Report: the classes; if all rows are known, their sizes, and classes with a single text."""
    train = row_part(data.train)
    sides: tuple[Any, ...] = () if train.is_sampled else (train.rows, data.validation)
    counts = collections.Counter(label for side in sides for label in side.labels)
    named = [f"{name} ({counts[name]:,})" if sides else name for name in classes[:_LISTED]]
    more = f", ... ({len(classes):,} in all)" if len(classes) > _LISTED else ""
    yield f"classes: {', '.join(named)}{more}"
    rows = [row for side in sides for row in zip(side.labels, side.lines, strict=True)]
    single = [(label, line) for label, line in rows if counts[label] == 1]
    for label, line in single[:_SHOWN]:
        hint = "; if this line is a header, remove it" if line.split(":")[-1] == "1" else ""
        yield f"warning: the class {label!r} has a single text, in line {line}{hint}"


def _stored_classes(value: Any) -> tuple[tuple[str, ...], ProblemType]:
    """Classes and problem type of a run folder."""
    if isinstance(value, list):
        return tuple(map(str, value)), PROBLEM_TYPES[0]
    kind = PROBLEM_TYPES[PROBLEM_TYPES.index(value["problem_type"])]
    return tuple(map(str, value["classes"])), kind


def _class_logits(model: Any, tokens: jax.Array, **inputs: jax.Array) -> jax.Array:
    return model(tokens, **inputs).logits

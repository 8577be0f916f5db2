"""Labelled texts as the data of a classifier."""

import collections
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from jaxformer import text
from jaxformer.errors import ConfigError
from jaxformer.interop.conversion.config_fields import PROBLEM_TYPES
from jaxformer.runs.tasks.tables import TableTask
from jaxformer.runs.tasks.task import Split
from jaxformer.runs.text_models.classifier import Classifier
from jaxformer.text.store.arrays import Example

_LOG = logging.getLogger(__name__)
_LISTED = 20  # classes listed


class ClassificationTask(TableTask):
    """Labelled texts, for an encoder that classifies them."""

    model: Classifier
    text_model = Classifier
    table: ClassVar[type[text.Table]] = text.Labelled
    marks: ClassVar[str] = "the label is predicted"

    @classmethod
    def phrase_rows(cls, phrases: Sequence[text.Phrase]) -> text.Labelled:
        """English phrases with their topics as labels."""
        rows = ((phrase.english, phrase.topic) for phrase in phrases)
        return text.Labelled(*zip(*rows, strict=True))

    def with_data(self, data: Split) -> Self:
        """Numbers the classes, encodes the texts, and reports the number of texts per class."""
        labels = data.train.distinct["labels"]
        if not self.config.data.validation_paths:  # a split may lack a class in training
            labels += data.validation.labels
        classes, model = text.Labelled(labels, labels).classes, self.config.model
        if model.num_classes not in (None, len(classes)):
            raise ConfigError(
                f"model.num_classes must be the number of labels, {len(classes)} "
                f"({', '.join(classes[:5])}{', ...' if len(classes) > 5 else ''}), got "
                f"{model.num_classes}; remove it"
            )
        model = dataclasses.replace(model, num_classes=len(classes))
        config = dataclasses.replace(self.config, model=model)
        classifier = dataclasses.replace(self.model, config=config, classes=classes)
        numbered = dataclasses.replace(self, model=classifier)
        task = super(ClassificationTask, numbered).with_data(data)
        counts = collections.Counter[str]()
        if not data.train.is_sampled:
            counts.update((*data.train.train.labels, *data.validation.labels))
        named = [f"{name} ({counts[name]:,})" if counts else name for name in classes[:_LISTED]]
        _LOG.info(f"classes: {', '.join(named)}{', ...' if len(classes) > _LISTED else ''}")
        return task

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Texts and their labels."""
        shown = super().row_texts(batch, count)
        return [
            {"label": self.model.classes[label], **row}
            for row, label in zip(shown, batch["labels"], strict=False)
        ]

    def encode_rows(self, rows: text.Labelled) -> Sequence[Example | None]:
        """Encodes texts and labels."""
        if self.model.problem_type != PROBLEM_TYPES[0]:
            raise ConfigError(
                "labelled texts are for a classifier that gives each text one label, got one of "
                f"problem_type {self.model.problem_type!r}; call its method score instead"
            )
        return text.encode_labelled(rows, self.tokenizer, self.model.classes)

    def encoding_key(self) -> tuple[str, ...]:
        """Tokenizer and classes."""
        return "labelled", self.tokenizer.identity, *self.model.classes

    def training_scores(self) -> Callable[[Any], dict[str, float]]:
        """The accuracy."""
        return lambda params: dataclasses.replace(self.model, params=params).accuracy(
            self.validation
        )

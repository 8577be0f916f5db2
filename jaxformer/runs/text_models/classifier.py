"""An encoder that classifies texts."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError
from jaxformer.interop import HuggingFaceModel
from jaxformer.interop.conversion.config_fields import PROBLEM_TYPES, ProblemType
from jaxformer.models import SequenceClassifier
from jaxformer.runs.data.prepare import encode_each, needs_flag
from jaxformer.runs.text_models.forward import apply_to_rows
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.storage import read_json, write_json
from jaxformer.training import Evaluation, classification_loss
from jaxformer.training.losses import LossFunction

_CLASSES = "classes.json"
_SHOWN = 3


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
class Classifier(TextModel):
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
    uses: ClassVar[tuple[str, ...]] = ("to label texts: jaxformer predict {} TEXT",)

    @property
    def module(self) -> SequenceClassifier:
        """The encoder with its head."""
        return SequenceClassifier(self.config.model)

    @property
    def gives_scores(self) -> bool:
        """Whether its logits are scores (regression), not logits of classes."""
        return self.problem_type == "regression"

    def loss(self, label_smoothing: float) -> LossFunction:
        """Cross-entropy of the classes."""
        return classification_loss(self.module, label_smoothing=label_smoothing)

    @classmethod
    def without_data(cls, config: ExperimentConfig) -> Self:
        """Makes a classifier whose config has the number of classes."""
        if config.model.num_classes is None:
            raise needs_flag("the number of classes", "--model.num-classes 5")
        return super().without_data(config)

    def batch_shapes(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Tokens, and the length and class of each row."""
        integers = jax.ShapeDtypeStruct((rows,), jnp.int32)
        return super().batch_shapes(rows) | {"lengths": integers, "labels": integers}

    def save(self, folder: pathlib.Path) -> None:
        """Writes tokenizer and classes."""
        super().save(folder)
        values = {"classes": self.classes, "problem_type": self.problem_type}
        write_json(folder / _CLASSES, values)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Reads tokenizer and classes."""
        stored = read_json(folder / _CLASSES, dict)
        return dataclasses.replace(
            super().load(folder, config),
            classes=tuple(stored["classes"]),
            problem_type=stored["problem_type"],
        )

    def to_huggingface(self) -> HuggingFaceModel:
        """The model, with its classes."""
        model = super().to_huggingface()
        return model._replace(class_names=self.classes, problem_type=self.problem_type)

    def classify(self, texts: Sequence[str], num_best: int = 1) -> list[list[ClassScore]]:
        """Classifies texts. The other texts do not affect a result.

        Args:
            texts: list of texts.
            num_best: number of classes to return for each text; all if there are fewer.

        Returns:
            The likeliest classes of each text, best first.

        Raises:
            ConfigError: the model's scores are not probabilities.
            DataError: a text is empty or too long.
        """
        if self.gives_scores:
            raise ConfigError(
                f"this model scores texts ({', '.join(self.classes[:_SHOWN])}), and its scores are "
                "no probabilities of classes; call score instead"
            )
        return [self._best(logits, num_best) for logits in self.score(texts)]

    def _best(self, logits: np.ndarray, num_best: int) -> list[ClassScore]:
        """The likeliest classes by logits `[classes]`."""
        if self.problem_type == "multi_label_classification":
            probabilities = np.exp(-np.logaddexp(0.0, -logits))
        else:
            shares = np.exp(logits - logits.max())
            probabilities = shares / shares.sum()
        best = np.argsort(-probabilities, kind="stable")[:num_best]
        return [ClassScore(self.classes[i], float(probabilities[i])) for i in best]

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the logits of texts.

        Args:
            texts: list of texts. Padding in batches does not affect the result.

        Returns:
            float64 [texts, classes], in the order of the model's classes.

        Raises:
            DataError: a text is empty or too long; the message has its index.
        """
        return self.logits(encode_each(texts, self.encode))

    def logits(self, texts: Sequence[np.ndarray]) -> np.ndarray:
        """Logits of encoded texts, int32 [tokens] each: float64 [texts, classes]."""
        rows = [{"tokens": ids, "lengths": np.array(ids.size, np.int32)} for ids in texts]
        scores = apply_to_rows(self.module, _class_logits, self.params, rows, self.max_len)
        return np.array(scores, np.float64).reshape(len(rows), len(self.classes))

    def with_scores(self, result: Evaluation, validation: Any) -> Evaluation:
        """Adds the accuracy on encoded rows."""
        return result._replace(scores={**result.scores, **self.accuracy(validation)})

    def accuracy(self, validation: Any) -> dict[str, float]:
        """The share of encoded rows whose likeliest class is their label, by its name."""
        tokens = [example["tokens"] for example in validation.examples]
        labels = np.array([example["labels"] for example in validation.examples])
        return {"accuracy": float((self.logits(tokens).argmax(axis=-1) == labels).mean())}

    def sample(self, prompt: str, seed: int = 0) -> str:
        """Shows a text with its likeliest classes, or its scores."""
        if self.gives_scores:
            pairs = zip(self.classes, *self.score([prompt]), strict=True)
            shown = [f"{name} {score:.4f}" for name, score in pairs]
        else:
            (classes,) = self.classify([prompt], _SHOWN)
            shown = [f"{c.name} {c.probability:.1%}" for c in classes]
        return f"{prompt}\n{', '.join(shown)}"


def _class_logits(model: Any, tokens: jax.Array, **inputs: jax.Array) -> jax.Array:
    return model(tokens, **inputs).logits

"""An encoder that classifies texts."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.interop.conversion.config_fields import PROBLEM_TYPES, ProblemType
from jaxformer.models import AttentionMap, SequenceClassifier
from jaxformer.runs.data.prepare import encode_each
from jaxformer.runs.text_models.forward import apply_model, encoder_attention, padded_batches
from jaxformer.runs.text_models.text_model import TextModel, needs_flag
from jaxformer.storage import read_json, write_json
from jaxformer.training import classification_loss
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
class ClassifierModel(TextModel):
    """An encoder that classifies texts. `Run` documents its methods.

    Args:
        classes: the labels, in the order of the model's scores.
        problem_type: meaning of the scores: one label per text, any number of labels, or
            regression. Models trained here have one label per text.
    """

    classes: tuple[str, ...] = ()
    problem_type: ProblemType = PROBLEM_TYPES[0]

    kind: ClassVar[str] = "a classifier, which labels texts"
    unit: ClassVar[str] = "text"

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
        made = super().without_data(config)
        if config.model.num_classes is None:
            raise needs_flag("the number of classes", "--model.num-classes 5")
        return made

    def batch_shapes(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Tokens, and the length and class of each row."""
        of_rows = jax.ShapeDtypeStruct((rows,), jnp.int32)
        return super().batch_shapes(rows) | {"lengths": of_rows, "labels": of_rows}

    def save(self, folder: pathlib.Path) -> None:
        """Writes tokenizer and classes."""
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
            return self.logits(params, encode_each(texts, self.encode))
        if len(second_texts) != len(texts) or isinstance(second_texts, str):
            raise DataError(
                f"second_texts must be a list with one for each text, got {len(second_texts)} and "
                f"{len(texts)} texts"
            )
        return self.logits(params, encode_each(texts, self._encode_pair, second_texts))

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

    def logits(self, params: Any, texts: Sequence[np.ndarray]) -> np.ndarray:
        """Logits of encoded texts, [tokens] or [2, tokens] with types: float64 [texts, classes]."""
        names = ["tokens", "token_types"]
        if self.config.model.num_token_types is None:
            names = ["tokens"]
        rows = [dict(zip(names, np.atleast_2d(ids), strict=False)) for ids in texts]
        rows = [row | {"lengths": np.array(row["tokens"].size, np.int32)} for row in rows]
        logits = np.zeros((len(rows), len(self.classes)))
        for indices, batch in padded_batches(rows, self.max_len):
            scores = apply_model(self.module, _class_logits, params, **batch)
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
        return encoder_attention(self.module, params, self.tokenizer, self.encode(one))


def _stored_classes(value: Any) -> tuple[tuple[str, ...], ProblemType]:
    """Classes and problem type of a run folder."""
    if isinstance(value, list):
        return tuple(map(str, value)), PROBLEM_TYPES[0]
    kind = PROBLEM_TYPES[PROBLEM_TYPES.index(value["problem_type"])]
    return tuple(map(str, value["classes"])), kind


def _class_logits(model: Any, tokens: jax.Array, **inputs: jax.Array) -> jax.Array:
    return model(tokens, **inputs).logits

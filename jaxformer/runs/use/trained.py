"""A trained model: evaluation, encoding, hidden states, attention, likelihoods."""

import dataclasses
import pathlib
import shlex
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
import numpy.typing as npt

from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.interop.special_tokens import require_supported
from jaxformer.models import AttentionMap
from jaxformer.runs.data.values import LogLikelihood
from jaxformer.runs.folder.files import VALIDATION
from jaxformer.runs.tasks.registry import TASKS
from jaxformer.runs.tasks.task import Task
from jaxformer.runs.text_models.answering import AnsweringModel
from jaxformer.runs.text_models.causal import CausalModel
from jaxformer.runs.text_models.classifier import ClassifierModel
from jaxformer.runs.text_models.masked import MaskedModel
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.text_models.translation import TranslationModel
from jaxformer.training import Evaluation, SingleRunner
from jaxformer.training.parallel import Runner

# Methods for several texts also take one. Not Sequence[str], because a type checker takes a str for
# one.
Texts = list[str] | tuple[str, ...]

# What a run can be used for, by the kind of its model.
_USES = {
    CausalModel: "to continue text: jaxformer generate {} TEXT",
    AnsweringModel: "to have messages answered: jaxformer generate {} MESSAGE --chat",
    TranslationModel: "to translate: jaxformer translate {} TEXT",
    MaskedModel: "to fill in [MASK]: jaxformer predict {} TEXT",
    ClassifierModel: "to label texts: jaxformer predict {} TEXT",
}

Model = TypeVar("Model", bound=TextModel)


def uses_of(model: type[TextModel], folder: object) -> list[str]:
    """Lists what a run of a model in a folder can be used for, with the commands."""
    quoted = shlex.quote(str(folder))
    return [use.format(quoted) for kind, use in _USES.items() if issubclass(model, kind)]


@dataclasses.dataclass(frozen=True, repr=False)
class TrainedTask:
    """A task with the trained parameters of its model, and methods that nearly all models have.

    Args:
        folder: the run folder.
        task: the task; its model has the config and the tokenizers.
        params: parameters of the opened checkpoint.
        step: step of that checkpoint; None for a Hugging Face folder.
        runner: runner for the devices that hold the parameters.
    """

    folder: pathlib.Path
    task: Task
    params: Any
    step: int | None
    runner: Runner = dataclasses.field(default_factory=SingleRunner)

    def __repr__(self) -> str:
        step = "" if self.step is None else f", step {self.step}"
        return f"<Run of {type(self.task).__name__} in {self.folder}{step}>"

    @property
    def config(self) -> ExperimentConfig:
        """The experiment, completed with what the data decides."""
        return self.task.config

    @property
    def model(self) -> TextModel:
        """The model and its tokenizers, without the parameters."""
        return self.task.model

    def require(self, *kinds: type[Model], user: str) -> Model:
        """Returns the model, if it is of one of these kinds.

        Args:
            *kinds: classes of models, such as `CausalModel`; one is enough.
            user: the method or command that needs it, for the message.

        Raises:
            ConfigError: it is of another kind.
        """
        if isinstance(self.model, kinds):
            return self.model
        models = [task.text_model for task in TASKS.values()]
        able: dict[str, None] = {}  # in order, each once
        for kind in kinds:
            built_in = [model.kind for model in models if issubclass(model, kind)]
            able |= dict.fromkeys(built_in or [kind.kind])
        own, *names = (one.partition(",")[0] for one in (self.model.kind, *able))
        uses = uses_of(type(self.model), self.folder)
        needs = f"{user} needs {' or '.join(names)}"
        raise ConfigError("; ".join([f"{self.folder} is {own}", needs, *uses]))

    def _require_generating(self, kind: type[Model], user: str) -> Model:
        """The model, if it is of this kind and its generation settings are supported."""
        model = self.require(kind, user=user)
        require_supported(model.decoding.unsupported)
        return model

    def _each(self, texts: str | Texts, method: Callable[..., Any], **options: Any) -> Any:
        """Calls a method that takes several texts; for a single text, returns its result only."""
        if not isinstance(texts, str):
            return method(self.params, texts, **options)
        self.model.check_prompt(texts)  # its error names no index
        return method(self.params, [texts], **options)[0]

    def evaluate(self, data: Sequence[str | pathlib.Path] | None = None) -> Evaluation:
        """Evaluates the model, on the devices that hold its parameters.

        Args:
            data: files to read in the same way as the config's data: text files, or tables of pairs
                or labelled texts. Default: the run's own validation data.

        Raises:
            CheckpointError: the run's validation data is missing or damaged.
            ConfigError: files are given to a translator from a folder with unsupported generation
                settings.
            DataError: a file cannot be used, or the run has no validation data.
        """
        if data is None and not (self.folder / VALIDATION).exists():
            raise DataError(
                f"{self.folder} has no validation data, since it was not trained here; name files "
                "with data"
            )
        if data is None:
            validation = self.task.load_validation(self.folder)
            return self.task.evaluate(self.params, validation, self.runner)
        if isinstance(data, str | pathlib.Path):
            raise DataError(f"data must be a list of files, got {str(data)!r}; put it in []")
        if isinstance(self.model, TranslationModel):  # it is scored by its translations
            require_supported(self.model.decoding.unsupported)
        validation = self.task.read_validation(list(map(str, data)))
        result = self.task.evaluate(self.params, validation, self.runner)
        counts = getattr(validation, "counts", None)  # of rows; some may be unusable
        read = () if counts is None else (str(counts),)
        return result._replace(details=(*read, *result.details))

    def sample(self, prompt: str, rng: jax.Array) -> str:
        """Shows the model's output for a prompt, with the settings of the config's samples."""
        return self.model.sample(self.params, prompt, rng)

    def encode(self, one: str) -> np.ndarray:
        """Encodes a text as the model reads it; for an encoder-decoder, a source and its end.

        Args:
            one: the text.

        Returns:
            Token ids, int32 [tokens].

        Raises:
            DataError: the text is empty or too long, or cannot be encoded.
        """
        return self.model.encode(one)

    def decode(self, ids: npt.ArrayLike) -> str:
        """Decodes token ids; for an encoder-decoder, of the target language.

        Args:
            ids: integers [tokens]; special tokens, such as the end of text, are skipped.

        Returns:
            The text.

        Raises:
            DataError: an id is not an integer, is negative, or is not in the vocabulary.
        """
        return self.model.decode(ids)

    def attention(self, one: str, *, target: str | None = None) -> list[AttentionMap]:
        """Computes the attention weights of a text, in every layer and head.

        Args:
            one: the text, encoded as for training; for an encoder-decoder, the source.
            target: for an encoder-decoder, a translation of the text; default: the model's best
                translation. The decoder reads the end of text, which starts it, and the target.

        Returns:
            A map for each kind of attention of the model, for `viz.attention_page`. For an
            encoder-decoder: cross-attention, then self-attention of encoder and decoder. A
            decoder's map also has the next token of each; for the last token of a language model,
            the likeliest one.

        Raises:
            ConfigError: a target is given to a model that does not translate, or none to one with
                unsupported generation settings.
            DataError: a text is empty or too long, or cannot be encoded.
        """
        model = self.model
        if isinstance(model, TranslationModel):
            if target is None:  # it is generated
                require_supported(model.decoding.unsupported)
            return model.attention(self.params, one, target=target)
        if target is not None:
            raise ConfigError(
                f"the target is the translation of the text, and {self.folder} holds "
                f"{model.kind}; leave it out"
            )
        able: Any = self.require(
            CausalModel, MaskedModel, ClassifierModel, TranslationModel, user="attention"
        )
        maps: list[AttentionMap] = able.attention(self.params, one)
        return maps

    def hidden_states(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Computes the model's hidden states, for example for embeddings of texts.

        Args:
            texts: list of texts. Padding in batches does not affect the result.

        Returns:
            float32 `[T, D]` for each text, after the final norm; for an encoder-decoder, those of
            the encoder, for a source and its end of text.

        Raises:
            DataError: a text is empty or too long, or cannot be encoded; the message has its index.
        """
        return self.model.hidden_states(self.params, texts)

    def log_likelihood(
        self, texts: Sequence[str], *, prompts: Sequence[str] | None = None
    ) -> list[LogLikelihood]:
        """Computes the log-likelihoods of texts.

        Args:
            texts: list of texts. Padding in batches does not affect the result.
            prompts: list of one prompt per text, encoded separately. An encoder-decoder needs them:
                they are the sources, and the texts are the targets.

        Returns:
            The log-probability of each text, in nats. For a language model: of its tokens after the
            prompt, or of all tokens except the first without a prompt. For an encoder-decoder: of
            the target's tokens and its end.

        Raises:
            ConfigError: the model does not score texts, or needs prompts.
            DataError: a text is empty or too long, or cannot be encoded; the message has its index.
        """
        model: Any = self.require(CausalModel, TranslationModel, user="log_likelihood")
        if prompts is not None and len(prompts) != len(texts):
            raise ConfigError(
                f"there must be one prompt per text, got {len(prompts)} prompts and {len(texts)} "
                "texts"
            )
        found: list[LogLikelihood] = model.log_likelihood(self.params, texts, prompts=prompts)
        return found

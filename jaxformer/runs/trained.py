"""A task with trained parameters: evaluation, encoding, hidden states, attention, likelihoods."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.interop.special_tokens import require_supported
from jaxformer.memory import host_memory, require_memory
from jaxformer.models import AttentionMap
from jaxformer.runs.classification import ClassificationTask
from jaxformer.runs.conversation import ConversationTask
from jaxformer.runs.folder import VALIDATION
from jaxformer.runs.language_model import LanguageModelTask
from jaxformer.runs.masked import MaskedTask
from jaxformer.runs.task import Task
from jaxformer.runs.task_values import LogLikelihood
from jaxformer.runs.translation import TranslationTask
from jaxformer.training import Evaluation, SingleRunner
from jaxformer.training.parallel import Runner

__all__ = ["Texts", "TrainedTask", "task_class"]

# What takes several texts takes one as well. A type checker must tell it from them: a str is a
# Sequence[str], too.
Texts = list[str] | tuple[str, ...]

# Methods of tasks that generate text.
_GENERATE = frozenset((
    "generate", "generate_stream", "chat", "chat_stream", "translate", "translate_stream",
    "sample_translations", "sample_translations_stream",
))  # fmt: skip

# The built-in tasks, by the model's architecture and the kind of data.
_TASKS: dict[tuple[str, str], type[Task]] = {
    ("decoder", "stream"): LanguageModelTask,
    ("decoder", "conversations"): ConversationTask,
    ("encoder", "stream"): MaskedTask,
    ("encoder", "labelled"): ClassificationTask,
    ("encoder_decoder", "pairs"): TranslationTask,
}


def task_class(config: ExperimentConfig) -> type[Task]:
    """Tells which built-in task a config means."""
    return _TASKS[config.model.architecture, config.data_kind]


@dataclasses.dataclass(frozen=True, repr=False)
class TrainedTask:
    """A task with trained parameters, and what nearly all tasks do with them.

    Args:
        folder: the run folder.
        task: what the model does, with its config and tokenizers.
        params: parameters of the checkpoint that was opened.
        step: of that checkpoint; None of a folder of Hugging Face.
        runner: of the devices that the parameters are on.
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
        """The experiment, all that the data decides filled in."""
        return self.task.config

    def require(self, *abilities: str) -> None:
        """Raises ConfigError unless the task has one of these methods.

        Args:
            *abilities: names of methods, such as "generate" or "translate".
        """
        if not any(hasattr(self.task, name) for name in abilities):
            tasks = _TASKS.values()
            able = [task.kind for task in tasks if any(hasattr(task, name) for name in abilities)]
            raise ConfigError(
                f"{self.folder} holds {self.task.kind}, which has no {' or '.join(abilities)}; "
                f"that is for {' or '.join(able)}"
            )

    def _call(self, ability: str, *arguments: Any, **options: Any) -> Any:
        self.require(ability)
        if ability in _GENERATE:
            require_supported(self.task.decoding.unsupported)
        return getattr(self.task, ability)(self.params, *arguments, **options)

    def _call_for(self, texts: str | Texts, ability: str, **options: Any) -> Any:
        """Calls a method that takes several texts; returns what it gives for one, if it is one."""
        if not isinstance(texts, str):
            return self._call(ability, texts, **options)
        self.require(ability)
        self.task.check_prompt(texts)  # its error names no index
        return self._call(ability, [texts], **options)[0]

    def evaluate(self, data: Sequence[str | pathlib.Path] | None = None) -> Evaluation:
        """Measures the model, on the devices that its parameters are on.

        Args:
            data: files to read as the config's data is read: text files, or tables of pairs or of
                labelled texts; the run's own validation data when not given.

        Raises:
            CheckpointError: the run's validation data is missing or damaged.
            ConfigError: files are given to a model that translates, and comes from a folder with
                settings of generation that are not supported.
            DataError: a file cannot be used, or must be given.
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
        if hasattr(self.task, "translate"):  # and is scored by its translations
            require_supported(self.task.decoding.unsupported)
        validation = self.task.read_validation(list(map(str, data)))
        result = self.task.evaluate(self.params, validation, self.runner)
        counts = getattr(validation, "counts", None)  # of rows, some of which may be unusable
        read = () if counts is None else (str(counts),)
        return result._replace(details=(*read, *result.details))

    def sample(self, prompt: str, rng: jax.Array) -> str:
        """Shows what the model makes of a prompt, as the config's samples say."""
        return self.task.sample(self.params, prompt, rng)

    def encode(self, one: str) -> np.ndarray:
        """Encodes a text as the model reads it: of an encoder-decoder, a source and its end.

        Args:
            one: the text.

        Returns:
            Token ids, int32 [tokens].

        Raises:
            DataError: it is empty or too long, or cannot be encoded.
        """
        return self.task.encode(one)

    def decode(self, ids: npt.ArrayLike) -> str:
        """Decodes token ids: of an encoder-decoder, those of the target language.

        Args:
            ids: integers [tokens]; special tokens, such as the end of text, are skipped.

        Returns:
            The text.

        Raises:
            DataError: an id is no integer, negative, or not in the vocabulary.
        """
        return self.task.decode(ids)

    def attention(self, one: str, *, target: str | None = None) -> list[AttentionMap]:
        """Computes the attention weights of a text, in every layer and head.

        Args:
            one: the text, encoded as for training; of an encoder-decoder, the source.
            target: translation of the text, for an encoder-decoder; the one that the model finds
                best when not given. The decoder's tokens are those that it reads: the end of text,
                which starts it, and the translation.

        Returns:
            A map for each kind of attention that the model has, for `viz.attention_page`; of an
            encoder-decoder cross-attention, then the encoder's and the decoder's self-attention.
            A decoder's map also has the token that comes next after each; behind the last of a
            language model's text, that is the likeliest.

        Raises:
            ConfigError: a target is given to a model that does not translate, or none to one whose
                settings of generation are not supported; or the weights do not fit the memory.
            DataError: a text is empty or too long, or cannot be encoded.
        """
        model, tokens = self.config.model, self.task.encode(one).size
        require_memory(
            {"the weights": 4 * model.num_layers * model.num_heads * tokens**2}, host_memory(),
            what=f"the attention of {tokens:,} tokens", remedy="shorten the text",
        )  # fmt: skip
        if target is None:
            if hasattr(self.task, "translate"):  # the target is generated
                require_supported(self.task.decoding.unsupported)
            return self._call("attention", one)
        if not hasattr(self.task, "translate"):
            raise ConfigError(
                f"the target is the translation of the text, and {self.folder} holds "
                f"{self.task.kind}; leave it out"
            )
        return self._call("attention", one, target=target)

    def hidden_states(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Computes the model's hidden states, such as for embeddings of texts.

        Args:
            texts: any number, in batches of about one length; padding changes nothing.

        Returns:
            float32 `[T, D]` of each text, after the final norm; of an encoder-decoder, the
            encoder's of a source and the end of text.

        Raises:
            DataError: a text is empty or too long, or cannot be encoded; with its index.
        """
        return self._call("hidden_states", texts)

    def log_likelihood(
        self, texts: Sequence[str], *, prompts: Sequence[str] | None = None
    ) -> list[LogLikelihood]:
        """Computes how likely the model finds texts.

        Args:
            texts: any number, in batches of about one length; padding changes nothing.
            prompts: as many; what the texts are behind, which is encoded for itself. Of an
                encoder-decoder, the sources, which it needs; the texts are their targets.

        Returns:
            The log-probability of each text, in nats: of a language model, of its tokens behind
            the prompt, or of all but the first without one; of an encoder-decoder, of the target's
            tokens and its end.

        Raises:
            ConfigError: the model scores no texts, or needs prompts.
            DataError: a text is empty or too long, or cannot be encoded; with its index.
        """
        self.require("log_likelihood")
        if prompts is not None and len(prompts) != len(texts):
            raise ConfigError(
                f"there must be one prompt per text, got {len(prompts)} prompts and {len(texts)} "
                "texts"
            )
        return self._call("log_likelihood", texts, prompts=prompts)

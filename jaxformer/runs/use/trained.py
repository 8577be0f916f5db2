"""A task with trained parameters: evaluation, encoding, hidden states, attention, likelihoods."""

import dataclasses
import pathlib
import shlex
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
from jaxformer.runs.data.values import LogLikelihood
from jaxformer.runs.folder.files import VALIDATION
from jaxformer.runs.tasks.registry import TASKS
from jaxformer.runs.tasks.task import Task
from jaxformer.training import Evaluation, SingleRunner
from jaxformer.training.parallel import Runner

__all__ = ["Texts", "TrainedTask", "uses_of"]

# Methods for several texts also take one. Not Sequence[str], because a type checker takes a str for
# one.
Texts = list[str] | tuple[str, ...]

# Methods of tasks that generate text.
_GENERATE = frozenset((
    "generate", "generate_stream", "chat", "chat_stream", "translate", "translate_stream",
    "sample_translations", "sample_translations_stream",
))  # fmt: skip

# What a run can be used for, by the method of its task.
_USES = {
    "generate": "to continue text: jaxformer generate {}",
    "chat": "to have messages answered: jaxformer generate {} --chat --prompt MESSAGE",
    "translate": "to translate: jaxformer translate {} TEXT",
    "fill_masks": "to fill in [MASK]: jaxformer predict {} TEXT",
    "classify": "to label texts: jaxformer predict {} TEXT",
}


def uses_of(task: Task | type[Task], folder: object) -> list[str]:
    """Lists what a run of a task in a folder can be used for, with the commands."""
    quoted = shlex.quote(str(folder))
    return [use.format(quoted) for name, use in _USES.items() if hasattr(task, name)]


@dataclasses.dataclass(frozen=True, repr=False)
class TrainedTask:
    """A task with trained parameters, and the methods that nearly all tasks have.

    Args:
        folder: the run folder.
        task: the task, with config and tokenizers.
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

    def require(self, *abilities: str, user: str = "") -> None:
        """Raises ConfigError unless the task has one of these methods.

        Args:
            *abilities: names of methods, such as "generate" or "translate".
            user: what calls them, for the message; the methods when not given.
        """
        if not any(hasattr(self.task, name) for name in abilities):
            tasks = [task for task in TASKS.values() if any(hasattr(task, a) for a in abilities)]
            kinds = [self.task.kind, *(task.kind for task in tasks)]
            kind, *able = (kind.partition(",")[0] for kind in kinds)
            needs = f"{user or ' or '.join(abilities)} needs {' or '.join(able)}"
            raise ConfigError(
                "; ".join([f"{self.folder} is {kind}", needs, *uses_of(self.task, self.folder)])
            )

    def _call(self, ability: str, *arguments: Any, **options: Any) -> Any:
        self.require(ability)
        if ability in _GENERATE:
            require_supported(self.task.decoding.unsupported)
        return getattr(self.task, ability)(self.params, *arguments, **options)

    def _call_for(self, texts: str | Texts, ability: str, **options: Any) -> Any:
        """Calls a method that takes several texts; for a single text, returns its result only."""
        if not isinstance(texts, str):
            return self._call(ability, texts, **options)
        self.require(ability)
        self.task.check_prompt(texts)  # its error names no index
        return self._call(ability, [texts], **options)[0]

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
        if hasattr(self.task, "translate"):  # it is scored by its translations
            require_supported(self.task.decoding.unsupported)
        validation = self.task.read_validation(list(map(str, data)))
        result = self.task.evaluate(self.params, validation, self.runner)
        counts = getattr(validation, "counts", None)  # of rows; some may be unusable
        read = () if counts is None else (str(counts),)
        return result._replace(details=(*read, *result.details))

    def sample(self, prompt: str, rng: jax.Array) -> str:
        """Shows the model's output for a prompt, with the settings of the config's samples."""
        return self.task.sample(self.params, prompt, rng)

    def encode(self, one: str) -> np.ndarray:
        """Encodes a text as the model reads it; for an encoder-decoder, a source and its end.

        Args:
            one: the text.

        Returns:
            Token ids, int32 [tokens].

        Raises:
            DataError: the text is empty or too long, or cannot be encoded.
        """
        return self.task.encode(one)

    def decode(self, ids: npt.ArrayLike) -> str:
        """Decodes token ids; for an encoder-decoder, of the target language.

        Args:
            ids: integers [tokens]; special tokens, such as the end of text, are skipped.

        Returns:
            The text.

        Raises:
            DataError: an id is not an integer, is negative, or is not in the vocabulary.
        """
        return self.task.decode(ids)

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
                unsupported generation settings; or the weights do not fit in memory.
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
        """Computes the model's hidden states, for example for embeddings of texts.

        Args:
            texts: list of texts. Padding in batches does not affect the result.

        Returns:
            float32 `[T, D]` for each text, after the final norm; for an encoder-decoder, those of
            the encoder, for a source and its end of text.

        Raises:
            DataError: a text is empty or too long, or cannot be encoded; the message has its index.
        """
        return self._call("hidden_states", texts)

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
        self.require("log_likelihood")
        if prompts is not None and len(prompts) != len(texts):
            raise ConfigError(
                f"there must be one prompt per text, got {len(prompts)} prompts and {len(texts)} "
                "texts"
            )
        return self._call("log_likelihood", texts, prompts=prompts)

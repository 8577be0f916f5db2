"""A trained run: opening its folder, and using its model."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jaxformer.config import BeamSearchConfig, ExperimentConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.models import AttentionMap
from jaxformer.runs import folder as files
from jaxformer.runs.classification import ClassificationTask, ClassScore
from jaxformer.runs.language_model import LanguageModelTask
from jaxformer.runs.masked import Fill, MaskedTask
from jaxformer.runs.task import LogLikelihood, Task
from jaxformer.runs.translation import Translation, TranslationTask
from jaxformer.training import Checkpoints, Evaluation, SingleRunner

__all__ = ["Run", "open_run", "task_class"]

# The built-in tasks, by the model's architecture and whether the data is a stream of text.
_TASKS: dict[tuple[str, bool], type[Task]] = {
    ("decoder", True): LanguageModelTask,
    ("encoder", True): MaskedTask,
    ("encoder", False): ClassificationTask,
    ("encoder_decoder", False): TranslationTask,
}


def task_class(config: ExperimentConfig) -> type[Task]:
    """Tells which built-in task a config means."""
    return _TASKS[config.model.architecture, config.data.is_stream]


@dataclasses.dataclass(frozen=True, repr=False)
class Run:
    """A trained run: what generation, translation, prediction and evaluation start from.

    A run can do what its task can; every other method raises ConfigError, which says what the run
    is, and what could.

    Args:
        folder: the run folder.
        task: what the model does, with its config and tokenizers.
        params: parameters of the checkpoint that was opened.
        step: of that checkpoint.
    """

    folder: pathlib.Path
    task: Task
    params: Any
    step: int

    def __repr__(self) -> str:
        return f"<Run of {type(self.task).__name__} in {self.folder}, step {self.step}>"

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
        return getattr(self.task, ability)(self.params, *arguments, **options)

    def evaluate(self, data: Sequence[str | pathlib.Path] | None = None) -> Evaluation:
        """Measures the model on one device.

        Args:
            data: files to read as the config's data is read: text files, or tables of pairs or of
                labelled texts; the run's own validation data when not given.

        Raises:
            CheckpointError: the run's validation data is missing or damaged.
            DataError: a file cannot be used.
        """
        if data is None:
            return self.task.evaluate(self.params, self.task.load_validation(self.folder))
        if isinstance(data, str | pathlib.Path):
            raise DataError(f"data must be a list of files, got {str(data)!r}; put it in []")
        validation = self.task.read_validation(list(map(str, data)))
        result = self.task.evaluate(self.params, validation)
        counts = getattr(validation, "counts", None)  # of rows, some of which may be unusable
        read = () if counts is None else (str(counts),)
        return result._replace(details=(*read, *result.details))

    def sample(self, prompt: str, rng: jax.Array) -> str:
        """Shows what the model makes of a prompt, as the config's samples say."""
        return self.task.sample(self.params, prompt, rng)

    def encode(self, one: str) -> np.ndarray:
        """Encodes a text as the model reads it: int32 [tokens].

        Raises:
            DataError: it is empty or too long, or cannot be encoded.
        """
        return self.task.encode(one)

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
            ConfigError: a target is given to a model that does not translate.
            DataError: a text is empty or too long, or cannot be encoded.
        """
        if target is None:
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

    def generate(
        self,
        prompt: str,
        *,
        rng: jax.Array,
        sampling: SamplingConfig | None = None,
        max_new_tokens: int | None = None,
    ) -> Iterator[str]:
        """Continues a text, piece by piece as it comes.

        Args:
            prompt: the text to continue; an empty one starts a new document, where the run was
                trained on windows of several.
            rng: PRNG key of the draws.
            sampling: how tokens are chosen; as the model says when not given.
            max_new_tokens: longest continuation; what fits the context when not given.

        Returns:
            An iterator over the continuation, without the prompt.

        Raises:
            DataError: the prompt is empty or too long, or cannot be encoded.
        """
        return self._call(
            "generate", prompt, rng=rng, sampling=sampling, max_new_tokens=max_new_tokens
        )

    def translate(
        self, sentences: Sequence[str], *, search: BeamSearchConfig | None = None
    ) -> list[list[Translation]]:
        """Translates sentences by beam search, each as it would be alone.

        Args:
            sentences: any number.
            search: options of the search; those of the config when not given.

        Returns:
            For every sentence its best translations, best first.

        Raises:
            DataError: a sentence is empty or too long, or cannot be encoded.
        """
        return self._call("translate", sentences, search)

    def translate_stream(
        self, sentences: Sequence[str], *, search: BeamSearchConfig | None = None
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Translates as `translate` does, yielding (index, translations) as they are done."""
        return self._call("translate_stream", sentences, search)

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
        return self._call("sample_translations", sentences, rng=rng, sampling=sampling)

    def fill_masks(self, prompts: Sequence[str], num_best: int = 5) -> list[list[list[Fill]]]:
        """Predicts what stands where texts have [MASK].

        Args:
            prompts: texts with at least one [MASK], each of which stands for one token.
            num_best: how many tokens to return for each; all, where there are fewer.

        Returns:
            For every text and every mask in it, the likeliest tokens, best first. Each mask is
            predicted with the others masked.

        Raises:
            DataError: a text has no [MASK], or is too long, or num_best is not positive.
        """
        return self._call("fill_masks", prompts, num_best)

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
        return self._call("classify", texts, num_best)


def open_run(
    path: str | pathlib.Path, step: int | None = None, *, task: type[Task] | None = None
) -> Run:
    """Opens a run folder.

    Args:
        path: of the folder.
        step: which checkpoint; the one with the lowest validation loss when not given.
        task: that the run was trained with; the built-in one that its config means when not given.

    Returns:
        The run.

    Raises:
        CheckpointError: the path is no run folder, or has no such checkpoint.
    """
    folder = pathlib.Path(path)
    config = files.read_run_config(folder)
    opened = (task_class(config) if task is None else task).load(folder, config)
    with Checkpoints(folder / files.CHECKPOINTS, read_only=True) as checkpoints:
        chosen = checkpoints.best_step if step is None else step
        shapes = jax.eval_shape(lambda: opened.draw_params(jax.random.key(0)))
        params = checkpoints.restore_params(SingleRunner().template(shapes), chosen)
    assert chosen is not None  # else restore_params has raised
    return Run(folder, opened, params, chosen)

"""What a run does: its data, its model and loss, and what the model is used for."""

import abc
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import linen as nn

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.modules import LayerExecution, layer_execution
from jaxformer.runs.data_summary import DataSummary, load_summary
from jaxformer.runs.data_view import ViewedTask
from jaxformer.runs.decoding_tokens import DecodingTokens
from jaxformer.runs.forward import hidden_states
from jaxformer.runs.prepare import cache_dir, encode_each, fill_vocab_size, train_tokenizer
from jaxformer.runs.special_tokens import load_decoding, load_tokenizers, save_tokenizers
from jaxformer.runs.task_values import LossLabels, Split
from jaxformer.runs.word_vectors import StartVectors
from jaxformer.training import Evaluation, SingleRunner, TrainingData, evaluate, make_eval_step
from jaxformer.training.data import BatchSource
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner

__all__ = ["Task"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Task(ViewedTask, abc.ABC):
    """What a run does. A task of one's own is a subclass of this or of one below it.

    `prepare` makes one from a config before training, `load` from a run folder. The built-in tasks
    are subclasses of `StreamTask` (documents, cut into windows) and `TableTask` (rows of text, such
    as pairs), each of which leaves a few methods to write. To change one of them, override what is
    different: `read` for another source of its data, `model` for another model.

    A method that only some tasks have, such as `generate`, `translate` or `classify`, takes the
    parameters first; the run's method of that name passes them.

    Attributes:
        kind: what the model is, in words, for messages.
        unit: what the model predicts, and its loss is the mean over.
        behind_prompt: what is between a prompt and what the model writes, where both are shown.

    Args:
        config: the experiment, all that the data decides filled in.
        tokenizers: one; or that of the sources and that of the targets, which may be the same.
        decoding: tokens that the model is decoded with, where they are not jaxformer's own.
        summary: what the run folder remembers of the training data.
        report: what became of the data, a line each.
        vectors: what the embeddings start from.
        train: encoded training data; None in a run that was opened.
        validation: encoded validation data, likewise.
        split: what `read` has returned, before training; None once it begins, and in a run that
            was opened.
    """

    config: ExperimentConfig
    tokenizers: tuple[text.Tokenizer, ...]
    decoding: DecodingTokens = DecodingTokens()
    summary: DataSummary = DataSummary()
    report: tuple[str, ...] = ()
    vectors: StartVectors = StartVectors(None, ())
    train: Any = None
    validation: Any = None
    split: Split | None = None

    kind: ClassVar[str] = "a task of its own"
    unit: ClassVar[str] = "token"
    behind_prompt: ClassVar[str] = ""

    @classmethod
    def prepare(cls, config: ExperimentConfig, folder: pathlib.Path | None = None) -> Self:
        """Reads the data, makes tokenizers, and fills in what the data decides.

        Args:
            config: the experiment.
            folder: run folder whose tokenizers are reused, that of the run to resume or to start
                from; None for new ones.

        Returns:
            The task before the first step.

        Raises:
            ConfigError: the config is impossible with this data, or the class lacks a method.
            DataError: the data cannot be used, or a prompt of the samples does not fit.
        """
        cls._require_complete()
        data = cls.read(config)
        decoding = DecodingTokens()
        if folder is None:
            tokenizers = cls.make_tokenizers(config, data)
        else:
            tokenizers = cls.load_tokenizers(config, folder)
            decoding = load_decoding(folder)
        config = cls.with_vocab_sizes(config, tokenizers)
        vectors, config = StartVectors.read(config, tokenizers[0])
        start = cls(config=config, tokenizers=tokenizers, decoding=decoding, vectors=vectors)
        task = start.with_data(data)
        for prompt in task.config.samples.prompts:
            try:
                task.check_prompt(prompt)
            except DataError as error:
                raise DataError(f"samples.prompts has {prompt!r}: {error}") from None
        return dataclasses.replace(task, report=(*task.report, *vectors.report), split=data)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Reads from a run folder what `save` has written there, but for the validation data."""
        cls._require_complete()
        tokenizers = cls.load_tokenizers(config, folder)
        return cls(
            config=cls.with_vocab_sizes(config, tokenizers), tokenizers=tokenizers,
            decoding=load_decoding(folder), summary=load_summary(folder),
        )  # fmt: skip

    @classmethod
    def _require_complete(cls) -> None:
        """Raises ConfigError where a subclass has left out a method that a task needs."""
        if cls.__abstractmethods__:
            raise ConfigError(
                f"the task {cls.__name__} must have every method of a task, got none for "
                f"{', '.join(sorted(cls.__abstractmethods__))}; write it"
            )

    # What a subclass must say of its data.

    @classmethod
    @abc.abstractmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads training and validation data, as the config says. Override it for another source.

        Raises:
            ConfigError: the config does not say where the data is.
            DataError: the data cannot be used.
        """

    @classmethod
    @abc.abstractmethod
    def training_texts(cls, split: Split) -> tuple[Sequence[str], Sequence[str]]:
        """Training and validation texts that a tokenizer is trained on."""

    @abc.abstractmethod
    def with_data(self, data: Split) -> Self:
        """Encodes what `read` has returned, and fills in the summary, the report and prompts."""

    @abc.abstractmethod
    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes the training batches, for as many devices and hosts as the runner has."""

    @abc.abstractmethod
    def evaluation_data(self, validation: Any, runner: Runner) -> TrainingData:
        """Makes the batches of encoded validation data, and the scores; no training batches."""

    @abc.abstractmethod
    def load_validation(self, folder: pathlib.Path) -> Any:
        """Reads the validation data of a run folder, and encodes it."""

    @abc.abstractmethod
    def read_validation(self, paths: Sequence[str]) -> Any:
        """Reads files as the config's data is read, and encodes them."""

    # What a subclass must say of its model.

    @property
    @abc.abstractmethod
    def model(self) -> nn.Module:
        """The Flax module, the same for training and use: override it to change the model."""

    @abc.abstractmethod
    def loss(self, label_smoothing: float) -> LossFunction:
        """Makes the loss of the model: (params, batch, dropout_rng) to (loss_sum, weight_sum)."""

    @abc.abstractmethod
    def sample(self, params: Any, prompt: str, rng: jax.Array) -> str:
        """Shows what the model makes of a prompt, as the config's samples say."""

    # What follows from it.

    @property
    def tokenizer(self) -> text.Tokenizer:
        """The one tokenizer; that of the targets where there are two."""
        return self.tokenizers[-1]

    @property
    def execution(self) -> LayerExecution:
        """How the model's layers run, and why."""
        return layer_execution(self.config.model)

    @property
    def max_len(self) -> int:
        """The most tokens that the model reads at a time."""
        return self.config.model.max_len

    @classmethod
    def make_tokenizers(cls, config: ExperimentConfig, data: Split) -> tuple[text.Tokenizer, ...]:
        """Trains the tokenizers of a new run."""
        texts, added = cls.training_texts(data), cls.added_tokens(config)
        return (train_tokenizer(config.tokenizer, *texts, cache_dir(config.data), added),)

    @classmethod
    def added_tokens(cls, config: ExperimentConfig) -> tuple[str, ...]:
        """Special tokens that the tokenizer has beside the end of text, such as a mask."""
        return ()

    @classmethod
    def load_tokenizers(
        cls, config: ExperimentConfig, folder: pathlib.Path
    ) -> tuple[text.Tokenizer, ...]:
        """Reads the tokenizers of a run folder."""
        return load_tokenizers(folder)[1:]

    @classmethod
    def with_vocab_sizes(
        cls, config: ExperimentConfig, tokenizers: tuple[text.Tokenizer, ...]
    ) -> ExperimentConfig:
        """Fills in the number of tokens, or checks that it is enough."""
        size = fill_vocab_size("vocab_size", config.model, tokenizers[-1])
        return dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=size))

    def with_prompts(self, prompts: Sequence[str]) -> ExperimentConfig:
        """The config with these prompts, where it has none of its own."""
        samples = self.config.samples
        chosen = samples.prompts or tuple(prompts)
        return dataclasses.replace(
            self.config, samples=dataclasses.replace(samples, prompts=chosen)
        )

    def save(self, folder: pathlib.Path) -> None:
        """Writes into a new run folder what opening it needs: tokenizers and validation data."""
        save_tokenizers(folder, self.tokenizers, self.decoding)

    @property
    def init_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shapes and dtypes of inputs that parameters are drawn for: `[1, 2]` tokens.

        Override it where the model is called with others.
        """
        return (jax.ShapeDtypeStruct((1, min(2, self.max_len)), jnp.int32),)

    def draw_params(self, rng: jax.Array) -> Any:
        """Draws the model's parameters."""
        inputs = [jnp.zeros(each.shape, each.dtype) for each in self.init_inputs]
        return self.model.init(rng, *inputs)["params"]

    @property
    def embedding_path(self) -> tuple[str, ...]:
        """Where among the parameters the embedding is that word vectors are for."""
        return ("embedding",)

    def init_params(self, rng: jax.Array) -> Any:
        """Makes the parameters that training starts from, pretrained word vectors included."""
        return self.vectors.put_into(self.draw_params(rng), self.embedding_path)

    def training_data(self, runner: Runner) -> TrainingData:
        """Makes training and validation batches, for as many devices as the runner has."""
        data = self.evaluation_data(self.validation, runner)
        return data._replace(batches=self.training_batches(runner))

    def evaluate(self, params: Any, validation: Any, runner: Runner | None = None) -> Evaluation:
        """Measures the loss and the scores on encoded validation data.

        Args:
            params: parameters.
            validation: as `load_validation` or `read_validation` gives it.
            runner: of the devices that the parameters are on; of one device when not given.
        """
        runner = runner or SingleRunner()
        data = self.evaluation_data(validation, runner)
        assert data.validation is not None
        eval_step = runner.compile_eval(make_eval_step(self.loss(0.0)))
        result = evaluate(eval_step, params, data.validation(), data.validation_bytes, data.unit)
        if data.scores is None:
            return result
        return result._replace(scores={**result.scores, **data.scores(params)})

    @classmethod
    def loss_labels(cls, config: ExperimentConfig) -> LossLabels:
        """What the losses of a run of this task are."""
        parts = {
            "dropout": config.model.dropout_rate,
            "label smoothing": config.training.label_smoothing,
        }
        mixed_in = " and ".join(name for name, rate in parts.items() if rate)
        return LossLabels(cls.unit, f"training (with {mixed_in})" if mixed_in else "training")

    def encode(self, one: str) -> np.ndarray:
        """Encodes one text as the model reads it: int32 [tokens].

        Raises:
            DataError: it is empty or too long, or cannot be encoded.
        """
        ids, special = self.tokenizer.encode(one.strip()), self.tokenizer.surrounding_tokens
        return self.surrounded(ids, special, one)

    def decode(self, ids: npt.ArrayLike) -> str:
        """Decodes tokens: the text, without special tokens; the targets', where there are two.

        Raises:
            DataError: an id is no integer, negative, or not in the vocabulary.
        """
        return self.tokenizer.decode(ids)

    def surrounded(self, ids: np.ndarray, special: text.SurroundingTokens, one: str) -> np.ndarray:
        """Tokens of a text with the special ones around them; DataError for none or too many."""
        ids = special.around(ids) if ids.size else ids
        if not 1 <= ids.size <= self.max_len:
            start = one if len(one) <= 20 else f"{one[:20]}..."
            raise DataError(
                f"a text must have 1 to max_len={self.max_len} tokens, got {ids.size} for "
                f"{start!r}; " + ("shorten it" if ids.size else "write one")
            )
        return ids

    def check_prompt(self, prompt: str) -> None:
        """Raises DataError where `sample` would."""
        self.encode(prompt)

    @staticmethod
    def read_hidden(model: Any, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        """Hidden states of tokens: integer `[B, T]` and `[B]` to float `[B, T, D]`."""
        return model(tokens, lengths=lengths).hidden

    def hidden_states(self, params: Any, texts: Sequence[str]) -> list[np.ndarray]:
        """Computes the model's hidden states of texts: float32 `[T, D]` of each.

        Raises:
            DataError: a text is empty or too long, or cannot be encoded; with its index.
        """
        encoded = encode_each(texts, self.encode)
        return hidden_states(self.model, self.read_hidden, params, encoded, self.max_len)

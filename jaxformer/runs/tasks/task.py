"""Tasks: the data, model and loss of a run, and what you can do with it."""

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
from jaxformer.interop import SpecialTokens
from jaxformer.modules import LayerExecution, layer_execution
from jaxformer.runs.data.prepare import cache_dir, encode_each, fill_vocab_size, train_tokenizer
from jaxformer.runs.data.summary import DataSummary, load_summary
from jaxformer.runs.data.values import LossLabels, Split
from jaxformer.runs.data.view import ViewedTask
from jaxformer.runs.data.word_vectors import StartVectors
from jaxformer.runs.folder.tokenizers import load_tokenizers, save_tokenizers
from jaxformer.runs.tasks.forward import hidden_states
from jaxformer.training import Evaluation, SingleRunner, TrainingData, evaluate, make_eval_step
from jaxformer.training.data import BatchSource
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner

__all__ = ["Task"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Task(ViewedTask, abc.ABC):
    """The data, model and loss of a run. Write your own task as a subclass.

    `prepare` makes a task from a config before training; `load` makes one from a run folder. The
    built-in tasks are subclasses of `StreamTask` (documents, cut into windows) and `TableTask`
    (rows of text, such as pairs). Both leave only a few methods to write. To change a task,
    override what differs: `read` for another data source, `model` for another model.

    Methods that only some tasks have, such as `generate`, `translate` or `classify`, take the
    parameters first. The method of the same name of `Run` passes them.

    Attributes:
        kind: the kind of model, in words, for messages.
        unit: what the model predicts; the loss is a mean over these.
        behind_prompt: text shown between a prompt and the model's continuation.
        num_tokenizers: 1, or 2 if sources and targets have their own.

    Args:
        config: the experiment, completed with what the data decides.
        tokenizers: one tokenizer; or those of sources and targets, which may be the same.
        decoding: special tokens of a model made elsewhere, whose settings of sampling and search
            are in the config; the defaults are those of models made here.
        summary: summary of the training data, stored in the run folder.
        report: lines about the data, for the user.
        vectors: pretrained word vectors for the embeddings.
        train: encoded training data; None in an opened run.
        validation: encoded validation data; None in an opened run.
        split: result of `read`; None once training begins, and in an opened run.
    """

    config: ExperimentConfig
    tokenizers: tuple[text.Tokenizer, ...]
    decoding: SpecialTokens = SpecialTokens()
    summary: DataSummary = DataSummary()
    report: tuple[str, ...] = ()
    vectors: StartVectors = StartVectors(None, ())
    train: Any = None
    validation: Any = None
    split: Split | None = None

    kind: ClassVar[str] = "a custom task"
    unit: ClassVar[str] = "token"
    behind_prompt: ClassVar[str] = ""
    num_tokenizers: ClassVar[int] = 1

    @classmethod
    def prepare(cls, config: ExperimentConfig, start: "Task | None" = None) -> Self:
        """Reads the data, makes tokenizers, and completes the config with what the data decides.

        Args:
            config: the experiment.
            start: task of the run to resume, or of the model to start from; its tokenizers are
                reused. None for new tokenizers.

        Returns:
            The task, ready to train.

        Raises:
            ConfigError: the config is impossible with this data, or the class lacks a method.
            DataError: the data cannot be used, or a prompt of the samples does not fit.
        """
        cls._require_complete()
        data = cls.read(config)
        tokenizers = cls.make_tokenizers(config, data) if start is None else start.tokenizers
        decoding = SpecialTokens() if start is None else start.decoding
        config = cls.with_vocab_sizes(config, tokenizers)
        vectors, config = StartVectors.read(config, tokenizers[0])
        made = cls(config=config, tokenizers=tokenizers, decoding=decoding, vectors=vectors)
        task = made.with_data(data)
        for prompt in task.config.samples.prompts:
            try:
                task.check_prompt(prompt)
            except DataError as error:
                raise DataError(f"samples.prompts has {prompt!r}: {error}") from None
        return dataclasses.replace(task, report=(*task.report, *vectors.report), split=data)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Loads what `save` has written to a run folder, except the validation data."""
        cls._require_complete()
        both, decoding = load_tokenizers(folder)
        tokenizers = both[-cls.num_tokenizers :]
        return cls(
            config=cls.with_vocab_sizes(config, tokenizers), tokenizers=tokenizers,
            decoding=decoding, summary=load_summary(folder),
        )  # fmt: skip

    @classmethod
    def _require_complete(cls) -> None:
        """Raises ConfigError if a subclass lacks a method that a task needs."""
        if cls.__abstractmethods__:
            raise ConfigError(
                f"the task {cls.__name__} must have every method of a task, got none for "
                f"{', '.join(sorted(cls.__abstractmethods__))}; write it"
            )

    # Data: a subclass must define these.

    @classmethod
    @abc.abstractmethod
    def read(cls, config: ExperimentConfig) -> Split:
        """Reads training and validation data. Override it for another source.

        Raises:
            ConfigError: the config does not say where the data is.
            DataError: the data cannot be used.
        """

    @classmethod
    @abc.abstractmethod
    def training_texts(cls, split: Split) -> tuple[Sequence[str], Sequence[str]]:
        """Training and validation texts for training a tokenizer."""

    @abc.abstractmethod
    def with_data(self, data: Split) -> Self:
        """Encodes the result of `read`, and fills in summary, report and prompts."""

    @abc.abstractmethod
    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes the training batches, for the devices and hosts of the runner."""

    @abc.abstractmethod
    def evaluation_data(self, validation: Any, runner: Runner) -> TrainingData:
        """Makes validation batches and scores, without training batches."""

    @abc.abstractmethod
    def load_validation(self, folder: pathlib.Path) -> Any:
        """Reads and encodes the validation data of a run folder."""

    @abc.abstractmethod
    def read_validation(self, paths: Sequence[str]) -> Any:
        """Reads files in the same way as the config's data, and encodes them."""

    # Model: a subclass must define these.

    @property
    @abc.abstractmethod
    def model(self) -> nn.Module:
        """The Flax module, for training and use. Override it to change the model."""

    @abc.abstractmethod
    def loss(self, label_smoothing: float) -> LossFunction:
        """Makes the loss of the model: (params, batch, dropout_rng) to (loss_sum, weight_sum)."""

    @abc.abstractmethod
    def sample(self, params: Any, prompt: str, rng: jax.Array) -> str:
        """Shows the model's output for a prompt, with the settings of the config's samples."""

    # The rest follows from these.

    @property
    def tokenizer(self) -> text.Tokenizer:
        """The tokenizer; that of the targets if there are two."""
        return self.tokenizers[-1]

    @property
    def execution(self) -> LayerExecution:
        """How the model's layers run (scan or loop), and why."""
        return layer_execution(self.config.model)

    @property
    def max_len(self) -> int:
        """Largest number of tokens that the model reads at once."""
        return self.config.model.max_len

    @classmethod
    def make_tokenizers(cls, config: ExperimentConfig, data: Split) -> tuple[text.Tokenizer, ...]:
        """Trains the tokenizers of a new run."""
        texts, added = cls.training_texts(data), cls.added_tokens(config)
        return (train_tokenizer(config.tokenizer, *texts, cache_dir(config.data), added),)

    @classmethod
    def added_tokens(cls, config: ExperimentConfig) -> tuple[str, ...]:
        """Special tokens besides the end of text, such as a mask."""
        return ()

    @classmethod
    def with_vocab_sizes(
        cls, config: ExperimentConfig, tokenizers: tuple[text.Tokenizer, ...]
    ) -> ExperimentConfig:
        """Fills in the vocabulary size, or checks that it is large enough."""
        size = fill_vocab_size("vocab_size", config.model, tokenizers[-1])
        return dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=size))

    def with_prompts(self, prompts: Sequence[str]) -> ExperimentConfig:
        """The config, with these prompts if it has none."""
        samples = self.config.samples
        chosen = samples.prompts or tuple(prompts)
        return dataclasses.replace(
            self.config, samples=dataclasses.replace(samples, prompts=chosen)
        )

    def save(self, folder: pathlib.Path) -> None:
        """Writes what opening a run needs into its folder: tokenizers and validation data."""
        save_tokenizers(folder, self.tokenizers, self.decoding)

    @property
    def init_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shapes and dtypes of inputs for initialization: `[1, 2]` tokens.

        Override it if your model takes other inputs.
        """
        return (jax.ShapeDtypeStruct((1, min(2, self.max_len)), jnp.int32),)

    def draw_params(self, rng: jax.Array) -> Any:
        """Initializes the model's parameters."""
        inputs = [jnp.zeros(each.shape, each.dtype) for each in self.init_inputs]
        return self.model.init(rng, *inputs)["params"]

    @property
    def embedding_path(self) -> tuple[str, ...]:
        """Path of the embedding that word vectors go to, in the parameters."""
        return ("embedding",)

    def init_params(self, rng: jax.Array) -> Any:
        """Initial parameters of training, including pretrained word vectors."""
        return self.vectors.put_into(self.draw_params(rng), self.embedding_path)

    def training_data(self, runner: Runner) -> TrainingData:
        """Makes training and validation batches, for the devices of the runner."""
        data = self.evaluation_data(self.validation, runner)
        return data._replace(batches=self.training_batches(runner))

    def evaluate(self, params: Any, validation: Any, runner: Runner | None = None) -> Evaluation:
        """Measures the loss and the scores on encoded validation data.

        Args:
            params: parameters.
            validation: result of `load_validation` or `read_validation`.
            runner: runner for the devices that hold the parameters; default: one device.
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
        """Labels for the losses of a run of this task."""
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
        """Decodes tokens (of the targets, if there are two tokenizers); skips special tokens.

        Raises:
            DataError: an id is not an integer, is negative, or is not in the vocabulary.
        """
        return self.tokenizer.decode(ids)

    def surrounded(self, ids: np.ndarray, special: text.SurroundingTokens, one: str) -> np.ndarray:
        """Tokens of a text with special tokens around them; DataError for none or too many."""
        ids = special.around(ids) if ids.size else ids
        if not 1 <= ids.size <= self.max_len:
            start = one if len(one) <= 20 else f"{one[:20]}..."
            raise DataError(
                f"a text must have 1 to max_len={self.max_len} tokens, got {ids.size} for "
                f"{start!r}; " + ("shorten it" if ids.size else "write some text")
            )
        return ids

    def check_prompt(self, prompt: str) -> None:
        """Raises DataError if `sample` would."""
        self.encode(prompt)

    @staticmethod
    def read_hidden(model: Any, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        """Hidden states of tokens: integer `[B, T]` and `[B]` to float `[B, T, D]`."""
        return model(tokens, lengths=lengths).hidden

    def hidden_states(self, params: Any, texts: Sequence[str]) -> list[np.ndarray]:
        """Computes the hidden states of texts: float32 `[T, D]` for each.

        Raises:
            DataError: a text is empty or too long, or cannot be encoded; the message has its index.
        """
        encoded = encode_each(texts, self.encode)
        return hidden_states(self.model, self.read_hidden, params, encoded, self.max_len)

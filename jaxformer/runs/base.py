"""What every kind of run has: its task while it is trained, itself when it is opened."""

import abc
import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from jaxformer import run_folder, text
from jaxformer.config import ExperimentConfig, TokenizerConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.word_vectors import StartVectors
from jaxformer.training import Evaluation, SingleRunner, TrainingData, evaluate, make_eval_step
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner
from jaxformer.viz import AttentionMap

__all__ = [
    "PreparedRun",
    "Run",
    "check_samples",
    "evaluate_on_one_device",
    "fingerprint",
    "fitting_vocab_size",
    "validation_buckets",
    "spread",
    "train_tokenizer",
    "training_buckets",
]


Example = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedRun(abc.ABC):
    """A run before its first step: its text read, its tokenizers made, its config filled in.

    Args:
        config: the experiment, all that the data decides filled in.
        vectors: what the embeddings start from.
        summary: what the run folder remembers of the data.
        report: what became of the data, a line each.
    """

    config: ExperimentConfig
    vectors: StartVectors
    summary: run_folder.DataSummary
    report: tuple[str, ...]

    @property
    def embedding_path(self) -> tuple[str, ...]:
        """Where among the parameters the embedding is that vectors are for."""
        return ("embedding",)

    @abc.abstractmethod
    def write(self, folder: pathlib.Path) -> None:
        """Writes into a new run folder what opening it needs: tokenizers and validation data."""

    @abc.abstractmethod
    def training_data(self, runner: Runner) -> TrainingData:
        """Makes the batches, for as many devices and hosts as the runner has."""

    @abc.abstractmethod
    def loss(self, label_smoothing: float) -> LossFunction:
        """Makes the model's loss."""

    @abc.abstractmethod
    def draw_params(self, rng: jax.Array) -> Any:
        """Draws the model's parameters."""

    def losses(self) -> tuple[LossFunction, LossFunction]:
        """Makes the loss to train with, and that of the validation data."""
        return self.loss(self.config.training.label_smoothing), self.loss(0.0)

    def init_params(self, rng: jax.Array) -> Any:
        """Makes the parameters that training starts from."""
        return self.vectors.put_into(self.draw_params(rng), self.embedding_path)


@dataclasses.dataclass(frozen=True)
class Run(abc.ABC):
    """A trained run: what generation, translation, prediction and evaluation start from.

    Args:
        folder: the run folder.
        config: the experiment, all that the text decides filled in.
        params: parameters of the checkpoint that was opened.
        step: of that checkpoint.
    """

    folder: pathlib.Path
    config: ExperimentConfig
    params: Any
    step: int

    kind: ClassVar[str]
    """What the model is, in words."""

    unit: ClassVar[str] = "token"
    """What the model predicts, and its loss is the mean over."""

    @classmethod
    @abc.abstractmethod
    def open(cls, folder: pathlib.Path, config: ExperimentConfig, params: Any, step: int) -> "Run":
        """Reads what else the run folder has."""

    @abc.abstractmethod
    def evaluate(self) -> Evaluation:
        """Measures the model on the run's validation data, on one device."""

    @abc.abstractmethod
    def sample(self, prompt: str, rng: jax.Array) -> str:
        """Shows what the model makes of a prompt, as the config's samples say."""

    @abc.abstractmethod
    def attention(self, prompt: str) -> list[AttentionMap]:
        """Computes where each token of a text looks, in every layer and head.

        Args:
            prompt: the text, encoded as for training.

        Returns:
            A map for each kind of attention that the model has, for `viz.attention_page`.

        Raises:
            DataError: the text is empty or too long, or cannot be encoded.
        """


def check_samples(prompts: Iterable[str], check: Callable[[str], Any]) -> None:
    """Raises before the first step what showing the samples would raise at the end.

    Args:
        prompts: of the config's samples.
        check: raises DataError for a text that cannot be used.
    """
    for prompt in prompts:
        try:
            check(prompt)
        except DataError as error:
            raise DataError(f"samples.prompts has {prompt!r}: {error}") from None


def evaluate_on_one_device(loss: LossFunction, params: Any, data: TrainingData) -> Evaluation:
    """Measures the validation loss and the scores."""
    eval_step = SingleRunner().compile_eval(make_eval_step(loss))
    assert data.validation is not None
    result = evaluate(eval_step, params, data.validation(), data.validation_bytes, data.unit)
    return result if data.scores is None else result._replace(scores=data.scores(params))


def train_tokenizer(
    config: TokenizerConfig, train_text: Sequence[str], validation_text: Sequence[str]
) -> text.Tokenizer:
    """Trains on the training text; characters are taken from all, since none may be unknown."""
    if config.kind == "byte":
        return text.byte_tokenizer()
    if config.kind == "character":
        return text.train_character([*train_text, *validation_text])
    if config.kind == "word":
        return text.train_word(train_text, config.vocab_size)
    assert config.vocab_size is not None  # the config requires it
    return text.train_bpe(train_text, config.vocab_size)


def fitting_vocab_size(name: str, wanted: int | None, tokenizer: text.Tokenizer) -> int:
    """Fills in the number of tokens of a model, or checks that it is enough.

    Args:
        name: of the config's key.
        wanted: its value.
        tokenizer: whose tokens they are.

    Raises:
        ConfigError: the tokenizer has more.
    """
    if wanted is None:
        return tokenizer.vocab_size
    if wanted < tokenizer.vocab_size:
        raise ConfigError(
            f"{name} must be at least the tokenizer's {tokenizer.vocab_size}, got {wanted}; raise "
            "it, or remove it to take the tokenizer's"
        )
    return wanted


def fingerprint(*parts: Iterable[str]) -> str:
    """SHA-256 of the texts, so that a run is not continued on others."""
    digest = hashlib.sha256()
    for index, texts in enumerate(parts):
        for document in (*(("\0",) if index else ()), *texts):
            digest.update(hashlib.sha256(document.encode()).digest())
    return digest.hexdigest()


def spread(texts: Sequence[str], count: int) -> tuple[str, ...]:
    """Picks texts from all over a sequence, to be shown; all, if there are few."""
    chosen = min(count, len(texts))
    return tuple(texts[i * len(texts) // chosen] for i in range(chosen))


def training_buckets(
    config: ExperimentConfig, runner: Runner, examples: list[Example]
) -> text.BucketedBatches:
    """Makes the batches of examples of unequal length to train on."""
    training = config.training
    assert training.batch_tokens is not None  # the config requires it of these
    return text.BucketedBatches(
        examples,
        batch_tokens=training.batch_tokens,
        seed=config.seed,
        multiple_of=runner.num_devices * training.accumulate_steps,
        num_buckets=config.data.num_buckets,
        host=runner.host,
    )


def validation_buckets(
    config: ExperimentConfig, examples: list[Example], runner: Runner | None = None
) -> Callable[[], Iterator[Example]]:
    """Makes what iterates over validation examples, on all devices or one.

    A batch has the tokens of a micro-batch, which are known to fit in memory, or one example for
    each device, where that is more.
    """
    training = config.training
    assert training.batch_tokens is not None  # the config requires it of these
    devices = 1 if runner is None else runner.num_devices
    longest = max(array.size for example in examples for array in example.values())
    batches = functools.partial(
        text.bucketed_evaluation_batches,
        examples,
        batch_tokens=max(training.batch_tokens // training.accumulate_steps, longest * devices),
        num_buckets=config.data.num_buckets,
        multiple_of=devices,
        host=text.Host() if runner is None else runner.host,
    )
    batches()  # raises now what would be raised at the first evaluation
    return batches

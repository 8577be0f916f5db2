"""A model with its tokenizers: its loss, and what you can do with it."""

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
from jaxformer.runs.data.prepare import (
    encode_each,
    fill_vocab_size,
    train_tokenizer,
    within_tables,
)
from jaxformer.runs.data.values import LossLabels
from jaxformer.runs.folder.tokenizers import load_tokenizers, save_tokenizers
from jaxformer.runs.text_models.forward import hidden_states
from jaxformer.training.losses import LossFunction


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TextModel(abc.ABC):
    """A model with its tokenizers. Write your own as a subclass.

    Three members are left to write: `module`, `loss` and `sample`. To change a built-in model, such
    as `CausalModel`, override what differs. Methods that only some models have, such as `generate`,
    `translate` or `classify`, take the parameters first; for the built-in models that have them,
    and their subclasses, the method of the same name of `Run` passes them. Methods of your own are
    called as `run.model.method(run.params)`.

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
    """

    config: ExperimentConfig
    tokenizers: tuple[text.Tokenizer, ...]
    decoding: SpecialTokens = SpecialTokens()

    kind: ClassVar[str] = "a custom model"
    unit: ClassVar[str] = "token"
    behind_prompt: ClassVar[str] = ""
    num_tokenizers: ClassVar[int] = 1

    # A subclass must define these.

    @property
    @abc.abstractmethod
    def module(self) -> nn.Module:
        """The Flax module, for training and use."""

    @abc.abstractmethod
    def loss(self, label_smoothing: float) -> LossFunction:
        """Makes the loss of the model: (params, batch, dropout_rng) to (loss_sum, weight_sum)."""

    @abc.abstractmethod
    def sample(self, params: Any, prompt: str, rng: jax.Array) -> str:
        """Shows the model's output for a prompt, with the settings of the config's samples."""

    # The rest follows from these.

    @classmethod
    def create(cls, config: ExperimentConfig, tokenizers: tuple[text.Tokenizer, ...]) -> Self:
        """Makes the model of a new run."""
        return cls(config=cls.with_vocab_sizes(config, tokenizers), tokenizers=tokenizers)

    @classmethod
    def without_data(cls, config: ExperimentConfig) -> Self:
        """Makes the model that a plan describes, before its data is read.

        An unknown vocabulary has its largest size. There are no tokenizers, so that only `module`,
        `loss` and shapes work. Override this if your model has fields without defaults.

        Raises:
            ConfigError: a size depends on the data; the message names the flag that sets it.
        """
        size = cls.most_tokens(config, "vocab_size")
        model = dataclasses.replace(config.model, vocab_size=size)
        return cls(config=dataclasses.replace(config, model=model), tokenizers=())

    @classmethod
    def most_tokens(cls, config: ExperimentConfig, key: str) -> int:
        """Largest size of a vocabulary that data can lead to; `key` is that of the config."""
        size: int | None = getattr(config.model, key)
        if size is not None:
            return size
        tokenizer = config.tokenizer
        if tokenizer.most_tokens is not None:
            return tokenizer.most_tokens
        if tokenizer.kind == "byte" or tokenizer.path is not None:  # not trained
            added = cls.added_tokens(config)
            return train_tokenizer(tokenizer, (), (), None, added).vocab_size
        flag = f"--model.{key.replace('_', '-')} 256"
        raise needs_flag(f"the vocabulary of a {tokenizer.kind} tokenizer", flag)

    def started_from(self, start: "TextModel") -> Self:
        """The model, with what it keeps of the one that it resumes or starts from."""
        return dataclasses.replace(self, decoding=start.decoding)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Loads what `save` has written to a run folder."""
        both, decoding = load_tokenizers(folder)
        tokenizers = both[-cls.num_tokenizers :]
        if config.tokenizer.kind == "pretrained":
            tokenizers = within_tables(tokenizers, config.model)
        config = cls.with_vocab_sizes(config, tokenizers)
        return cls(config=config, tokenizers=tokenizers, decoding=decoding)

    def save(self, folder: pathlib.Path) -> None:
        """Writes what opening it needs, besides parameters, into a run folder."""
        save_tokenizers(folder, self.tokenizers, self.decoding)

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

    @classmethod
    def loss_labels(cls, config: ExperimentConfig) -> LossLabels:
        """Labels for the losses of a run of this model."""
        parts = {
            "dropout": config.model.dropout_rate,
            "label smoothing": config.training.label_smoothing,
        }
        mixed_in = " and ".join(name for name, rate in parts.items() if rate)
        return LossLabels(cls.unit, f"training (with {mixed_in})" if mixed_in else "training")

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

    @property
    def init_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shapes and dtypes of inputs for initialization: `[1, 2]` tokens.

        Override it if your module takes other inputs.
        """
        return (jax.ShapeDtypeStruct((1, min(2, self.max_len)), jnp.int32),)

    def batch_shapes(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and dtypes of the arrays of a training batch, with rows of max_len tokens.

        Override it if your batches have other arrays.
        """
        tokens = jax.ShapeDtypeStruct((rows, self.max_len), jnp.int32)
        return {"tokens": tokens, "labels": tokens}

    @property
    def initializer(self) -> "Initializer":
        """Draws the module's parameters, as a function of a PRNG key."""
        return Initializer(self.module, self.init_inputs)

    @property
    def surrounding_tokens(self) -> text.SurroundingTokens:
        """Special tokens around every text that the model reads, in training and in use."""
        return self.tokenizer.surrounding_tokens

    def encode(self, one: str) -> np.ndarray:
        """Encodes one text as the model reads it: int32 [tokens].

        Raises:
            DataError: it is empty or too long, or cannot be encoded.
        """
        return self.surrounded(self.tokenizer.encode(one.strip()), one)

    def decode(self, ids: npt.ArrayLike) -> str:
        """Decodes tokens (of the targets, if there are two tokenizers); skips special tokens.

        Raises:
            DataError: an id is not an integer, is negative, or is not in the vocabulary.
        """
        return self.tokenizer.decode(ids)

    def surrounded(self, ids: np.ndarray, one: str) -> np.ndarray:
        """Tokens of a text with special tokens around them; DataError for none or too many."""
        ids = self.surrounding_tokens.around(ids) if ids.size else ids
        if not 1 <= ids.size <= self.max_len:
            start = one if len(one) <= 20 else f"{one[:20]}..."
            raise DataError(
                f"a text must have 1 to max_len={self.max_len} tokens, got {ids.size} for "
                f"{start!r}; " + ("shorten it" if ids.size else "write some text")
            )
        return ids

    def decoding_to_export(self) -> SpecialTokens:
        """Special tokens and generation settings that an export writes.

        Override it if your model decodes differently.
        """
        return dataclasses.replace(self.decoding, eos=self.stop_tokens)

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """Tokens that end generation, as the model's folder lists them; maybe -1, for none."""
        end = self.tokenizer.end_of_text
        return self.decoding.eos or (() if end is None else (end,))

    def in_vocabulary(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Those of the ids that the model can generate."""
        return tuple(id for id in ids if 0 <= id < self.tokenizer.vocab_size)

    def tokenizer_to_export(self) -> text.Tokenizer:
        """Tokenizer that an export writes: the source's, if there are two."""
        return self.tokenizers[0]

    def check_prompt(self, prompt: str) -> None:
        """Raises DataError if `sample` would."""
        self.encode(prompt)

    @staticmethod
    def read_hidden(module: Any, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        """Hidden states of tokens: integer `[B, T]` and `[B]` to float `[B, T, D]`."""
        return module(tokens, lengths=lengths).hidden

    def hidden_states(self, params: Any, texts: Sequence[str]) -> list[np.ndarray]:
        """Computes the hidden states of texts: float32 `[T, D]` for each.

        Raises:
            DataError: a text is empty or too long, or cannot be encoded; the message has its index.
        """
        encoded = encode_each(texts, self.encode)
        return hidden_states(self.module, self.read_hidden, params, encoded, self.max_len)


@dataclasses.dataclass(frozen=True)
class Initializer:
    """Draws the parameters of a module; equal for equal modules and inputs."""

    module: nn.Module
    inputs: tuple[jax.ShapeDtypeStruct, ...]

    def __call__(self, rng: jax.Array) -> Any:
        """Draws the parameters from a PRNG key."""
        inputs = [jnp.zeros(each.shape, each.dtype) for each in self.inputs]
        return self.module.init(rng, *inputs)["params"]


def as_kind(kind: type[Any], settings: Any) -> Any:
    """Settings without what a subclass adds."""
    return kind(**{one.name: getattr(settings, one.name) for one in dataclasses.fields(kind)})


def needs_flag(what: str, flag: str) -> ConfigError:
    """Error for a size that only data or a flag can set."""
    return ConfigError(f"a plan reads no data, so it needs {what} from a flag; for example, {flag}")

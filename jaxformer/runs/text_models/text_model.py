"""A model with its tokenizers: its loss, and what you can do with it."""

import abc
import dataclasses
import pathlib
import shlex
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import linen as nn

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.interop import HuggingFaceModel, SpecialTokens
from jaxformer.runs.data.prepare import (
    encode_each,
    with_most_tokens,
    with_vocab_sizes,
    within_tables,
)
from jaxformer.runs.folder.tokenizers import load_tokenizers, save_tokenizers
from jaxformer.runs.text_models.forward import (
    apply_model,
    apply_to_rows,
    self_attention_map,
    with_weights,
)
from jaxformer.training import Evaluation, SingleRunner, language_model_loss
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner
from jaxformer.viz import AttentionMap

Model = TypeVar("Model", bound="TextModel")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TextModel(abc.ABC):
    """A model with its tokenizers; with its parameters, if `open_run` has opened it.

    Write your own as a subclass, with two members: `module` and `sample`; and with `loss`, unless
    it is the cross-entropy of labels for each position. To change a built-in model, such as
    `LanguageModel`, override what differs.

    Attributes:
        kind: the kind of model, in words, for messages.
        unit: what the model predicts; the loss is a mean over these.
        num_tokenizers: 1, or 2 if sources and targets have their own.

    Args:
        config: the experiment, completed with what the data decides.
        tokenizers: one tokenizer; or those of sources and targets, which may be the same.
        decoding: special tokens of a model made elsewhere; sampling and search are in the config.
        params: parameters of the checkpoint that was opened; None in training.
        folder: run folder or Hugging Face folder that was opened; None in training.
        step: step of the checkpoint; None in training, and for a Hugging Face folder.
        runner: runner for the devices that hold the parameters.
        evaluator: measures the model on files, or on the run's own validation data if they are
            None; the task of the run provides it.
    """

    config: ExperimentConfig
    tokenizers: tuple[text.Tokenizer, ...]
    decoding: SpecialTokens = SpecialTokens()
    params: Any = None
    folder: pathlib.Path | None = None
    step: int | None = None
    runner: Runner = dataclasses.field(default_factory=SingleRunner)
    evaluator: Callable[[Any, Sequence[str] | None], Evaluation] | None = None

    kind: ClassVar[str] = "a custom model"
    unit: ClassVar[str] = "token"
    num_tokenizers: ClassVar[int] = 1

    # A subclass must define these.

    @property
    @abc.abstractmethod
    def module(self) -> nn.Module:
        """The Flax module, for training and use."""

    @abc.abstractmethod
    def sample(self, prompt: str, seed: int = 0) -> str:
        """Shows the model's output for a prompt, with the settings of the config's samples."""

    # How a model is made, started, saved and loaded.

    @classmethod
    def create(cls, config: ExperimentConfig, tokenizers: tuple[text.Tokenizer, ...]) -> Self:
        """Makes the model of a new run."""
        return cls(config=with_vocab_sizes(config, tokenizers), tokenizers=tokenizers)

    @classmethod
    def without_data(cls, config: ExperimentConfig) -> Self:
        """Makes the model that a plan describes, before its data is read.

        An unknown vocabulary has its largest size, and there are no tokenizers. Raises ConfigError
        if a size depends on the data.
        """
        config = with_most_tokens(config, cls.num_tokenizers, cls.added_tokens(config))
        return cls(config=config, tokenizers=())

    def started_from(self, start: "TextModel") -> Self:
        """The model, with what it keeps of the one that it resumes or starts from."""
        return dataclasses.replace(self, decoding=start.decoding)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Loads what `save` has written to a run folder."""
        source_and_target, decoding = load_tokenizers(folder)
        tokenizers = source_and_target[-cls.num_tokenizers :]
        if config.tokenizer.kind == "pretrained":
            tokenizers = within_tables(tokenizers, config.model)
        config = with_vocab_sizes(config, tokenizers)
        return cls(config=config, tokenizers=tokenizers, decoding=decoding)

    def save(self, folder: pathlib.Path) -> None:
        """Writes what opening it needs, besides parameters, into a run folder."""
        save_tokenizers(folder, self.tokenizers, self.decoding)

    def to_huggingface(self) -> HuggingFaceModel:
        """The opened model, as `jaxformer convert` writes it to a Hugging Face folder."""
        return HuggingFaceModel(
            self.config.model, self.params, self.tokenizers[0],
            unchecked_special_tokens=dataclasses.replace(self.decoding, eos=self.stop_tokens),
            model_type=self.decoding.model_type,
        )  # fmt: skip

    @classmethod
    def added_tokens(cls, config: ExperimentConfig) -> tuple[str, ...]:
        """Special tokens besides the end of text, such as a mask."""
        return ()

    # What training and planning ask for.

    def loss(self, label_smoothing: float) -> LossFunction:
        """Cross-entropy of labels: (params, batch, dropout_rng) to (loss_sum, weight_sum)."""
        return language_model_loss(self.module, label_smoothing=label_smoothing)

    @property
    def init_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shapes and dtypes of the module's inputs for initialization: `[1, 2]` tokens."""
        return (jax.ShapeDtypeStruct((1, min(2, self.max_len)), jnp.int32),)

    def batch_shapes(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and dtypes of the arrays of a training batch, with rows of max_len tokens."""
        tokens = jax.ShapeDtypeStruct((rows, self.max_len), jnp.int32)
        return {"tokens": tokens, "labels": tokens}

    def initializer(self, rng: jax.Array) -> Any:
        """Draws the module's parameters from a PRNG key."""
        inputs = [jnp.zeros(shape.shape, shape.dtype) for shape in self.init_inputs]
        return nn.unbox(self.module.init(rng, *inputs))["params"]

    # What every model can do.

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.folder}, step {self.step}>"

    @property
    def uses(self) -> tuple[str, ...]:
        """What the model can be used for, each with its command; {} is the path of the run."""
        return ()

    def require(self, *kinds: type[Model]) -> Model:
        """The model itself, if it is of one of these kinds, such as `LanguageModel`.

        Raises:
            ConfigError: it is of another kind; the message says what it can be used for.
        """
        if isinstance(self, kinds):
            return self
        needed = " or ".join(kind.kind.partition(",")[0] for kind in kinds)
        problem = f"{self.folder} is {self.kind.partition(',')[0]}, but this needs {needed}"
        uses = [use.format(shlex.quote(str(self.folder))) for use in self.uses]
        raise ConfigError("; ".join([problem, *uses]))

    @property
    def tokenizer(self) -> text.Tokenizer:
        """The tokenizer; that of the targets if there are two."""
        return self.tokenizers[-1]

    @property
    def max_len(self) -> int:
        """Largest number of tokens that the model reads at once."""
        return self.config.model.max_len

    @property
    def surrounding_tokens(self) -> text.SurroundingTokens:
        """Special tokens around every text that the model reads, in training and in use."""
        return self.tokenizer.surrounding_tokens

    def encode(self, text: str) -> np.ndarray:
        """Encodes a text as the model reads it; for an encoder-decoder, a source and its end.

        Returns:
            Token ids, int32 [tokens].

        Raises:
            DataError: the text is empty or too long, or cannot be encoded.
        """
        return self.surrounded(self.tokenizers[0].encode(text.strip()), text)

    def decode(self, ids: npt.ArrayLike) -> str:
        """Decodes token ids; for an encoder-decoder, of the target language.

        Args:
            ids: integers [tokens]; special tokens, such as the end of text, are skipped.

        Raises:
            DataError: an id is not an integer, is negative, or is not in the vocabulary.
        """
        return self.tokenizer.decode(ids)

    def surrounded(self, ids: np.ndarray, text: str) -> np.ndarray:
        """Tokens of a text with special tokens around them; DataError for none or too many."""
        ids = self.surrounding_tokens.around(ids) if ids.size else ids
        if not 1 <= ids.size <= self.max_len:
            start = text if len(text) <= 20 else f"{text[:20]}..."
            raise DataError(
                f"a text must have 1 to max_len={self.max_len} tokens, got {ids.size} for "
                f"{start!r}; " + ("shorten it" if ids.size else "write some text")
            )
        return ids

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """Tokens that end generation, as the model's folder lists them; maybe -1, for none."""
        end = self.tokenizer.end_of_text
        return self.decoding.eos or (() if end is None else (end,))

    def in_vocabulary(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Those of the ids that the model can generate."""
        return tuple(id for id in ids if 0 <= id < self.tokenizer.vocab_size)

    def check_prompt(self, prompt: str) -> None:
        """Raises DataError if `sample` would."""
        self.encode(prompt)

    def evaluate(self, data: Sequence[str | pathlib.Path] | None = None) -> Evaluation:
        """Evaluates the opened model, on the devices that hold its parameters.

        Args:
            data: files to read in the same way as the config's data: text files, or tables of pairs
                or labelled texts. Default: the run's own validation data.

        Raises:
            CheckpointError: the run's validation data is missing or damaged.
            DataError: a file cannot be used, or the run has no validation data.
        """
        assert self.evaluator is not None  # `open_run` sets it
        return self.evaluator(self, None if data is None else list(map(str, data)))

    def with_scores(self, result: Evaluation, validation: Any) -> Evaluation:
        """The result of an evaluation on encoded validation data, with scores besides the loss."""
        return result

    def attention(self, text: str) -> list[AttentionMap]:
        """Computes the attention weights of a text, in every layer and head.

        Args:
            text: the text, encoded as by `encode`, with its errors.

        Returns:
            A map for each kind of attention of the model, for `viz.attention_page`.
        """
        ids = self.encode(text)
        output = apply_model(self.module, with_weights, self.params, tokens=ids[None])
        weights = output.weights.self_attention
        return [self_attention_map("encoder self-attention", weights, self.tokenizer, ids)]

    @staticmethod
    def read_hidden(module: Any, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        """Hidden states of tokens: integer `[B, T]` and `[B]` to float `[B, T, D]`."""
        return module(tokens, lengths=lengths).hidden

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
        encoded = encode_each(texts, self.encode)
        rows = [{"tokens": ids, "lengths": np.array(ids.size, np.int32)} for ids in encoded]
        states = apply_to_rows(self.module, self.read_hidden, self.params, rows, self.max_len)
        pairs = zip(states, encoded, strict=True)
        return [state[: ids.size].astype(np.float32) for state, ids in pairs]

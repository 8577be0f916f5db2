"""Runs of an encoder that predicts masked tokens."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer import run_folder, text
from jaxformer.config import ExperimentConfig, ModelConfig
from jaxformer.errors import DataError
from jaxformer.models import MaskedLanguageModel
from jaxformer.runs.attention import check_length, self_attention_map, with_weights
from jaxformer.runs.base import (
    PreparedRun,
    Run,
    check_samples,
    evaluate_on_one_device,
    fitting_vocab_size,
    train_tokenizer,
)
from jaxformer.runs.streams import StreamText, default_prompts, evaluation_rows, read_text
from jaxformer.runs.word_vectors import StartVectors
from jaxformer.training import Evaluation, TrainingData, language_model_loss
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner
from jaxformer.viz import AttentionMap

__all__ = ["MASK_IN_TEXT", "Fill", "MaskedRun", "PreparedMasked", "init_params"]

MASK_IN_TEXT = "[MASK]"
"""How a masked token is written by a user."""

_SHOWN = 3
_ROWS = 16  # texts that are predicted for at a time


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedMasked(PreparedRun):
    """An encoder and its text, before the first step.

    Args:
        text: the tokens.
    """

    text: StreamText

    @property
    def embedding_path(self) -> tuple[str, ...]:
        """That of the encoder."""
        return ("encoder", "embedding")

    @classmethod
    def prepare(cls, config: ExperimentConfig, folder: pathlib.Path | None) -> "PreparedMasked":
        """Reads the text; takes the tokenizer of the folder where a run goes on."""
        train_text, validation_text = read_text(config.data)
        if folder is None:
            wanted = config.tokenizer
            if wanted.vocab_size is not None:  # of which the mask is one
                wanted = dataclasses.replace(wanted, vocab_size=wanted.vocab_size - 1)
            tokenizer = text.with_mask(train_tokenizer(wanted, train_text, validation_text))
        else:
            tokenizer = run_folder.load_tokenizer(folder)
        size = fitting_vocab_size("model.vocab_size", config.model.vocab_size, tokenizer)
        prompts = config.samples.prompts or _masked_prompts(validation_text, config, tokenizer)
        config = dataclasses.replace(
            config,
            model=dataclasses.replace(config.model, vocab_size=size),
            samples=dataclasses.replace(config.samples, prompts=prompts),
        )
        vectors, config = StartVectors.read(config, tokenizer)
        max_len = config.model.max_len
        check_samples(prompts, lambda prompt: _encode_prompt(prompt, tokenizer, max_len))
        stream = StreamText.encode(tokenizer, train_text, validation_text)
        return cls(
            config=config, vectors=vectors, summary=stream.summary, report=vectors.report,
            text=stream,
        )  # fmt: skip

    def write(self, folder: pathlib.Path) -> None:
        """Writes tokenizer and validation text into a new run folder."""
        self.text.write(folder, self.text.validation_bytes)

    def training_data(self, runner: Runner) -> TrainingData:
        """Makes batches of windows, masked anew in every epoch."""
        config = self.config
        hosts: dict[str, Any] = {"host": runner.host}
        assert config.training.batch_size is not None  # the config requires it of streams
        source = _Windows(self.text.train, config.model.max_len)
        batches = text.Batches(source, config.training.batch_size, seed=config.seed, **hosts)
        rows = math.lcm(evaluation_rows(config), runner.num_devices)
        validation = _validation_batches(
            config, self.text.tokenizer, self.text.validation, rows, hosts
        )
        return TrainingData(
            batches=text.MaskedBatches(batches, **_masking(config, self.text.tokenizer), **hosts),
            validation=validation,
            validation_bytes=None,
            unit=MaskedRun.unit,
        )

    def loss(self, label_smoothing: float) -> LossFunction:
        """Makes the loss of the masked tokens."""
        model = MaskedLanguageModel(self.config.model)
        return language_model_loss(model, label_smoothing=label_smoothing)

    def draw_params(self, rng: jax.Array) -> Any:
        """Draws the encoder's and its head's parameters."""
        return init_params(self.config.model, rng)


class Fill(NamedTuple):
    """A token that may stand where a mask is.

    Args:
        text: of the token, a space before it where it begins a word.
        probability: that the model gives it.
    """

    text: str
    probability: float


@dataclasses.dataclass(frozen=True)
class MaskedRun(Run):
    """A trained encoder of masked tokens, with its tokenizer.

    Args:
        tokenizer: the run's own.
    """

    tokenizer: text.Tokenizer
    kind: ClassVar[str] = "a masked language model, which fills in [MASK]"
    unit: ClassVar[str] = "masked token"

    @classmethod
    def open(
        cls, folder: pathlib.Path, config: ExperimentConfig, params: Any, step: int
    ) -> "MaskedRun":
        """Reads what else the run folder has."""
        tokenizer = run_folder.load_tokenizer(folder)
        return cls(folder, config, params, step, tokenizer)

    def evaluate(self) -> Evaluation:
        """Measures the loss of masked tokens of the run's validation text, on one device."""
        stream, rows = (
            run_folder.ValidationTokens.load(self.folder).stream,
            evaluation_rows(self.config),
        )
        validation = _validation_batches(self.config, self.tokenizer, stream, rows, {})
        loss = language_model_loss(MaskedLanguageModel(self.config.model))
        data = TrainingData(
            batches={}, validation=validation, validation_bytes=None, unit=self.unit
        )
        return evaluate_on_one_device(loss, self.params, data)

    def encode(self, prompt: str) -> np.ndarray:
        """Encodes a text with masks: int32 [tokens].

        Raises:
            DataError: it has no [MASK], or is too long, or cannot be encoded.
        """
        return _encode_prompt(prompt, self.tokenizer, self.config.model.max_len)

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
        if num_best < 1:
            raise DataError(f"num_best must be positive, got {num_best}")
        encoded = [self.encode(prompt) for prompt in prompts]
        places = [np.flatnonzero(ids == self.tokenizer.mask) for ids in encoded]
        ordinary = self._ordinary()
        results: list[list[list[Fill]]] = []
        for start in range(0, len(encoded), _ROWS):
            some = slice(start, start + _ROWS)
            logits = self._logits(encoded[some], places[some])
            for row, count in zip(logits, map(len, places[some]), strict=False):
                results.append([self._best(one, ordinary, num_best) for one in row[:count]])
        return results

    def _logits(self, encoded: list[np.ndarray], places: list[np.ndarray]) -> np.ndarray:
        """Scores up to `_ROWS` texts: float32 `[_ROWS, masks, V]`, those of the masks first."""
        most = max(map(len, places))
        tokens = np.zeros((_ROWS, self.config.model.max_len), np.int32)
        lengths, where = np.zeros(_ROWS, np.int32), np.zeros((_ROWS, most), np.int32)
        for row, (ids, masks) in enumerate(zip(encoded, places, strict=True)):
            tokens[row, : ids.size], lengths[row] = ids, ids.size
            where[row, : masks.size] = masks
        return np.asarray(_score(self.config.model, self.params, tokens, lengths, where))

    def _ordinary(self) -> np.ndarray:
        """Ids of all tokens that may stand in a text."""
        tokenizer = self.tokenizer
        special = {tokenizer.end_of_text, tokenizer.unknown, tokenizer.mask}
        return np.array([id for id in range(tokenizer.vocab_size) if id not in special])

    def _best(self, logits: np.ndarray, ordinary: np.ndarray, num_best: int) -> list[Fill]:
        """The likeliest of some tokens by logits `[V]`."""
        scores = logits[ordinary].astype(np.float64)
        shares = np.exp(scores - scores.max())
        probabilities = shares / shares.sum()
        best = np.argsort(-probabilities, kind="stable")[:num_best]
        return [Fill(self.tokenizer.decode([ordinary[i]]), float(probabilities[i])) for i in best]

    def sample(self, prompt: str, rng: jax.Array) -> str:
        """Shows a prompt and the likeliest tokens of its masks."""
        lines = [prompt]
        for fills in self.fill_masks([prompt], _SHOWN)[0]:
            lines.append(", ".join(f"{fill.text!r} {fill.probability:.1%}" for fill in fills))
        return "\n".join(lines)

    def attention(self, prompt: str) -> list[AttentionMap]:
        """Computes where each token looks; the text may have masks, and need not."""
        ids = _encode_with_masks(prompt, self.tokenizer)
        check_length("a text to look into", ids.size, self.config.model.max_len)
        output = with_weights(MaskedLanguageModel(self.config.model), self.params, ids[None])
        return [self_attention_map("encoder self-attention", output.weights, self.tokenizer, ids)]


def init_params(model: ModelConfig, rng: jax.Array) -> Any:
    """Makes the parameters of a masked language model."""
    tokens = jnp.zeros((1, min(2, model.max_len)), jnp.int32)
    return MaskedLanguageModel(model).init(rng, tokens)["params"]


class _Windows(text.Windows):
    """Windows that say how many of their tokens are real: an encoder sees what comes after, too."""

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        item = super().__getitem__(index)
        return {**item, "lengths": np.array((item["labels"] != text.IGNORE).sum(), np.int32)}


@functools.partial(jax.jit, static_argnums=0)
def _score(
    config: ModelConfig, params: Any, tokens: jax.Array, lengths: jax.Array, where: jax.Array
) -> jax.Array:
    """Scores the tokens at `where` `[B, M]`: float32 `[B, M, V]`."""
    model, variables = MaskedLanguageModel(config), {"params": params}
    hidden = model.apply(variables, tokens, lengths=lengths, method="hidden_states")
    rows = jnp.arange(tokens.shape[0])[:, None]
    return model.apply(variables, hidden[rows, where], method="logits")


def _masking(config: ExperimentConfig, tokenizer: text.Tokenizer) -> dict[str, Any]:
    assert tokenizer.mask is not None  # `prepare` has seen to it
    special = [id for id in (tokenizer.end_of_text, tokenizer.unknown) if id is not None]
    return {
        "seed": config.seed,
        "mask_token": tokenizer.mask,
        "num_tokens": tokenizer.vocab_size,
        "rate": config.data.mask_rate,
        "special": special,
    }


def _validation_batches(
    config: ExperimentConfig, tokenizer: text.Tokenizer, stream: text.TokenStream, rows: int,
    hosts: dict[str, Any],
) -> Any:  # fmt: skip
    source = _Windows(stream, config.model.max_len)
    masking = _masking(config, tokenizer)

    def batches() -> Iterator[dict[str, np.ndarray]]:
        plain = text.evaluation_batches(source, rows, **hosts)
        return text.masked_evaluation_batches(plain, **masking, **hosts)

    return batches


def _encode_prompt(prompt: str, tokenizer: text.Tokenizer, max_len: int) -> np.ndarray:
    """Encodes a text that must have masks: int32 [tokens]."""
    if MASK_IN_TEXT not in prompt:
        raise DataError(
            f"a text must have {MASK_IN_TEXT} where a token is to be predicted, got {prompt!r}"
        )
    result = _encode_with_masks(prompt, tokenizer)
    if result.size > max_len:
        raise DataError(
            f"a text must have at most max_len={max_len} tokens, got {result.size}; shorten it"
        )
    return result


def _encode_with_masks(prompt: str, tokenizer: text.Tokenizer) -> np.ndarray:
    """Encodes a text that may have masks: int32 [tokens].

    A token of byte pairs has the space before it, so a mask stands for that space, too.
    """
    assert tokenizer.mask is not None  # `prepare` has seen to it
    parts = prompt.split(MASK_IN_TEXT)
    if tokenizer.has_leading_spaces:
        parts = [part.removesuffix(" ") for part in parts[:-1]] + parts[-1:]
    ids = []
    for part in parts:
        ids += [tokenizer.encode(part), np.array([tokenizer.mask], np.int32)]
    return np.concatenate(ids[:-1])


def _masked_prompts(
    validation_text: list[str], config: ExperimentConfig, tokenizer: text.Tokenizer
) -> tuple[str, ...]:
    """Starts of validation lines with the last word, or character, masked."""
    prompts = []
    for line in default_prompts(validation_text, tokenizer, config.model.max_len):
        head = line.rpartition(" ")[0] or line[:-1]
        prompts.append(
            f"{head} {MASK_IN_TEXT}".strip()
            if tokenizer.has_leading_spaces
            else head + MASK_IN_TEXT
        )
    return tuple(prompts)

"""The task of an encoder that predicts masked tokens."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import DataError
from jaxformer.models import AttentionMap, MaskedLanguageModel
from jaxformer.runs.data.row_texts import MASKED_MARKS, masked_text
from jaxformer.runs.data.view import real_tokens
from jaxformer.runs.tasks.forward import apply_model, encoder_attention, padded_batches
from jaxformer.runs.tasks.streams import StreamTask, StreamText
from jaxformer.text.tokenizers.vocabulary import MASK
from jaxformer.training import TrainingData, language_model_loss
from jaxformer.training.data import BatchSource
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner

__all__ = ["MASK_IN_TEXT", "Fill", "MaskedTask"]

MASK_IN_TEXT = "[MASK]"
"""How users write a masked token."""

_SHOWN = 3


class Fill(NamedTuple):
    """A candidate token for a mask.

    Args:
        text: text of the token, with a space before it if it begins a word.
        probability: its probability.
    """

    text: str
    probability: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MaskedTask(StreamTask):
    """An encoder that predicts masked tokens of documents."""

    kind: ClassVar[str] = "a masked language model, which fills in [MASK]"
    unit: ClassVar[str] = "masked token"
    marks: ClassVar[str] = MASKED_MARKS

    @property
    def model(self) -> MaskedLanguageModel:
        """The encoder with its head."""
        return MaskedLanguageModel(self.config.model)

    @property
    def embedding_path(self) -> tuple[str, ...]:
        """Path of the encoder's embedding."""
        return ("encoder", "embedding")

    def loss(self, label_smoothing: float) -> LossFunction:
        """Cross-entropy of the masked tokens."""
        return language_model_loss(self.model, label_smoothing=label_smoothing)

    @classmethod
    def added_tokens(cls, config: ExperimentConfig) -> tuple[str, ...]:
        """The mask token; a tokenizer from a file may have it already."""
        return (MASK,)

    def default_prompts(self, documents: Sequence[str]) -> tuple[str, ...]:
        """Starts of lines, with the last word or character masked."""
        prompts = []
        for line in super().default_prompts(documents):
            head = line.rpartition(" ")[0] or line[:-1]
            spaced = self.tokenizer.has_leading_spaces
            prompts.append(f"{head} {MASK_IN_TEXT}".strip() if spaced else head + MASK_IN_TEXT)
        return tuple(prompts)

    def windows(self, stream: text.TokenStream) -> text.Source:
        """Windows of the stream, with their lengths."""
        return _WindowsWithLengths(stream, self.max_len)

    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes batches of windows, with new masks in every epoch."""
        batches = super().training_batches(runner)
        return text.MaskedBatches(batches, host=runner.host, **self._masking())

    def stream_evaluation(self, validation: StreamText, runner: Runner) -> TrainingData:
        """Makes batches of all windows, with the same masks each time."""
        data = super().stream_evaluation(validation, runner)
        plain = data.validation
        assert plain is not None

        def masked() -> Iterator[dict[str, np.ndarray]]:
            batches: Any = plain()
            return text.masked_evaluation_batches(batches, host=runner.host, **self._masking())

        return data._replace(validation=masked)

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Windows with the answers of their masked tokens."""
        rows = zip(batch["tokens"], batch["labels"], real_tokens(batch), strict=True)
        return [
            {"text": masked_text(self.tokenizer, tokens[real], labels[real])}
            for tokens, labels, real in itertools.islice(rows, count)
        ]

    def _masking(self) -> dict[str, Any]:
        tokenizer = self.tokenizer
        return {
            "seed": self.config.seed,
            "mask_token": tokenizer.mask,
            "vocab_size": tokenizer.vocab_size,
            "rate": self.config.data.mask_rate,
            "special": sorted(tokenizer.special - {tokenizer.mask}),
        }

    def encode(self, one: str) -> np.ndarray:
        """Encodes a text that may have masks: int32 [tokens].

        BPE tokens include the space before a word, so a mask stands for that space, too.
        """
        parts = one.split(MASK_IN_TEXT)
        if self.tokenizer.has_leading_spaces:
            parts = [part.removesuffix(" ") for part in parts[:-1]] + parts[-1:]
        ids = []
        for part in parts:
            ids += [self.tokenizer.encode(part), np.array([self.tokenizer.mask], np.int32)]
        special = self.tokenizer.surrounding_tokens
        return self.surrounded(np.concatenate(ids[:-1]), special, one)

    def _encode_with_mask(self, prompt: str) -> np.ndarray:
        if MASK_IN_TEXT not in prompt:
            raise DataError(
                f"a text must have {MASK_IN_TEXT} where a token is to be predicted, got {prompt!r}"
            )
        return self.encode(prompt)

    def check_prompt(self, prompt: str) -> None:
        """Raises DataError if a text has no mask or is too long."""
        self._encode_with_mask(prompt)

    def fill_masks(
        self, params: Any, prompts: Sequence[str], num_best: int = 5
    ) -> list[list[list[Fill]]]:
        """Predicts the tokens at [MASK] in texts."""
        if num_best < 1:
            raise DataError(f"num_best must be positive, got {num_best}")
        rows = []
        for ids in map(self._encode_with_mask, prompts):
            places = np.flatnonzero(ids == self.tokenizer.mask).astype(np.int32)
            rows.append({"tokens": ids, "lengths": np.array(ids.size, np.int32), "places": places})
        special = self.tokenizer.special
        ordinary = np.array([i for i in range(self.tokenizer.vocab_size) if i not in special])
        results: list[list[list[Fill]]] = [[]] * len(rows)
        for indices, batch in padded_batches(rows, self.max_len):
            logits = np.asarray(apply_model(self.model, _logits_at, params, **batch))
            for row, i in enumerate(indices):
                masks = logits[row, : rows[i]["places"].size]
                results[i] = [self._best(one, ordinary, num_best) for one in masks]
        return results

    def _best(self, logits: np.ndarray, ordinary: np.ndarray, num_best: int) -> list[Fill]:
        """The likeliest ordinary tokens by logits `[V]`."""
        scores = logits[ordinary].astype(np.float64)
        shares = np.exp(scores - scores.max())
        probabilities = shares / shares.sum()
        best = np.argsort(-probabilities, kind="stable")[:num_best]
        return [Fill(self.tokenizer.decode([ordinary[i]]), float(probabilities[i])) for i in best]

    def sample(self, params: Any, prompt: str, rng: jax.Array) -> str:
        """Shows a prompt and the likeliest tokens of its masks."""
        lines = [prompt]
        for fills in self.fill_masks(params, [prompt], _SHOWN)[0]:
            lines.append(", ".join(f"{fill.text!r} {fill.probability:.1%}" for fill in fills))
        return "\n".join(lines)

    def attention(self, params: Any, one: str) -> list[AttentionMap]:
        """Attention weights of a text, with or without masks."""
        return encoder_attention(self.model, params, self.tokenizer, self.encode(one))


class _WindowsWithLengths(text.Windows):
    """Windows with lengths, because an encoder would attend to padding."""

    def gather(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """The result of `Windows.gather`, with `lengths`, int32 [rows]."""
        rows = super().gather(indices)
        lengths = (rows["labels"] != text.IGNORE).sum(axis=1, dtype=np.int32)
        return {**rows, "lengths": lengths}


def _logits_at(
    model: MaskedLanguageModel, tokens: jax.Array, lengths: jax.Array, places: jax.Array
) -> jax.Array:
    """Scores the tokens at `places` `[B, M]`: float32 `[B, M, V]`."""
    hidden = model.hidden_states(tokens, lengths=lengths).hidden
    return model.logits(hidden[jnp.arange(tokens.shape[0])[:, None], places])

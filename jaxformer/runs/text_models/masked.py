"""An encoder that predicts masked tokens."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.config import ExperimentConfig
from jaxformer.errors import DataError
from jaxformer.models import MaskedLanguageModel
from jaxformer.runs.data.prepare import encode_each
from jaxformer.runs.text_models.forward import apply_to_rows
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.text.tokenizers.vocabulary import MASK

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


class MaskedModel(TextModel):
    """An encoder that fills in masked tokens."""

    kind: ClassVar[str] = "a masked language model, which fills in [MASK]"
    unit: ClassVar[str] = "masked token"
    uses: ClassVar[tuple[str, ...]] = ("to fill in [MASK]: jaxformer predict {} TEXT",)

    @property
    def module(self) -> MaskedLanguageModel:
        """The encoder with its head."""
        return MaskedLanguageModel(self.config.model)

    def batch_shapes(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Tokens, labels and lengths."""
        lengths = jax.ShapeDtypeStruct((rows,), jnp.int32)
        return super().batch_shapes(rows) | {"lengths": lengths}

    @classmethod
    def added_tokens(cls, config: ExperimentConfig) -> tuple[str, ...]:
        """The mask token; a tokenizer from a file may have it already."""
        return (MASK,)

    def encode(self, text: str) -> np.ndarray:
        """Encodes a text that may have masks: int32 [tokens].

        BPE tokens include the space before a word, so a mask stands for that space, too.
        """
        parts = text.split(MASK_IN_TEXT)
        if self.tokenizer.has_leading_spaces:
            parts = [part.removesuffix(" ") for part in parts[:-1]] + parts[-1:]
        ids, mask = [self.tokenizer.encode(parts[0])], np.array([self.tokenizer.mask], np.int32)
        for continuation in self.tokenizer.encode_documents(parts[1:], is_start=False):
            ids += [mask, continuation]
        return self.surrounded(np.concatenate(ids), text)

    def _encode_with_mask(self, prompt: str) -> np.ndarray:
        if MASK_IN_TEXT not in prompt:
            raise DataError(
                f"a text must have {MASK_IN_TEXT} where a token is to be predicted, got {prompt!r}"
            )
        return self.encode(prompt)

    def check_prompt(self, prompt: str) -> None:
        """Raises DataError if a text has no mask or is too long."""
        self._encode_with_mask(prompt)

    def fill_masks(self, prompts: Sequence[str], num_best: int = 5) -> list[list[list[Fill]]]:
        """Predicts the tokens at [MASK] in texts.

        Args:
            prompts: list of texts with at least one [MASK] each, which stands for one token.
            num_best: number of tokens to return for each mask; all if there are fewer.

        Returns:
            For each text, the likeliest tokens of each mask, best first. Each mask is predicted
            with the others masked.

        Raises:
            DataError: a text has no [MASK], or is too long.
        """
        rows = []
        for ids in encode_each(prompts, self._encode_with_mask):
            places = np.flatnonzero(ids == self.tokenizer.mask).astype(np.int32)
            rows.append({"tokens": ids, "lengths": np.array(ids.size, np.int32), "places": places})
        special = self.tokenizer.special
        ordinary = np.array([i for i in range(self.tokenizer.vocab_size) if i not in special])
        logits = apply_to_rows(self.module, _logits_at, self.params, rows, self.max_len)
        return [
            [self._best(scores, ordinary, num_best) for scores in masks[: row["places"].size]]
            for masks, row in zip(logits, rows, strict=True)
        ]

    def _best(self, logits: np.ndarray, ordinary: np.ndarray, num_best: int) -> list[Fill]:
        """The likeliest ordinary tokens by logits `[V]`."""
        scores = logits[ordinary].astype(np.float64)
        shares = np.exp(scores - scores.max())
        probabilities = shares / shares.sum()
        best = np.argsort(-probabilities, kind="stable")[:num_best]
        return [Fill(self.tokenizer.decode([ordinary[i]]), float(probabilities[i])) for i in best]

    def sample(self, prompt: str, seed: int = 0) -> str:
        """Shows a prompt and the likeliest tokens of its masks."""
        lines = [prompt]
        for fills in self.fill_masks([prompt], _SHOWN)[0]:
            lines.append(", ".join(f"{fill.text!r} {fill.probability:.1%}" for fill in fills))
        return "\n".join(lines)


def _logits_at(
    model: MaskedLanguageModel, tokens: jax.Array, lengths: jax.Array, places: jax.Array
) -> jax.Array:
    """Scores the tokens at `places` `[B, M]`: float32 `[B, M, V]`."""
    hidden = model.hidden_states(tokens, lengths=lengths).hidden
    return model.logits(hidden[jnp.arange(tokens.shape[0])[:, None], places])

"""A causal language model: generation, likelihoods, attention."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NotRequired, TypedDict, Unpack

import jax
import numpy as np

from jaxformer import text
from jaxformer.config import SamplingConfig
from jaxformer.errors import DataError
from jaxformer.inference import check_prompts, generate_stream
from jaxformer.interop import SpecialTokens
from jaxformer.models import AttentionMap, Decoder
from jaxformer.runs.data.prepare import encode_each
from jaxformer.runs.data.values import LogLikelihood
from jaxformer.runs.text_models.forward import (
    apply_model,
    label_log_likelihoods,
    self_attention_map,
    with_weights,
)
from jaxformer.runs.text_models.text_model import TextModel, as_kind
from jaxformer.training import language_model_loss
from jaxformer.training.losses import LossFunction

_NEW_TOKENS = 256  # of a continuation by a model made elsewhere, if its folder does not say


class DecodingOptions(TypedDict):
    """Options for sampling tokens."""

    rng: jax.Array
    sampling: SamplingConfig
    max_new_tokens: NotRequired[int | None]  # None = what fits in the context


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CausalModel(TextModel):
    """A decoder, which continues text. `Run` documents its methods.

    Args:
        num_documents: number of documents that it was trained on; 0 if it was trained on other
            data. If there are several, and windows run from one into the next, an empty prompt
            starts a new one.
    """

    num_documents: int = 0

    kind: ClassVar[str] = "a language model, which continues text"

    @property
    def module(self) -> Decoder:
        """The decoder."""
        return Decoder(self.config.model)

    def loss(self, label_smoothing: float) -> LossFunction:
        """Cross-entropy of every next token."""
        return language_model_loss(self.module, label_smoothing=label_smoothing)

    @property
    def packs_texts(self) -> bool:
        """Whether a row may have several texts, which do not attend to each other."""
        return self.config.data.packing == "documents"

    def batch_shapes(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Tokens and labels; segments and positions of packed texts; lengths for experts."""
        batch = super().batch_shapes(rows)
        if self.packs_texts:
            return batch | dict.fromkeys(("segment_ids", "positions"), batch["tokens"])
        if self.config.model.experts is None:
            return batch
        return batch | {"lengths": jax.ShapeDtypeStruct((rows,), np.int32)}

    def encode_prompt(self, prompt: str) -> list[int]:
        """Encodes a prompt, after the special tokens that the model reads before every text.

        An empty prompt becomes the end of text of a previous document, if the model has learnt what
        follows it.

        Raises:
            DataError: it is empty, or cannot be encoded.
        """
        ids: list[int] = self.surrounding_tokens.around(self.tokenizer.encode(prompt)).tolist()
        if not ids and self.tokenizer.end_of_text is not None:
            if self.num_documents > 1 and self.config.data.packing == "windows":
                return [self.tokenizer.end_of_text]
        if not ids:
            raise DataError("the prompt is empty; give at least one character to continue")
        return ids

    def decoding_to_export(self) -> SpecialTokens:
        """Special tokens of the exported model, and the sampling of the config's samples."""
        sampling = as_kind(SamplingConfig, self.config.samples)
        return dataclasses.replace(super().decoding_to_export(), sampling=sampling)

    def text_before(self, ids: list[int]) -> list[int]:
        """Tokens of the prompt that the text continues, so that its first space is right."""
        return ids

    def generate(self, params: Any, prompt: str, **options: Unpack[DecodingOptions]) -> str:
        """Continues a text."""
        return "".join(self.generate_stream(params, prompt, **options))

    def generate_stream(
        self, params: Any, prompt: str, **options: Unpack[DecodingOptions]
    ) -> Iterator[str]:
        """Continues a text, piece by piece."""
        return self.continue_tokens(params, self.encode_prompt(prompt), **options)

    def continue_tokens(
        self,
        params: Any,
        ids: list[int],
        *,
        rng: jax.Array,
        sampling: SamplingConfig,
        max_new_tokens: int | None = None,
    ) -> Iterator[str]:
        """Continues tokens with text, piece by piece."""
        chunks = generate_stream(
            self.module,
            params,
            [ids],
            max_new_tokens=self._longest(ids) if max_new_tokens is None else max_new_tokens,
            rng=rng,
            sampling=sampling,
            stop_tokens=self.in_vocabulary(self.stop_tokens),
            vocab_size=self.tokenizer.vocab_size,
            forbidden_tokens=self.in_vocabulary(self.decoding.forbidden),
        )
        return self._pieces(ids, chunks)

    def _pieces(self, ids: list[int], chunks: Iterator[list[np.ndarray]]) -> Iterator[str]:
        """Text of the chunks that continue a prompt."""
        decoder = self.tokenizer.stream()
        decoder.skip(self.text_before(ids))
        for (new,) in chunks:
            yield decoder.push(new)
        yield decoder.flush()

    def _longest(self, ids: list[int]) -> int:
        """Largest number of new tokens: that of the model's folder, else what fits."""
        longest, room = self.decoding.max_length, self._room(ids)
        if longest is None or self.decoding.max_new_tokens is not None:
            return room
        if len(ids) >= longest:
            raise DataError(
                f"the model's folder has max_length={longest}, which counts the tokens of the "
                f"prompt, got {len(ids)} of them; pass max_new_tokens"
            )
        return min(max(1, self.max_len - len(ids)), longest - len(ids))

    def _room(self, ids: list[int]) -> int:
        """Largest number of new tokens, whatever max_length the model's folder has."""
        special, room = self.decoding, max(1, self.max_len - len(ids))
        # The context of a model made elsewhere is often much longer than any text.
        return min(room, special.max_new_tokens or (_NEW_TOKENS if special.model_type else room))

    def _sample_tokens(self, ids: list[int]) -> int:
        """Largest number of new tokens of a sample."""
        return self.config.samples.max_new_tokens or self._room(ids)

    def check_prompt(self, prompt: str) -> None:
        """Raises DataError if a prompt and its continuation do not fit in the context."""
        ids = self.encode_prompt(prompt)
        check_prompts(self.config.model, [ids], self._sample_tokens(ids))

    def sample(self, params: Any, prompt: str, rng: jax.Array) -> str:
        """Continues a prompt with the settings of the config's samples; returns both."""
        longest = self._sample_tokens(self.encode_prompt(prompt))
        continuation = self.generate(
            params, prompt, rng=rng, sampling=self.config.samples, max_new_tokens=longest
        )
        return prompt + self.behind_prompt + continuation

    def encode(self, one: str) -> np.ndarray:
        """Encodes a text, including the spaces around it: int32 [tokens]."""
        return self.surrounded(self.tokenizer.encode(one), one)

    @property
    def surrounding_tokens(self) -> text.SurroundingTokens:
        """Special tokens before every text; none after it, since the model continues it."""
        return text.SurroundingTokens(before=self.tokenizer.surrounding_tokens.before)

    def log_likelihood(
        self, params: Any, texts: Sequence[str], *, prompts: Sequence[str] | None = None
    ) -> list[LogLikelihood]:
        """Scores texts: each after its prompt; without prompts, all tokens except the first."""
        if prompts is None:
            before = [0] * len(texts)
            sequences = encode_each(texts, self._scored)
        else:
            read = encode_each(prompts, lambda prompt: np.array(self.encode_prompt(prompt)))
            before = [ids.size - 1 for ids in read]
            sequences = encode_each(texts, self._scored, prompts, read)
        rows = []
        for ids, start in zip(sequences, before, strict=True):
            labels = ids[1:].copy()
            labels[:start] = text.IGNORE
            rows.append({"tokens": ids[:-1], "labels": labels})
        sums = label_log_likelihoods(self.module, params, rows, self.max_len)
        return [
            LogLikelihood(nats, int((row["labels"] != text.IGNORE).sum()))
            for nats, row in zip(sums, rows, strict=True)
        ]

    def _scored(
        self, one: str, prompt: str = "", prompt_ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Tokens of a text after its prompt; the last is only predicted, so max_len + 1 fit."""
        ids = (
            self.tokenizer.encode_continuations([one])[0] if prompt else self.tokenizer.encode(one)
        )
        if prompt_ids is None and ids.size:
            ids = self.surrounding_tokens.around(ids)
        if prompt_ids is not None:
            if not ids.size:
                raise DataError(f"a text after a prompt must have tokens, got {one!r}; write one")
            ids = np.concatenate([prompt_ids, ids]).astype(np.int32)
        if not 2 <= ids.size <= self.max_len + 1:
            raise DataError(
                f"a text to score must have 2 to max_len + 1 = {self.max_len + 1} tokens, its "
                f"prompt included, got {ids.size} for {one[:20]!r}; "
                + ("shorten it" if ids.size > 1 else "write more, or give a prompt")
            )
        return ids

    def attention(self, params: Any, one: str) -> list[AttentionMap]:
        """Attention weights of a text; each token attends to itself and to earlier tokens."""
        ids = self.encode(one)
        output = apply_model(self.module, with_weights, params, tokens=ids[None])
        weights = output.weights.self_attention
        likeliest = output.logits[0, -1, : self.tokenizer.vocab_size].argmax()
        next_ids = np.append(ids[1:], likeliest)
        return [
            self_attention_map("decoder self-attention", weights, self.tokenizer, ids, next_ids)
        ]

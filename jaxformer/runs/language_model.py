"""The task of a decoder: a causal language model, which continues text."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from jaxformer import text
from jaxformer.config import SamplingConfig
from jaxformer.errors import DataError
from jaxformer.inference import check_prompts, generate_stream
from jaxformer.models import AttentionMap, Decoder
from jaxformer.runs.data_view import real_tokens
from jaxformer.runs.forward import (
    apply_model,
    label_log_likelihoods,
    self_attention_map,
    with_weights,
)
from jaxformer.runs.prepare import encode_each
from jaxformer.runs.row_texts import CAUSAL_MARKS, causal_text
from jaxformer.runs.streams import StreamTask, StreamText
from jaxformer.runs.task_values import LogLikelihood
from jaxformer.training import TrainingData, language_model_loss
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner

__all__ = ["LanguageModelTask"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LanguageModelTask(StreamTask):
    """A decoder on documents; the methods beyond those of every task are those of `Run`."""

    kind: ClassVar[str] = "a language model, which continues text"
    marks: ClassVar[str] = CAUSAL_MARKS

    @property
    def model(self) -> Decoder:
        """The decoder."""
        return Decoder(self.config.model)

    def loss(self, label_smoothing: float) -> LossFunction:
        """Cross-entropy of every next token."""
        return language_model_loss(self.model, label_smoothing=label_smoothing)

    def windows(self, stream: text.TokenStream) -> text.Windows:
        """Windows of the stream, or packed documents, as the config says."""
        kind = {"windows": text.Windows, "documents": text.PackedDocuments}
        return kind[self.config.data.packing](stream, self.max_len)

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Windows, with what is read and not predicted, and where documents end."""
        rows = zip(batch["tokens"], batch["labels"], self._segments(batch), strict=True)
        return [
            {"text": causal_text(self.tokenizer, *row)} for row in itertools.islice(rows, count)
        ]

    def _segments(self, batch: Any) -> np.ndarray:
        """Number of the document that each token is of, 0 in padding: integers `[B, T]`."""
        segments: np.ndarray = batch.get("segment_ids", real_tokens(batch).astype(np.int32))
        return segments

    def evaluation_data(self, validation: StreamText, runner: Runner) -> TrainingData:
        """Makes batches of all windows, and counts the bytes that they predict."""
        data = super().evaluation_data(validation, runner)
        if validation.num_bytes is None:
            return data
        # Tokens that nothing comes before are not predicted, and cost the model nothing.
        tokens, unpredicted = validation.stream.tokens, self.windows(validation.stream).unpredicted
        free = sum(self.tokenizer.byte_length(int(tokens[i])) for i in unpredicted)
        return data._replace(validation_bytes=validation.num_bytes - free)

    def generate(
        self,
        params: Any,
        prompt: str,
        *,
        rng: jax.Array,
        sampling: SamplingConfig,
        max_new_tokens: int | None = None,
    ) -> str:
        """Continues a text."""
        pieces = self.generate_stream(
            params, prompt, rng=rng, sampling=sampling, max_new_tokens=max_new_tokens
        )
        return "".join(pieces)

    def generate_stream(
        self,
        params: Any,
        prompt: str,
        *,
        rng: jax.Array,
        sampling: SamplingConfig,
        max_new_tokens: int | None = None,
    ) -> Iterator[str]:
        """Continues a text, piece by piece."""
        ids = self._encode_prompt(prompt)
        stop = self.tokenizer.end_of_text
        decoder = self.tokenizer.stream()
        decoder.push(ids)  # so that spaces between prompt and continuation are right
        for (new,) in generate_stream(
            self.model,
            params,
            [ids],
            max_new_tokens=self._new_tokens(ids, max_new_tokens),
            rng=rng,
            sampling=sampling,
            stop_tokens=() if stop is None else (stop,),
            vocab_size=self.tokenizer.vocab_size,
        ):
            yield decoder.push(new)
        yield decoder.flush()

    def _encode_prompt(self, prompt: str) -> list[int]:
        """Encodes a prompt; an empty one as the end of the document before.

        The model knows what follows that where windows run on from one document to the next.
        """
        ids: list[int] = self.tokenizer.encode(prompt).tolist()
        if not ids and self.tokenizer.end_of_text is not None:
            if self.summary.documents > 1 and self.config.data.packing == "windows":
                return [self.tokenizer.end_of_text]
        if not ids:
            raise DataError("the prompt is empty; give at least one character to continue")
        return ids

    def _new_tokens(self, ids: list[int], wanted: int | None) -> int:
        return max(1, self.max_len - len(ids)) if wanted is None else wanted

    def check_prompt(self, prompt: str) -> None:
        """Raises DataError where a prompt and its continuation do not fit the context."""
        ids = self._encode_prompt(prompt)
        new = self._new_tokens(ids, self.config.samples.max_new_tokens)
        check_prompts(self.config.model, [ids], new)

    def sample(self, params: Any, prompt: str, rng: jax.Array) -> str:
        """Continues a prompt as the config's samples say; returns it with its continuation."""
        samples = self.config.samples
        return prompt + self.generate(
            params, prompt, rng=rng, sampling=samples, max_new_tokens=samples.max_new_tokens
        )

    def encode(self, one: str) -> np.ndarray:
        """Encodes a text, the spaces around it included: int32 [tokens]."""
        return self.checked_length(self.tokenizer.encode(one), one)

    def log_likelihood(
        self, params: Any, texts: Sequence[str], *, prompts: Sequence[str] | None = None
    ) -> list[LogLikelihood]:
        """Scores texts, each behind its prompt, or but for its first token."""
        if prompts is None:
            before = [0] * len(texts)
            sequences = encode_each(texts, self._scored)
        else:
            read = encode_each(prompts, lambda prompt: np.array(self._encode_prompt(prompt)))
            before = [ids.size - 1 for ids in read]
            sequences = encode_each(texts, self._scored, read)
        rows = []
        for ids, start in zip(sequences, before, strict=True):
            labels = ids[1:].copy()
            labels[:start] = text.IGNORE
            rows.append({"tokens": ids[:-1], "labels": labels})
        sums = label_log_likelihoods(self.model, params, rows, self.max_len)
        return [
            LogLikelihood(nats, int((row["labels"] != text.IGNORE).sum()))
            for nats, row in zip(sums, rows, strict=True)
        ]

    def _scored(self, one: str, prompt: np.ndarray | None = None) -> np.ndarray:
        """Tokens of a text behind its prompt: the last is predicted, and need not be read."""
        ids = self.tokenizer.encode(one)
        if prompt is not None:
            if not ids.size:
                raise DataError(f"a text behind a prompt must have tokens, got {one!r}; write one")
            ids = np.concatenate([prompt, ids]).astype(np.int32)
        if not 2 <= ids.size <= self.max_len + 1:
            raise DataError(
                f"a text to score must have 2 to max_len + 1 = {self.max_len + 1} tokens, its "
                f"prompt included, got {ids.size} for {one[:20]!r}; "
                + ("shorten it" if ids.size > 1 else "write more, or give a prompt")
            )
        return ids

    def attention(self, params: Any, one: str) -> list[AttentionMap]:
        """Attention weights of a text, in which each token sees itself and those before it."""
        ids = self.encode(one)
        output = apply_model(self.model, with_weights, params, tokens=ids[None])
        weights = output.weights.self_attention
        likeliest = output.logits[0, -1, : self.tokenizer.vocab_size].argmax()
        next_ids = np.append(ids[1:], likeliest)
        return [
            self_attention_map("decoder self-attention", weights, self.tokenizer, ids, next_ids)
        ]

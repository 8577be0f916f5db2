"""A causal language model: generation, answers, likelihoods, attention."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np

from jaxformer import text
from jaxformer.config import ExperimentConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.inference import generate_stream, token_ids
from jaxformer.interop import HuggingFaceChatTemplate, HuggingFaceModel
from jaxformer.interop.generation_config import require_supported
from jaxformer.models import Decoder
from jaxformer.runs.data.prepare import encode_each
from jaxformer.runs.text_models.forward import (
    LogLikelihood,
    apply_model,
    label_log_likelihoods,
    self_attention_map,
    with_weights,
)
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.storage import read_json, write_json
from jaxformer.text import IGNORE
from jaxformer.viz import AttentionMap

CONTINUES = "to continue text: jaxformer generate {} TEXT"
ANSWERS = "to have messages answered: jaxformer generate {} MESSAGE --chat"
_TEMPLATE = "chat_template.json"
_NEW_TOKENS = 256  # of a continuation by a model made elsewhere, if its folder does not say


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LanguageModel(TextModel):
    """A decoder, which continues text.

    Args:
        chat_template: chat template of a Hugging Face folder, with which it answers; None without.
    """

    chat_template: HuggingFaceChatTemplate | None = None

    kind: ClassVar[str] = "a language model, which continues text"
    behind_prompt: ClassVar[str] = ""  # shown between a prompt and what continues it

    @property
    def module(self) -> Decoder:
        """The decoder."""
        return Decoder(self.config.model)

    @property
    def uses(self) -> tuple[str, ...]:
        """Continuing text, and answering if there is a chat template."""
        return (CONTINUES,) if self.chat_template is None else (CONTINUES, ANSWERS)

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

    def started_from(self, start: TextModel) -> Self:
        """Keeps the chat template of the start."""
        template = getattr(start, "chat_template", None)
        return dataclasses.replace(super().started_from(start), chat_template=template)

    def save(self, folder: pathlib.Path) -> None:
        """Writes the tokenizer, and the chat template if there is one."""
        super().save(folder)
        if (template := self.chat_template) is not None:
            values = {"template": template.template, "names": dict(template.names)}
            write_json(folder / _TEMPLATE, values)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Reads the tokenizer, and the chat template if there is one."""
        model, path, template = super().load(folder, config), folder / _TEMPLATE, None
        if path.exists():
            template = read_json(path, lambda values: HuggingFaceChatTemplate(**values))
        return dataclasses.replace(model, chat_template=template)

    def to_huggingface(self) -> HuggingFaceModel:
        """The model, with the sampling of the config's samples and the chat template."""
        model = super().to_huggingface()
        special = dataclasses.replace(model.unchecked_special_tokens, sampling=self._sampling())
        return model._replace(unchecked_special_tokens=special, chat_template=self.chat_template)

    @property
    def surrounding_tokens(self) -> text.SurroundingTokens:
        """Special tokens before every text; none after it, since the model continues it."""
        return text.SurroundingTokens(before=self.tokenizer.surrounding_tokens.before)

    def encode(self, text: str) -> np.ndarray:
        """Encodes a text, including the spaces around it: int32 [tokens]."""
        return self.surrounded(self.tokenizer.encode(text), text)

    def encode_prompt(self, prompt: str) -> list[int]:
        """Encodes a prompt, after the special tokens that the model reads before every text.

        An empty prompt becomes the end of text of a previous document, if windows run from one
        document into the next.

        Raises:
            DataError: it is empty, or cannot be encoded.
        """
        ids: list[int] = self.surrounding_tokens.around(self.tokenizer.encode(prompt)).tolist()
        if ids:
            return ids
        if (end := self.tokenizer.end_of_text) is None or self.config.data.packing != "windows":
            raise DataError("the prompt is empty; give at least one character to continue")
        return [end]

    def encode_messages(self, messages: Sequence[text.Message]) -> list[int]:
        """Encodes messages and the start of the answer to them.

        Raises:
            ConfigError: the model has no chat template.
            DataError: there are no messages, or one is not a role and a content.
        """
        if self.chat_template is None:
            raise ConfigError(
                f"{self.folder} is a language model without a chat template; an answer needs a "
                "chat model; to continue text: jaxformer generate, without --chat"
            )
        ids: list[int] = self.chat_template.encode(self.tokenizer, messages).tolist()
        return ids

    def generate(
        self, prompt: str, *, max_new_tokens: int | None = None, seed: int = 0, **sampling: Any
    ) -> str:
        """Continues a text.

        Args:
            prompt: text to continue. An empty prompt starts a new document, if windows run from
                one document into the next.
            max_new_tokens: longest continuation, in tokens; default: what fits in the context.
            seed: seed of the sampling.
            **sampling: temperature, top_k, top_p, min_p, repetition_penalty,
                no_repeat_ngram_size, min_length and min_new_tokens, as in `SamplingConfig`;
                default: those of the config's samples.

        Returns:
            The continuation, without the prompt.

        Raises:
            ConfigError: the model comes from a folder with unsupported generation settings; or an
                option is unknown or out of range.
            DataError: the prompt is empty or too long, or cannot be encoded.
        """
        return "".join(
            self.generate_stream(prompt, max_new_tokens=max_new_tokens, seed=seed, **sampling)
        )

    def generate_stream(self, prompt: str, **options: Any) -> Iterator[str]:
        """Continues a text like `generate`, yielding pieces as they are generated."""
        require_supported(self.decoding.unsupported)
        return self._continue(self.encode_prompt(prompt), **options)

    def chat(self, messages: Sequence[text.Message], **options: Any) -> str:
        """Answers a conversation.

        Args:
            messages: dicts with "content" and "role" ("user", "assistant", or another that the
                model was trained on, such as "system"). The last message is the one to answer.
            **options: max_new_tokens, seed and sampling, as in `generate`.

        Returns:
            The answer.

        Raises:
            ConfigError: the model has no chat template, or as in `generate`.
            DataError: there is no message, a message is malformed, or they are too long.
        """
        return "".join(self.chat_stream(messages, **options))

    def chat_stream(self, messages: Sequence[text.Message], **options: Any) -> Iterator[str]:
        """Answers a conversation like `chat`, yielding pieces as they are generated."""
        require_supported(self.decoding.unsupported)
        return self._continue(self.encode_messages(messages), **options)

    def _continue(
        self, ids: list[int], *, max_new_tokens: int | None = None, seed: int = 0, **sampling: Any
    ) -> Iterator[str]:
        """Continues tokens with text, piece by piece."""
        if max_new_tokens is None:
            max_new_tokens = self._longest_continuation(len(ids))
        chunks = generate_stream(
            self.module,
            self.params,
            [ids],
            max_new_tokens=max_new_tokens,
            rng=jax.random.key(seed),
            sampling=self._sampling(**sampling),
            stop_tokens=self.in_vocabulary(self.stop_tokens),
            vocab_size=self.tokenizer.vocab_size,
            forbidden_tokens=self.in_vocabulary(self.decoding.forbidden),
        )
        decoder = self.tokenizer.stream()
        decoder.skip(self.text_before(ids))
        for (tokens,) in chunks:
            yield decoder.push(tokens)
        yield decoder.flush()

    def text_before(self, ids: list[int]) -> list[int]:
        """Tokens of the prompt that the text continues, so that its first space is right."""
        return ids

    def _sample_tokens(self, ids: list[int]) -> int:
        """Largest number of new tokens of a sample."""
        return self.config.samples.max_new_tokens or self._longest_continuation(len(ids))

    def _sampling(self, **options: Any) -> SamplingConfig:
        """Sampling of the config's samples, with options of a call; TypeError for unknown ones."""
        names = [field.name for field in dataclasses.fields(SamplingConfig)]
        values = {name: getattr(self.config.samples, name) for name in names}
        return SamplingConfig(**{**values, **options})

    def _longest_continuation(self, num_tokens: int) -> int:
        """Largest number of new tokens after a prompt: that of the folder, else what fits."""
        special, room = self.decoding, max(1, self.max_len - num_tokens)
        longest = special.max_length
        if longest is not None and special.max_new_tokens is None:
            if num_tokens >= longest:
                raise DataError(
                    f"the model's folder has max_length={longest}, which counts the tokens of the "
                    f"prompt, got {num_tokens} of them; set max_new_tokens"
                )
            return min(room, longest - num_tokens)
        # The context of a model made elsewhere is often much longer than any text.
        return min(room, special.max_new_tokens or (_NEW_TOKENS if special.model_type else room))

    def check_prompt(self, prompt: str) -> None:
        """Raises DataError if a prompt and its continuation do not fit in the context."""
        ids = self.encode_prompt(prompt)
        token_ids.check_prompts(self.config.model, [ids], self._sample_tokens(ids))

    def sample(self, prompt: str, seed: int = 0) -> str:
        """Continues a prompt with the settings of the config's samples; returns both."""
        ids = self.encode_prompt(prompt)
        pieces = self._continue(ids, max_new_tokens=self._sample_tokens(ids), seed=seed)
        return prompt + self.behind_prompt + "".join(pieces)

    def log_likelihood(
        self, texts: Sequence[str], *, prompts: Sequence[str] | None = None
    ) -> list[LogLikelihood]:
        """Computes the log-likelihoods of texts.

        Args:
            texts: list of texts. Padding in batches does not affect the result.
            prompts: list of one prompt per text, encoded separately.

        Returns:
            The log-probability of each text, in nats: of its tokens after the prompt, or of all
            tokens except the first without a prompt.

        Raises:
            DataError: a text is empty or too long, or cannot be encoded; the message has its index.
        """
        columns = [] if prompts is None else [prompts]
        rows = encode_each(texts, self._scored_row, *columns)
        return label_log_likelihoods(self.module, self.params, rows, self.max_len)

    def _scored_row(self, text: str, prompt: str | None = None) -> dict[str, np.ndarray]:
        """Tokens of a text after its prompt, and as labels those that follow, of the text alone."""
        (ids,) = self.tokenizer.encode_documents([text], is_start=not prompt)
        before = [] if prompt is None else self.encode_prompt(prompt)
        if before and not ids.size:
            raise DataError(f"a text after a prompt must have tokens, got {text!r}; write one")
        if prompt is None and ids.size:
            ids = self.surrounding_tokens.around(ids)
        ids = np.concatenate([before, ids]).astype(np.int32)
        if not 2 <= ids.size <= self.max_len + 1:  # the last one is only predicted
            raise DataError(
                f"a text to score must have 2 to max_len + 1 = {self.max_len + 1} tokens, its "
                f"prompt included, got {ids.size} for {text[:20]!r}; "
                + ("shorten it" if ids.size > 1 else "write more, or give a prompt")
            )
        labels = ids[1:].copy()
        labels[: max(0, len(before) - 1)] = IGNORE
        return {"tokens": ids[:-1], "labels": labels}

    def attention(self, text: str) -> list[AttentionMap]:
        """Also has the token after each; behind the last one, the likeliest."""
        ids = self.encode(text)
        output = apply_model(self.module, with_weights, self.params, tokens=ids[None])
        likeliest = output.logits[0, -1, : self.tokenizer.vocab_size].argmax()
        next_ids, weights = np.append(ids[1:], likeliest), output.weights.self_attention
        name = "decoder self-attention"
        return [self_attention_map(name, weights, self.tokenizer, ids, next_ids)]

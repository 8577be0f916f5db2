"""Decoders that answer conversations, by a chat template."""

import abc
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self, Unpack

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import DataError
from jaxformer.interop import HuggingFaceChatTemplate
from jaxformer.runs.text_models.causal import CausalModel, DecodingOptions
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.storage import read_json, write_json

_TEMPLATE = "chat_template.json"


class AnsweringModel(CausalModel):
    """A decoder that answers; a subclass encodes the messages."""

    @abc.abstractmethod
    def encode_messages(self, messages: Sequence[text.Message]) -> list[int]:
        """Encodes messages and the start of the answer to them.

        Raises:
            DataError: there are no messages, or one is not a role and a content.
        """

    def chat(
        self, params: Any, messages: Sequence[text.Message], **options: Unpack[DecodingOptions]
    ) -> str:
        """Answers a conversation."""
        return "".join(self.chat_stream(params, messages, **options))

    def chat_stream(
        self, params: Any, messages: Sequence[text.Message], **options: Unpack[DecodingOptions]
    ) -> Iterator[str]:
        """Answers a conversation, piece by piece."""
        return self.continue_tokens(params, self.encode_messages(messages), **options)


class ConversationModel(AnsweringModel):
    """A decoder trained on conversations; a prompt is a message of the user, too."""

    kind: ClassVar[str] = "a chat model, which answers"
    behind_prompt: ClassVar[str] = "\n"
    packs_texts: ClassVar[bool] = True

    @property
    def template(self) -> text.ChatTemplate:
        """The chat template."""
        return text.ChatTemplate(self.tokenizer, self.config.data.template)

    @classmethod
    def added_tokens(cls, config: ExperimentConfig) -> tuple[str, ...]:
        """The special tokens of the template."""
        return text.ChatTemplate.special_tokens[config.data.template]

    def text_before(self, ids: list[int]) -> list[int]:
        """No tokens: an answer is a separate text, as in training."""
        return []

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """The token that ends an answer."""
        return (self.template.end_of_answer,)

    def encode_prompt(self, prompt: str) -> list[int]:
        """Encodes a user's message and the start of the answer."""
        return self.encode_messages([{"role": "user", "content": prompt}])

    def encode_messages(self, messages: Sequence[text.Message]) -> list[int]:
        """Encodes messages and the start of the answer to them."""
        if not messages:
            raise DataError("an answer needs a message to answer, got none")
        text.check_messages(messages)
        ids: list[int] = self.template.encode_prompt(messages).tolist()
        return ids


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TemplateModel(AnsweringModel):
    """A decoder that continues texts, and answers with the template of a Hugging Face folder.

    Args:
        chat_template: its chat template.
    """

    chat_template: HuggingFaceChatTemplate = HuggingFaceChatTemplate("")

    kind: ClassVar[str] = "a language model, which continues text, and answers"

    @staticmethod
    def is_stored(folder: pathlib.Path) -> bool:
        """Whether a run folder has a template of a Hugging Face folder."""
        return (folder / _TEMPLATE).exists()

    def started_from(self, start: TextModel) -> Self:
        """Keeps the chat template of the start."""
        made = super().started_from(start)
        if not isinstance(start, TemplateModel):
            return made
        return dataclasses.replace(made, chat_template=start.chat_template)

    def encode_messages(self, messages: Sequence[text.Message]) -> list[int]:
        """Encodes messages and the start of the answer with the template."""
        ids: list[int] = self.chat_template.encode(self.tokenizer, messages).tolist()
        return ids

    def save(self, folder: pathlib.Path) -> None:
        """Writes tokenizer and chat template."""
        super().save(folder)
        template = self.chat_template
        values = {"template": template.template, "names": dict(template.names)}
        write_json(folder / _TEMPLATE, values)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Reads tokenizer and chat template."""
        template = read_json(folder / _TEMPLATE, lambda values: HuggingFaceChatTemplate(**values))
        return dataclasses.replace(super().load(folder, config), chat_template=template)

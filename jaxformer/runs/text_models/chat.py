"""A language model that was trained on conversations."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Self

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import DataError
from jaxformer.interop import HuggingFaceChatTemplate, HuggingFaceModel
from jaxformer.runs.text_models.language_model import ANSWERS, CONTINUES, LanguageModel
from jaxformer.runs.text_models.text_model import TextModel

_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_EMPTY_CHAT = "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"


class ChatModel(LanguageModel):
    """A decoder trained on conversations; a prompt is a message of the user, too."""

    kind: ClassVar[str] = "a chat model, which answers"
    behind_prompt: ClassVar[str] = "\n"
    packs_texts: ClassVar[bool] = True
    uses: ClassVar[tuple[str, ...]] = (CONTINUES, ANSWERS)

    @property
    def template(self) -> text.ChatTemplate:
        """The chat template."""
        return text.ChatTemplate(self.tokenizer, self.config.data.template)

    @classmethod
    def added_tokens(cls, config: ExperimentConfig) -> tuple[str, ...]:
        """The special tokens of the template."""
        return text.ChatTemplate.special_tokens[config.data.template]

    def started_from(self, start: TextModel) -> Self:
        """Keeps no chat template of the start, since it learns its own."""
        return dataclasses.replace(super().started_from(start), chat_template=None)

    def to_huggingface(self) -> HuggingFaceModel:
        """The model, with "chatml" as a template of Jinja if that makes the same tokens."""
        model, tokenizer = super().to_huggingface(), self.tokenizer
        if self.config.data.template != "chatml":
            return model
        first = "".join(map(tokenizer.token_name, tokenizer.surrounding_tokens.before))
        ids = tokenizer.encode_with_special_tokens(first + _EMPTY_CHAT)
        # Some tokenizers put a space behind a special token, and this template does not.
        empty = self.template.encode_prompt([{"role": "user", "content": ""}])
        if ids.tolist() != empty.tolist():
            return model
        return model._replace(chat_template=HuggingFaceChatTemplate(first + _CHATML))

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

"""Tasks of a decoder that answers conversations."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

from jaxformer import text
from jaxformer.runs.causal import CausalTask, DecodingOptions

__all__ = ["AnsweringTask"]


class AnsweringTask(CausalTask):
    """A task of a decoder that answers; a subclass says how messages become tokens."""

    @abc.abstractmethod
    def encode_messages(self, messages: Sequence[text.Message]) -> list[int]:
        """Encodes messages, and the beginning of the answer to them.

        Raises:
            DataError: there is none, or one is not made of a role and a content.
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

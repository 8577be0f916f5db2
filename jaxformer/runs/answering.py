"""Tasks of a decoder that answers conversations."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

from jaxformer import text
from jaxformer.runs.causal import CausalTask, DecodingOptions

__all__ = ["AnsweringTask"]


class AnsweringTask(CausalTask):
    """A task of a decoder that answers; a subclass encodes the messages."""

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

"""Chat templates: how the messages of a conversation become tokens."""

from collections.abc import Sequence
from typing import Literal, TypedDict

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.tokenizers.tokenizer import Tokenizer

ASSISTANT = "assistant"
"""The role whose messages are answers."""

TemplateName = Literal["chatml", "plain"]

_START, _END = "<|im_start|>", "<|im_end|>"

_Part = tuple[str | np.ndarray, bool]
"""Text or tokens of a conversation, and whether they are of an answer or end one."""


class Message(TypedDict):
    """A message of a conversation.

    Args:
        role: the speaker: "user", "assistant", or another, such as "system".
        content: the text.
    """

    role: str
    content: str


class ChatTemplate:
    r"""Turns messages into tokens, with markers for the speaker.

    The template "chatml" is `<|im_start|>`, the role and a line break, the content, `<|im_end|>`
    and a line break. Both markers are special tokens, which are never parsed from text. So nothing
    that users write can end their message. The template "plain" is for tokenizers without these
    tokens: a heading such as `### User:` in ordinary text, and the end of text after each answer.
    Before the first message are the tokens that the tokenizer puts before every text, if any. The
    parts of a conversation are encoded as parts of one text: no space is put before each.

    Attributes:
        end_of_answer: token that ends an answer.

    Args:
        tokenizer: tokenizer of the messages.
        name: "chatml" or "plain".

    Raises:
        DataError: the tokenizer lacks the special tokens of the template.

    References:
        OpenAI, Chat Markup Language, 2023.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> template = ChatTemplate(byte_tokenizer(), "plain")
        >>> ids = template.encode_prompt([{"role": "user", "content": "Hello!"}])
        >>> byte_tokenizer().decode(ids)
        '### User:\nHello!\n\n### Assistant:\n'
    """

    special_tokens = {"chatml": (_START, _END), "plain": ()}

    def __init__(self, tokenizer: Tokenizer, name: TemplateName = "chatml") -> None:
        self._tokenizer, self._name = tokenizer, name
        start, end = tokenizer.special_id(_START), tokenizer.special_id(_END)
        if name == "plain":
            start, end = None, tokenizer.end_of_text
        if end is None or (name == "chatml" and start is None):
            needed = f"{_START} and {_END}" if name == "chatml" else "an end of text"
            raise DataError(
                f"the chat template {name!r} needs a tokenizer with {needed}, got one without; "
                + ("use the template 'plain'" if name == "chatml" else "use another tokenizer")
            )
        self._first = np.array(tokenizer.surrounding_tokens.before, np.int32)
        self._start = np.array([] if start is None else [start], np.int32)
        self.end_of_answer: int = end

    @staticmethod
    def frame(name: TemplateName, role: str) -> tuple[str, str]:
        r"""Ordinary text that a template puts before and after the messages of a role.

        Example:
            >>> ChatTemplate.frame("plain", "user")
            ('### User:\n', '\n\n')
        """
        if name == "chatml":
            return f"{role}\n", "\n"
        return f"### {role.capitalize()}:\n", "" if role == ASSISTANT else "\n\n"

    def encode(
        self, conversations: Sequence[Sequence[Message]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Encodes whole conversations, on all cores.

        Args:
            conversations: messages of each conversation. No tokens follow those of the last
                message.

        Returns:
            For each conversation its tokens, int32 [tokens], and whether each is of an answer or
            ends one: bool [tokens].

        Raises:
            DataError: a message has a lone surrogate, or a character that a character tokenizer
                does not know.
        """
        return self._encoded([self._parts(messages) for messages in conversations])

    def encode_prompt(self, messages: Sequence[Message]) -> np.ndarray:
        """Encodes messages and the start of the answer to them: int32 [tokens]."""
        before, _ = self.frame(self._name, ASSISTANT)
        parts = [*self._parts(messages), (self._start, False), (before, False)]
        ((tokens, _),) = self._encoded([parts])
        return tokens

    def _parts(self, messages: Sequence[Message]) -> list[_Part]:
        """The parts of a conversation, in order."""
        parts: list[_Part] = [(self._first, False)]
        for message in messages:
            before, behind = self.frame(self._name, message["role"])
            is_answer = message["role"] == ASSISTANT
            has_end = is_answer or self._name == "chatml"
            end = np.array([self.end_of_answer] if has_end else [], np.int32)
            parts += [(self._start, False), (before, False), (message["content"], is_answer)]
            parts += [(end, is_answer), (behind, False)]
        return parts

    def _encoded(
        self, conversations: Sequence[Sequence[_Part]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Tokens of conversations, whose texts are encoded all at once; and which are answers."""
        texts = [part for parts in conversations for part, _ in parts if isinstance(part, str)]
        encoded = iter(self._tokenizer.encode_documents(texts, is_start=False))
        results = []
        for parts in conversations:
            arrays = [next(encoded) if isinstance(part, str) else part for part, _ in parts]
            is_answer = np.repeat([answers for _, answers in parts], [len(ids) for ids in arrays])
            results.append((np.concatenate(arrays, dtype=np.int32), is_answer))
        return results

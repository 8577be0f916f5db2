"""Conversations: reading them, and encoding training examples with a loss on answers only."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.text.sources.records import Row, has_records, read_field
from jaxformer.text.store.arrays import IGNORE, Example
from jaxformer.text.tables.table import Table
from jaxformer.text.tokenizers.chat_templates import ASSISTANT, ChatTemplate, Message
from jaxformer.text.tokenizers.texts import require_texts

_FIELD = "messages"
_KEYS = ("role", "content")


@dataclasses.dataclass(frozen=True)
class Conversations(Table):
    r"""Conversations, each with the prompt of its first answer.

    In a JSON Lines file, each line is an object with `messages`, a list of objects with `role` and
    `content`. In a Parquet or Arrow file, `messages` is a column. At least one message must be an
    answer (role "assistant"), and the first answer must follow another message.

    Args:
        prompts: content of the message before the first answer.
        conversations: JSON of the messages.
        lines: number of each conversation in the files; 1, 2, 3 and so on if not given.

    Raises:
        DataError: there are more prompts than conversations, or fewer.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "chat.jsonl")
        >>> question, answer = {"role": "user", "content": "2+2?"}, "four"
        >>> messages = [question, {"role": "assistant", "content": answer}]
        >>> _ = path.write_text(json.dumps({"messages": messages}))
        >>> conversations, counts = Conversations.read([str(path)])
        >>> conversations.prompts, conversations.messages[0] == messages
        (('2+2?',), True)
    """

    unit = "conversations"
    layout = 'an object such as {"messages": [{"role": "user", "content": "Hello!"}, ...]}'
    inputs = ("prompts",)

    prompts: tuple[str, ...]
    conversations: tuple[str, ...]

    @classmethod
    def of(cls, conversations: Sequence[Sequence[Message]]) -> Self:
        """Makes a table of conversations, each with an answer."""
        rows = [_columns(list(messages)) for messages in conversations]
        return cls(*map(tuple, zip(*rows, strict=True)))

    @classmethod
    def rows(cls, paths: Sequence[str]) -> Iterator[Row]:
        """Reads conversations from a JSON Lines, Parquet or Arrow file."""
        file = as_path(paths[0])
        if not has_records(file):
            raise DataError(
                "conversations are read from .jsonl, .json, .parquet or .arrow files, got "
                f"'{file}'; each line must be {cls.layout}"
            )
        for line, messages in read_field(file, field=_FIELD, kind=list, noun="messages"):
            try:
                yield Row(str(line), _columns(messages))
            except DataError as error:
                raise DataError(f"{file}:{line}: this is not a conversation: {error}") from error

    @property
    def messages(self) -> list[list[Message]]:
        """The messages of each conversation."""
        return list(map(json.loads, self.conversations))

    @property
    def num_answer_bytes(self) -> int:
        """UTF-8 bytes of all answers."""
        return sum(
            len(message["content"].encode())
            for messages in self.messages
            for message in messages
            if message["role"] == ASSISTANT
        )


def encode_conversations(conversations: Conversations, template: ChatTemplate) -> list[Example]:
    """Encodes conversations as training examples of a decoder.

    Each example is a dict of int32 arrays:

    - tokens: [T], the conversation up to the end of its last answer;
    - labels: [T], the next token if it belongs to an answer or ends one, else `IGNORE`.

    Args:
        conversations: conversations to encode.
        template: chat template.

    Returns:
        An example for each conversation.

    Raises:
        DataError: the tokenizer cannot encode a conversation.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]
        >>> (example,) = encode_conversations(
        ...     Conversations.of([messages]), ChatTemplate(byte_tokenizer(), "plain")
        ... )
        >>> example["labels"][-5:].tolist()
        [-1, 98, 99, 256, -1]
    """
    examples = []
    for tokens, is_answer in template.encode(conversations.messages):
        # Nothing is predicted after the end of the last answer.
        size = int(np.flatnonzero(is_answer)[-1]) + 1
        following = np.where(is_answer, tokens, np.int32(IGNORE))[1:size]
        labels = np.append(following, np.int32(IGNORE))
        examples.append({"tokens": tokens[:size], "labels": labels})
    return examples


def _columns(messages: list[Any]) -> tuple[str, str]:
    """The prompt and the JSON of a conversation; DataError if the messages are not one."""
    check_messages(messages)
    answers = [i for i, message in enumerate(messages) if message["role"] == ASSISTANT]
    if not answers:
        raise DataError(f"one message must have the role {ASSISTANT!r}, the answer, got none")
    if answers[0] == 0:
        raise DataError(f"the first message must not have the role {ASSISTANT!r}")
    plain = [{key: message[key] for key in _KEYS} for message in messages]
    return messages[answers[0] - 1]["content"], json.dumps(plain, ensure_ascii=False)


def check_messages(messages: Sequence[Any]) -> None:
    """Raises DataError if a message is not exactly a role and a content, both text."""
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise DataError(f"message {index} must be a dict, got {message!r:.40}")
        for key in _KEYS:
            value = message.get(key)
            if not isinstance(value, str) or not value.strip():
                raise DataError(f"message {index} must have text under {key!r}, got {value!r:.40}")
            require_texts([value])
        more = sorted(key for key in message if key not in _KEYS and message[key] is not None)
        if more:  # such as tool calls, which would be lost
            raise DataError(
                f"message {index} must have only a role and a content, got also "
                f"{', '.join(more)}; leave them out"
            )

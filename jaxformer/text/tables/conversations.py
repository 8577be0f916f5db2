"""Conversations: reading them, and encoding training examples with a loss on answers only."""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.text.sources.record_files import BadRecords, Errors, has_records, read_records
from jaxformer.text.store.ragged import IGNORE, Example
from jaxformer.text.tables.table import Table
from jaxformer.text.tokenizers.chat_templates import ASSISTANT, ChatTemplate, Message
from jaxformer.text.tokenizers.pieces import require_texts

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
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "chat.jsonl")
        >>> question, answer = {"role": "user", "content": "2+2?"}, "four"
        >>> messages = [question, {"role": "assistant", "content": answer}]
        >>> _ = path.write_text(json.dumps({"messages": messages}))
        >>> found, counts = Conversations.read([str(path)])
        >>> found.prompts, found.messages[0] == messages
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
        rows = [(str(i), _row(list(one))) for i, one in enumerate(conversations, 1)]
        found, counts = cls.of_rows(rows)
        if found is None or len(found) < len(conversations):
            raise DataError(f"every message of a conversation must have text: {counts}")
        return found

    @classmethod
    def rows(
        cls, paths: Sequence[str], *, errors: Errors = "strict"
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """Reads conversations from JSON Lines, Parquet or Arrow files.

        Args:
            paths: the files: `.jsonl`, `.ndjson` or `.json`, optionally followed by `.gz`, `.bz2`,
                `.xz` or `.zst`; `.parquet` or `.arrow`.
            errors: "strict", or "skip" to skip invalid conversations.

        Yields:
            The number of a conversation, its prompt and its JSON; no columns for a skipped one.

        Raises:
            DataError: there is no path, a file is missing, damaged or of another kind, or a line
                is not a conversation.
        """
        if isinstance(paths, str) or not paths:
            raise DataError(f"paths must be a list of JSON Lines files, got {paths!r}; name one")
        number = 0
        for path in map(as_path, paths):
            if not has_records(path):
                raise DataError(
                    "conversations are read from .jsonl, .json, .parquet or .arrow files, got "
                    f"'{path}'; each line must be {cls.layout}"
                )
            bad, left_out = BadRecords(errors), 0
            for row in itertools.chain(_rows(path, bad), [None]):
                for _ in range(bad.count - left_out):
                    number += 1
                    yield str(number), ()
                left_out = bad.count
                if row is not None:
                    number += 1
                    yield str(number), row

    @property
    def messages(self) -> list[list[Message]]:
        """The messages of each conversation."""
        return [json.loads(one) for one in self.conversations]

    def all_texts(self) -> Iterator[str]:
        """The role and the content of every message."""
        messages = itertools.chain.from_iterable(self.messages)
        return (text for message in messages for text in (message["role"], message["content"]))

    @classmethod
    def row_of(cls, text: str) -> tuple[str, ...]:
        """Columns of a conversation in which this text is both prompt and answer."""
        return _row([{"role": role, "content": text} for role in ("user", ASSISTANT)])

    @property
    def num_answer_bytes(self) -> int:
        """UTF-8 bytes of all answers."""
        return sum(
            len(one["content"].encode())
            for messages in self.messages
            for one in messages
            if one["role"] == ASSISTANT
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
    for encoded in template.encode(conversations.messages):
        # Nothing is predicted after the end of the last answer.
        size = int(np.flatnonzero(encoded.is_answer)[-1]) + 1
        tokens, is_answer = (array[:size] for array in encoded)
        following = np.where(is_answer, tokens, np.int32(IGNORE))[1:]
        examples.append({"tokens": tokens, "labels": np.append(following, np.int32(IGNORE))})
    return examples


def _rows(path: pathlib.Path, bad: BadRecords) -> Iterator[tuple[str, str]]:
    """Prompt and JSON of the conversations of a file."""
    for record in read_records(path, bad, field=_FIELD, kind=list, noun="messages"):
        try:
            yield _row(record.value)
        except DataError as error:
            bad.add(record.where, f", is not a conversation: {error}")


def _row(messages: list[Any]) -> tuple[str, str]:
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
        others = sorted(key for key in message if key not in _KEYS and message[key] is not None)
        if others:  # such as tool calls, which would be lost
            raise DataError(
                f"message {index} must have only a role and a content, got also "
                f"{', '.join(others)}; leave them out"
            )

"""Hugging Face chat templates, which turn conversations into the tokens that a model expects."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxformer.errors import CheckpointError, DataError
from jaxformer.interop.chat.rendering import render
from jaxformer.interop.tokenizers.settings import read_settings, read_text
from jaxformer.text import Tokenizer

_FILE = "chat_template.jinja"


@dataclasses.dataclass(frozen=True)
class HuggingFaceChatTemplate:
    """A chat template: a Jinja program that writes a conversation as text.

    Names of special tokens in that text become their ids. A message that contains such a name is
    refused, so that none can end its turn or start another.

    Args:
        template: source code of the template.
        names: names of the special tokens, such as {"bos_token": "<s>"}.
    """

    template: str
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        allow_special: bool = False,
    ) -> np.ndarray:
        """Converts a conversation to token ids; needs jinja2 (`pip install "jaxformer[hf]"`).

        Args:
            tokenizer: tokenizer of the same folder.
            messages: messages of the conversation, each with "role" and "content".
            add_generation_prompt: whether to add the start of an answer after the last message.
            allow_special: whether messages may contain names of special tokens, which then become
                these tokens. If they come from strangers, they can pretend to be another role.

        Returns:
            int32 [tokens].

        Raises:
            ConfigError: jinja2 is missing.
            DataError: the template fails, or does not accept the messages; or a message contains
                the name of a special token.

        Example:
            >>> from jaxformer.text import byte_tokenizer, with_special_tokens
            >>> tokenizer = with_special_tokens(byte_tokenizer(), ["<|user|>", "<|bot|>"])
            >>> template = HuggingFaceChatTemplate(
            ...     "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|bot|>"
            ... )
            >>> template.encode(tokenizer, [{"role": "user", "content": "a"}])
            array([257,  97, 258], dtype=int32)
        """
        plain, special = _checked(messages), tokenizer.special_names
        eos = self.names.get("eos_token")
        renamed = None  # the end of text of a tokenizer that has another name for it
        if eos is not None and eos not in special and tokenizer.end_of_text is not None:
            renamed = eos
        if not allow_special:
            _require_ordinary(plain, [*special, *([renamed] if renamed else [])])
        text = render(
            self.template, messages=plain, tools=None, documents=None,
            add_generation_prompt=add_generation_prompt, **self.names,
        )  # fmt: skip
        if renamed is not None and tokenizer.end_of_text is not None:
            text = text.replace(renamed, tokenizer.token_name(tokenizer.end_of_text))
        return tokenizer.encode_with_special_tokens(text)


def load_chat_template(folder: pathlib.Path) -> HuggingFaceChatTemplate | None:
    """Loads the chat template of a Hugging Face folder.

    Args:
        folder: folder with `chat_template.jinja`, or with `chat_template` in
            `tokenizer_config.json`; of several named templates, the one named "default" is loaded.

    Returns:
        The template; None if the folder has none.

    Raises:
        CheckpointError: a file is damaged, or none of several templates is named "default".
    """
    settings = read_settings(folder)
    template = settings.values.get("chat_template")
    if (folder / _FILE).exists():
        template = read_text(folder / _FILE)
    if isinstance(template, list) and all(isinstance(one, dict) for one in template):
        named = {one.get("name"): one.get("template") for one in template}
        if "default" not in named:
            raise CheckpointError(
                f"chat_template of {folder / 'tokenizer_config.json'} must have one named "
                f"'default', got {list(named)}; save the one to use as {_FILE}"
            )
        template = named["default"]
    if template is None:
        return None
    if not isinstance(template, str):
        raise CheckpointError(
            f"chat_template of {folder / 'tokenizer_config.json'} must be text, or a list of named "
            f"templates, got {type(template).__name__}"
        )
    names = {f"{role}_token": name for role, name in settings.names.items()}
    return HuggingFaceChatTemplate(template, names)


def _checked(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages as plain JSON values, so that a template gets nothing that it could call."""
    if isinstance(messages, str | bytes | Mapping) or not messages:
        raise DataError(
            'messages must be a non-empty list, such as [{"role": "user", "content": "..."}], got '
            f"{str(messages)[:60]!r}"
        )
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise DataError(
                f'a message must be a mapping with a "role", got {str(message)[:60]!r}; see '
                "the template for the messages that it accepts"
            )
    try:
        plain: list[dict[str, Any]] = json.loads(json.dumps([dict(one) for one in messages]))
    except (TypeError, ValueError) as error:
        raise DataError(f"messages must be text, numbers, lists and mappings: {error}") from None
    return [{key: value for key, value in one.items() if value is not None} for one in plain]


def _require_ordinary(messages: Sequence[Mapping[str, Any]], special: Sequence[str]) -> None:
    """Raises DataError if a text in messages contains the name of a special token."""
    for text in _texts(messages):
        name = next((name for name in special if name in text), None)
        if name is not None:
            raise DataError(
                f"a message must not contain the special token {name!r}, got {text[:60]!r}; remove "
                "it, or pass allow_special=True if the text is your own"
            )


def _texts(value: Any) -> Iterator[str]:
    """All texts in JSON values, keys included."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            yield from _texts([*value.keys(), *value.values()])

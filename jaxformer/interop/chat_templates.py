"""Hugging Face chat templates, which turn conversations into the tokens that a model expects."""

import dataclasses
import importlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxformer.errors import ConfigError, DataError
from jaxformer.interop.tokenizers.loading import read_tokenizer_config, special_token_names
from jaxformer.storage import read_whole
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
    ) -> np.ndarray:
        """Converts a conversation to token ids; needs `pip install "jaxformer[hf]"`.

        Args:
            tokenizer: tokenizer of the same folder.
            messages: messages of the conversation, each with "role" and "content".
            add_generation_prompt: whether to add the start of an answer after the last message.

        Returns:
            int32 [tokens].

        Raises:
            ConfigError: transformers is missing.
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
        if not messages or not isinstance(messages[0], Mapping):
            raise DataError(
                'messages must be a list, such as [{"role": "user", "content": "..."}], got '
                f"{messages!r}"
            )
        messages = [  # without values that are None, as transformers passes them to a template
            {key: value for key, value in message.items() if value is not None}
            for message in messages
        ]
        _require_ordinary(messages, tokenizer.special_names)
        text = _render(
            messages, chat_template=self.template, add_generation_prompt=add_generation_prompt,
            **self.names,
        )  # fmt: skip
        return tokenizer.encode_with_special_tokens(text)


def load_chat_template(folder: pathlib.Path) -> HuggingFaceChatTemplate | None:
    """Loads the chat template of a Hugging Face folder.

    Args:
        folder: folder with `chat_template.jinja`, or with `chat_template` in
            `tokenizer_config.json`; of several named templates, the one named "default" is loaded.

    Returns:
        The template; None if the folder has none.

    Raises:
        CheckpointError: a file is damaged.
    """
    config = read_tokenizer_config(folder)
    template = config.get("chat_template")
    if (folder / _FILE).exists():
        template = read_whole(folder / _FILE).decode()
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    if template is None:
        return None
    names = {f"{role}_token": name for role, name in special_token_names(config).items()}
    return HuggingFaceChatTemplate(template, names)


def _require_ordinary(messages: Sequence[Mapping[str, Any]], special: Sequence[str]) -> None:
    """Raises DataError if a message contains, at any depth, the name of a special token."""
    for message in messages:
        text = json.dumps(message, ensure_ascii=False)
        for name in special:
            if json.dumps(name, ensure_ascii=False)[1:-1] in text:  # without its quotes
                raise DataError(
                    f"a message must not contain the special token {name!r}, got {text[:90]}; "
                    "remove it"
                )


def _render(messages: Sequence[Mapping[str, Any]], **values: Any) -> str:
    """Renders a chat template in the sandbox of transformers."""
    try:
        library = importlib.import_module("transformers.utils.chat_template_utils")
    except ImportError as error:
        raise ConfigError(
            f'a chat template needs transformers, got "{error}"; pip install "jaxformer[hf]"'
        ) from error
    try:
        texts, _ = library.render_jinja_template([messages], **values)
    except Exception as error:  # untrusted code may raise any exception
        raise DataError(f"the chat template cannot be used for these messages: {error}") from error
    text: str = texts[0]
    return text

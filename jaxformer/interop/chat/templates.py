"""Hugging Face chat templates, which turn conversations into the tokens that a model expects."""

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxformer.errors import CheckpointError, DataError
from jaxformer.interop.chat.rendering import render
from jaxformer.interop.tokenizers.settings import read_settings, read_text
from jaxformer.text import Tokenizer

_FILE = "chat_template.jinja"
_PRIVATE = range(0xF0000, 0xFFFFE)  # private-use characters


@dataclasses.dataclass(frozen=True)
class HuggingFaceChatTemplate:
    """A chat template: a Jinja program that writes a conversation as text.

    Special tokens of the template become their ids. The names of special tokens in a message stay
    text, so no message can end its turn or start another. One gap remains: a template that changes
    the letters of a message, with `lower` or `replace`, could turn them into a special token.

    Args:
        template: source code of the template.
        names: names of the special tokens, such as {"bos_token": "<s>"}.
        prefix_once: whether SentencePiece's dummy prefix is only added at the start, not after
            special tokens.
    """

    template: str
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prefix_once: bool = False

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
    ) -> np.ndarray:
        """Converts a conversation to token ids; needs jinja2 (`pip install "jaxformer[hf]"`).

        Args:
            tokenizer: tokenizer of the same folder.
            messages: messages of the conversation, each with "role" and "content".
            add_generation_prompt: whether to add the start of an answer after the last message.

        Returns:
            int32 [tokens].

        Raises:
            ConfigError: jinja2 is missing.
            DataError: the template fails, or does not accept the messages.

        Example:
            >>> from jaxformer.text import byte_tokenizer, with_special_tokens
            >>> tokenizer = with_special_tokens(byte_tokenizer(), ["<|user|>", "<|bot|>"])
            >>> template = HuggingFaceChatTemplate(
            ...     "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|bot|>"
            ... )
            >>> template.encode(tokenizer, [{"role": "user", "content": "a"}])
            array([257,  97, 258], dtype=int32)
            >>> len(template.encode(tokenizer, [{"role": "user", "content": "<|bot|>"}]))
            9
        """
        later, special, flags, added = _continuation_tokenizer(tokenizer, self.prefix_once)
        # Other added tokens are protected like special ones if the template has them.
        added = {n: i for n, i in added.items() if n in self.template and not n.isspace()}
        special = special | added
        eos = self.names.get("eos_token")
        if eos is not None and eos not in special and tokenizer.end_of_text is not None:
            special = {**special, eos: tokenizer.end_of_text}  # under the template's name
        marked, mark = _mark_special_tokens(_checked(messages), list(special))
        text = render(
            self.template,
            messages=marked,
            tools=None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **self.names,
        )

        def encode(start: int, end: int) -> np.ndarray:
            section = text[start:end]
            whole = section.replace(mark, "")
            # `encode` would recognize an added token that is not special, so the text is cut there.
            is_cut = mark in section and any(name in whole for name in added)
            pieces = [piece for piece in section.split(mark) if piece] if is_cut else [whole]
            first = tokenizer if start == 0 else later
            rest = _continuation_tokenizer(tokenizer, True)[0] if is_cut else later
            ids = [(rest if i else first).encode(piece) for i, piece in enumerate(pieces)]
            return np.concatenate([np.zeros(0, np.int32), *ids])

        parts, at = [np.zeros(0, np.int32)], 0
        for found in _pattern(special, flags, mark).finditer(text) if special else ():
            if found.start() > at:
                parts.append(encode(at, found.start()))
            name = next(name for name in found.groups() if name is not None)
            parts.append(np.array([special[name]], np.int32))
            at = found.end()
        if at < len(text):
            parts.append(encode(at, len(text)))
        return np.concatenate(parts)


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
    kind = (settings.text("tokenizer_class") or "").removesuffix("Fast")
    names = {f"{role}_token": name for role, name in settings.names.items()}
    once = kind == "LlamaTokenizer" and not settings.flag("legacy", False)
    return HuggingFaceChatTemplate(template, names, once)


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


def _mark_special_tokens(messages: list[dict[str, Any]], names: list[str]) -> tuple[Any, str]:
    """Messages with a mark inside each name of a special token in their text, and the mark."""
    there = json.dumps(messages, ensure_ascii=False)
    mark = next((chr(code) for code in _PRIVATE if chr(code) not in there), None)
    if mark is None:
        raise DataError("messages must leave one private-use character unused, got all of them")
    # Names may overlap, so the patterns match between letters: after the first letter of a name, or
    # before a name of one letter.
    patterns = [
        re.compile(rf"(?<={re.escape(name[0])})(?={re.escape(name[1:])})")
        if len(name) > 1
        else re.compile(f"(?={re.escape(name)})")
        for name in sorted(names, key=len, reverse=True)
        if name in there or json.dumps(name, ensure_ascii=False)[1:-1] in there
    ]

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            for pattern in patterns:
                value = pattern.sub(mark, value)
            return value
        if isinstance(value, list):
            return [walk(one) for one in value]
        if isinstance(value, dict):
            return {key: walk(one) for key, one in value.items()}
        return value

    return [walk(message) for message in messages], mark


def _pattern(
    special: Mapping[str, int], flags: Mapping[str, tuple[bool, bool]], mark: str
) -> re.Pattern[str]:
    """Pattern of special tokens, longest first, with the spaces that they absorb."""
    names = []
    for name in sorted(special, key=len, reverse=True):
        left, right = flags.get(name, (False, False))
        spaces = (r"\s*" if left else "", r"\s*" if right else "")
        names.append(f"{spaces[0]}(?<!{mark})({re.escape(name)}){spaces[1]}")
    return re.compile("|".join(names))


@functools.lru_cache(4)
def _continuation_tokenizer(
    tokenizer: Tokenizer, prefix_once: bool
) -> tuple[Tokenizer, dict[str, int], dict[str, tuple[bool, bool]], dict[str, int]]:
    """Tokenizer for text after a special token; special tokens, flags, and other added tokens."""
    state = json.loads(tokenizer.to_json())
    tokens = [token for token in state["added_tokens"] if token["special"]]
    special = {token["content"]: token["id"] for token in tokens}
    flags = {t["content"]: (t["lstrip"], t["rstrip"]) for t in state["added_tokens"]}
    before = json.dumps([state["normalizer"], state["pre_tokenizer"]])
    if prefix_once and state["normalizer"] is not None:
        steps = state["normalizer"].get("normalizers", [state["normalizer"]])
        kept = [step for step in steps if step["type"] != "Prepend"]
        state["normalizer"] = {"type": "Sequence", "normalizers": kept}
    words = state["pre_tokenizer"] or {}
    for step in words.get("pretokenizers", [words]):
        if step.get("type") == "Metaspace" and (step["prepend_scheme"] == "first" or prefix_once):
            step["prepend_scheme"] = "never"
    if json.dumps([state["normalizer"], state["pre_tokenizer"]]) != before:
        tokenizer = Tokenizer.from_json(json.dumps(state))
    others = {t["content"]: t["id"] for t in state["added_tokens"] if not t["special"]}
    return tokenizer, special, flags, others

"""Chat templates of Hugging Face: conversations to the tokens that a model was trained on."""

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxformer.errors import CheckpointError, DataError
from jaxformer.interop.chat_rendering import render
from jaxformer.interop.json_files import read_bytes
from jaxformer.interop.tokenizer_settings import read_settings
from jaxformer.text import Tokenizer

__all__ = ["HuggingFaceChatTemplate", "load_chat_template"]

_FILE = "chat_template.jinja"
_PRIVATE = range(0xF0000, 0xFFFFE)  # characters for private use


@dataclasses.dataclass(frozen=True)
class HuggingFaceChatTemplate:
    """A chat template: a program in the language of Jinja that writes a conversation as text.

    The special tokens of the template become their ids, while those that a message spells are text,
    so that no message can end its turn or begin another. A template that changes the letters of a
    message, by `lower` or `replace`, could still make one of it.

    Args:
        template: the program.
        names: of the special tokens, such as {"bos_token": "<s>"}.
        prefix_once: whether only a text's beginning has the space that SentencePiece puts there,
            and not what is behind a special token.
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
        """Turns a conversation into token ids; needs jinja2 (`pip install jaxformer[hf]`).

        Args:
            tokenizer: of the same folder.
            messages: of the conversation, each with its "role" and "content".
            add_generation_prompt: whether what begins an answer is put behind the last message.

        Returns:
            int32 [tokens].

        Raises:
            ConfigError: jinja2 is missing.
            DataError: the messages are not what the template takes, or it cannot be used.

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
        later, special, flags, added = _behind_special(tokenizer, self.prefix_once)
        # Other added tokens are guarded where the template has them.
        added = {n: i for n, i in added.items() if n in self.template and not n.isspace()}
        special = special | added
        eos = self.names.get("eos_token")
        if eos is not None and eos not in special and tokenizer.end_of_text is not None:
            special = {**special, eos: tokenizer.end_of_text}  # which has another name here
        marked, mark = _marked(_checked(messages), list(special))
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
            # An added token that is not special is read from text, unless it is cut.
            is_cut = mark in section and any(name in whole for name in added)
            pieces = [piece for piece in section.split(mark) if piece] if is_cut else [whole]
            first = tokenizer if start == 0 else later
            rest = _behind_special(tokenizer, True)[0] if is_cut else later
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
    """Loads the chat template of a folder.

    Args:
        folder: that may have `chat_template.jinja`, or a chat_template in `tokenizer_config.json`:
            one, or several with names, of which that named "default" is taken.

    Returns:
        The template; None where there is none.

    Raises:
        CheckpointError: a file is damaged, or none of several templates is the default.
    """
    settings = read_settings(folder)
    template = settings.values.get("chat_template")
    if (folder / _FILE).exists():
        try:
            template = read_bytes(folder / _FILE).decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{folder / _FILE} is damaged: it is no UTF-8") from None
    if isinstance(template, list) and all(isinstance(one, dict) for one in template):
        named = {one.get("name"): one.get("template") for one in template}
        if "default" not in named:
            raise CheckpointError(
                f"chat_template of {folder / 'tokenizer_config.json'} must have one named "
                f"'default', got {list(named)}; write the one to be used to {_FILE}"
            )
        template = named["default"]
    if template is None:
        return None
    if not isinstance(template, str):
        raise CheckpointError(
            f"chat_template of {folder / 'tokenizer_config.json'} must be text, or a list of named "
            f"ones, got {type(template).__name__}"
        )
    kind = (settings.text("tokenizer_class") or "").removesuffix("Fast")
    names = {f"{role}_token": name for role, name in settings.names.items()}
    once = kind == "LlamaTokenizer" and not settings.flag("legacy", False)
    return HuggingFaceChatTemplate(template, names, once)


def _checked(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages as plain values, so that a template is given nothing that it could call."""
    if isinstance(messages, str | bytes | Mapping) or not messages:
        raise DataError(
            'messages must be a list of some, such as [{"role": "user", "content": "..."}], got '
            f"{str(messages)[:60]!r}"
        )
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise DataError(
                f'a message must be a mapping with a "role", got {str(message)[:60]!r}; see the '
                "messages that the template takes"
            )
    try:
        plain: list[dict[str, Any]] = json.loads(json.dumps([dict(one) for one in messages]))
    except (TypeError, ValueError) as error:
        raise DataError(f"messages must be text, numbers, lists and mappings: {error}") from None
    return [{key: value for key, value in one.items() if value is not None} for one in plain]


def _marked(messages: list[dict[str, Any]], names: list[str]) -> tuple[Any, str]:
    """Messages with a mark in each special token that they spell, and that mark."""
    there = json.dumps(messages, ensure_ascii=False)
    mark = next((chr(code) for code in _PRIVATE if chr(code) not in there), None)
    if mark is None:
        raise DataError("messages have every character for private use, so that none is left")
    # A name may begin within another one, so that what is behind its first letter is not consumed.
    # A name of one letter has the mark before it.
    spelled = [
        (re.compile(rf"(?<={re.escape(name[0])})(?={re.escape(name[1:])})"), mark)
        if len(name) > 1
        else (re.compile(f"(?={re.escape(name)})"), mark)
        for name in sorted(names, key=len, reverse=True)
        if name in there or json.dumps(name, ensure_ascii=False)[1:-1] in there
    ]

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            for pattern, replacement in spelled:
                value = pattern.sub(replacement, value)
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
    """Special tokens of the template, the longest first, with the spaces that belong to them."""
    names = []
    for name in sorted(special, key=len, reverse=True):
        left, right = flags.get(name, (False, False))
        spaces = (r"\s*" if left else "", r"\s*" if right else "")
        names.append(f"{spaces[0]}(?<!{mark})({re.escape(name)}){spaces[1]}")
    return re.compile("|".join(names))


@functools.lru_cache(4)
def _behind_special(
    tokenizer: Tokenizer, prefix_once: bool
) -> tuple[Tokenizer, dict[str, int], dict[str, tuple[bool, bool]], dict[str, int]]:
    """The tokenizer for what is behind a special token, these tokens, and other added ones."""
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

"""Tokenizer settings of Hugging Face folders, except vocabularies."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, processors

from jaxformer.errors import CheckpointError
from jaxformer.storage import damaged_download, read_download, read_object

_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclasses.dataclass(frozen=True)
class TokenizerSettings:
    """Settings of a tokenizer, merged from all files that have some."""

    values: dict[str, Any]  # content of tokenizer_config.json
    names: dict[str, str]  # special tokens by role, such as "eos"
    added: dict[int, AddedToken]  # by id; they extend the vocabulary, or set flags of its tokens
    special: tuple[AddedToken, ...]  # special tokens, with and without a role

    def flag(self, name: str, default: bool) -> bool:
        """A boolean setting, or the default if missing or null; CheckpointError otherwise."""
        value = self.values.get(name)
        self._require(value is None or isinstance(value, bool), name, "true or false")
        return default if value is None else value

    def text(self, name: str) -> str | None:
        """A string setting, or None if missing or null; CheckpointError otherwise."""
        value = self.values.get(name)
        self._require(value is None or isinstance(value, str), name, "text")
        return value

    def _require(self, holds: bool, name: str, rule: str) -> None:
        if not holds:
            got = self.values[name]
            raise CheckpointError(f"{name} in tokenizer_config.json must be {rule}, got {got!r}")

    def name(self, role: str, default: str) -> str:
        """Name of the special token with a role."""
        return self.names.get(role, default)


def read_settings(folder: pathlib.Path) -> TokenizerSettings:
    """Reads `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`."""
    values = read_object(folder / "tokenizer_config.json", optional=True)
    # As in transformers, special_tokens_map.json and added_tokens.json count only without this.
    decoder = values.get("added_tokens_decoder")
    special: dict[str, Any] = {}
    added: dict[int, AddedToken] = {}
    if decoder is None:
        special = read_object(folder / "special_tokens_map.json", optional=True)
    merged = values | special
    named = {role: merged.get(f"{role}_token") for role in _ROLES}
    names = {role: name for role, value in named.items() if (name := token_name(value)) is not None}
    extra = merged.get("extra_special_tokens") or merged.get("additional_special_tokens") or ()
    others = [value for key, value in merged.items() if key.endswith("_token")]
    others += extra.values() if isinstance(extra, dict) else extra
    tokens = [
        _special_token(value, folder)
        for value in (*named.values(), *others)
        if token_name(value) is not None
    ]
    if decoder is None:
        known = {token.content for token in tokens}
        for name, token_id in read_object(folder / "added_tokens.json", optional=True).items():
            is_special = name in known
            token = AddedToken(name, normalized=not is_special, special=is_special)
            added[_id(token_id, folder)] = token
    else:
        if not isinstance(decoder, dict):
            path = folder / "tokenizer_config.json"
            raise damaged_download(path, "added_tokens_decoder is not an object")
        for token_id, token in decoder.items():
            added[_id(token_id, folder)] = _added_token(token, folder)
    return TokenizerSettings(values, names, added, tuple(tokens))


def read_text(path: pathlib.Path) -> str:
    """Text of a UTF-8 file, with Unix line breaks; CheckpointError if it is damaged."""
    try:
        return read_download(path).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise damaged_download(path, f"it is not UTF-8 ({error.reason})") from None


def token_name(value: Any) -> str | None:
    """Name of a token, given as a string or as an object with `content`."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None


def add_tokens(tokenizer: tokenizers.Tokenizer, settings: TokenizerSettings) -> None:
    """Adds a folder's special and added tokens to a tokenizer; CheckpointError for a wrong id."""
    special = {token.content: token for token in reversed(settings.special)}
    for token_id, token in sorted(settings.added.items()):
        there = tokenizer.token_to_id(token.content)
        # A new token gets the next id.
        expected = tokenizer.get_vocab_size() if there is None else there
        if token_id != expected:
            raise CheckpointError(
                f"the added token {token.content!r} has the id {token_id}, but the vocabulary "
                f"needs {expected}; download tokenizer_config.json and the vocabulary again"
            )
        token.special = token.special or token.content in special
        tokenizer.add_tokens([token])  # or changes the flags of one that exists
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    tokenizer.add_tokens([t for t in reversed(special.values()) if t.content not in added])


def surround(tokenizer: tokenizers.Tokenizer, before: Sequence[str], after: Sequence[str]) -> None:
    """Sets the special tokens around a text, by name; CheckpointError for a missing one."""
    ids = {}
    for name in (*before, *after):
        token_id = tokenizer.token_to_id(name)
        if token_id is None:
            raise CheckpointError(
                f"the special token {name!r}, which surrounds texts, is not in the vocabulary; "
                "download the tokenizer's files again"
            )
        ids[name] = token_id
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after], special_tokens=list(ids.items())
    )


def _special_token(value: Any, folder: pathlib.Path) -> AddedToken:
    """A special token, given by its name or as an object with flags."""
    flags = value if isinstance(value, dict) else {"content": value}
    return _added_token({"normalized": False, **flags, "special": True}, folder)


def _added_token(value: Any, folder: pathlib.Path) -> AddedToken:
    flags = {name: value.get(name, False) for name in _FLAGS} if isinstance(value, dict) else {}
    name = token_name(value)
    if not name or not all(isinstance(flag, bool) for flag in flags.values()):
        raise damaged_download(folder / "tokenizer_config.json", f"an added token is {value!r}")
    return AddedToken(name, **flags)


def _id(value: Any, folder: pathlib.Path) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise damaged_download(folder, f"the id of an added token is {value!r}")
    return value

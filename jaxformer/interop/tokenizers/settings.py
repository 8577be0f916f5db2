"""Special and added tokens that the files beside a tokenizer of a Hugging Face folder name."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, processors

from jaxformer.storage import read_object

_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_tokenizer_config(folder: pathlib.Path) -> dict[str, Any]:
    """Content of `tokenizer_config.json` and of `special_tokens_map.json`."""
    config = read_object(folder / "tokenizer_config.json", optional=True)
    # As in transformers, the second file counts only if the first has no added_tokens_decoder.
    if config.get("added_tokens_decoder") is None:
        config |= read_object(folder / "special_tokens_map.json", optional=True)
    return config


def special_token_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Names of special tokens by role, such as "eos"."""
    values = {role: config.get(f"{role}_token") for role in _ROLES}
    names = {
        role: value.get("content") if isinstance(value, dict) else value
        for role, value in values.items()
    }
    return {role: name for role, name in names.items() if isinstance(name, str)}


def add_tokens(
    tokenizer: tokenizers.Tokenizer, folder: pathlib.Path, config: Mapping[str, Any]
) -> None:
    """Adds a folder's special and added tokens, or sets the flags of those that exist."""
    special = {token.content: token for token in reversed(_special_tokens(config))}
    added = config.get("added_tokens_decoder")
    if added is None:
        ids = read_object(folder / "added_tokens.json", optional=True)
        added = {
            token_id: {"content": name, "normalized": name not in special}
            for name, token_id in ids.items()
        }
    for token_id in sorted(added, key=int):
        token = _token(added[token_id])
        token.special = token.special or token.content in special
        tokenizer.add_tokens([token])
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    new = [token for name, token in special.items() if name not in known]
    tokenizer.add_tokens(new[::-1])


def _special_tokens(config: Mapping[str, Any]) -> list[AddedToken]:
    """Special tokens with a role, and others, each given by its name or with its flags."""
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or ()
    values = [config.get(f"{role}_token") for role in _ROLES]
    values += [value for key, value in config.items() if key.endswith("_token")]
    values += extra.values() if isinstance(extra, dict) else extra
    tokens = [value if isinstance(value, dict) else {"content": value} for value in values]
    return [
        _token({"normalized": False, **token, "special": True})
        for token in tokens
        if isinstance(token.get("content"), str)
    ]


def _token(value: Mapping[str, Any]) -> AddedToken:
    return AddedToken(value["content"], **{flag: value.get(flag, False) for flag in _FLAGS})


def surround(tokenizer: tokenizers.Tokenizer, before: Sequence[str], after: Sequence[str]) -> None:
    """Sets the special tokens around a text, by name."""
    ids = [(name, tokenizer.token_to_id(name)) for name in dict.fromkeys((*before, *after))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after], special_tokens=ids
    )

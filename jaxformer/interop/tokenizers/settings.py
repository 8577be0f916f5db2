"""Special and added tokens that the files beside a tokenizer of a Hugging Face folder name."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, processors

from jaxformer.errors import CheckpointError
from jaxformer.storage import damaged_download, read_object, shown

_FILE = "tokenizer_config.json"
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_tokenizer_config(folder: pathlib.Path) -> dict[str, Any]:
    """Content of `tokenizer_config.json` and of `special_tokens_map.json`."""
    config = read_object(folder / _FILE, optional=True)
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
    special = {token.content: token for token in reversed(_special_tokens(folder, config))}
    for token_id, token in sorted(_added_tokens(folder, config, special).items()):
        token.special = token.special or token.content in special
        tokenizer.add_tokens([token])
        if tokenizer.token_to_id(token.content) != token_id:
            raise CheckpointError(
                f"the added token {token.content!r} has the id {token_id}, but the vocabulary "
                f"needs {tokenizer.token_to_id(token.content)}; download {_FILE} and the "
                "vocabulary again"
            )
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    new = [token for name, token in special.items() if name not in known]
    tokenizer.add_tokens(new[::-1])


def _special_tokens(folder: pathlib.Path, config: Mapping[str, Any]) -> list[AddedToken]:
    """Special tokens with a role, and others, each given by its name or with its flags."""
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or ()
    values = [config.get(f"{role}_token") for role in _ROLES]
    values += [value for key, value in config.items() if key.endswith("_token")]
    values += extra.values() if isinstance(extra, dict) else extra
    tokens = [value if isinstance(value, dict) else {"content": value} for value in values]
    return [
        _token({"normalized": False, **token, "special": True}, folder)
        for token in tokens
        if isinstance(token.get("content"), str)
    ]


def _added_tokens(
    folder: pathlib.Path, config: Mapping[str, Any], special: Mapping[str, AddedToken]
) -> dict[int, AddedToken]:
    """Tokens by id: those of `added_tokens_decoder`, else of `added_tokens.json`."""
    decoder = config.get("added_tokens_decoder")
    try:
        if decoder is not None:
            return {int(token_id): _token(token, folder) for token_id, token in decoder.items()}
        ids = read_object(folder / "added_tokens.json", optional=True)
        return {
            int(token_id): AddedToken(name, normalized=name not in special, special=name in special)
            for name, token_id in ids.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        reason = f"added tokens must be given by id, got {shown(decoder)}"
        raise damaged_download(folder / _FILE, reason) from error


def _token(value: Any, folder: pathlib.Path) -> AddedToken:
    try:
        flags = {flag: value.get(flag, False) for flag in _FLAGS}
        return AddedToken(value["content"], **flags)
    except (AttributeError, KeyError, TypeError) as error:
        raise damaged_download(folder / _FILE, f"an added token is {shown(value)}") from error


def surround(tokenizer: tokenizers.Tokenizer, before: Sequence[str], after: Sequence[str]) -> None:
    """Sets the special tokens around a text, by name; CheckpointError for a missing one."""
    ids = {name: tokenizer.token_to_id(name) for name in (*before, *after)}
    for name, token_id in ids.items():
        if token_id is None:
            raise CheckpointError(
                f"the special token {name!r}, which surrounds texts, is not in the vocabulary; "
                "download the tokenizer's files again"
            )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after], special_tokens=list(ids.items())
    )

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
    """Content of `tokenizer_config.json` and of `special_tokens_map.json`.

    As in transformers, the second file counts only if the first has no `added_tokens_decoder`.
    """
    config = read_object(folder / _FILE, optional=True)
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
    """Adds the tokens of `added_tokens_decoder`, or sets the flags of those that exist."""
    decoder = config.get("added_tokens_decoder") or {}
    try:
        tokens = {
            int(token_id): AddedToken(
                token["content"], **{flag: token.get(flag, False) for flag in _FLAGS}
            )
            for token_id, token in decoder.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"added_tokens_decoder must have tokens by id, got {shown(decoder)}"
        raise damaged_download(folder / _FILE, reason) from error
    for token_id, token in sorted(tokens.items()):
        tokenizer.add_tokens([token])
        if tokenizer.token_to_id(token.content) != token_id:
            raise CheckpointError(
                f"the added token {token.content!r} has the id {token_id}, but the vocabulary "
                f"needs {tokenizer.token_to_id(token.content)}; download {_FILE} and the "
                "vocabulary again"
            )


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

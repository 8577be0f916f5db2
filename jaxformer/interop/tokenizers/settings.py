"""Special and added tokens that the files beside a tokenizer of a Hugging Face folder name."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, processors

from jaxformer.storage import read_object

_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


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


def add_tokens(tokenizer: tokenizers.Tokenizer, config: Mapping[str, Any]) -> None:
    """Adds the tokens of `added_tokens_decoder`, or sets the flags of those that exist."""
    added = config.get("added_tokens_decoder") or {}
    for token_id in sorted(added, key=int):
        tokenizer.add_tokens([AddedToken(**added[token_id])])


def surround(tokenizer: tokenizers.Tokenizer, before: Sequence[str], after: Sequence[str]) -> None:
    """Sets the special tokens around a text, by name."""
    ids = [(name, tokenizer.token_to_id(name)) for name in dict.fromkeys((*before, *after))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after], special_tokens=ids
    )

"""Tokenizers of a run folder, and special tokens of models made elsewhere."""

import dataclasses
import pathlib
from typing import Any

from jaxformer.interop import SpecialTokens
from jaxformer.storage import read_json, write_json
from jaxformer.text import Tokenizer, TokenRoles

_TOKENIZER = "tokenizer.json"
_SOURCE_TOKENIZER = "source_tokenizer.json"
_SPECIAL = "special_tokens.json"

_IN_CONFIG = ("sampling", "search")  # fields of SpecialTokens that the file does not hold


def save_tokenizers(
    folder: pathlib.Path, tokenizers: tuple[Tokenizer, ...], special: SpecialTokens
) -> None:
    """Writes the tokenizers of a run, and special tokens that differ from jaxformer's own."""
    source, target = tokenizers[0], tokenizers[-1]
    target.save(folder / _TOKENIZER)
    if source is not target:
        source.save(folder / _SOURCE_TOKENIZER)
    if special != SpecialTokens() or {source.roles, target.roles} != {TokenRoles()}:
        values = {
            "source": dataclasses.asdict(source.roles),
            "target": dataclasses.asdict(target.roles),
            "decoding": {
                name: value
                for name, value in dataclasses.asdict(special).items()
                if name not in _IN_CONFIG
            },
        }
        write_json(folder / _SPECIAL, values)


def load_tokenizers(folder: pathlib.Path) -> tuple[tuple[Tokenizer, Tokenizer], SpecialTokens]:
    """Reads the tokenizers of sources and targets, maybe the same object, and special tokens.

    Raises:
        CheckpointError: the special tokens are damaged.
        DataError: a tokenizer is missing or damaged.
    """
    special, source_roles, target_roles = SpecialTokens(), TokenRoles(), TokenRoles()
    if (folder / _SPECIAL).exists():
        special, source_roles, target_roles = read_json(folder / _SPECIAL, _parsed)
    target = source = Tokenizer.load(folder / _TOKENIZER).with_roles(target_roles)
    if (folder / _SOURCE_TOKENIZER).exists():
        source = Tokenizer.load(folder / _SOURCE_TOKENIZER).with_roles(source_roles)
    return (source, target), special


def _parsed(values: Any) -> tuple[SpecialTokens, TokenRoles, TokenRoles]:
    decoding: dict[str, Any] = {
        name: tuple(map(int, value)) if isinstance(value, list) else value
        for name, value in values["decoding"].items()
    }
    roles = TokenRoles(**values["source"]), TokenRoles(**values["target"])
    return SpecialTokens(**decoding), *roles

"""Tokenizers of a run folder, and special tokens of models made elsewhere."""

import dataclasses
import pathlib
from typing import Any

from jaxformer.runs.decoding_tokens import DecodingTokens
from jaxformer.runs.pretrained_tokens import is_pretrained, read_tokens
from jaxformer.storage import read_json, write_json
from jaxformer.text import Tokenizer, TokenRoles

__all__ = ["load_decoding", "load_tokenizers", "save_tokenizers"]

_TOKENIZER = "tokenizer.json"
_SOURCE_TOKENIZER = "source_tokenizer.json"
_SPECIAL = "special_tokens.json"


def save_tokenizers(
    folder: pathlib.Path, tokenizers: tuple[Tokenizer, ...], decoding: DecodingTokens
) -> None:
    """Writes the tokenizers of a run, and its special tokens if they differ from jaxformer's own.

    Raises:
        StorageError: a file cannot be written.
    """
    source, target = tokenizers[0], tokenizers[-1]
    target.save(folder / _TOKENIZER)
    if source is not target:
        source.save(folder / _SOURCE_TOKENIZER)
    roles = [one.roles for one in (source, target)]
    if decoding != DecodingTokens() or roles != [TokenRoles()] * 2:
        source_roles, target_roles = map(dataclasses.asdict, roles)
        values = {
            "source": source_roles, "target": target_roles, "decoding": dataclasses.asdict(decoding)
        }  # fmt: skip
        write_json(folder / _SPECIAL, values)


def load_tokenizers(folder: pathlib.Path) -> tuple[Tokenizer, Tokenizer]:
    """Reads the tokenizers of sources and targets from a run folder or Hugging Face folder.

    They are the same object if there is only one.

    Raises:
        CheckpointError: the special tokens are damaged.
        DataError: a tokenizer is missing or damaged.
    """
    if is_pretrained(folder):
        return read_tokens(folder)[0]
    special = _special_tokens(folder)
    target = Tokenizer.load(folder / _TOKENIZER)
    if "target" in special:
        target = target.with_roles(special["target"])
    if not (folder / _SOURCE_TOKENIZER).exists():
        return target, target
    source = Tokenizer.load(folder / _SOURCE_TOKENIZER)
    return source.with_roles(special["source"]) if "source" in special else source, target


def load_decoding(folder: pathlib.Path) -> DecodingTokens:
    """Reads the decoding tokens of a run folder or Hugging Face folder.

    Raises:
        CheckpointError: they are damaged.
    """
    if is_pretrained(folder):
        return read_tokens(folder)[1]
    found: DecodingTokens = _special_tokens(folder).get("decoding", DecodingTokens())
    return found


def _special_tokens(folder: pathlib.Path) -> dict[str, Any]:
    """Roles of the tokenizers, and decoding tokens; empty if they are jaxformer's own."""
    path = folder / _SPECIAL
    if not path.exists():
        return {}

    def make(values: Any) -> dict[str, Any]:
        decoding: dict[str, Any] = {
            name: tuple(map(int, value)) if isinstance(value, list) else value
            for name, value in values["decoding"].items()
        }
        return {
            "source": TokenRoles(**values["source"]),
            "target": TokenRoles(**values["target"]),
            "decoding": DecodingTokens(**decoding),
        }

    return read_json(path, make)

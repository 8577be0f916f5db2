"""Validation text in a run folder: its token streams."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxformer import text
from jaxformer.errors import CheckpointError, DataError
from jaxformer.storage import read_json, write_json
from jaxformer.text.store.arrays import map_array, write_array

_VALIDATION = "validation"  # stem of the files; a mixture's first source has "validation_0"
_FIRST = 2**12  # tokens from which prompts are taken


def first_documents(stream: text.TokenStream, tokenizer: text.Tokenizer) -> list[str]:
    """Texts of the first documents of a stream, a few thousand tokens in all."""
    end = min(stream.tokens.size, _FIRST)
    starts = stream.offsets[: np.searchsorted(stream.offsets, end)]
    pieces = zip(starts, [*starts[1:], end], strict=True)
    texts = (tokenizer.decode(stream.tokens[int(begin) : int(end)]) for begin, end in pieces)
    return [document.strip("\ufffd") for document in texts]  # incomplete characters


def save_text(folder: pathlib.Path, validation: Mapping[str, text.TokenStream]) -> None:
    """Writes the tokens of validation texts into a new run folder."""
    if "" in validation:
        return _save_stream(folder / _VALIDATION, validation[""])
    write_json(_with_end(folder / _VALIDATION, ".json"), {"sources": list(validation)})
    for index, stream in enumerate(validation.values()):
        _save_stream(folder / f"{_VALIDATION}_{index}", stream)


def _save_stream(stem: pathlib.Path, validation: text.TokenStream) -> None:
    write_array(_with_end(stem, "_tokens.npy"), validation.tokens)
    write_array(_with_end(stem, "_documents.npy"), validation.offsets)
    write_json(_with_end(stem, ".json"), {"num_bytes": validation.num_bytes})


def _with_end(stem: pathlib.Path, end: str) -> pathlib.Path:
    return stem.with_name(stem.name + end)


def load_text(folder: pathlib.Path) -> dict[str, text.TokenStream]:
    """Reads the files of `save_text`."""
    record = _read_record(folder / _VALIDATION)
    if "sources" not in record:
        return {"": _load_stream(folder / _VALIDATION, record)}
    stems = {
        name: folder / f"{_VALIDATION}_{index}" for index, name in enumerate(record["sources"])
    }
    return {name: _load_stream(stem, _read_record(stem)) for name, stem in stems.items()}


def _read_record(stem: pathlib.Path) -> dict[str, Any]:
    """The number of bytes of a text, or the names of a mixture's sources, by key."""

    def checked(value: Any) -> dict[str, Any]:
        if "sources" in value:
            return {"sources": list(map(str, value["sources"]))}
        return {"num_bytes": None if value["num_bytes"] is None else int(value["num_bytes"])}

    return read_json(_with_end(stem, ".json"), checked)


def _load_stream(stem: pathlib.Path, record: dict[str, Any]) -> text.TokenStream:
    """Maps stored tokens."""
    remedy = "restore the run folder, or train again"
    paths = [_with_end(stem, end) for end in ("_tokens.npy", "_documents.npy")]
    try:
        tokens, starts = (map_array(path, remedy=remedy) for path in paths)
    except DataError as error:
        raise CheckpointError(f"{stem.parent} is damaged: {error}") from None
    return text.TokenStream(tokens, starts, record["num_bytes"])

"""Validation text in a run folder: the token stream of each source."""

import pathlib
from collections.abc import Mapping

from jaxformer import text
from jaxformer.storage import read_json, write_json
from jaxformer.text.store.arrays import map_array, write_array

_SIZES = "validation.json"  # bytes of the text of each source, by name


def save_text(folder: pathlib.Path, validation: Mapping[str, text.TokenStream]) -> None:
    """Writes the tokens of validation texts into a new run folder."""
    write_json(folder / _SIZES, {name: stream.num_bytes for name, stream in validation.items()})
    for index, stream in enumerate(validation.values()):
        write_array(folder / f"validation_{index}_tokens.npy", stream.tokens)
        write_array(folder / f"validation_{index}_documents.npy", stream.offsets)


def load_text(folder: pathlib.Path) -> dict[str, text.TokenStream]:
    """Reads the files of `save_text`."""
    remedy = "restore the run folder, or train again"
    streams = {}
    for index, (name, num_bytes) in enumerate(read_json(folder / _SIZES, dict).items()):
        tokens, starts = (
            map_array(folder / f"validation_{index}_{array}.npy", remedy=remedy)
            for array in ("tokens", "documents")
        )
        streams[name] = text.TokenStream(tokens, starts, num_bytes)
    return streams

"""JSON files of Hugging Face folders."""

import pathlib
from typing import Any

from jaxformer.errors import CheckpointError
from jaxformer.interop.strict_json import parse_object
from jaxformer.storage import read_regular

__all__ = ["read_bytes", "read_json", "read_json_if_there"]

_MAX_BYTES = 2**26
# transformers writes 10**30 for a tokenizer without a maximum length.
_MAX_DIGITS = 32


def read_bytes(path: pathlib.Path, limit: int = _MAX_BYTES) -> bytes:
    """Reads a file of at most `limit` bytes; CheckpointError if it is larger or cannot be read."""
    try:
        return read_regular(path, limit=limit)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror}; pass a Hugging Face model folder"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}; download it again") from None


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Reads a file with one JSON object; CheckpointError if that fails."""
    try:
        return parse_object(read_bytes(path), max_digits=_MAX_DIGITS)
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}; download it again") from None


def read_json_if_there(path: pathlib.Path) -> dict[str, Any]:
    """Reads a file with one JSON object; an empty object if the file does not exist."""
    return read_json(path) if path.exists() else {}

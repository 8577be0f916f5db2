"""JSON in a run folder, checked when it is read."""

import json
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

from jaxformer.errors import CheckpointError
from jaxformer.storage import read_whole, write_whole

__all__ = ["MAX_FILE", "read_json", "write_json"]

T = TypeVar("T")

MAX_FILE = 2**30  # bytes


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes readable JSON; StorageError if the file cannot be written."""
    write_whole(path, json.dumps(value, ensure_ascii=False, indent=0) + "\n")


def read_json(path: pathlib.Path, make: Callable[[Any], T]) -> T:
    """Reads JSON of a run folder, and converts it with `make`, whose errors mean a damaged file.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    try:
        return make(json.loads(read_whole(path, limit=MAX_FILE)))
    except CheckpointError:
        raise
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error}); restore the run folder, or train it anew"
        ) from None

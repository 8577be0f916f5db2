"""JSON files: our own, and those of Hugging Face folders."""

import json
import pathlib
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from jaxformer.errors import CheckpointError
from jaxformer.storage.files import read_whole, write_whole

T = TypeVar("T")


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes readable JSON."""
    write_whole(path, json.dumps(value, ensure_ascii=False, indent=0) + "\n")


def read_json(path: pathlib.Path, make: Callable[[Any], T]) -> T:
    """JSON of our own, as `make` converts it; CheckpointError if missing, or if `make` raises."""
    data = read_whole(path)
    try:
        return make(json.loads(data))
    except CheckpointError:
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


def damaged_download(path: pathlib.Path, reason: object) -> CheckpointError:
    """The error for a damaged file of a Hugging Face folder."""
    return CheckpointError(f"{path} is damaged: {reason}; download it again")


def read_object(path: pathlib.Path, *, optional: bool = False) -> dict[str, Any]:
    """A JSON object of a Hugging Face folder, empty if `optional` and missing; CheckpointError."""
    if optional and not path.exists():
        return {}
    data = read_whole(path)
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise damaged_download(path, error) from error
    if not isinstance(value, dict):
        raise damaged_download(path, f"it must be an object, got {shown(value)}")
    return value


def shown(value: object) -> str:
    """An untrusted value for an error message: on one line, and shortened if it is long."""
    return f"{value!r:.160}"


def some(names: Collection[str]) -> str:
    """The first three names, and how many more there are, for an error message."""
    more = len(names) - 3
    # Names with line breaks or control characters are quoted for the terminal.
    first = [name if name.isprintable() else shown(name) for name in list(names)[:3]]
    return ", ".join(first) + (f" and {more:,} more" if more > 0 else "")

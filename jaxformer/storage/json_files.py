"""JSON files: our own, whose damage is reported, and untrusted ones, which are read strictly."""

import codecs
import functools
import json
import pathlib
import re
import reprlib
from collections.abc import Callable, Collection
from typing import Any, NoReturn, TypeVar

from jaxformer.errors import CheckpointError, StorageError
from jaxformer.storage.files import read_regular, read_whole, write_whole

T = TypeVar("T")

MAX_FILE = 2**30  # bytes of a file of our own
_MAX_DOWNLOAD = 2**26  # bytes
_MAX_DIGITS = 20  # of a 64-bit integer with its sign
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_REPR = reprlib.Repr()
_REPR.maxstring = 80
_REPR.maxlevel = 2
_MAX_SHOWN = 160  # characters; escapes lengthen a string


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes readable JSON; StorageError if the file cannot be written."""
    write_whole(path, json.dumps(value, ensure_ascii=False, indent=0) + "\n")


def read_json(
    path: pathlib.Path,
    make: Callable[[Any], T],
    *,
    limit: int = MAX_FILE,
    damaged: str = "{path} is damaged ({error}); restore the run folder, or train it anew",
) -> T:
    """Reads JSON of our own, and converts it with `make`, whose errors mean a damaged file.

    Args:
        path: path of the file.
        make: converts the value.
        limit: largest size in bytes.
        damaged: message for a damaged file.

    Raises:
        CheckpointError: the file is missing or damaged.
        StorageError: it is in a bucket that does not answer.
    """
    try:
        return make(json.loads(read_whole(path, limit=limit)))
    except (CheckpointError, StorageError):
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(damaged.format(path=path, error=error)) from None


def read_download(path: pathlib.Path) -> bytes:
    """Reads a file of a Hugging Face folder, of at most 64 MiB; CheckpointError if that fails."""
    try:
        return read_regular(path, limit=_MAX_DOWNLOAD)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror}; pass a Hugging Face model folder"
        ) from None
    except ValueError as error:
        raise damaged_download(path, error) from None


def damaged_download(path: pathlib.Path, reason: object) -> CheckpointError:
    """The error for a damaged file of a Hugging Face folder."""
    return CheckpointError(f"{path} is damaged: {reason}; download it again")


def read_object(path: pathlib.Path, *, optional: bool = False) -> dict[str, Any]:
    """Reads one JSON object of a Hugging Face folder; CheckpointError if that fails.

    If `optional`, a file that does not exist is an empty object.
    """
    if optional and not path.exists():
        return {}
    data = read_download(path).removeprefix(codecs.BOM_UTF8)
    try:
        # transformers writes 10**30 for a tokenizer without a maximum length.
        return parse_object(data, max_digits=32)
    except ValueError as error:
        raise damaged_download(path, error) from None


def parse_object(data: bytes, *, max_digits: int = _MAX_DIGITS) -> dict[str, Any]:
    r"""Reads a JSON object in UTF-8.

    Unlike `json.loads`, refuses duplicate keys, NaN, Infinity, lone surrogates, and integers with
    thousands of digits, which take quadratic time.

    Args:
        data: the text; spaces may follow the object.
        max_digits: maximum length of an integer, with its sign.

    Raises:
        ValueError: the text is refused; the message is one line.

    Example:
        >>> parse_object(b'{"a": [1, null]}  ')
        {'a': [1, None]}
        >>> parse_object(b'{"a": 1, "a": 2}')
        Traceback (most recent call last):
        ...
        ValueError: the key 'a' occurs twice
    """
    text = data.decode()
    if not text.startswith("{"):
        raise ValueError(f"it must begin with '{{', got {shown(text[:1])}")
    try:
        value: dict[str, Any] = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_int=functools.partial(_small_integer, max_digits=max_digits),
        )
        if _SURROGATE.search(data):
            # Raises for a lone surrogate, which no file or terminal accepts.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def shown(value: object) -> str:
    """An untrusted value for an error message: on one line, and shortened if it is long.

    Example:
        >>> shown("a" * 1000)
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
    """
    text = _REPR.repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def some(names: Collection[str]) -> str:
    """The first three names, and how many more there are, for an error message.

    Example:
        >>> some(["a", "b", "c", "d", "e"])
        'a, b, c and 2 more'
    """
    more = len(names) - 3
    # Names with line breaks or control characters are quoted for the terminal.
    first = [name if name.isprintable() else shown(name) for name in list(names)[:3]]
    return ", ".join(first) + (f" and {more:,} more" if more > 0 else "")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {shown(key)} occurs twice")
            seen.add(key)
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"its numbers must be finite, got {name}")


def _small_integer(digits: str, max_digits: int) -> int:
    if len(digits) > max_digits:
        raise ValueError(f"its integers must have at most 64 bits, got {len(digits)} digits")
    return int(digits)

"""JSON of strangers: one object, read strictly, and its values in error messages."""

import functools
import json
import re
import reprlib
from typing import Any, NoReturn

__all__ = ["parse_object", "shown"]

_MAX_DIGITS = 20  # of an integer, with its sign: as many as 64 bits need
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_REPR = reprlib.Repr()
_REPR.maxstring = 80
_REPR.maxlevel = 2
_MAX_SHOWN = 160  # characters, as of a text of escapes


def parse_object(data: bytes, *, max_digits: int = _MAX_DIGITS) -> dict[str, Any]:
    r"""Reads JSON that is one object in UTF-8.

    `json.loads` takes more than the format has: of equal keys the last, NaN and Infinity, halves of
    surrogate pairs, and integers of thousands of digits, which cost quadratic time.

    Args:
        data: the text; spaces may follow the object.
        max_digits: of an integer, with its sign.

    Returns:
        The object.

    Raises:
        ValueError: why it is refused, in one line.

    Example:
        >>> parse_object(b'{"a": [1, null]}  ')
        {'a': [1, None]}
        >>> parse_object(b'{"a": 1, "a": 2}')
        Traceback (most recent call last):
        ...
        ValueError: the key 'a' is there twice
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
            # Raises for half a pair, which no file or terminal could be given later.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return value


def shown(value: object) -> str:
    """A value of a stranger, for an error message: on one line, and cut where it is long.

    Example:
        >>> shown("a" * 1000)
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
    """
    text = _REPR.repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {shown(key)} is there twice")
            seen.add(key)
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"it must have finite numbers only, got {name}")


def _small_integer(digits: str, max_digits: int) -> int:
    if len(digits) > max_digits:
        raise ValueError(f"its integers must have 64 bits at most, got one of {len(digits)} digits")
    return int(digits)

"""Strict reading of untrusted JSON, and its values in error messages."""

import functools
import json
import re
import reprlib
from typing import Any, NoReturn

__all__ = ["parse_object", "shown"]

_MAX_DIGITS = 20  # of a 64-bit integer with its sign
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_REPR = reprlib.Repr()
_REPR.maxstring = 80
_REPR.maxlevel = 2
_MAX_SHOWN = 160  # characters; escapes lengthen a string


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

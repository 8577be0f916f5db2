"""Checks of config values."""

import contextlib
import contextvars
import dataclasses
import difflib
import functools
import math
import numbers
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from jaxformer.errors import ConfigError

__all__ = [
    "TYPE_NAMES",
    "field_types",
    "noting",
    "require",
    "require_at_least_zero",
    "require_at_most",
    "require_paths",
    "require_types",
    "require_positive",
    "require_shares",
    "suggestion",
    "union_members",
]


TYPE_NAMES = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
"""What messages call the plain types of fields."""

_MAX_INT = 2**31 - 1  # steps and sizes are int32 on the devices

# NumPy's numbers are fine, too.
_CLASSES = {int: numbers.Integral, float: numbers.Real, str: str, bool: bool}


_noted: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar(
    "_noted", default=None
)


@contextlib.contextmanager
def noting(mistakes: dict[str, str]) -> Iterator[None]:
    """Notes what is wrong with each field by itself, under its name, in place of raising it."""
    token = _noted.set(mistakes)
    try:
        yield
    finally:
        _noted.reset(token)


def _refuse(name: str, message: str) -> None:
    """Raises ConfigError about a field by itself, or notes the first of each within `noting`."""
    if (noted := _noted.get()) is None:
        raise ConfigError(message)
    noted.setdefault(name, message)


def _require_own(condition: bool, rule: str, name: str, value: object) -> None:
    if not condition:
        _refuse(name, f"{name} must {rule}, got {name}={value!r}")


def require(condition: bool, rule: str, **values: object) -> None:
    """Raises ConfigError with the rule and the values that broke it."""
    if not condition:
        got = " and ".join(f"{key}={value!r}" for key, value in values.items())
        raise ConfigError(f"{rule}, got {got}")


def require_positive(config: object, *names: str) -> None:
    """Checks that the named fields, where set, are above zero and finite."""
    for name in names:
        value = getattr(config, name)
        if value is not None:
            _require_own(0 < value < math.inf, "be positive", name, value)


def require_at_least_zero(config: object, *names: str) -> None:
    """Checks that the named fields, where set, are zero or more, and finite."""
    for name in names:
        value = getattr(config, name)
        if value is not None:
            _require_own(0 <= value < math.inf, "be zero or more", name, value)


def require_at_most(config: object, most: int, *names: str) -> None:
    """Checks that the named fields, where set, are no larger than can be meant, or counted."""
    for name in names:
        value = getattr(config, name)
        if value is not None:
            _require_own(value <= most, f"be at most {most:,}", name, value)


def require_paths(config: object, *names: str) -> None:
    """Checks that the named paths, or tuples of paths, where set, can be paths at all."""
    for name in names:
        value = getattr(config, name)
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, str):
                _require_own("\0" not in path, "have no NUL", name, path)


def require_shares(config: object, *names: str) -> None:
    """Checks that the named fields are in [0, 1)."""
    for name in names:
        value = getattr(config, name)
        _require_own(0 <= value < 1, "be in [0, 1)", name, value)


def require_types(config: object) -> None:
    """Checks every field whose type is a number, string, bool or Literal, which Python does not.

    Numbers of NumPy become Python's, which a file can hold. Tuples and other configs have checks
    of their own.
    """
    for name, hint in field_types(type(config)).items():
        value, members = getattr(config, name), union_members(hint)
        if value is None and type(None) in typing.get_args(hint):
            continue
        if any(typing.get_origin(member) is Literal for member in members):
            _require_choice(name, value, list(_choices(members)))
        elif members[0] in _CLASSES:
            fits = isinstance(value, _CLASSES[members[0]])
            # Python counts bools as ints.
            fits = fits and isinstance(value, bool) == (members[0] is bool)
            _require_own(fits, f"be {TYPE_NAMES[members[0]]}", name, value)
            if type(value) not in (int, float, bool, str):
                plain = int(value) if isinstance(value, numbers.Integral) else float(value)
                object.__setattr__(config, name, plain)  # a frozen dataclass, at its making
            if members[0] is int:
                require_at_most(config, _MAX_INT, name)


def _require_choice(name: str, value: object, choices: list[object]) -> None:
    # Types too: 1 equals True.
    if (type(value), value) not in [(type(choice), choice) for choice in choices]:
        names = [str(choice) for choice in choices]
        hint = suggestion(str(value), names)
        _refuse(name, f"{name} must be one of {', '.join(names)}, got {value!r}{hint}")


def _choices(members: tuple[Any, ...]) -> Iterator[object]:
    for member in members:
        yield from (True, False) if member is bool else typing.get_args(member)


def suggestion(word: str, known: Iterable[str]) -> str:
    """End of a message: the known word most like an unknown one, in any case, if any is."""
    spelt = {one.lower(): one for one in known}
    near = difflib.get_close_matches(word.lower(), spelt, n=1)
    return f"; did you mean {spelt[near[0]]!r}?" if near else ""


def field_types(config: type) -> Mapping[str, Any]:
    """Resolved types of the fields of a config's class, by name."""
    # A function of its own, as mypy refuses a class as the argument of a cached one.
    return _resolved_types(config)


@functools.cache  # since a config may have thousands of layers
def _resolved_types(config: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(config)
    fields = dataclasses.fields(config)
    return types.MappingProxyType({field.name: hints[field.name] for field in fields})


def union_members(hint: Any) -> tuple[Any, ...]:
    """Members of a union without None; for another type, the type itself."""
    # `bool | Literal["never"]` is a typing.Union, `int | None` a types.UnionType.
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return tuple(part for part in typing.get_args(hint) if part is not type(None))
    return (hint,)

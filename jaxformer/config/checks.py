"""What the configs check their values with."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from jaxformer.errors import ConfigError

__all__ = [
    "field_types",
    "require",
    "require_at_least_zero",
    "require_choices",
    "require_positive",
    "suggestion",
    "union_members",
]


def require(condition: bool, rule: str, **values: object) -> None:
    """Raises ConfigError with the rule and the values that broke it."""
    if not condition:
        got = " and ".join(f"{key}={value!r}" for key, value in values.items())
        raise ConfigError(f"{rule}, got {got}")


def require_positive(config: object, *names: str) -> None:
    """Checks that fields which are set are above zero and finite."""
    for name in names:
        value = getattr(config, name)
        if value is not None:
            require(0 < value < math.inf, f"{name} must be positive", **{name: value})


def require_at_least_zero(config: object, *names: str) -> None:
    """Checks that fields which are set are not below zero, and finite."""
    for name in names:
        value = getattr(config, name)
        if value is not None:
            require(0 <= value < math.inf, f"{name} must be zero or more", **{name: value})


def require_choices(config: object) -> None:
    """Checks every field of a few choices, a Literal, which Python itself does not."""
    for name, hint in field_types(type(config)).items():
        members = union_members(hint)
        if not any(typing.get_origin(member) is Literal for member in members):
            continue
        value, choices = getattr(config, name), list(_choices(members))
        # Types too: 1 equals True.
        if (type(value), value) not in [(type(choice), choice) for choice in choices]:
            names = [str(choice) for choice in choices]
            raise ConfigError(
                f"{name} must be one of {', '.join(names)}, got {value!r}"
                + suggestion(str(value), names)
            )


def _choices(members: tuple[Any, ...]) -> Iterator[object]:
    for member in members:
        yield from (True, False) if member is bool else typing.get_args(member)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Writes the end of a message that names the nearest of the known words, if one is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def field_types(config: type) -> dict[str, Any]:
    """Types of a config's fields, by name, with what their annotations refer to."""
    hints = typing.get_type_hints(config)
    return {field.name: hints[field.name] for field in dataclasses.fields(config)}


def union_members(hint: Any) -> tuple[Any, ...]:
    """Members of a union but for None; of another type, the type itself."""
    # `bool | Literal["never"]` is a typing.Union, `int | None` a types.UnionType.
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return tuple(part for part in typing.get_args(hint) if part is not type(None))
    return (hint,)

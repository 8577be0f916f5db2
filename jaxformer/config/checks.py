"""Checks of config values."""

import contextvars
import dataclasses
import difflib
import functools
import math
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from jaxformer.errors import ConfigError

TYPE_NAMES = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
"""What messages call the plain types of fields."""

# NumPy's numbers are fine, too.
_CLASSES = {int: numbers.Integral, float: numbers.Real, str: str, bool: bool}


class Bound(NamedTuple):
    """A bound on the value of a field, and the rule of its message, behind "must"."""

    holds: Callable[[Any], bool]
    rule: str

    def __repr__(self) -> str:
        """As the reference shows it."""
        return self.rule.removeprefix("be ")


def at_most(most: int) -> Bound:
    """Bound of numbers that are at most a limit."""
    return Bound(lambda value: value <= most, f"be at most {most:,}")


def at_least(least: int) -> Bound:
    """Bound of finite numbers that are at least a limit."""
    return Bound(lambda value: least <= value < math.inf, f"be at least {least}")


def within(least: int, most: int) -> Bound:
    """Bound of numbers from one limit to another, both included."""
    return Bound(lambda value: least <= value <= most, f"be in {least} .. {most}")


_POSITIVE = Bound(lambda value: 0 < value < math.inf, "be positive")
_NON_NEGATIVE = Bound(lambda value: 0 <= value < math.inf, "be zero or more")
_INT32 = at_most(2**31 - 1)  # steps and sizes are int32 on the devices

# Types of fields with bounds, which `check_fields` reads.
PositiveInt = Annotated[int, _POSITIVE]
PositiveFloat = Annotated[float, _POSITIVE]
NonNegativeInt = Annotated[int, _NON_NEGATIVE]
NonNegativeFloat = Annotated[float, _NON_NEGATIVE]
BelowOne = Annotated[float, Bound(lambda value: 0 <= value < 1, "be in [0, 1)")]
UpToOne = Annotated[float, Bound(lambda value: 0 <= value <= 1, "be in [0, 1]")]
BetweenZeroAndOne = Annotated[float, Bound(lambda value: 0 < value < 1, "be between 0 and 1")]
# Far more than any model has, and small enough for shapes.
Width = Annotated[int, _POSITIVE, at_most(2**24)]


own_mistakes: contextvars.ContextVar[dict[str, str] | None]
own_mistakes = contextvars.ContextVar("own_mistakes", default=None)
"""If set, collects the mistakes of single fields, by name, instead of raising them."""


def _refuse(name: str, rule: str) -> None:
    if (noted := own_mistakes.get()) is None:
        raise ConfigError(f"{name} must {rule}")
    noted.setdefault(name, f"{name} must {rule}")


def require(condition: bool, rule: str, **values: object) -> None:
    """Raises ConfigError with the rule and the values that broke it."""
    if not condition:
        got = " and ".join(f"{key}={value!r}" for key, value in values.items())
        raise ConfigError(f"{rule}, got {got}")


def check_fields(config: object) -> None:
    """Checks the types of fields that are numbers, strings, bools or Literals, and their bounds.

    NumPy numbers become Python numbers, which TOML can hold. Other fields are checked elsewhere.
    """
    kind: Any = type(config)
    bounds = _bounds(kind)
    for name, hint in field_types(kind).items():
        value, members = getattr(config, name), union_members(hint)
        if value is None and type(None) in typing.get_args(hint):
            continue
        if any(typing.get_origin(member) is Literal for member in members):
            _require_choice(name, value, list(_choices(members)))
        elif members[0] in _CLASSES:
            fits = isinstance(value, _CLASSES[members[0]])
            # Python counts bools as ints.
            fits = fits and isinstance(value, bool) == (members[0] is bool)
            if not fits:
                _refuse(name, f"be {TYPE_NAMES[members[0]]}, got {name}={value!r}")
                continue
            if type(value) not in (int, float, bool, str):
                value = int(value) if isinstance(value, numbers.Integral) else float(value)
                object.__setattr__(config, name, value)  # a frozen dataclass, at its making
            for bound in bounds[name]:
                if not bound.holds(value):
                    _refuse(name, f"{bound.rule}, got {name}={value!r}")


def _require_choice(name: str, value: object, choices: list[object]) -> None:
    # Types too: 1 equals True.
    if (type(value), value) not in [(type(choice), choice) for choice in choices]:
        names = [str(choice) for choice in choices]
        hint = suggestion(str(value), names)
        _refuse(name, f"be one of {', '.join(names)}, got {value!r}{hint}")


def _choices(members: tuple[Any, ...]) -> Iterator[object]:
    for member in members:
        yield from (True, False) if member is bool else typing.get_args(member)


def suggestion(word: str, known: Iterable[str]) -> str:
    """End of a message: the most similar known word, ignoring case; empty if none is similar."""
    spelled = {one.lower(): one for one in known}
    near = difflib.get_close_matches(word.lower(), spelled, n=1)
    return f"; did you mean {spelled[near[0]]!r}?" if near else ""


def field_types(config: type) -> Mapping[str, Any]:
    """Resolved types of the fields of a config's class, by name."""
    # Not cached itself, because mypy rejects a class as the argument of a cached function.
    return _resolved_types(config)


@functools.cache  # since a config may have thousands of layers
def _resolved_types(config: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(config)
    fields = dataclasses.fields(config)
    return types.MappingProxyType({field.name: hints[field.name] for field in fields})


@functools.cache
def _bounds(config: Any) -> Mapping[str, tuple[Bound, ...]]:
    """Bounds of the fields of a config's class, by name; every integer has that of int32."""
    found = {}
    for name, hint in typing.get_type_hints(config, include_extras=True).items():
        bounds: tuple[Bound, ...] = ()
        for member in (hint, *typing.get_args(hint)):
            bounds += getattr(member, "__metadata__", ())
        is_int = union_members(field_types(config).get(name))[0] is int
        found[name] = (*bounds, _INT32) if is_int else bounds
    return types.MappingProxyType(found)


def union_members(hint: Any) -> tuple[Any, ...]:
    """Members of a union without None; for another type, the type itself."""
    # `bool | Literal["never"]` is a typing.Union, `int | None` a types.UnionType.
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return tuple(part for part in typing.get_args(hint) if part is not type(None))
    return (hint,)

"""Fields of configs: their types, bounds and kinds, and the checks of their values."""

import dataclasses
import difflib
import functools
import inspect
import itertools
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from jaxformer.errors import ConfigError

TYPE_NAMES = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
"""What messages call the plain types of fields."""


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

# Types of fields with bounds, which `Key` reads.
PositiveInt = Annotated[int, _POSITIVE]
PositiveFloat = Annotated[float, _POSITIVE]
NonNegativeInt = Annotated[int, _NON_NEGATIVE]
NonNegativeFloat = Annotated[float, _NON_NEGATIVE]
BelowOne = Annotated[float, Bound(lambda value: 0 <= value < 1, "be in [0, 1)")]
UpToOne = Annotated[float, Bound(lambda value: 0 <= value <= 1, "be in [0, 1]")]
BetweenZeroAndOne = Annotated[float, Bound(lambda value: 0 < value < 1, "be between 0 and 1")]
# Far more than any model has, and small enough for shapes.
Width = Annotated[int, _POSITIVE, at_most(2**24)]


class Key(NamedTuple):
    """A field or a parameter, with what its type says; without a default, it is MISSING."""

    name: str
    members: tuple[Any, ...]
    optional: bool = False
    default: Any = dataclasses.MISSING
    metadata: Mapping[str, Any] = types.MappingProxyType({})
    bounds: tuple[Bound, ...] = ()
    kinds: Mapping[str, type] = types.MappingProxyType({})  # configs of a tagged union, by kind
    description: str = ""
    is_argument: bool = False  # a parameter that is not keyword-only

    @property
    def table(self) -> type | None:
        """Config class of a table of one kind."""
        member = self.members[0]
        return member if not self.kinds and dataclasses.is_dataclass(member) else None  # type: ignore[return-value]

    @property
    def tag(self) -> str:
        """Key that names the kind in each config of a tagged union: their first field."""
        return dataclasses.fields(self.members[0])[0].name

    @property
    def element(self) -> "Key | None":
        """Key of the elements of a tuple."""
        if typing.get_origin(self.members[0]) is not tuple:
            return None
        return Key(self.name, _union_members(typing.get_args(self.members[0])[0]))

    @property
    def is_array(self) -> bool:
        """Whether its value is an array of tables."""
        return self.element is not None and self.element.table is not None

    @property
    def choices(self) -> list[object]:
        """Values of a Literal, beside which there may be bools; empty for other types."""
        if not any(typing.get_origin(member) is Literal for member in self.members):
            return []
        values = [(True, False) if m is bool else typing.get_args(m) for m in self.members]
        return list(itertools.chain.from_iterable(values))

    def checked(self, value: Any) -> Any:
        """A value as Python's own type, and the name of a kind as its config; or ConfigError."""
        if value is None and self.optional:
            return None
        if self.kinds:
            if type(value) in self.kinds.values():
                return value
            return self.choose(self.name, value)()  # by its name, with its defaults
        name, member = self.name, self.members[0]
        if choices := self.choices:
            if not isinstance(value, str):  # a dtype of NumPy or JAX has a name
                value = getattr(value, "name", getattr(value, "__name__", value))
            # Types too: 1 equals True.
            if (type(value), value) not in [(type(choice), choice) for choice in choices]:
                names = [str(choice) for choice in choices]
                hint = suggestion(str(value), names)
                raise ConfigError(f"{name} must be one of {', '.join(names)}, got {value!r}{hint}")
        elif (element := self.element) is not None:
            kind = str if element.choices else element.members[0]
            if not isinstance(value, tuple) or not all(_is_of(kind, item) for item in value):
                items = TYPE_NAMES.get(kind, kind.__name__)
                raise ConfigError(
                    f"{name} must be a tuple whose items are each {items}, got {name}={value!r}; "
                    "write (ITEM,) for one"
                )
            if element.choices:
                value = tuple(map(element.checked, value))
        elif member in TYPE_NAMES:
            prefix = f"{name}=" if name.isidentifier() else ""  # neither a flag nor a dotted key
            if not _is_of(member, value):
                raise ConfigError(f"{name} must be {TYPE_NAMES[member]}, got {prefix}{value!r}")
            value = member(value)
            for bound in self.bounds:
                if not bound.holds(value):
                    raise ConfigError(f"{name} must {bound.rule}, got {prefix}{value!r}")
        return value

    def choose(self, where: str, kind: Any) -> type:
        """Config class of a kind of a tagged union; `where` names it in the message."""
        if not isinstance(kind, str) or kind not in self.kinds:
            names = ", ".join(self.kinds) + (", or be left out" if self.optional else "")
            hint = suggestion(str(kind), self.kinds)
            raise ConfigError(f"{where} must be one of {names}, got {kind!r}{hint}")
        return self.kinds[kind]


class Config:
    """Base of configs: checks each field when it is made, and then whether they agree."""

    ONLY_FOR: ClassVar[Mapping[tuple[str, str], Sequence[Any]]] = {}
    """By two keys: the values of the second with which the first can be set."""

    def __post_init__(self) -> None:
        for name, key in keys_of(type(self)).items():
            value = getattr(self, name)
            if (checked := key.checked(value)) is not value:
                object.__setattr__(self, name, checked)  # a frozen dataclass, at its making
        for (name, other), values in self.ONLY_FOR.items():
            if self.sets(name) and getattr(self, other) not in values:
                raise ConfigError(
                    f"{name} is for {other} {listed(values)}, {self.got(other, name)}; remove "
                    f"{name}, or change {other}"
                )
        for mistake in self._mistakes():
            raise ConfigError(mistake)

    def _mistakes(self) -> Iterator[str]:
        """Yields a message for fields that do not agree with each other."""
        yield from ()

    def sets(self, name: str) -> bool:
        """Whether a field has another value than its default."""
        return bool(getattr(self, name) != keys_of(type(self))[name].default)

    def got(self, *names: str) -> str:
        """The values of fields, for a message."""
        return "got " + " and ".join(f"{name}={getattr(self, name)!r}" for name in names)


def listed(values: Iterable[Any]) -> str:
    """Values for a message, such as: 'a', 'b' or 'c'."""
    *first, last = map(repr, values)
    return f"{', '.join(first)} or {last}" if first else last


def suggestion(word: str, known: Iterable[str]) -> str:
    """End of a message: the most similar known word, ignoring case; empty if none is similar."""
    spelled = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), spelled, n=1)
    return f"; did you mean {spelled[near[0]]!r}?" if near else ""


@functools.cache  # since a config may have thousands of layers
def _keys_of(owner: Any) -> Mapping[str, Key]:
    hints = typing.get_type_hints(owner)
    bounded = typing.get_type_hints(owner, include_extras=True)
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    metadata = {field.name: field.metadata for field in fields}
    keys, texts = {}, dict[str, str]()
    for parent in reversed(getattr(owner, "__mro__", [owner])):  # a subclass describes its own keys
        _, _, entries = inspect.cleandoc(parent.__doc__ or "").partition("\nArgs:\n")
        for entry in re.finditer(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", entries, re.MULTILINE):
            texts[entry[1]] = " ".join(entry[2].split())
    for name, parameter in inspect.signature(owner).parameters.items():
        hint, bounds = hints[name], dict[Bound, None]()
        for member in (bounded[name], *typing.get_args(bounded[name])):
            bounds |= dict.fromkeys(getattr(member, "__metadata__", ()))
        members, text = _union_members(hint), texts.get(name, "")
        if typing.get_origin(hint) is Literal and len(typing.get_args(hint)) == 1:
            text = "selects this kind."
        if members[0] is int:
            bounds[_INT32] = None
        has_default = parameter.default is not parameter.empty
        keys[name] = Key(
            name, members, type(None) in typing.get_args(hint),
            parameter.default if has_default else dataclasses.MISSING, metadata.get(name, {}),
            tuple(bounds), _kinds_of(members), text,
            is_argument=parameter.kind is parameter.POSITIONAL_OR_KEYWORD,
        )  # fmt: skip
    return types.MappingProxyType(keys)


keys_of: Callable[[Any], Mapping[str, Key]] = _keys_of  # a class is Hashable, unlike mypy says
"""Keys of a config class, or of a function, by name."""


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a value, which may be one of NumPy, is of a type; whole numbers are integers."""
    if kind not in (int, float):
        return isinstance(value, kind)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):  # a bool is an int to Python
        return False
    return kind is float or isinstance(value, numbers.Integral) or float(value).is_integer()


def _union_members(hint: Any) -> tuple[Any, ...]:
    """Members of a union without None; for another type, the type itself."""
    # `bool | Literal["never"]` is a typing.Union, `int | None` a types.UnionType.
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return tuple(part for part in typing.get_args(hint) if part is not type(None))
    return (hint,)


def _kinds_of(members: tuple[Any, ...]) -> dict[str, type]:
    """Configs of a tagged union by their first field, of a Literal type; none of other types."""
    if len(members) < 2 or not all(map(dataclasses.is_dataclass, members)):
        return {}
    return {getattr(member, dataclasses.fields(member)[0].name): member for member in members}

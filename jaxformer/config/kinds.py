"""Tagged unions: settings whose value is one of several configs, told apart by a discriminator.

The discriminator is a field that allows one value: `kind: Literal["alibi"] = "alibi"`.
"""

import dataclasses
import functools
import typing
from typing import Any, Literal, NamedTuple

from jaxformer.config.checks import field_types, suggestion, union_members
from jaxformer.errors import ConfigError


class Kinds(NamedTuple):
    """The configs of a tagged union, by the value of its discriminator, the field `key`."""

    key: str
    configs: dict[str, type]
    optional: bool

    def choose(self, where: str, kind: str, *, otherwise: str = "be left out") -> type:
        """Config class of a kind; `where` and `otherwise` are words for messages."""
        if kind not in self.configs:
            raise ConfigError(
                f"{where} must be one of {', '.join(self.configs)}"
                + (f", or {otherwise}" if self.optional else "")
                + f", got {kind!r}{suggestion(kind, self.configs)}"
            )
        return self.configs[kind]

    def with_key(self, name: str) -> list[str]:
        """Kinds whose config has a key of this name."""
        return [kind for kind, config in self.configs.items() if name in field_types(config)]


@functools.cache
def kinds_of(hint: Any) -> Kinds | None:
    """Kinds of a field's type if it is a tagged union; None for every other type."""
    members = union_members(hint)
    if members == (hint,) or not all(dataclasses.is_dataclass(member) for member in members):
        return None
    tags = [_discriminator(member) for member in members]
    if not all(tags) or len({tag[0] for tag in tags if tag}) != 1:
        return None
    configs = {tag[1]: member for tag, member in zip(tags, members, strict=True) if tag}
    return Kinds(next(tag[0] for tag in tags if tag), configs, type(None) in typing.get_args(hint))


def _discriminator(config: Any) -> tuple[str, str] | None:
    """Name and value of the field that allows one value only."""
    for name, hint in field_types(config).items():
        if typing.get_origin(hint) is Literal and len(typing.get_args(hint)) == 1:
            return name, typing.get_args(hint)[0]
    return None


def resolve_kinds(config: Any) -> None:
    """Checks the tagged unions of a new config, and replaces names of kinds by their configs."""
    for field, hint in field_types(type(config)).items():
        kinds, value = kinds_of(hint), getattr(config, field)
        if kinds is None or (value is None and kinds.optional):
            continue
        if isinstance(value, str):
            chosen = kinds.choose(field, value)
            if needed := required_keys(chosen):
                raise ConfigError(
                    f"{field} of {kinds.key} {value!r} needs {' and '.join(needed)}, got its name "
                    f"only; write {chosen.__name__}({needed[0]}=...)"
                )
            object.__setattr__(config, field, chosen())
        elif type(value) not in kinds.configs.values():
            names = ", ".join(chosen.__name__ for chosen in kinds.configs.values())
            raise ConfigError(f"{field} must be one of {names}, got {value!r}")


def required_keys(config: type) -> list[str]:
    """Keys of a config class that have no default."""
    return [
        field.name for field in dataclasses.fields(config) if field.default is dataclasses.MISSING
    ]

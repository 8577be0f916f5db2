"""What the configs check their values with."""

import difflib
import math
import typing
from typing import Literal

from jaxformer.errors import ConfigError

__all__ = ["require", "require_at_least_zero", "require_choices", "require_positive", "suggestion"]


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
    """Checks every Literal field, which Python itself does not."""
    for name, kind in typing.get_type_hints(type(config)).items():
        if typing.get_origin(kind) is Literal:
            value = getattr(config, name)
            choices = typing.get_args(kind)
            if value not in choices:
                raise ConfigError(
                    f"{name} must be one of {', '.join(choices)}, got {value!r}"
                    + suggestion(str(value), choices)
                )


def suggestion(word: str, known: typing.Iterable[str]) -> str:
    """Writes the end of a message that names the nearest of the known words, if one is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""

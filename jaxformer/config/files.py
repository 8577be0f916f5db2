"""Configs as TOML: a strict reader, a writer, and what differs between two."""

import dataclasses
import json
import pathlib
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from jaxformer.config.checks import suggestion
from jaxformer.config.schema import ExperimentConfig
from jaxformer.errors import ConfigError

__all__ = ["config_differences", "config_from_dict", "config_to_toml", "load_config"]

T = TypeVar("T")


def load_config(path: str | pathlib.Path) -> ExperimentConfig:
    """Reads an experiment config from a TOML file, strictly.

    Args:
        path: of the file.

    Returns:
        The config; `out` is filled in with "runs/" and the file's stem where the file has none.

    Raises:
        ConfigError: the file cannot be read, or a key in it is unknown, missing, of the wrong
            type or impossible; the message names file, key, value and the nearest valid key.

    Example:
        >>> load_config("configs/quickstart.toml").model.num_layers
        4
    """
    path = pathlib.Path(path)
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError:
        nearby = sorted(p.name for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        hint = f"; {path.parent} has {', '.join(nearby)}" if nearby else ""
        raise ConfigError(f"{path}: there is no such config file{hint}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        config = config_from_dict(ExperimentConfig, values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config if config.out else dataclasses.replace(config, out=f"runs/{path.stem}")


def config_from_dict(kind: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Builds a config dataclass from a nested dict, checking every key and type.

    Args:
        kind: the dataclass.
        values: what a TOML table holds.
        prefix: of the keys in messages, such as "model.".

    Returns:
        An instance of `kind`.

    Raises:
        ConfigError: a key is unknown, missing, of the wrong type or impossible.

    Example:
        >>> from jaxformer.config import TokenizerConfig
        >>> config_from_dict(TokenizerConfig, {"kind": "byte"}).kind
        'byte'
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in fields:
            raise ConfigError(f"unknown key {prefix}{key}{_hint(key, fields)}")
    arguments = {}
    for name, field in fields.items():
        if name in values:
            arguments[name] = _convert(f"{prefix}{name}", hints[name], values[name])
        elif field.default is dataclasses.MISSING:
            raise ConfigError(f"missing key {prefix}{name} ({_type_name(hints[name])})")
    try:
        return kind(**arguments)
    except ConfigError as error:
        section = prefix.rstrip(".")
        raise ConfigError(f"[{section}] {error}" if section else str(error)) from None


def _hint(key: str, siblings: Iterable[str]) -> str:
    """Names the nearest key of the same table, else of any, else lists the table's own."""
    if near := suggestion(key, siblings):
        return near
    for dotted in _dotted_keys(ExperimentConfig):
        if suggestion(key, [dotted.split(".")[-1]]):
            return f"; did you mean {dotted!r}?"
    return f"; the keys here are {', '.join(siblings)}"


def _dotted_keys(kind: Any, prefix: str = "") -> Iterator[str]:
    for name, hint in typing.get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            yield from _dotted_keys(hint, f"{prefix}{name}.")
        else:
            yield prefix + name


def _convert(key: str, hint: Any, value: Any) -> Any:
    """Checks one TOML value against a field's type; lists become tuples, ints may be floats."""
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{key} must be a table, got {value!r}")
        return config_from_dict(typing.cast(type, hint), value, prefix=f"{key}.")
    if typing.get_origin(hint) is types.UnionType:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is tuple:
        element = typing.get_args(hint)[0]
        if not isinstance(value, list):
            raise ConfigError(f"{key} must be a list, got {value!r}; write [{value!r}]")
        return tuple(_convert(f"{key}[{i}]", element, v) for i, v in enumerate(value))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = str if typing.get_origin(hint) is Literal else hint
    if type(value) is not expected:
        raise ConfigError(f"{key} must be {_type_name(expected)}, got {value!r}")
    return value


def _type_name(hint: Any) -> str:
    if typing.get_origin(hint) is types.UnionType:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(typing.get_args(hint))
    if dataclasses.is_dataclass(hint):
        return "a table"
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    return names.get(hint, str(hint))


def config_to_toml(config: Any) -> str:
    """Writes a config dataclass as TOML that `load_config` reads back; unset keys are left out.

    Args:
        config: any of the dataclasses of this module.

    Returns:
        The text, tables after plain keys.

    Example:
        >>> from jaxformer.config import TokenizerConfig
        >>> print(config_to_toml(TokenizerConfig(kind="byte")), end="")
        kind = "byte"
        joint = true
    """
    return "\n".join(_toml_lines(config, ())) + "\n"


def _toml_lines(config: Any, table: tuple[str, ...]) -> list[str]:
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    lines = [
        f"{name} = {_toml_value(value)}"
        for name, value in values.items()
        if value is not None and not dataclasses.is_dataclass(value)
    ]
    for name, value in values.items():
        if dataclasses.is_dataclass(value):
            inner = (*table, name)
            lines += ["", f"[{'.'.join(inner)}]", *_toml_lines(value, inner)]
    return lines


def _toml_value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    # JSON's strings, numbers and booleans are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def config_differences(old: Any, new: Any, prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Lists what differs between two configs of one class.

    Args:
        old: a config.
        new: another of the same class.
        prefix: of the keys, such as "model.".

    Returns:
        A dict from dotted key to the (old, new) values; empty when the two are equal.

    Example:
        >>> from jaxformer.config import TokenizerConfig
        >>> config_differences(TokenizerConfig(kind="byte"), TokenizerConfig(kind="word"))
        {'kind': ('byte', 'word')}
    """
    differences: dict[str, tuple[Any, Any]] = {}
    for field in dataclasses.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if dataclasses.is_dataclass(before):
            differences |= config_differences(before, after, f"{prefix}{field.name}.")
        elif before != after:
            differences[prefix + field.name] = (before, after)
    return differences

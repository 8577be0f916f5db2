"""Configs as TOML files: reading and writing them, and differences between two configs."""

import dataclasses
import json
import pathlib
import tomllib
from collections.abc import Iterator
from typing import Any, TypeGuard

from jaxformer.config.reading import config_from_dict
from jaxformer.config.schema import ExperimentConfig
from jaxformer.errors import ConfigError

__all__ = ["config_differences", "config_to_toml", "load_config"]


def load_config(path: str | pathlib.Path) -> ExperimentConfig:
    """Reads an experiment config from a TOML file; unknown keys are errors.

    Args:
        path: TOML file.

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


def config_to_toml(config: Any) -> str:
    """TOML of any config dataclass, as `load_config` reads it; unset keys are left out.

    Example:
        >>> from jaxformer.config import TokenizerConfig
        >>> print(config_to_toml(TokenizerConfig(kind="byte")), end="")
        kind = "byte"
        joint = true
    """
    return "\n".join(_toml_lines(config, "")) + "\n"


def _toml_lines(config: Any, prefix: str) -> Iterator[str]:
    """Lines of a table. Plain keys come first, or they would belong to a table inside it."""
    tables: list[str] = []
    for field in dataclasses.fields(config):
        key, value = prefix + field.name, getattr(config, field.name)
        if _are_configs(value):
            for entry in value:
                tables += ["", f"[[{key}]]", *_toml_lines(entry, f"{key}.")]
        elif not _is_config(value):
            if value is not None:
                yield f"{field.name} = {_toml_value(value)}"
        elif len(dataclasses.fields(value)) == 1:  # a kind without settings: its name suffices
            (kind,) = dataclasses.fields(value)
            yield f"{field.name} = {_toml_value(getattr(value, kind.name))}"
        else:
            tables += ["", f"[{key}]", *_toml_lines(value, f"{key}.")]
    yield from tables


def _is_config(value: Any) -> bool:
    return dataclasses.is_dataclass(value)


def _are_configs(value: Any) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple) and value != () and all(map(_is_config, value))


def _toml_value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    # JSON's strings, numbers and booleans are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def config_differences(old: Any, new: Any, prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Differences between two configs of one class.

    Args:
        old: a config.
        new: another of the same class.
        prefix: prefix of the keys, such as "model.".

    Returns:
        The (old, new) values by dotted key; empty when the two are equal. Within a tagged union, a
        key that one kind does not have is None there. Tables of an array are compared one by one,
        as "model.layers[0].attention", if both have the same number.

    Example:
        >>> from jaxformer.config import TokenizerConfig
        >>> config_differences(TokenizerConfig(kind="byte"), TokenizerConfig(kind="word"))
        {'kind': ('byte', 'word')}
    """
    names = dict.fromkeys(
        field.name for one in (old, new) if _is_config(one) for field in dataclasses.fields(one)
    )
    differences: dict[str, tuple[Any, Any]] = {}
    for name in names:
        before, after = getattr(old, name, None), getattr(new, name, None)
        differences |= _value_differences(prefix + name, before, after)
    return differences


def _value_differences(key: str, before: Any, after: Any) -> dict[str, tuple[Any, Any]]:
    if before == after:
        return {}
    if _is_config(before) or _is_config(after):
        return config_differences(before, after, f"{key}.")
    if _are_configs(before) and _are_configs(after) and len(before) == len(after):
        differences: dict[str, tuple[Any, Any]] = {}
        for index, pair in enumerate(zip(before, after, strict=True)):
            differences |= _value_differences(f"{key}[{index}]", *pair)
        return differences
    return {key: (before, after)}

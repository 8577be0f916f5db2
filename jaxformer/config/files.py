"""Configs as TOML files: reading and writing them, and differences between two configs."""

import dataclasses
import json
import pathlib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jaxformer.config.checks import PositiveInt, keys_of, suggestion
from jaxformer.config.depth import at_depth
from jaxformer.config.experiment import ExperimentConfig
from jaxformer.config.reading import config_from_dict, with_source_of_paths
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path, read_regular

# In a checkout configs/ lies beside the package; a wheel has it inside.
_FOLDERS = tuple(folder / "configs" for folder in pathlib.Path(__file__).parents[1:3])


def load_config(path: str | pathlib.Path, *, depth: PositiveInt | None = None) -> ExperimentConfig:
    """Reads an experiment config from a TOML file; unknown keys are errors.

    data.paths without data.source are files of the data that trains the model: text, pairs, or
    labeled texts.

    Args:
        path: TOML file, or if there is none, the name of one of `ready_configs`.
        depth: number of layers; the table [by_depth] of the file says how other settings follow
            it. Default: model.num_layers of the file.

    Returns:
        The config; `out` is "runs/" and the file's stem if the file does not set it.

    Raises:
        ConfigError: the file cannot be read, or a key in it is unknown, missing, of the wrong
            type or impossible; the message names file, key, value and the nearest valid key.

    Example:
        >>> load_config("quickstart").model.num_layers
        4
        >>> load_config("depth", depth=6).model.d_model
        384
    """
    tables = read_tables(path)
    return config_of_file(path, lambda: at_depth(tables, depth))


def read_tables(path: str | pathlib.Path) -> dict[str, Any]:
    """Contents of a TOML file, or of the built-in config of that name."""
    path = _config_path(as_path(path))
    try:
        return tomllib.loads(read_regular(path).decode("utf-8-sig"))
    except FileNotFoundError:
        hint = ready_hint(path.stem)
        raise ConfigError(f"{path}: there is no such config file{hint}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # bad TOML, bad UTF-8, a number of too many digits
        raise ConfigError(f"{path}: not a TOML file: {error}") from error


def config_of_file(
    path: str | pathlib.Path, read: Callable[[], Mapping[str, Any]], *, changed: str = ""
) -> ExperimentConfig:
    """Config of the tables of a file, `changed` by something, such as " with flags"."""
    path = _config_path(as_path(path))
    try:
        values = read()
        values = {**with_source_of_paths(values), "out": values.get("out") or f"runs/{path.stem}"}
        return config_from_dict(ExperimentConfig, values)
    except ConfigError as error:
        raise ConfigError(f"{path}{changed}: {error}") from None


def _config_path(path: pathlib.Path) -> pathlib.Path:
    """The path if it is a file, or else the built-in config of that name."""
    return path if path.is_file() else ready_configs().get(str(path), path)


def ready_configs() -> dict[str, pathlib.Path]:
    """Files of the configs that come with the package, by the names that `load_config` takes.

    Example:
        >>> list(ready_configs())[:3]
        ['depth', 'gpt2_124m', 'masked_python']
    """
    files = next((files for folder in _FOLDERS if (files := sorted(folder.glob("*.toml")))), [])
    return {file.stem: file for file in files}


def ready_hint(name: str) -> str:
    """End of a message on an unknown name: the built-in configs, and the most similar one."""
    ready = ready_configs()
    return f"; the built-in ones are {', '.join(ready)}{suggestion(name, ready)}"


def config_to_toml(config: Any) -> str:
    """TOML of any config dataclass, as `load_config` reads it; unset keys are left out.

    Example:
        >>> from jaxformer.config import TokenizerConfig
        >>> print(config_to_toml(TokenizerConfig(kind="byte")), end="")
        kind = "byte"
        joint = true
    """
    return "\n".join(_toml_lines(tables_of(config), "")) + "\n"


def tables_of(config: Any) -> dict[str, Any]:
    """Tables of a config, as its file has them; unset keys are left out."""
    return dataclasses.asdict(
        config, dict_factory=lambda items: {name: v for name, v in items if v is not None}
    )


def _toml_lines(table: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Lines of a table. Plain keys come first, or they would belong to a table inside it."""
    tables: list[str] = []
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, tuple) and value and isinstance(value[0], dict):
            for entry in value:
                tables += ["", f"[[{key}]]", *_toml_lines(entry, f"{key}.")]
        elif isinstance(value, dict):
            tables += ["", f"[{key}]", *_toml_lines(value, f"{key}.")]
        else:
            yield f"{name} = {toml_value(value)}"
    yield from tables


def toml_value(value: Any) -> str:
    """TOML of a plain value or a config, or of several of them."""
    if dataclasses.is_dataclass(value):
        value = tables_of(value)
    if isinstance(value, dict):
        shown = (f"{key} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {', '.join(shown)} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    # JSON's strings, numbers and booleans are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007F")


def changed_settings(config: Any, prefix: str = "") -> dict[str, str]:
    """Settings of a config that are not at their defaults, in TOML, by dotted key.

    Args:
        config: a config dataclass.
        prefix: prefix of the keys, such as "model.".

    Example:
        >>> from jaxformer.config import TokenizerConfig
        >>> changed_settings(TokenizerConfig(kind="byte"))
        {'kind': '"byte"'}
    """
    changed: dict[str, str] = {}
    for name, key in keys_of(type(config)).items():
        dotted, value = prefix + name, getattr(config, name)
        if value == key.default:
            continue
        if not dataclasses.is_dataclass(value) or key.default is None:
            changed[dotted] = toml_value(value)
            continue
        if key.kinds and type(value) is not type(key.default):
            changed[f"{dotted}.{key.tag}"] = toml_value(getattr(value, key.tag))
        changed |= changed_settings(value, f"{dotted}.")
    return changed


def config_differences(old: Any, new: Any, prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Differences between two configs of one class.

    Args:
        old: a config.
        new: another of the same class.
        prefix: prefix of the keys, such as "model.".

    Returns:
        The (old, new) values by dotted key; empty when the two are equal. Within a tagged union, a
        key that one kind does not have is None there. An array of tables is compared as a whole.

    Example:
        >>> from jaxformer.config import TokenizerConfig
        >>> config_differences(TokenizerConfig(kind="byte"), TokenizerConfig(kind="word"))
        {'kind': ('byte', 'word')}
    """
    sides = [side for side in (old, new) if dataclasses.is_dataclass(side)]
    differences: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys(name for side in sides for name in keys_of(type(side))):
        key, before, after = prefix + name, getattr(old, name, None), getattr(new, name, None)
        if before == after:
            continue
        if dataclasses.is_dataclass(before) or dataclasses.is_dataclass(after):
            differences |= config_differences(before, after, f"{key}.")
        else:
            differences[key] = (before, after)
    return differences

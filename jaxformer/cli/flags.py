"""Flags of a command line: `--a.b value` sets the key b of the table a."""

import contextlib
import copy
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING
from typing import Annotated, Any, NamedTuple

from jaxformer.config import ExperimentConfig
from jaxformer.config.checks import Key, keys_of, required_keys
from jaxformer.config.data import SOURCES
from jaxformer.config.reading import dotted_keys, suggested_keys
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path


class Flag(NamedTuple):
    """A flag as typed, and the words that are its values."""

    name: str
    values: list[str]

    @property
    def key(self) -> str:
        """Dotted key, with underscores for hyphens."""
        return self.name.removeprefix("--").replace("-", "_")


ConfigFlags = Annotated[Sequence[Flag], ExperimentConfig]
"""Parameter of a command for the flags of the keys of a config."""


def split_flags(
    words: Sequence[str], num_values: Callable[[str], int | None] = lambda key: None
) -> tuple[list[str], list[Flag]]:
    """Words of no flag, and flags with `num_values` words each; None: all up to the next flag."""
    arguments: list[str] = []
    flags: list[Flag] = []
    left: float = 0  # values that the last flag may still take
    for index, word in enumerate(words):
        if word == "--":
            arguments += words[index + 1 :]
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            flags.append(Flag(name, [value] if equals else []))
            count = num_values(flags[-1].key)
            left = 0 if equals else float("inf") if count is None else count
        elif left:
            flags[-1].values.append(word)
            left -= 1
        else:
            arguments.append(word)
    _refuse_repeated(flags)
    return arguments, flags


def _refuse_repeated(flags: Iterable[Flag]) -> None:
    """Refuses a flag that is given twice, since its first values would be lost."""
    names: dict[str, str] = {}
    for flag in flags:
        table, dot, leaf = flag.key.rpartition(".")
        setting = f"{table}{dot}{leaf.removeprefix('no_')}"
        if setting in names:
            got = "it twice" if names[setting] == flag.name else f"{names[setting]} and {flag.name}"
            raise ConfigError(
                f"{flag.name} must be given once, got {got}; if it takes several values, write "
                f"them after one {flag.name}"
            )
        names[setting] = flag.name


def key_of(keys: Mapping[str, Key], name: str) -> Key | None:
    """Key of a flag, which for a bool may begin with "no_"."""
    table, dot, leaf = name.rpartition(".")
    switch = keys.get(f"{table}{dot}{leaf.removeprefix('no_')}")
    return keys.get(name) or (switch if switch is not None and switch.members == (bool,) else None)


def value_of(flag: Flag, key: Key) -> Any:
    """Value of a flag for a key, as TOML would have it; None for one that is to be unset."""
    if key.element is not None:
        return tuple(_value(key.element, word) for word in flag.values)
    if key.members == (bool,) and not flag.values:
        return flag.key.rpartition(".")[2] == key.name
    if len(flag.values) != 1:
        got = " and ".join(map(repr, flag.values)) or "none"
        raise ConfigError(f"{flag.name} must have one value ({key.type_name}), got {got}")
    return _value(key, flag.values[0])


def _value(key: Key, word: str) -> Any:
    """A word as a value of a key; the word itself if it is none."""
    if word == "None" and key.optional:
        return None
    if pathlib.Path in key.members:
        return as_path(word)
    if bool in key.members and word.lower() in ("true", "false"):
        return word.lower() == "true"
    if int in key.members or float in key.members:
        with contextlib.suppress(ValueError):
            return int(word) if word.lstrip("+-").isdecimal() else float(word)
    return word


def with_flags(
    values: Mapping[str, Any], flags: Sequence[Flag], *, prog: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tables of a config with flags merged into them, and what flags for other data took out."""
    tables, replaced = copy.deepcopy(dict(values)), dict[str, Any]()
    if any(flag.key == "data.paths" for flag in flags):  # the config describes its own data
        replaced = _without_data(tables)
    keys, left = _keys(), list(flags)
    for dotted, key in keys.items():
        if key.kinds is not None:
            chosen = [flag for flag in left if flag.key in (dotted, f"{dotted}.{key.kinds.key}")]
            left = [flag for flag in left if flag not in chosen]
            if len(chosen) > 1:
                got = " and ".join(flag.name for flag in chosen)
                raise ConfigError(f"{dotted} must be chosen once, got {got}")
            if chosen:
                _choose_kind(tables, dotted, key, chosen[0], left)
    for flag in left:
        target = key_of(keys, flag.key)
        if target is None:
            raise ConfigError(_unknown(flag, tables, prog))
        table, value = _table(tables, flag.key), value_of(flag, target)
        table.pop(target.name, None)
        if value is not None:
            table[target.name] = value
    return tables, replaced


@functools.cache
def _keys() -> dict[str, Key]:
    """All keys of a config that flags can set; those of several kinds have the same types."""
    return {name: key for name, key in dotted_keys(ExperimentConfig) if not _is_array(key)}


def _is_array(key: Key) -> bool:
    """Whether a key is an array of tables."""
    return key.element is not None and key.element.table is not None


def _without_data(tables: dict[str, Any]) -> dict[str, Any]:
    """Takes out what only makes sense for the data of the config itself, by dotted key."""
    data, samples = tables.get("data", {}), tables.get("samples", {})
    keys = [(data, "data", name) for name in ("paths", "mixture", "validation_paths")]
    source = SOURCES.get(str(data.get("source", "files"))) if isinstance(data, dict) else None
    if source is not None and "paths" not in source.paths:
        keys += [(data, "data", name) for name in ("source", "synthetic")]
        keys += [(samples, "samples", "prompts")]
    return {
        f"{name}.{key}": table.pop(key)
        for table, name, key in keys
        if isinstance(table, dict) and key in table
    }


def _table(tables: dict[str, Any], dotted: str) -> dict[str, Any]:
    """Table of a dotted key, made if there is none; in place of a mistake one that is not used."""
    table, names = tables, dotted.split(".")[:-1]
    for depth, name in enumerate(names, 1):
        key, inner = _keys()[".".join(names[:depth])], table.get(name) or {}
        if key.kinds is not None and isinstance(inner, str | dict):
            inner = key.kinds.table(inner, key.default)
        if not isinstance(inner, dict):
            return {}  # reading the config reports it
        table[name] = inner
        table = inner
    return table


def _choose_kind(
    tables: dict[str, Any], dotted: str, key: Key, chosen: Flag, flags: Sequence[Flag]
) -> None:
    """Sets the kind that a flag selects."""
    kinds, table = key.kinds, _table(tables, dotted)
    assert kinds is not None
    kind, current = value_of(chosen, key), table.get(key.name)
    if kind is None or (kind == "none" and kinds.optional):
        table.pop(key.name, None)
        if inner := [flag.name for flag in flags if flag.key.startswith(f"{dotted}.")]:
            raise ConfigError(
                f"{inner[0]} is for {dotted} of a {kinds.key}, got {kind!r}; remove one of them"
            )
        return
    config = kinds.choose(chosen.name, kind, otherwise="none")
    is_table = current is None or isinstance(current, str | dict)
    old = kinds.table(current or {}, key.default) if is_table else {}
    if old.get(kinds.key) != kind:
        before = kinds.config_of(old) or config
        old = {name: k.default for name, k in keys_of(before).items()} | old
        required = {*required_keys(config), *required_keys(before)} & keys_of(config).keys()
        old = {name: old[name] for name in required if old.get(name, MISSING) is not MISSING}
    table[key.name] = old | {kinds.key: kind}


def _unknown(flag: Flag, tables: dict[str, Any], prog: str) -> str:
    """Message on a flag that is no key, or one of an array of tables."""
    for dotted, key in dotted_keys(ExperimentConfig):
        if _is_array(key) and flag.key.startswith(dotted):
            return (
                f"{dotted} is an array of tables, which flags cannot change, got {flag.name}; "
                f"write [[{dotted}]] in the config file"
            )
    values = {name: value for name, _, value in settings(tables)}
    keys = suggested_keys(flag.key, values) or suggested_keys(flag.key, dict.fromkeys(_keys()))
    near = [f"--{name.replace('_', '-')}" for name in keys]
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"there is no option {flag.name}; {meant}{prog} --help-all lists all options"


def settings(
    values: Mapping[str, Any], config: type = ExperimentConfig, prefix: str = ""
) -> Iterator[tuple[str, Key, Any]]:
    """Keys that flags can set, with their value or default; a union, with its kind, comes first."""
    for name, key in keys_of(config).items():
        dotted, value = prefix + name, values.get(name)
        if key.kinds is not None:
            is_table = value is None or isinstance(value, str | Mapping)
            union = key.kinds.table(value or {}, key.default) if is_table else {}
            yield dotted, key, union.get(key.kinds.key)
            if (chosen := key.kinds.config_of(union)) is not None:
                yield from settings(union, chosen, f"{dotted}.")
        elif key.table is not None and (value is not None or not key.optional):
            table = value if isinstance(value, Mapping) else {}
            yield from settings(table, key.table, f"{dotted}.")
        elif not _is_array(key):
            has_default = isinstance(key.default, int | float | str | tuple)
            yield dotted, key, value if value is not None else key.default if has_default else None

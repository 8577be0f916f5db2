"""Flags of a command line, and the config values and kinds that they override."""

import copy
import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tyro

from jaxformer.cli.hosts import LAUNCH_HELP
from jaxformer.cli.parsing import for_help, parse
from jaxformer.config import ExperimentConfig, SyntheticConfig, config_differences
from jaxformer.config.checks import Kinds, field_types, kinds_of, required_keys, union_members
from jaxformer.config.data import SOURCES
from jaxformer.config.files import toml_value
from jaxformer.config.reading import suggested_keys
from jaxformer.errors import ConfigError

# Keys that only make sense for the data of the config itself.
_OF_OWN_DATA = ("data.source", "data.mixture", "data.validation_paths", "samples.prompts")


class Flag(NamedTuple):
    """A flag of a command line as typed; its name is empty for words before the first flag."""

    name: str
    values: list[str]
    words: list[str]

    @property
    def key(self) -> str:
        """Dotted key, with underscores for hyphens."""
        return self.name.removeprefix("--").replace("-", "_")


def split_flags(words: Sequence[str]) -> list[Flag]:
    """Splits the words of a command line into flags; tyro parses their values."""
    found: list[Flag] = []
    for word in words:
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            found.append(Flag(name, [value] if equals else [], [word]))
            continue
        if not found:
            found.append(Flag("", [], []))
        found[-1].values.append(word)
        found[-1].words.append(word)
    return found


def _take(flags: list[Flag], keys: Sequence[str]) -> list[Flag]:
    """Removes the flags of some keys; words after their first value stay."""
    taken = [flag for flag in flags if flag.name and flag.key in keys]
    flags[:] = [Flag("", [], flag.values[1:]) if flag in taken else flag for flag in flags]
    return taken


def pop_flags(
    words: Sequence[str], kinds: Mapping[str, Callable[[str], Any]]
) -> tuple[dict[str, Any], list[str]]:
    """Takes flags that are not keys of a config: their values by name, and the other words."""
    by_key = {name.removeprefix("--").replace("-", "_"): name for name in kinds}
    flags, values = split_flags(words), dict[str, Any]()
    for flag in _take(flags, [*by_key]):
        name = by_key[flag.key]
        if not flag.values:
            raise ConfigError(f"{name} must have a value, got none")
        try:
            values[flag.key] = kinds[name](flag.values[0])
        except ValueError:
            raise ConfigError(f"{name} must be an integer, got {flag.values[0]!r}") from None
    return values, [word for flag in flags for word in flag.words]


def override_config(
    config: ExperimentConfig, words: Sequence[str], *, prog: str, launches: bool = False
) -> ExperimentConfig:
    """Overrides a config with flags; one that names another kind selects it with its defaults.

    Keys of the new kind that have no default keep their value. Its flags may come before or after.
    """
    flags = split_flags(words)
    named = [flag for flag in flags if flag.name]
    for flag in named:
        for key in map(".".join, _array_keys()):
            if flag.key.startswith(key):
                raise ConfigError(
                    f"{key} is an array of tables, which flags cannot change, got {flag.words[0]}; "
                    f"write [[{key}]] in the config file"
                )
    if any(flag.key == "data.paths" for flag in named):  # the config describes its own data
        config = _for_other_data(config)
    default = _with_chosen_kinds(config, "", flags)
    # tyro would give each table of an array its own flags.
    arrays: dict[str, dict[str, Any]] = {}
    for table, name in _array_keys():
        arrays.setdefault(table, {})[name] = getattr(getattr(config, table), name)
        object.__setattr__(getattr(default, table), name, ())
    _refuse_unknown(default, flags, prog)
    rest = [word for flag in flags for word in flag.words]
    if {"-h", "--help"} & set(rest):
        default = for_help(default, trains=launches)
    changed = parse(
        type(default),
        default=default,
        args=rest,
        prog=prog,
        description=(
            "Options that override the config, with its values as defaults. To select another "
            f"kind, with its own defaults: {', '.join(_kind_flags(config))}. You can also set "
            f"its keys; keys without a default keep their value. {LAUNCH_HELP if launches else ''}"
        ),
        config=(tyro.conf.AvoidSubcommands,),
    )
    tables = {
        table: dataclasses.replace(getattr(changed, table), **values)
        for table, values in arrays.items()
    }
    return dataclasses.replace(changed, **tables)


def implied_settings(
    before: ExperimentConfig, after: ExperimentConfig, words: Sequence[str]
) -> list[str]:
    """Lines that name the settings that `override_config` changed because of `--data.paths`."""
    given = {flag.key for flag in split_flags(words)}
    return [
        f"{key} = {toml_value(new)}, not {toml_value(old)}, because data.paths is given"
        for key, (old, new) in config_differences(before, after).items()
        if key in _OF_OWN_DATA and key not in given
    ]


def _for_other_data(config: ExperimentConfig) -> ExperimentConfig:
    """The config without the keys that describe its own data, for a flag that names other files."""
    data, samples = config.data, config.samples
    source = data.source
    if "paths" not in SOURCES[source].paths:
        source = config.source_of_paths
        samples = dataclasses.replace(samples, prompts=())
        data = dataclasses.replace(data, source=source, synthetic=SyntheticConfig())
    data = dataclasses.replace(data, paths=(), mixture=(), validation_paths=())
    return dataclasses.replace(config, samples=samples, data=data)


def _array_keys() -> list[tuple[str, str]]:
    """Table and name of each key of an `ExperimentConfig` that is an array of tables."""
    return [
        (table, name)
        for table, kind in field_types(ExperimentConfig).items()
        if dataclasses.is_dataclass(kind)
        for name, hint in field_types(typing.cast(type, kind)).items()
        if typing.get_origin(hint) is tuple and dataclasses.is_dataclass(typing.get_args(hint)[0])
    ]


def _refuse_unknown(config: Any, flags: Sequence[Flag], prog: str) -> None:
    """Refuses flags that are not keys, and suggests similar ones."""
    values = flag_values(config)
    for flag in flags:
        table, dot, leaf = flag.key.rpartition(".")
        known = flag.key in values or f"{table}{dot}{leaf.removeprefix('no_')}" in values
        if flag.name and not known and flag.words[0] != "--help":
            near = [f"--{one.replace('_', '-')}" for one in suggested_keys(flag.key, values)]
            meant = f"did you mean {' or '.join(near)}? " if near else ""
            raise ConfigError(
                f"there is no option {flag.name}; {meant}{prog} --help lists all options"
            )


def _settings(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Kinds | None]]:
    """Keys of a config with their values, and kinds if they have any; tables before their keys."""
    for name, hint in field_types(type(config)).items():
        key, value = prefix + name, getattr(config, name)
        yield key, value, kinds_of(hint)
        if dataclasses.is_dataclass(value):
            yield from _settings(value, f"{key}.")


def flag_values(config: Any) -> dict[str, Any]:
    """Values of the keys that flags can set."""
    arrays = {".".join(key) for key in _array_keys()}
    return {
        key: value
        for key, value, kinds in _settings(config)
        if key not in arrays and (kinds is not None or not dataclasses.is_dataclass(value))
    }


def _kind_flags(config: Any) -> Iterator[str]:
    """For the help: flags that select a kind, with the kinds."""
    for key, value, kinds in _settings(config):
        if kinds is not None:
            flag = f"--{key.replace('_', '-')}" + ("" if value is None else f".{kinds.key}")
            yield f"{flag} {{{','.join([*kinds.configs, *(['none'] if kinds.optional else [])])}}}"


def _with_chosen_kinds(config: Any, prefix: str, flags: list[Flag]) -> Any:
    """Unchecked copy of a config with the selected kinds, whose flags it removes; for tyro."""
    copied = copy.copy(config)
    for name, hint in field_types(type(config)).items():
        key, value, kinds = prefix + name, getattr(config, name), kinds_of(hint)
        if kinds is not None:
            chosen = _take(flags, (key, f"{key}.{kinds.key}"))
            if len(chosen) > 1:
                raise ConfigError(
                    f"{key} must be chosen once, got {' and '.join(flag.name for flag in chosen)}"
                )
            for flag in chosen:
                value = _of_kind(flag, kinds, value)
            _refuse_keys_of_others(key, kinds, value, flags)
        elif value is None and (table := _optional_table(hint)) is not None:
            if any(flag.key.startswith(f"{key}.") for flag in flags):
                value = _unchecked(table)
        if dataclasses.is_dataclass(value):
            value = _with_chosen_kinds(value, f"{key}.", flags)
        object.__setattr__(copied, name, value)
    return copied


def _refuse_keys_of_others(key: str, kinds: Kinds, value: Any, flags: Sequence[Flag]) -> None:
    """Refuses flags for keys of other kinds; tyro would call them unknown."""
    own = {} if value is None else field_types(type(value))
    for flag in flags:
        name = flag.key.removeprefix(f"{key}.").partition(".")[0].removeprefix("no_")
        if flag.key.startswith(f"{key}.") and name not in own and (others := kinds.with_key(name)):
            kind = "none" if value is None else getattr(value, kinds.key)
            raise ConfigError(
                f"{flag.name} is for {key} of {kinds.key} {' or '.join(map(repr, others))}, got "
                f"{kind!r}; remove it, or choose with --{key}.{kinds.key}"
            )


def _of_kind(flag: Flag, kinds: Kinds, current: Any) -> Any:
    """Unchecked config of a kind: its defaults, and the current value of keys without one."""
    kind = flag.values[0] if flag.values else ""
    if kinds.optional and kind == "none" and kind not in kinds.configs:
        return None
    chosen = kinds.choose(flag.name, kind, otherwise="none")
    return current if type(current) is chosen else _unchecked(chosen, current)


def _optional_table(hint: Any) -> type | None:
    """Config class of a key that is an optional table, such as model.experts."""
    members = union_members(hint)
    is_table = len(members) == 1 and dataclasses.is_dataclass(members[0])
    return typing.cast(type, members[0]) if is_table and members != (hint,) else None


def _unchecked(config: type, current: Any = None) -> Any:
    """Config with the defaults of a class, and current values for keys that either requires."""
    made: Any = object.__new__(config)
    kept = [*required_keys(config), *(required_keys(type(current)) if current else ())]
    for field in dataclasses.fields(config):
        value = getattr(current, field.name, field.default) if field.name in kept else field.default
        value = tyro.MISSING if value is dataclasses.MISSING else value
        object.__setattr__(made, field.name, value)
    return made

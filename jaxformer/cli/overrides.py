"""Command-line overrides of config values, including the kinds of tagged unions."""

import copy
import dataclasses
import pathlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tyro

from jaxformer.cli.config_help import for_help
from jaxformer.cli.hosts import LAUNCH_HELP
from jaxformer.cli.parsing import parse
from jaxformer.config import (
    ExperimentConfig,
    SyntheticConfig,
    config_differences,
    load_config,
)
from jaxformer.config.checks import field_types, union_members
from jaxformer.config.data import SOURCES
from jaxformer.config.files import toml_value
from jaxformer.config.kinds import Kinds, kinds_of, required_keys
from jaxformer.config.schema import source_of_paths
from jaxformer.config.suggestions import suggested_keys
from jaxformer.errors import ConfigError

__all__ = [
    "config_path",
    "given_flags",
    "implied_settings",
    "load_with_start",
    "override_config",
    "split_cpu_for",
]

# Keys that only make sense for the data of the config itself.
_OF_OWN_DATA = ("data.source", "data.mixture", "data.validation_paths", "samples.prompts")


def config_path(kind: type, words: Sequence[str], *, prog: str) -> tuple[str, list[str]]:
    """Splits the words of a command without flags of its own into config and flags.

    If a flag such as `--help` comes first, the words are parsed as the command `kind`.
    """
    if not words[0].startswith("-"):
        return words[0], list(words[1:])
    return parse(kind, args=list(words), prog=prog).config, []


def load_with_start(path: str, words: Sequence[str]) -> ExperimentConfig:
    """Reads a config; what it leaves out is taken from the run or folder that it starts from.

    Raises:
        ConfigError: as in `load_config`.
        CheckpointError: the run or folder to start from does not exist or is damaged.
    """

    def complete(values: Mapping[str, Any]) -> Mapping[str, Any]:
        given = {
            name: _flag_value(words, name) or values.get(name) for name in ("init_from", "out")
        }
        if given["init_from"] is None:
            return values
        from jaxformer.runs import complete_tables

        out = given["out"] or f"runs/{pathlib.Path(path).stem}"
        return complete_tables(values, given["init_from"], out)

    return load_config(path, complete=complete)


def _flag_value(words: Sequence[str], name: str) -> str | None:
    """Value of a flag, such as `--init-from x` or `--init-from=x`; None if it is not given."""
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if word.startswith("--") and _key(flag) == name:
            return value if equals else next(iter(words[index + 1 :]), None)
    return None


def split_cpu_for(config: ExperimentConfig) -> None:
    """Splits the CPU into the number of devices in a config; call it before JAX starts."""
    if config.training.cpu_devices is not None:
        from jaxformer.training.parallel import split_cpu

        split_cpu(config.training.cpu_devices)


def override_config(
    config: ExperimentConfig, words: Sequence[str], *, prog: str, launches: bool = False
) -> ExperimentConfig:
    """Overrides a config with flags such as `--model.d-model 64` and `--model.positions alibi`.

    A flag that names another kind (`--model.positions alibi`, `--optimizer.name lion`) selects that
    kind with its defaults; keys without a default, such as learning_rate, keep their value. Flags
    for keys of the new kind may come before or after it. `--data.paths` resets the keys that
    describe the config's own data.

    Args:
        config: the config to override.
        words: flags and values of the command line.
        prog: name of the command, for the help.
        launches: whether the help also shows the flags of `jaxformer train` that are not keys.

    Returns:
        The checked config.

    Raises:
        ConfigError: a flag is unknown, or its value has the wrong type or is impossible.

    Example:
        >>> from jaxformer.config import load_config
        >>> config = load_config("configs/quickstart.toml")
        >>> override_config(config, ["--model.positions.base", "5e5"], prog="").model.positions
        RotaryConfig(kind='rotary', base=500000.0, layout='half', rotary_dim=None, scaling=None)
        >>> override_config(config, ["--optimizer.name", "lion"], prog="").optimizer.learning_rate
        0.002
    """
    _refuse_arrays(words)
    config = _for_other_data(config, words)
    rest = list(words)
    default = _with_chosen_kinds(config, "", rest)
    # tyro would give each table of an array its own flags.
    arrays: dict[str, dict[str, Any]] = {}
    for table, name in _array_keys():
        arrays.setdefault(table, {})[name] = getattr(getattr(config, table), name)
        object.__setattr__(getattr(default, table), name, ())
    _refuse_unknown(default, rest, prog)
    if {"-h", "--help"} & set(rest):
        default = for_help(default, with_base=launches)
    changed = parse(
        type(default),
        default=default,
        args=rest,
        prog=prog,
        description=(
            "Options that override the config, with its values as defaults. To select another "
            f"kind, with its own defaults: {', '.join(_kind_flags(config, ''))}. You can also set "
            f"its keys; keys without a default keep their value. {LAUNCH_HELP if launches else ''}"
        ),
        config=(tyro.conf.AvoidSubcommands,),
    )
    return dataclasses.replace(
        changed,
        **{
            table: dataclasses.replace(getattr(changed, table), **values)
            for table, values in arrays.items()
        },
    )


def implied_settings(
    before: ExperimentConfig, after: ExperimentConfig, words: Sequence[str]
) -> list[str]:
    """Lines that name the settings that `override_config` changed because of `--data.paths`."""
    given = _given_keys(words)
    return [
        f"{key} = {toml_value(new)}, not {toml_value(old)}, because data.paths is given"
        for key, (old, new) in config_differences(before, after).items()
        if key in _OF_OWN_DATA and key not in given
    ]


def _for_other_data(config: ExperimentConfig, words: Sequence[str]) -> ExperimentConfig:
    """If a flag names other files, the config without the keys that describe its own data."""
    if "data.paths" not in _given_keys(words):
        return config
    data, samples = config.data, config.samples
    source = data.source
    if "paths" not in SOURCES[source].paths:
        source = source_of_paths(config.model.architecture, in_rows=not data.is_stream)
        samples = dataclasses.replace(samples, prompts=())
        data = dataclasses.replace(data, source=source, synthetic=SyntheticConfig())
    return dataclasses.replace(
        config,
        samples=samples,
        data=dataclasses.replace(data, paths=(), mixture=(), validation_paths=()),
    )


def _array_keys() -> list[tuple[str, str]]:
    """Table and name of each key of an `ExperimentConfig` that is an array of tables."""
    return [
        (table, name)
        for table, kind in field_types(ExperimentConfig).items()
        if dataclasses.is_dataclass(kind)
        for name, hint in field_types(typing.cast(type, kind)).items()
        if typing.get_origin(hint) is tuple and dataclasses.is_dataclass(typing.get_args(hint)[0])
    ]


def given_flags(words: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """Dotted key, flag and values of each flag in a list of words."""
    found: list[tuple[str, str, list[str]]] = []
    for word in words:
        flag, equals, value = word.partition("=")
        if word.startswith("--"):
            found.append((_key(flag), flag, [value] if equals else []))
        elif found:
            found[-1][2].append(word)
        else:
            raise ConfigError(f"flags must start with --, got {word!r} before the first one")
    return found


def _given_keys(words: Sequence[str]) -> set[str]:
    """Dotted keys of the flags in a list of words."""
    return {_key(word.partition("=")[0]) for word in words if word.startswith("--")}


def _refuse_unknown(config: Any, words: Sequence[str], prog: str) -> None:
    """Refuses flags that are not keys, and suggests similar ones."""
    values = dict(_flag_values(config, ""))
    for word in words:
        flag = word.partition("=")[0]
        key = _key(flag)
        if not word.startswith("--") or word == "--help":
            continue
        table, dot, leaf = key.rpartition(".")
        if key not in values and f"{table}{dot}{leaf.removeprefix('no_')}" not in values:
            near = [f"--{one.replace('_', '-')}" for one in suggested_keys(key, values)]
            meant = f"did you mean {' or '.join(near)}? " if near else ""
            raise ConfigError(f"there is no option {flag}; {meant}{prog} --help lists all options")


def _flag_values(config: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Keys that flags can set, with their values."""
    for name, hint in field_types(type(config)).items():
        key, value = prefix + name, getattr(config, name)
        if dataclasses.is_dataclass(value):
            yield from _flag_values(value, f"{key}.")
        if not dataclasses.is_dataclass(value) or kinds_of(hint) is not None:
            if tuple(key.split(".")) not in _array_keys():
                yield key, value


def _refuse_arrays(words: Sequence[str]) -> None:
    for word in words:
        for key in map(".".join, _array_keys()):
            if word.startswith("--") and _key(word).startswith(key):
                raise ConfigError(
                    f"{key} is an array of tables, which flags cannot change, got {word}; write "
                    f"[[{key}]] in the config file"
                )


def _kind_flags(config: Any, prefix: str) -> Iterator[str]:
    """For the help: flags that select a kind, with the kinds."""
    for name, hint in field_types(type(config)).items():
        key, value, kinds = prefix + name, getattr(config, name), kinds_of(hint)
        if kinds is not None:
            flag = f"--{key.replace('_', '-')}" + ("" if value is None else f".{kinds.key}")
            yield f"{flag} {{{','.join([*kinds.configs, *(['none'] if kinds.optional else [])])}}}"
        if dataclasses.is_dataclass(value):
            yield from _kind_flags(value, f"{key}.")


def _with_chosen_kinds(config: Any, prefix: str, words: list[str]) -> Any:
    """Copies a config with the selected kinds, and removes their flags from the words.

    tyro takes its defaults from the copy, which is not checked: keys may be missing.
    """
    copied = copy.copy(config)
    for name, hint in field_types(type(config)).items():
        key, value, kinds = prefix + name, getattr(config, name), kinds_of(hint)
        if kinds is not None:
            for flag, kind in _pop_flags(words, (key, f"{key}.{kinds.key}")):
                value = _of_kind(flag, kinds, kind, value)
            _refuse_keys_of_others(key, kinds, value, words)
        elif value is None and (table := _optional_table(hint)) is not None:
            if any(_key(word).startswith(f"{key}.") for word in words if word.startswith("--")):
                value = _unchecked(table)
        if dataclasses.is_dataclass(value):
            value = _with_chosen_kinds(value, f"{key}.", words)
        object.__setattr__(copied, name, value)
    return copied


def _pop_flags(words: list[str], keys: tuple[str, str]) -> list[tuple[str, str]]:
    """Removes the flags of some keys from the words, and returns them with their values."""
    found, index = [], 0
    while index < len(words):
        flag, equals, value = words[index].partition("=")
        if not flag.startswith("--") or _key(flag) not in keys:
            index += 1
            continue
        if not equals:
            value = words.pop(index + 1) if index + 1 < len(words) else ""
        del words[index]
        found.append((flag, value))
    return found


def _refuse_keys_of_others(key: str, kinds: Kinds, value: Any, words: list[str]) -> None:
    """Refuses flags for keys of other kinds; tyro would call them unknown."""
    own = {} if value is None else field_types(type(value))
    for word in words:
        flag = word.partition("=")[0]
        name = _key(flag).removeprefix(f"{key}.").partition(".")[0].removeprefix("no_")
        if flag.startswith("--") and _key(flag).startswith(f"{key}.") and name not in own:
            if others := kinds.with_key(name):
                kind = "none" if value is None else getattr(value, kinds.key)
                raise ConfigError(
                    f"{flag} is for {key} of {kinds.key} {' or '.join(map(repr, others))}, got "
                    f"{kind!r}; remove it, or choose with --{key}.{kinds.key}"
                )


def _key(flag: str) -> str:
    """Dotted key of a flag, with underscores for hyphens."""
    return flag.removeprefix("--").replace("-", "_")


def _of_kind(flag: str, kinds: Kinds, kind: str, current: Any) -> Any:
    """Unchecked config of a kind: its defaults, and the current value of keys without one."""
    if kinds.optional and kind == "none" and kind not in kinds.configs:
        return None
    chosen = kinds.choose(flag, kind, otherwise="none")
    if type(current) is chosen:
        return current
    return _unchecked(chosen, current)


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

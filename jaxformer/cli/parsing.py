"""Commands as functions: their parameters are arguments and flags, their docstrings the help."""

import dataclasses
import inspect
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxformer.cli.flags import Flag, key_of, settings, split_flags, value_of
from jaxformer.cli.terminal import show, width, wrapped
from jaxformer.config import ExperimentConfig
from jaxformer.config.checks import Key, keys_of, suggestion
from jaxformer.errors import ConfigError

_METAVARS = {"int": "INT", "float": "FLOAT", "str": "TEXT", "Path": "PATH"}
_INDENT = " " * 6
# What `jaxformer train CONFIG --help` shows of the keys of the config.
_MOST_USED = (
    "out", "init_from", "seed", "training.steps", "training.batch_size", "training.batch_tokens",
    "training.devices", "optimizer.learning_rate", "model.max_len", "model.num_layers",
    "model.d_model", "model.num_heads", "data.paths",
)  # fmt: skip


class Command(NamedTuple):
    """A function as a command: keyword-only parameters, or their fields and keys, are flags."""

    prog: str
    function: Callable[..., None]
    arguments: tuple[Key, ...]
    groups: Mapping[str, Mapping[str, Key]]  # flags, by parameter; those of no group are of ""
    settings: str = ""  # parameter for the keys of `config`
    config: type | None = None

    @classmethod
    def of(cls, name: str, function: Callable[..., None]) -> "Command":
        """Command of a function, with the words that it is called by."""
        hints = typing.get_type_hints(function, include_extras=True)
        configs = {
            parameter: config
            for parameter, hint in hints.items()
            for config in getattr(hint, "__metadata__", ())
            if isinstance(config, type)
        }
        settings, config = next(iter(configs.items()), ("", None))
        keys = {name: key for name, key in keys_of(function).items() if name != settings}
        arguments = tuple(key for key in keys.values() if key.is_argument)
        groups: dict[str, dict[str, Key]] = {"": {}}
        for parameter, key in keys.items():
            if key.table is not None:
                fields = keys_of(key.table).items()
                groups[parameter] = {key.metadata.get("flag", name): key for name, key in fields}
            elif not key.is_argument:
                groups[""][parameter] = key
        if config not in (None, ExperimentConfig):
            groups[settings] = dict(keys_of(config))
        return cls(f"jaxformer {name}", function, arguments, groups, settings, config)

    @property
    def flags(self) -> dict[str, Key]:
        """Keys of the flags by name, without those of a config file."""
        return {name: key for flags in self.groups.values() for name, key in flags.items()}

    @property
    def takes_config(self) -> bool:
        """Whether the keys of a config file are flags."""
        return self.config is ExperimentConfig

    def split(self, words: Sequence[str]) -> tuple[list[str], list[Flag], list[Flag]]:
        """Splits words into those of no flag, flags of the command, and other flags."""
        known = self.flags

        def num_values(name: str) -> int | None:
            key = key_of(known, name)
            if key is None or key.element is not None:
                return None
            return 0 if key.members == (bool,) else 1

        arguments, flags = split_flags(words, num_values)
        known_flags = [flag for flag in flags if key_of(known, flag.key) is not None]
        return arguments, known_flags, [flag for flag in flags if flag not in known_flags]

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Arguments of the function, from the words of a command line."""
        words, flags, other_flags = self.split(words)
        if other_flags and not self.takes_config:
            near = suggestion(other_flags[0].key, self.flags)
            near = near.replace("_", "-").replace("mean '", "mean '--")
            name = other_flags[0].name
            raise ConfigError(f"there is no option {name}{near} (see {self.prog} --help)")
        groups: dict[str, dict[str, Any]] = {name: {} for name in self.groups}
        for flag in flags:
            for group, keys in self.groups.items():
                if (key := key_of(keys, flag.key)) is not None:
                    value = value_of(flag, key)
                    groups[group][key.name] = key._replace(name=flag.name).checked(value)
        values = groups.pop("") | self._arguments(words)
        for key in (*self.arguments, *self.groups[""].values()):
            if key.name not in values and key.default is dataclasses.MISSING:
                is_behind = key.is_argument and other_flags
                where = ", before the flags for its keys" if is_behind else ""
                raise ConfigError(f"{self.prog} needs {_signature(key)}{where}: {key.description}")
        for name, fields in groups.items():
            kind = keys_of(self.function)[name].table
            values[name] = fields if kind is None else kind(**fields)
        return values | ({self.settings: other_flags} if self.takes_config else {})

    def _arguments(self, words: Sequence[str]) -> dict[str, Any]:
        """Values of the words that belong to no flag."""
        values, left = dict[str, Any](), list(words)
        for key in self.arguments:
            if key.element is not None and left:
                values[key.name], left = value_of(Flag(_metavar(key), left), key), []
            elif left:
                values[key.name] = value_of(Flag(_metavar(key), [left.pop(0)]), key)
        if left:
            raise ConfigError(f"{self.prog} takes no {left[0]!r}; see {self.prog} --help")
        return values

    def show_help(self) -> None:
        """Shows what the command does, its arguments and its flags."""
        usage = " ".join([self.prog, *map(_metavar, self.arguments), "[OPTIONS]"])
        show(f"{wrapped(f'usage: {usage}', rest=_INDENT)}\n")
        _show_paragraphs(summary(self.function))
        for key in self.arguments:
            _show_entry(_metavar(key), key, key.default)
        for name, flags in self.groups.items():
            if name == self.settings != "":
                _show_title(f"{_first_line(self.config)}, by default as in the run's config")
            elif flags:
                owner = keys_of(self.function)[name].table if name else None
                _show_title(_first_line(owner) if owner else "options")
            for flag, key in flags.items():
                default = dataclasses.MISSING if name == self.settings != "" else key.default
                _show_entry(_signature(key, flag), key, default)
        if self.takes_config:
            _show_title(f"flags for the keys of a config: {self.prog} CONFIG --help", end="")


def show_commands(commands: Mapping[str, str], *, prog: str, text: str) -> None:
    """Shows the help of several commands, of which each has a line."""
    show(f"usage: {prog} COMMAND ...\n")
    _show_paragraphs(text)
    show("commands:")
    indent = max(map(len, commands)) + 4
    for name, line in commands.items():
        show(wrapped(f"  {name:<{indent - 2}}{line}", rest=" " * min(indent, width() // 2)))


def show_keys(tables: Mapping[str, Any], *, prog: str, path: str, shows_all: bool) -> None:
    """Shows the flags for the keys of a config, with their values: all, or those used most."""
    usage = f"{prog} {shlex.quote(path)}"
    show(f"{wrapped(f'usage: {usage} [OPTIONS]')}\n\nFlags override keys of the config.")
    table, entries = "", {dotted: (key, value) for dotted, key, value in settings(tables)}
    for dotted in entries if shows_all else filter(entries.__contains__, _MOST_USED):
        key, value = entries[dotted]
        if len(key.choices) == 1:
            continue  # the kind of a union, which has an entry
        is_of_table = "." in dotted or key.kinds is not None
        if shows_all and is_of_table and dotted.partition(".")[0] != table:
            table = dotted.partition(".")[0]
            show(f"\n[{table}]")
        flag = dotted if key.kinds is None or value is None else f"{dotted}.{key.kinds.key}"
        _show_entry(_signature(key, flag), key, value, whole=shows_all)
    if not shows_all:
        _show_title(f"all keys: {usage} --help-all", end="")
        _show_title(f"options of the command itself: {prog} --help", end="")


def summary(owner: Any) -> str:
    """Docstring without its sections."""
    return inspect.cleandoc(owner.__doc__ or "").partition("\nArgs:\n")[0].rstrip()


def _first_line(owner: Any) -> str:
    return summary(owner).partition("\n")[0].partition(";")[0].rstrip(".")


def _show_paragraphs(text: str) -> None:
    for paragraph in text.split("\n\n"):
        show(f"{wrapped(' '.join(paragraph.split()))}\n")


def _show_title(title: str, *, end: str = ":") -> None:
    show(f"\n{wrapped(title)}{end}")


def _show_entry(signature: str, key: Key, value: Any, *, whole: bool = True) -> None:
    """Shows a flag, its description, or only the first sentence of it, and its value."""
    text = key.description
    if not whole:
        text = text.partition(". ")[0].rstrip(".") + "."
    if key.table is not None:
        text += f" Its keys: {', '.join(keys_of(key.table))}."
    if value is dataclasses.MISSING:
        default = "(required)" if key.default is dataclasses.MISSING else ""
    elif value is None or value in ((), [], ""):
        default = "(default: not set)"
    else:
        words = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
        default = f"(default: {words})"
    if len(signature) > width() - 2:
        signature = signature.replace(",", ", ")
    show(wrapped(signature, first="  ", rest=_INDENT))
    show(wrapped(f"{text[:1].upper()}{text[1:]} {default}".strip(), first=_INDENT, rest=_INDENT))


def _signature(key: Key, flag: str = "") -> str:
    """A flag with a name for its value."""
    if key.is_argument:
        return _metavar(key)
    flag = f"--{(flag or key.name).replace('_', '-')}"
    if key.members == (bool,):
        table, dot, leaf = flag[2:].rpartition(".")
        return f"{flag}, --{table}{dot}no-{leaf}"
    return f"{flag} {_metavar(key)}" if key.table is None else f"{flag}.KEY"


def _metavar(key: Key) -> str:
    """Name of a value in the help."""
    if key.is_argument and key.element is not None:
        name = key.name.removesuffix("s").upper()
        return f"{name} [{name} ...]" if key.default is dataclasses.MISSING else f"[{name} ...]"
    if key.is_argument:
        return key.name.upper() if key.default is dataclasses.MISSING else f"[{key.name.upper()}]"
    if key.kinds is not None:
        return f"{{{','.join([*key.kinds.configs, *(['none'] if key.kinds.optional else [])])}}}"
    if key.choices:
        return f"{{{','.join(map(str, key.choices))}}}"
    if key.element is not None:
        return f"[{_metavar(key.element)} ...]"
    return _METAVARS[key.members[0].__name__]

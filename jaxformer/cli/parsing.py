"""Commands as functions: their parameters are arguments and flags, their docstrings the help."""

import argparse
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, NamedTuple, NoReturn

from jaxformer.cli.experiment import config_values, flag_keys, value_of
from jaxformer.cli.terminal import show, wrapped
from jaxformer.config import ExperimentConfig
from jaxformer.config.checks import Key, keys_of
from jaxformer.config.reading import suggested_keys
from jaxformer.errors import ConfigError

_METAVARS = {"int": "INT", "float": "FLOAT", "str": "TEXT", "Path": "PATH", "bool": "{true,false}"}
# What `jaxformer train --help` shows of the keys of a config.
_MOST_USED = (
    "depth", "out", "init_from", "seed", "training.steps", "training.batch_size",
    "training.batch_tokens", "training.devices", "optimizer.learning_rate", "model.max_len",
    "model.num_layers", "model.d_model", "model.num_heads", "data.paths",
)  # fmt: skip


class Group(NamedTuple):
    """Flags with a title, and what makes a parameter of a command of their values."""

    title: str
    flags: Mapping[str, Key]
    make: Callable[..., Any] = dict


class Command(NamedTuple):
    """A function as a command: keyword-only parameters, or their fields and keys, are flags."""

    prog: str
    function: Callable[..., None]
    arguments: tuple[Key, ...]
    groups: Mapping[str, Group]  # by parameter; flags that are parameters themselves are of ""
    config_flags: str = ""  # parameter for the keys of a config file

    @classmethod
    def of(cls, name: str, function: Callable[..., None]) -> "Command":
        """Command of a function, with the words that it is called by."""
        arguments, flags = list[Key](), dict[str, Key]()
        groups, config_flags = {"": Group("options", flags)}, ""
        for parameter, key in keys_of(function).items():
            config = next((mark for mark in key.bounds if isinstance(mark, type)), key.table)
            fields = {} if config is None else keys_of(config)
            fields = {field.metadata.get("flag", name): field for name, field in fields.items()}
            if key.is_argument:
                arguments.append(key)
            elif config is None:
                flags[parameter] = key
            elif config is ExperimentConfig:
                config_flags = parameter
            elif config is key.table:
                groups[parameter] = Group(_first_line(config), fields, config)
            else:
                fields = {
                    name: key._replace(default="that of the run") for name, key in fields.items()
                }
                groups[parameter] = Group(_first_line(config), fields)
        return cls(f"jaxformer {name}", function, tuple(arguments), groups, config_flags)

    def _unknown(self, flag: str) -> str:
        """Message on an unknown flag, with those that may be meant."""
        names = [name for group in self.groups.values() for name in group.flags]
        remedy = f"see {self.prog} --help"
        if self.config_flags:
            names += flag_keys()
            remedy = f"{self.prog} --help-all lists all but arrays of tables"
        near = suggested_keys(flag[2:].replace("-", "_"), names)
        meant = f"; did you mean {' or '.join(map(_flag, near))}?" if near else ";"
        return f"there is no option {flag}{meant} {remedy}"

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Arguments of the function, from the words of a command line."""
        parser = _Parser(self.prog)
        if self.config_flags:
            parser.add_flags(flag_keys())
        for group in self.groups.values():
            parser.add_flags(group.flags, has_switches=True)
        end = words.index("--") if "--" in words else len(words)
        flags, left = parser.parse_known_args(list(map(_hyphened, words[:end])))
        for word in left:
            if word.startswith("--"):
                raise ConfigError(self._unknown(word.partition("=")[0]))
        values, typed = self._arguments([*left, *words[end + 1 :]]), vars(flags)
        for parameter, group in self.groups.items():
            fields = {}
            for flag, key in group.flags.items():
                if flag in typed:
                    value = value_of(key, typed[flag])
                    fields[key.name] = key._replace(name=_flag(flag)).checked(value)
            values |= {parameter: group.make(**fields)} if parameter else fields
        for key in (*self.arguments, *self.groups[""].flags.values()):
            if key.name not in values and key.default is MISSING:
                raise ConfigError(f"{self.prog} needs {_signature(key)}: {key.description}")
        if self.config_flags:
            values[self.config_flags] = config_values(typed)
        return values

    def _arguments(self, words: Sequence[str]) -> dict[str, Any]:
        """Values of the words that belong to no flag."""
        values, left = dict[str, Any](), list(words)
        for key in self.arguments:
            if key.element is not None and left:
                values[key.name], left = value_of(key, left), []
            elif left:
                values[key.name] = value_of(key, left.pop(0))
        if left:
            raise ConfigError(f"{self.prog} takes no {left[0]!r}; see {self.prog} --help")
        return values

    def show_help(self, *, shows_all: bool = False) -> None:
        """Shows the command, its arguments and flags, and flags of all or the most used keys."""
        parser = _Parser(self.prog, *map(_signature, self.arguments))
        parser.description = _wrapped(summary(self.function))
        for key in self.arguments:
            parser.add_argument(key.name, metavar=_signature(key), help=_help(key))
        for group in self.groups.values():
            parser.add_flags(group.flags, title=group.title, has_switches=True)
        tables: dict[str, dict[str, Key]] = {}
        for dotted, key in flag_keys().items() if self.config_flags else ():
            if key.table is None and len(key.choices) != 1 and (shows_all or dotted in _MOST_USED):
                is_in_table = "." in dotted or key.kinds
                title = f"[{dotted.partition('.')[0]}]" if is_in_table else "keys of the config"
                tables.setdefault(title, {})[dotted] = key
        for title, flags in tables.items():
            parser.add_flags(flags, title=title, whole=shows_all)
        if self.config_flags and not shows_all:
            parser.epilog = f"all keys of a config: {self.prog} --help-all"
        show(parser.format_help(), end="")


class _Parser(argparse.ArgumentParser):
    """Parser and help of flags; raises its errors."""

    def __init__(self, *words: str) -> None:
        usage = f"{' '.join(words)} [OPTIONS]".replace("%", "%%")
        super().__init__(
            " ".join(words), usage, add_help=False, allow_abbrev=False,
            formatter_class=functools.partial(
                argparse.RawDescriptionHelpFormatter, max_help_position=6
            ),
        )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")

    def add_flags(
        self,
        keys: Mapping[str, Key],
        *,
        title: str = "",
        has_switches: bool = False,
        whole: bool = True,
    ) -> None:
        """Adds flags, under a title; a switch has no value. Their help may be one sentence."""
        group = self.add_argument_group(title) if title else self
        for name, key in keys.items():
            how: dict[str, Any] = {"metavar": _metavar(key)}
            if key.element is not None:
                how |= {"nargs": "*", "action": "extend"}
            if has_switches and key.members == (bool,):
                how = {"action": "store_const", "const": "true"}
            group.add_argument(
                _flag(name), dest=name, default=argparse.SUPPRESS, help=_help(key, whole), **how
            )


def show_commands(commands: Mapping[str, str], *, prog: str, text: str) -> None:
    """Shows the help of several commands, of which each has a line."""
    show(f"usage: {prog} COMMAND ...\n\n{_wrapped(text)}\n\ncommands:")
    indent = max(map(len, commands)) + 4
    for name, line in commands.items():
        show(wrapped(f"  {name:<{indent - 2}}{line}", indent=" " * indent))


def _wrapped(text: str) -> str:
    """Paragraphs of a docstring, wrapped to the terminal width."""
    return "\n\n".join(wrapped(" ".join(part.split())) for part in text.split("\n\n"))


def summary(owner: Any) -> str:
    """Docstring without its sections."""
    return inspect.cleandoc(owner.__doc__ or "").partition("\nArgs:\n")[0].rstrip()


def _first_line(owner: Any) -> str:
    return summary(owner).partition("\n")[0].partition(";")[0].rstrip(".")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _hyphened(word: str) -> str:
    """A word whose flag, if it is one, has hyphens, as keys of a config may be typed."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if word.startswith("--") else word


def _help(key: Key, whole: bool = True) -> str:
    """Description of a key, or its first sentence, and its default."""
    text = key.description if whole else key.description.partition(". ")[0].rstrip(".") + "."
    if key.default is MISSING:
        default = "" if key.is_argument else "(required)"
    elif key.default is None or key.default in ((), ""):
        default = "(default: not set)"
    elif key.kinds:
        default = f"(default: {getattr(key.default, key.tag)})"
    else:
        is_several = key.element is not None
        default = f"(default: {' '.join(key.default) if is_several else key.default})"
    return f"{text[:1].upper()}{text[1:]} {default}".strip().replace("%", "%%")


def _signature(key: Key) -> str:
    """An argument or flag as usage shows it."""
    if not key.is_argument:
        return f"{_flag(key.name)} {_metavar(key)}"
    name = key.name.upper()
    if key.element is not None:
        name = name.removesuffix("S")
        return f"{name} [{name} ...]" if key.default is MISSING else f"[{name} ...]"
    return name if key.default is MISSING else f"[{name}]"


def _metavar(key: Key) -> str:
    """Name of a flag's value in the help."""
    if key.element is not None:
        return _metavar(key.element)
    if choices := list(key.kinds) or key.choices:
        return f"{{{','.join(map(str, choices))}}}"
    return "VALUE" if key.table is not None else _METAVARS[key.members[0].__name__]

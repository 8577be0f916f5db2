"""Commands as dataclasses: their words become an instance, and their docstrings the help."""

import dataclasses
import inspect
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

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


def option(default: Any = dataclasses.MISSING, **words: Any) -> Any:
    """Field of a command.

    Args:
        default: value without the flag.
        words: `flag`, if its name is not that of the field; `positional`, whether it has none;
            `metavar`, for the help; `shown`, what the help says of the default.
    """
    return dataclasses.field(default=default, metadata=words)


def settings_of(command: type) -> type | None:
    """Config class whose keys are flags of a command, too."""
    return getattr(command, "settings", None)


def _options(command: type) -> dict[str, Key]:
    """Keys of a command's flags, by the names of the flags."""
    named = {key.metadata.get("flag", name): key for name, key in keys_of(command).items()}
    return {name: key for name, key in named.items() if "positional" not in key.metadata}


def _positionals(command: type) -> list[Key]:
    return [key for key in keys_of(command).values() if "positional" in key.metadata]


def parse(
    command: type, words: Sequence[str], *, prog: str, for_help: bool = False
) -> tuple[Any, Any]:
    """Makes a command of its words; its other flags are settings.

    With `for_help`, its own flags may be missing, and are then None.

    Returns:
        The command, and its settings: flags of an `ExperimentConfig`, or values by key.
    """
    options, config = _options(command), settings_of(command)
    known = options if config in (None, ExperimentConfig) else {**options, **keys_of(config)}

    def num_values(name: str) -> int | None:
        key = key_of(known, name)
        if key is None or key.element is not None:
            return None
        return 0 if key.members == (bool,) else 1

    arguments, flags = split_flags(words, num_values)
    values, chosen, left = dict[str, Any](), dict[str, Any](), list[Flag]()
    for flag in flags:
        if (key := key_of(options, flag.key)) is not None:
            value = value_of(flag, key)
            if key.bounds:
                key._replace(name=flag.name).checked(value)
            values[key.name] = tuple(value) if isinstance(value, list) else value
        elif config is ExperimentConfig:
            left.append(flag)
        elif (key := key_of(known, flag.key)) is not None:
            chosen[key.name] = value_of(flag, key)
        else:
            near = suggestion(flag.key, known).replace("_", "-").replace("mean '", "mean '--")
            raise ConfigError(f"there is no option {flag.name}{near} (see {prog} --help)")
    for key in _positionals(command):
        if key.element is not None and (arguments or key.default is not dataclasses.MISSING):
            values[key.name], arguments = tuple(_positional(key, word) for word in arguments), []
        elif arguments:
            values[key.name], arguments = _positional(key, arguments[0]), arguments[1:]
    if arguments:
        raise ConfigError(f"{prog} takes no {arguments[0]!r}; see {prog} --help")
    for key in keys_of(command).values():
        if key.name not in values and key.default is dataclasses.MISSING:
            if for_help and "positional" not in key.metadata:
                values[key.name] = None
                continue
            where = (
                ", before the flags for its keys" if left and "positional" in key.metadata else ""
            )
            raise ConfigError(f"{prog} needs {_signature(key)}{where}: {key.description}")
    return command(**values), left if config is ExperimentConfig else chosen


def _positional(key: Key, word: str) -> Any:
    element = key if key.element is None else key.element
    return value_of(Flag(_metavar(key), [word]), element)


def show_commands(commands: Mapping[str, str], *, prog: str, text: str) -> None:
    """Shows the help of several commands, of which each has a line."""
    show(f"usage: {prog} COMMAND ...\n")
    for paragraph in text.split("\n\n"):
        show(wrapped(" ".join(paragraph.split())) + "\n")
    show("commands:")
    indent = max(map(len, commands)) + 4
    for name, line in commands.items():
        show(wrapped(f"  {name:<{indent - 2}}{line}", rest=" " * min(indent, width() // 2)))


def show_help(command: type, *, prog: str) -> None:
    """Shows the help of a command: what it does, its arguments and its flags."""
    positionals = _positionals(command)
    usage = " ".join([prog, *map(_metavar, positionals), "[OPTIONS]"])
    show(f"{wrapped(f'usage: {usage}', rest=_INDENT)}\n")
    for paragraph in summary(command).split("\n\n"):
        show(f"{wrapped(' '.join(paragraph.split()))}\n")
    for key in positionals:
        _show_entry(_metavar(key), key, key.default)
    config, options = settings_of(command), _options(command)
    for kind in command.__mro__:  # its own flags come first
        inherited = [name for parent in kind.__bases__ for name in _field_names(parent)]
        names = {*_field_names(kind)} - {*inherited}
        flags = {flag: key for flag, key in options.items() if key.name in names}
        if flags:
            _show_title("options" if kind is command else _first_line(kind))
        for flag, key in flags.items():
            _show_entry(_signature(key, flag), key, key.default)
        if kind is command and config not in (None, ExperimentConfig):
            _show_title(f"{_first_line(config)}, by default as in the run's config")
            for key in keys_of(config).values():
                _show_entry(_signature(key), key, dataclasses.MISSING)
    if config is ExperimentConfig:
        _show_title(f"flags for the keys of a config: {prog} CONFIG --help", end="")


def _show_title(title: str, *, end: str = ":") -> None:
    show(f"\n{wrapped(title)}{end}")


def _field_names(kind: type) -> list[str]:
    return [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


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


def _first_line(kind: type) -> str:
    return summary(kind).partition("\n")[0].partition(";")[0].rstrip(".")


def summary(command: type) -> str:
    """Docstring without its sections."""
    return inspect.cleandoc(command.__doc__ or "").partition("\nArgs:\n")[0].rstrip()


def _show_entry(signature: str, key: Key, value: Any, *, whole: bool = True) -> None:
    """Shows a flag, its description, or only the first sentence of it, and its value."""
    text = key.description
    if not whole:
        text = text.partition(". ")[0].rstrip(".") + "."
    if key.table is not None:
        text += f" Its keys: {', '.join(keys_of(key.table))}."
    shown = key.metadata.get("shown")
    if value is dataclasses.MISSING:
        default = "(required)" if key.default is dataclasses.MISSING else ""
    elif value is None or value in ((), [], ""):
        default = f"(default: {shown or 'not set'})"
    else:
        words = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
        default = f"(default: {words})"
    if len(signature) > width() - 2:
        signature = signature.replace(",", ", ")
    show(wrapped(signature, first="  ", rest=_INDENT))
    show(wrapped(f"{text[:1].upper()}{text[1:]} {default}".strip(), first=_INDENT, rest=_INDENT))


def _signature(key: Key, flag: str = "") -> str:
    """A flag with a name for its value."""
    if "positional" in key.metadata:
        return _metavar(key)
    flag = f"--{(flag or key.name).replace('_', '-')}"
    if key.members == (bool,):
        table, dot, leaf = flag[2:].rpartition(".")
        return f"{flag}, --{table}{dot}no-{leaf}"
    return f"{flag} {_metavar(key)}" if key.table is None else f"{flag}.KEY"


def _metavar(key: Key) -> str:
    """Name of a value in the help."""
    if "metavar" in key.metadata:
        return str(key.metadata["metavar"])
    if key.kinds is not None:
        return f"{{{','.join([*key.kinds.configs, *(['none'] if key.kinds.optional else [])])}}}"
    if key.choices:
        return f"{{{','.join(map(str, key.choices))}}}"
    if key.element is not None:
        name = _metavar(key.element)
        return f"[{name} ...]"
    return _METAVARS[key.members[0].__name__]

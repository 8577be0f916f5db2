"""Parsing values with tyro, its help, and one-line messages for mistakes."""

import contextlib
import dataclasses
import io
import itertools
import os
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import tyro

from jaxformer import errors
from jaxformer.cli.terminal import flush, show, width, wrapped
from jaxformer.config.checks import TYPE_NAMES, field_types, suggestion, union_members
from jaxformer.storage import as_path

_STYLE = re.compile(r"\x1b\[[\d;]*m")  # terminal colors
_BOX = re.compile("[\u2500-\u257f]+")
# Messages of tyro.
_UNKNOWN_COMMAND = re.compile(r"Unrecognized options: ([^\s,]+).* Available subcommands: (.*) For ")
_WRONG_CHOICE = re.compile(r"invalid choice '(.*)' for argument '(.*)'\. .* one of \((.*)\)\. For ")
_WRONG_NUMBER = re.compile(r"Error parsing (\S+): .*(must be an? \w+, got .*) Argument helptext:")
_WRONG_TABLE = re.compile(r"Error parsing (\S+): (.*) For full helptext, see ")
_OFTEN = {
    "training": ("steps", "batch_size", "batch_tokens", "devices"),
    "optimizer": ("learning_rate",),
    "model": ("max_len", "num_layers", "d_model", "num_heads"),
    "data": ("paths",),
}
_TRAIN_FLAGS = {  # flags of jaxformer train that are not keys
    "base": ("RUN", "for a LoRA run: current path of its base model, if it has moved."),
    "profile": (
        "FIRST:END",
        "steps to trace, such as 20:25 (20 to 24); see jaxformer plot profile.",
    ),
}
_VALUES = tyro.constructors.ConstructorRegistry()


@_VALUES.primitive_rule
def _plain_rule(info: Any) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Texts and numbers, with our own names and messages; integers may be written as 1e3."""
    kind, names = info.type, {int: "INT", float: "FLOAT", str: "TEXT"}

    def value_of(words: list[str]) -> int | float | str:
        if kind is str:
            return words[0]
        with contextlib.suppress(ValueError):
            value = float(words[0])
            if kind is float or value.is_integer():
                return kind(value)
        raise ValueError(f"must be {TYPE_NAMES[kind]}, got {words[0]!r}")

    return None if kind not in names else tyro.constructors.PrimitiveConstructorSpec(
        1, names[kind], value_of, lambda value: isinstance(value, (int, kind)),
        lambda value: [str(value)],
    )  # fmt: skip


def refuse_repeated_flags(words: Sequence[str]) -> None:
    """Refuses a flag that is given twice, of which tyro would drop the first values."""
    flags: dict[str, str] = {}
    for word in itertools.takewhile(lambda word: word != "--", words):
        if not word.startswith("--"):
            continue
        flag = word.partition("=")[0]
        setting = re.sub(r"(^--|\.)no-", r"\1", flag.replace("_", "-"))
        if setting in flags:
            got = "it twice" if flags[setting] == flag else f"{flags[setting]} and {flag}"
            raise errors.ConfigError(
                f"{flag} must be given once, got {got}; if it takes several values, write them "
                f"after one {flag}"
            )
        flags[setting] = flag


def parse(kind: Any, **arguments: Any) -> Any:
    """Parses words with tyro; raises a one-line ConfigError where tyro prints an error box."""
    printed, said = _Printed(), io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said), _room():
            return tyro.cli(kind, registry=_VALUES, **arguments)
    except SystemExit as stopped:
        if stopped.code:
            message = _without_box(said.getvalue())
            raise errors.ConfigError(_with_suggestion(message, **arguments)) from None
        for line in printed.text().splitlines():
            show(_as_lines(line), styled=True)
        flush()
        raise


@_VALUES.primitive_rule
def _optional_rule(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
    """Names an optional value by its other type; None can still be given."""
    members = union_members(info.type)
    if members == (info.type,) or len(members) != 1 or dataclasses.is_dataclass(members[0]):
        return None
    made = tyro.constructors.PrimitiveTypeInfo.make(members[0], info.markers)
    spec: Any = tyro.constructors.ConstructorRegistry.get_primitive_spec(made)
    return dataclasses.replace(
        spec, choices=spec.choices and (*spec.choices, "None"),
        instance_from_str=lambda said: None if said == ["None"] else spec.instance_from_str(said),
    )  # fmt: skip


@_VALUES.primitive_rule
def _path_rule(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
    """Parses a path, which may be the URL of a bucket."""
    if info.type is not pathlib.Path:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1, metavar=info.type.__name__.upper(),
        instance_from_str=lambda said: as_path(said[0]),
        is_instance=lambda value: isinstance(value, pathlib.Path),
        str_from_instance=lambda value: [str(value)],
    )  # fmt: skip


def by_default(what: str, metavar: str | None = None) -> Any:
    """Makes the help of an option say what its default, such as None, means."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {what})", metavar=metavar)


def for_help(config: Any, *, trains: bool) -> Any:
    """Unchecked copy of a config; its help in tyro begins with the most used options."""
    # These are in tables without a name, which tyro puts into its first group.
    arg, parts = tyro.conf.arg, {}
    hints: dict[str, Any] = {
        "out": Annotated[str | None, arg(metavar="OUT")],
        "init_from": Annotated[str | None, arg(metavar="RUN")],
    }
    for name, (metavar, text) in _TRAIN_FLAGS.items() if trains else ():
        hints[name] = Annotated[str | None, arg(metavar=metavar, help=text)]
    for table, often in _OFTEN.items():
        for group, is_top in ((f"often_{table}", True), (table, False)):
            of_table = {}
            for name, hint in field_types(type(getattr(config, table))).items():
                shown = arg(name=f"{table}.{name}" if is_top else None)
                mark = shown if (name in often) == is_top else tyro.conf.Suppress
                of_table[name] = Annotated[hint, mark]
            parts[group] = _with_types(getattr(config, table), of_table)
            hints[group] = Annotated[type(parts[group]), arg(name="" if is_top else None)]
    return _with_types(config, hints, **parts, **dict.fromkeys(_TRAIN_FLAGS))


def _with_types(config: Any, hints: Mapping[str, Any], **values: Any) -> Any:
    """Copy of a config with some field types replaced, and with new fields and values."""
    kind = type(config)
    made: Any = dataclasses.make_dataclass(
        kind.__name__, [(name, hint, None) for name, hint in hints.items()], bases=(kind,),
        namespace={"__doc__": kind.__doc__}, frozen=True, kw_only=True,
    )  # fmt: skip
    copied = object.__new__(made)
    copied.__dict__.update(config.__dict__ | values)
    return copied


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """Makes tyro use the columns of `width`; with one column it would never end."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width())
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


class _Printed(io.TextIOWrapper):
    """Captures what tyro prints, with the colors and boxes that standard output can show."""

    def __init__(self) -> None:
        encoding = getattr(sys.stdout, "encoding", None)
        super().__init__(
            io.BytesIO(), encoding=encoding or "utf-8", errors="backslashreplace",
            write_through=True,
        )  # fmt: skip
        self._is_terminal = sys.stdout is not None and sys.stdout.isatty()

    def isatty(self) -> bool:
        """Whether standard output is a terminal."""
        return self._is_terminal

    def text(self) -> str:
        """All the text printed so far."""
        self.seek(0)
        return self.read()


def _as_lines(line: str) -> str:
    """Wraps a line to the terminal width; tyro only wraps what is in boxes."""
    plain, columns = _STYLE.sub("", line), width()
    if len(plain) <= columns or _BOX.search(line):
        return line
    # The list of all commands is a single word.
    plain = re.sub(rf"\S{{{columns + 1},}}", lambda word: word[0].replace(",", ", "), plain)
    return wrapped(plain)


def _without_box(box: str) -> str:
    """Message in an error box of tyro, as one line."""
    plain = _STYLE.sub("", box)
    lines = [re.sub(r"-{3,}", " ", _BOX.sub(" ", line)) for line in plain.splitlines()]
    return " ".join(" ".join(lines[1:] or lines).split())  # the first is the frame's title


def _with_suggestion(
    message: str, *, prog: str = "jaxformer", args: Sequence[str] = (), **_: Any
) -> str:
    """Rewrites a message of tyro about a wrong command, choice or number; adds a suggestion."""
    if found := _UNKNOWN_COMMAND.match(message):
        wrong, known = found[1], found[2].split(", ")
        program = " ".join([prog, *itertools.takewhile(lambda word: word != wrong, args)])
        meant = suggestion(wrong, known)
        return (
            f"the command of {program} must be one of {', '.join(known)}, got {wrong!r}{meant} "
            f"(see {program} --help)"
        )
    if found := _WRONG_NUMBER.match(message):
        return f"{found[1]} {found[2]}"
    if found := _WRONG_TABLE.match(message):
        return f"[{found[1]}] {found[2]}"
    if found := _WRONG_CHOICE.match(message):
        choices = re.findall(r"'([^']*)'", found[3])
        return f"{found[2]} must be one of {', '.join(choices)}, got {found[1]!r}" + suggestion(
            found[1], choices
        )
    return message

"""Command-line parsing with tyro, and one-line messages for mistakes."""

import contextlib
import dataclasses
import io
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tyro

from jaxformer import errors
from jaxformer.cli.terminal import flush, show, width
from jaxformer.config.checks import TYPE_NAMES, suggestion, union_members

__all__ = ["parse", "pop_flags"]

_STYLE = re.compile(r"\x1b\[[\d;]*m")  # terminal colors
_BOX = re.compile("[\u2500-\u257f]+")
# Messages of tyro.
_UNKNOWN_COMMAND = re.compile(r"Unrecognized options: ([^\s,]+).* Available subcommands: (.*) For ")
_WRONG_CHOICE = re.compile(r"invalid choice '(.*)' for argument '(.*)'\. .* one of \((.*)\)\. For ")
_WRONG_NUMBER = re.compile(r"Error parsing (\S+): .*(must be an? \w+, got .*) Argument helptext:")
_WRONG_TABLE = re.compile(r"Error parsing (\S+): (.*) For full helptext, see ")
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
            show(_wrapped(line), styled=True)
        flush()
        raise


def pop_flags(
    words: Sequence[str], kinds: Mapping[str, Callable[[str], Any]]
) -> tuple[dict[str, Any], list[str]]:
    """Removes flags that are not keys of a config from the words of a command line.

    Args:
        words: flags and values.
        kinds: for each flag, the function from word to value: `int`, `str` or `pathlib.Path`.

    Returns:
        Values of the given flags, by name, and the other words.

    Raises:
        ConfigError: a flag has no value or a value of the wrong type, or is given twice.

    Example:
        >>> pop_flags(["--process-id", "1", "--training.steps", "5"], {"--process-id": int})
        ({'process_id': 1}, ['--training.steps', '5'])
    """
    values: dict[str, Any] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        if flag not in kinds:
            rest.append(word)
            continue
        if not equals:
            if not left or left[0].startswith("--"):
                raise errors.ConfigError(f"{flag} must have a value, got none")
            value = left.pop(0)
        name = flag.removeprefix("--").replace("-", "_")
        if name in values:
            raise errors.ConfigError(f"{flag} must be given once, got it twice")
        try:
            values[name] = kinds[flag](value)
        except ValueError:
            raise errors.ConfigError(f"{flag} must be an integer, got {value!r}") from None
    return values, rest


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


def _wrapped(line: str) -> str:
    """Wraps a line to the terminal width; tyro only wraps what is in boxes."""
    plain, columns = _STYLE.sub("", line), width()
    if len(plain) <= columns or _BOX.search(line):
        return line
    # The list of all commands is a single word.
    plain = re.sub(rf"\S{{{columns + 1},}}", lambda word: word[0].replace(",", ", "), plain)
    return textwrap.fill(plain, columns, break_long_words=False, break_on_hyphens=False)


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

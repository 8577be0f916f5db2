"""Inputs of commands that use a run: flags that open it, and lines of text."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from jaxformer import errors
from jaxformer.cli.parsing import by_default
from jaxformer.cli.terminal import show
from jaxformer.config import MeshConfig

if TYPE_CHECKING:
    from jaxformer.runs import Run

RunFolder = Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]

_MAX_SHOWN_MISTAKES = 10  # unusable input lines that are named
_MAX_INPUT = 2**28  # bytes; a few million sentences


@dataclasses.dataclass(frozen=True)
class ParamsMesh:
    """Devices of this host to split the parameters over.

    By default, one device holds all parameters if they fit; otherwise they are split as in
    training, or over all devices.
    """

    fsdp: Annotated[int | None, by_default("automatic")] = None
    """Devices that split the parameters by rows."""

    tensor: Annotated[int | None, by_default("automatic")] = None
    """Devices that split the attention heads, feed-forward layers and vocabulary."""


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """Which weights to read from a run, and which languages from a Hugging Face folder."""

    step: Annotated[int | None, by_default("the one with the lowest validation loss")] = None
    """Checkpoint of the run to use."""

    source_language: Annotated[str | None, by_default("the folder's")] = None
    """For a multilingual Hugging Face translator: source language, such as eng_Latn or en."""

    target_language: Annotated[str | None, by_default("the folder's")] = None
    """For a multilingual Hugging Face translator: target language, such as kan_Knda or kn."""

    base: Annotated[pathlib.Path | None, by_default("its path during training")] = None
    """For a LoRA run: current path of its base model."""


@dataclasses.dataclass(frozen=True)
class Opening(ModelSource):
    """How to open a run or a Hugging Face folder."""

    dtype: Annotated[Literal["float32", "bfloat16"] | None, by_default("as in its files")] = None
    """For a Hugging Face folder: dtype of parameters and computation."""

    max_len: Annotated[int | None, by_default("as in its config")] = None
    """For a Hugging Face folder: longest text, in tokens."""

    ignore: Annotated[tuple[str, ...], by_default("none")] = ()
    """For a Hugging Face folder: fields of its JSON files that you know to be irrelevant.
    For a run made from one: unsupported generation settings that you know to be irrelevant."""

    mesh: ParamsMesh = ParamsMesh()


def open_for(command: Any) -> "Run":
    """Opens the run of a command."""
    from jaxformer import runs

    opening = command.opening
    fsdp, tensor, mesh = opening.mesh.fsdp, opening.mesh.tensor, None
    if not (fsdp is None and tensor is None):
        mesh = MeshConfig(fsdp=1 if fsdp is None else fsdp, tensor=1 if tensor is None else tensor)
    return runs.open_run(command.run, **{**vars(opening), "mesh": mesh})


class Lines:
    """Input of a command: its texts, or the lines of a file or of standard input.

    An unusable text, for which `check` raises DataError, ends the command. Unusable lines are named
    on standard error; `good` has the others. `done` is a participle, such as "translated".
    """

    def __init__(
        self, texts: Sequence[str], file: pathlib.Path | None, done: str,
        check: Callable[[str], Any],
    ) -> None:  # fmt: skip
        if texts and file is not None:
            raise errors.ConfigError("give texts or --file, not both")
        self.good: list[str] = []
        self._places: list[int] = []
        self._from_file = not texts
        lines = texts or _read_lines(file)
        self._count = len(lines)
        bad = []
        for index, line in enumerate(lines):
            try:
                check(line)
            except errors.DataError as error:
                if texts:
                    raise
                bad.append(f"line {index + 1} was not {done}: {error}")
            else:
                self.good.append(line)
                self._places.append(index)
        for message in bad[:_MAX_SHOWN_MISTAKES]:
            show(f"jaxformer: {message}", error=True)
        if bad:
            hidden = len(bad) - _MAX_SHOWN_MISTAKES
            more = f" ({hidden} not shown above)" if hidden > 0 else ""
            show(
                f"jaxformer: {len(bad):,} of {self._count:,} lines were not {done}{more}",
                error=True,
            )

    def print_in_order(self, results: Iterable[tuple[int, str]]) -> None:
        """Prints the result of each line in input order; an empty line if there is none."""
        blocks = [""] * self._count
        for index, block in self._with_progress(results):
            blocks[self._places[index]] = block
        for block in blocks:
            show(block)

    def _with_progress(self, results: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("lines"), MofNCompleteColumn(), TimeRemainingColumn())
        hidden = not self._from_file or not console.is_terminal
        with Progress(*columns, console=console, disable=hidden, transient=True) as progress:
            yield from progress.track(results, total=len(self.good))


def _read_lines(file: pathlib.Path | None) -> list[str]:
    from jaxformer.text import read_lines

    if file is not None:
        lines, size = [], 0
        for line in read_lines(file):
            lines.append(line)
            size += len(line)
            _require_input_size(size, str(file))
        return lines
    data = sys.stdin.buffer.read(_MAX_INPUT + 1)
    _require_input_size(len(data), "standard input")
    try:
        text = data.decode("utf-8-sig")  # UTF-8 in every locale, as for files
    except UnicodeDecodeError as error:
        raise errors.DataError(f"standard input must be UTF-8: {error}") from None
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _require_input_size(size: int, name: str) -> None:
    if size > _MAX_INPUT:
        raise errors.DataError(
            f"input must be at most {_MAX_INPUT:,} bytes, got more from {name}; split it into parts"
        )

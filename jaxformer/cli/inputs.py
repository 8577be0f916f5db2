"""Inputs of commands that use a run: flags that open it, and lines of text."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from jaxformer import errors
from jaxformer.cli.experiment import start_jax
from jaxformer.cli.terminal import show
from jaxformer.config import MeshConfig

if TYPE_CHECKING:
    from jaxformer.runs import TextModel

_MAX_SHOWN_MISTAKES = 10  # unusable input lines that are named


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Weights of a run, and languages of a Hugging Face folder.

    Args:
        step: checkpoint of the run to use; the one with the lowest validation loss if not set.
        source_language: for a multilingual Hugging Face translator: source language, such as
            eng_Latn or en; the folder's if not set.
        target_language: for a multilingual Hugging Face translator: target language, such as
            kan_Knda or kn; the folder's if not set.
        base: for a LoRA run: current path of its base model; its path during training if not set.
    """

    step: int | None = None
    source_language: str | None = None
    target_language: str | None = None
    base: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening(ModelSource):
    """How to open a run or a Hugging Face folder.

    Args:
        dtype: for a Hugging Face folder: dtype of parameters and computation; as in its files if
            not set.
        max_len: for a Hugging Face folder: longest text, in tokens; as in its config if not set.
        ignore: for a Hugging Face folder: fields of its JSON files that you know to be irrelevant.
            For a run made from one: unsupported generation settings that you know to be irrelevant.
        fsdp: devices of this host that split the parameters by rows. By default, one device holds
            all parameters if they fit; otherwise they are split as in training, or over all
            devices.
        tensor: devices of this host that split the attention heads, feed-forward layers and
            vocabulary.
    """

    dtype: Literal["float32", "bfloat16"] | None = None
    max_len: int | None = None
    ignore: tuple[str, ...] = ()
    fsdp: int | None = dataclasses.field(default=None, metadata={"flag": "mesh.fsdp"})
    tensor: int | None = dataclasses.field(default=None, metadata={"flag": "mesh.tensor"})

    def open(self, run: pathlib.Path) -> "TextModel":
        """The run or model of a folder."""
        start_jax()
        from jaxformer import runs

        values = vars(self).copy()
        split = {name: values.pop(name) for name in ("fsdp", "tensor")}
        sizes = {name: size for name, size in split.items() if size is not None}
        return runs.open_run(run, **values, mesh=MeshConfig(**sizes) if sizes else None)


class Lines:
    """Texts of arguments, a file or standard input; unusable lines are named on standard error."""

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
        return list(read_lines(file))
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")  # UTF-8 in every locale, as for files
    except UnicodeDecodeError as error:
        raise errors.DataError(f"standard input must be UTF-8: {error}") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []

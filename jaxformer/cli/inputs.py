"""Inputs of commands that use a run: flags that open it, and lines of text."""

import dataclasses
import io
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from jaxformer import errors
from jaxformer.cli.experiment import start_jax
from jaxformer.cli.terminal import show
from jaxformer.config import MeshConfig

if TYPE_CHECKING:
    from jaxformer.runs import TextModel


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
        ignore: for a Hugging Face folder, or a run made from one: unsupported generation settings
            that you know to be irrelevant.
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
        lines = texts or _read_lines(file)
        self._count = len(lines)
        self._good: dict[int, str] = {}
        for index, line in enumerate(lines):
            try:
                check(line)
                self._good[index] = line
            except errors.DataError as error:
                if texts:
                    raise
                show(f"jaxformer: line {index + 1} was not {done}: {error}", error=True)

    @property
    def good(self) -> list[str]:
        """The lines that can be used."""
        return list(self._good.values())

    def print_in_order(self, results: Iterable[tuple[int, str]]) -> None:
        """Prints the result of each good line in input order; an empty line for the others."""
        blocks, places = [""] * self._count, list(self._good)
        for index, block in results:
            blocks[places[index]] = block
        for block in blocks:
            show(block)


def _read_lines(file: pathlib.Path | None) -> list[str]:
    from jaxformer.text import read_lines

    if file is not None:
        return list(read_lines(file))
    # UTF-8 in every locale, as for files.
    return [line.rstrip("\n") for line in io.TextIOWrapper(sys.stdin.buffer, "utf-8-sig")]

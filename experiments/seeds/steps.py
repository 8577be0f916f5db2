"""Documents as steps, each of which has a text, a formula, tables and figures."""

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

__all__ = ["Document", "Shown", "Side", "Step", "Table", "lines_text", "main", "print_document"]


@dataclasses.dataclass(frozen=True)
class Table:
    """Table of numbers or words, with names for columns and rows.

    Args:
        columns: a name each.
        rows: a name each.
        cells: `[rows, columns]`, numbers or strings.
        digits: after the decimal point.
        marked: bool `[rows, columns]`, the cells to point out; None for none.
    """

    columns: Sequence[str]
    rows: Sequence[str]
    cells: Any
    digits: int = 4
    marked: Any = None

    def as_text(self) -> list[list[str]]:
        """Cells as strings, with the names of columns and rows first."""
        body = [[self._one(cell) for cell in row] for row in np.asarray(self.cells)]
        named = [[name, *row] for name, row in zip(self.rows, body, strict=True)]
        return [["", *self.columns], *named]

    def _one(self, cell: Any) -> str:
        """Cell as a string; only floats are rounded."""
        return f"{cell:.{self.digits}f}" if isinstance(cell, float | np.floating) else str(cell)


@dataclasses.dataclass(frozen=True)
class Side:
    """One of two computations that stand beside each other: a function, and what it gives.

    Args:
        title: such as "Mistaken".
        caption: of the table, such as "Weights".
        formula: what the function computes, in TeX as matplotlib reads it.
        function: whose source is shown.
        table: its result.
    """

    title: str
    caption: str
    formula: str
    function: Callable[..., Any]
    table: Table


@dataclasses.dataclass(frozen=True)
class Shown:
    """Text, tables, figures and pages of a step.

    Args:
        text: a few sentences: what was computed and what to see in it.
        tables: each by its title.
        figures: each (a `matplotlib.figure.Figure`) by its file stem, such as `sinusoidal_base_10`.
        captions: a sentence for every figure, by the same stem: what it shows, and what to see in
            it. It replaces the figure for readers who cannot see it.
        pages: HTML that stands alone, each by its file stem.
        sides: two computations, side by side.

    Raises:
        ValueError: a figure has no caption, or a caption no figure.

    Example:
        >>> Shown("A figure.", figures={"curve": ...}, captions={"curve": "It falls."}).captions
        {'curve': 'It falls.'}
    """

    text: str
    tables: Mapping[str, Table] = dataclasses.field(default_factory=dict)
    figures: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    captions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pages: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sides: Sequence[Side] = ()

    def __post_init__(self) -> None:
        if self.captions.keys() != self.figures.keys():
            raise ValueError(
                f"captions must be one for each figure, got figures {sorted(self.figures)} and "
                f"captions {sorted(self.captions)}; give both under the same file stems"
            )


def lines_text(first: int, last: int) -> str:
    """Text of a range of lines.

    Args:
        first: its first line, from 1.
        last: its last.

    Example:
        >>> lines_text(3, 7), lines_text(326, 326)
        ('lines 3 to 7', 'line 326')
    """
    return f"line {first}" if first == last else f"lines {first} to {last}"


@dataclasses.dataclass(frozen=True)
class Step:
    """Step of a document, and the function that computes it.

    Args:
        title: such as "Positional encoding by a loop".
        lines: of the document that it redoes, first and last; None for what no document has.
        show: computes it.
        formula: what it computes, in TeX as matplotlib reads it; lines end with two backslashes.
    """

    title: str
    lines: tuple[int, int] | None
    show: Callable[[], Shown]
    formula: str = ""

    @property
    def heading(self) -> str:
        """Title of the step, and its lines in the document."""
        return self.title if self.lines is None else f"{self.title} ({self.lines_text})"

    @property
    def lines_text(self) -> str:
        """Lines of the step in the document, such as "lines 3 to 7"; empty without any."""
        return "" if self.lines is None else lines_text(*self.lines)


@dataclasses.dataclass(frozen=True)
class Document:
    """A tutorial, redone.

    Args:
        name: file stem, such as "transformer_from_scratch".
        title: of the document, its own where it has one.
        source: which tutorial it is, by whom where it says so, and what its line numbers count.
        about: what it covers, in a sentence.
        steps: in the document's order.
    """

    name: str
    title: str
    source: str
    about: str
    steps: Sequence[Step]


def main(document: Document) -> None:
    """Command line of a document: prints it, or the steps that `--steps` names.

    Args:
        document: to print.
    """
    count = len(document.steps)
    parser = argparse.ArgumentParser(description=f"Prints {document.title!r}, redone.")
    parser.add_argument(
        "--steps", type=int, nargs="+", metavar="N", choices=range(1, count + 1),
        help=f"only these, of 1 to {count}",
    )  # fmt: skip
    print_document(document, parser.parse_args().steps)


def print_document(document: Document, numbers: Sequence[int] | None = None) -> None:
    """Prints texts and tables of steps; figures are named only, with what they show.

    Args:
        document: to print.
        numbers: of the steps to print, from 1; None for all.
    """
    print(f"{document.title}\n{document.source}\n{document.about}")
    for number, step in enumerate(document.steps, 1):
        if numbers is not None and number not in numbers:
            continue
        with jax.default_matmul_precision("highest"):  # digits of float32, on a GPU too
            shown = step.show()
        print(f"\n{number}. {step.heading}\n{shown.text}")
        sides = {f"{side.title}: {side.caption}": side.table for side in shown.sides}
        for title, table in {**shown.tables, **sides}.items():
            print(f"\n{title}")
            _print_table(table)
        for name, caption in shown.captions.items():
            print(f"drawn by run_all.py: {name}: {caption}")
        for name in shown.pages:
            print(f"drawn by run_all.py: {name}")


def _print_table(table: Table) -> None:
    lines = table.as_text()
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))

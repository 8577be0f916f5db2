"""Documents as steps, each of which has a text, tables and figures."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

__all__ = ["Document", "Shown", "Step", "Table", "lines_text", "print_document"]


@dataclasses.dataclass(frozen=True)
class Table:
    """Table of numbers or words, with names for columns and rows.

    Args:
        columns: a name each.
        rows: a name each.
        cells: `[rows, columns]`, numbers or strings.
        digits: after the decimal point.
    """

    columns: Sequence[str]
    rows: Sequence[str]
    cells: Any
    digits: int = 4

    def as_text(self) -> list[list[str]]:
        """Cells as strings, with the names of columns and rows first."""
        body = [[self._one(cell) for cell in row] for row in np.asarray(self.cells)]
        named = [[name, *row] for name, row in zip(self.rows, body, strict=True)]
        return [["", *self.columns], *named]

    def _one(self, cell: Any) -> str:
        """Cell as a string; only floats are rounded."""
        return f"{cell:.{self.digits}f}" if isinstance(cell, float | np.floating) else str(cell)


@dataclasses.dataclass(frozen=True)
class Shown:
    """Text, tables, figures and pages of a step.

    Args:
        text: a few sentences: what was computed and what to see in it.
        tables: each by its title.
        figures: each (a `matplotlib.figure.Figure`) by its file stem, such as `sinusoidal_base_10`.
        captions: a sentence for every figure, by the same stem: what it shows, and what to see in
            it. Who cannot see the figure reads it in its place.
        pages: HTML that stands alone, each by its file stem.

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
    """

    title: str
    lines: tuple[int, int] | None
    show: Callable[[], Shown]

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


def print_document(document: Document) -> None:
    """Prints texts and tables of all steps; figures are named only, with what they show."""
    print(f"{document.title}\n{document.source}\n{document.about}")
    for number, step in enumerate(document.steps, 1):
        with jax.default_matmul_precision("highest"):  # digits of float32, on a GPU too
            shown = step.show()
        print(f"\n{number}. {step.heading}\n{shown.text}")
        for title, table in shown.tables.items():
            lines = table.as_text()
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            print(f"\n{title}")
            for line in lines:
                cells = zip(line, widths, strict=True)
                print("  ".join(cell.rjust(width) for cell, width in cells))
        for name, caption in shown.captions.items():
            print(f"drawn by run_all.py: {name}: {caption}")
        for name in shown.pages:
            print(f"drawn by run_all.py: {name}")

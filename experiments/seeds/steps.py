"""What a document is made of here: steps, each a text with the tables and figures it shows."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Document", "Shown", "Step", "Table", "print_document"]


@dataclasses.dataclass(frozen=True)
class Table:
    """Numbers, or words, with names for columns and rows.

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
        """All cells as strings, the names of columns and rows first."""
        body = [[self._one(cell) for cell in row] for row in np.asarray(self.cells)]
        named = [[name, *row] for name, row in zip(self.rows, body, strict=True)]
        return [["", *self.columns], *named]

    def _one(self, cell: Any) -> str:
        """A cell as a string; an integer as it is."""
        return f"{cell:.{self.digits}f}" if isinstance(cell, float | np.floating) else str(cell)


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a step has to show.

    Args:
        text: a few sentences: what was computed and what to see in it.
        tables: each by its title.
        figures: each (a `matplotlib.figure.Figure`) by its file stem, such as `sinusoidal_base_10`.
        pages: HTML that stands alone, each by its file stem.
    """

    text: str
    tables: Mapping[str, Table] = dataclasses.field(default_factory=dict)
    figures: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pages: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a document.

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
        """The title, and where in the document the step stands."""
        if self.lines is None:
            return self.title
        first, last = self.lines
        return f"{self.title} (lines {first} to {last})"


@dataclasses.dataclass(frozen=True)
class Document:
    """A tutorial, redone.

    Args:
        name: file stem, such as "transformer_from_scratch".
        title: of the document.
        about: what it covers, in a sentence.
        steps: in the document's order.
    """

    name: str
    title: str
    about: str
    steps: Sequence[Step]


def print_document(document: Document) -> None:
    """Prints texts and tables of all steps; figures are named only."""
    print(f"{document.title}\n{document.about}")
    for number, step in enumerate(document.steps, 1):
        shown = step.show()
        print(f"\n{number}. {step.heading}\n{shown.text}")
        for title, table in shown.tables.items():
            lines = table.as_text()
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            print(f"\n{title}")
            for line in lines:
                cells = zip(line, widths, strict=True)
                print("  ".join(cell.rjust(width) for cell, width in cells))
        for name in (*shown.figures, *shown.pages):
            print(f"drawn by run_all.py: {name}")

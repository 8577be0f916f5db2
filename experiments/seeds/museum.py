"""Presentation of a mistake: its formula, code and result beside the correct ones."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import multi_head_and_encoder
import numpy as np
import self_attention_by_hand
import self_attention_in_numpy
import transformer_from_scratch
from einops import rearrange
from steps import Shown, Side, Step, Table, lines_text

TITLES = {
    1: transformer_from_scratch.DOCUMENT.title,
    2: self_attention_by_hand.DOCUMENT.title,
    3: multi_head_and_encoder.DOCUMENT.title,
    4: self_attention_in_numpy.DOCUMENT.title,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mistake:
    """A mistake of a document, inputs that show it, and its correction.

    Args:
        title: what goes wrong.
        document: number of the document in `TITLES`, 1 to 4.
        lines: first and last line of every place of the mistake.
        mistaken: the document's computation.
        mistaken_formula: its formula, in TeX as matplotlib reads it.
        cure: the correct computation, by the library.
        cure_formula: likewise.
        inputs: arguments of both.
        happens: what goes wrong, and why.
        guard: how the library makes the mistake impossible, or loud.
        rows: a name for each row of the results.
        columns: likewise.
        caption: of the tables.
        digits: after the decimal point.
    """

    title: str
    document: int
    lines: Sequence[tuple[int, int]]
    mistaken: Callable[..., np.ndarray]
    mistaken_formula: str
    cure: Callable[..., jax.Array]
    cure_formula: str
    inputs: tuple[Any, ...]
    happens: str
    guard: str
    rows: Sequence[str]
    columns: Sequence[str]
    caption: str = "Weights"
    digits: int = 4

    def tables(self) -> tuple[Table, Table]:
        """The wrong result, its wrong cells marked, and the right one; an error by its message."""
        right = Table(self.columns, self.rows, _rows(self.cure(*self.inputs)), self.digits)
        try:
            cells = _rows(self.mistaken(*self.inputs))
        except ValueError as error:
            outcome = [[f"ValueError: {error}"]]
            return Table(["outcome"], ["mistaken"], outcome, marked=[[True]]), right
        wrong = Table(self.columns, self.rows, cells, self.digits)
        differ = np.array(wrong.as_text()) != np.array(right.as_text())
        return dataclasses.replace(wrong, marked=differ[1:, 1:]), right

    def as_step(self) -> Step:
        """The mistake as a step of a document."""

        def show() -> Shown:
            text = f"{self.happens} {self.guard}"
            if len(self.lines) > 1:
                also = " and ".join(lines_text(*lines) for lines in self.lines[1:])
                text += f" (Also {also}.)"
            wrong, right = self.tables()
            sides = (
                Side("Mistaken", self.caption, self.mistaken_formula, self.mistaken, wrong),
                Side("Right", self.caption, self.cure_formula, self.cure, right),
            )
            return Shown(text, sides=sides)

        return Step(f"{TITLES[self.document]}: {self.title}", self.lines[0], show)


def _rows(result: np.ndarray | jax.Array) -> np.ndarray:
    """Array `[rows, columns]`: the leading axes become one."""
    return rearrange(np.asarray(result), "... c -> (...) c")

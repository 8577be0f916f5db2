"""Presentation of a mistake: its result beside the correct one."""

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
from steps import Shown, Step, Table, lines_text

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
        cure: the correct computation, by the library.
        inputs: arguments of both.
        happens: what goes wrong, and why.
        guard: how the library makes the mistake impossible, or loud.
        rows: a name for each row of the results.
        columns: likewise.
        caption: of the table.
        digits: after the decimal point.
    """

    title: str
    document: int
    lines: Sequence[tuple[int, int]]
    mistaken: Callable[..., np.ndarray]
    cure: Callable[..., jax.Array]
    inputs: tuple[Any, ...]
    happens: str
    guard: str
    rows: Sequence[str]
    columns: Sequence[str]
    caption: str = "Weights"
    digits: int = 4

    def shows(self) -> Table:
        """Table of each wrong row above the right one; an exception by its message."""
        right = _rows(self.cure(*self.inputs))
        try:
            wrong = _rows(self.mistaken(*self.inputs))
        except ValueError as error:
            rows = [f"ValueError: {error}", f"a table of shape {right.shape}"]
            return Table(["outcome"], ["mistaken", "right"], [[row] for row in rows])
        rows = [f"{name}, {kind}" for name in self.rows for kind in ("mistaken", "right")]
        cells = [line for pair in zip(wrong, right, strict=True) for line in pair]
        return Table(self.columns, rows, cells, self.digits)

    def as_step(self) -> Step:
        """The mistake as a step of a document."""

        def show() -> Shown:
            text = f"{self.happens} {self.guard}"
            if len(self.lines) > 1:
                also = " and ".join(lines_text(*lines) for lines in self.lines[1:])
                text += f" (Also {also}.)"
            return Shown(text, {self.caption: self.shows()})

        return Step(f"{TITLES[self.document]}: {self.title}", self.lines[0], show)


def _rows(result: np.ndarray | jax.Array) -> np.ndarray:
    """Array `[rows, columns]`: the leading axes become one."""
    return rearrange(np.asarray(result), "... c -> (...) c")

"""A matplotlib figure that notebooks display without further setup."""

import io

import matplotlib.figure
import matplotlib.text


class Figure(matplotlib.figure.Figure):
    """A matplotlib figure, in inches, that a notebook displays as the last line of a cell."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=150, layout="constrained")

    def without_formulas(self) -> "Figure":
        """The figure, whose texts so far have dollar signs as such; names and tokens have them."""
        for text in self.findobj(matplotlib.text.Text):
            text.set_parse_math(False)
        return self

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()

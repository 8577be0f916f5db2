"""A matplotlib figure that notebooks display without further setup."""

import io

import matplotlib.figure

__all__ = ["Figure"]


class Figure(matplotlib.figure.Figure):
    """A matplotlib figure that a notebook displays if it is the last line of a cell.

    Jupyter displays plain matplotlib figures only after a notebook backend is loaded, which this
    library does not do.

    Example:
        >>> Figure(figsize=(1, 1))._repr_png_()[1:4]
        b'PNG'
    """

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()

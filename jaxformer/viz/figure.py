"""The figure that is drawn on: matplotlib's, which notebooks show as it is."""

import io

import matplotlib.figure

__all__ = ["Figure"]


class Figure(matplotlib.figure.Figure):
    """A matplotlib figure that a notebook shows on the last line of a cell.

    Jupyter shows matplotlib's own only once a backend of notebooks is loaded, and nothing here
    loads one.

    Example:
        >>> Figure(figsize=(1, 1))._repr_png_()[1:4]
        b'PNG'
    """

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()

"""Formulas as pictures, which need neither a script nor a font of the reader's."""

import pathlib

__all__ = ["draw_formula"]


def draw_formula(formula: str, path: pathlib.Path) -> None:
    r"""Draws a formula in black into an SVG file; lines of text in it are paths.

    Args:
        formula: a line of TeX, without dollar signs, as matplotlib reads it.
        path: file to write.

    Raises:
        ValueError: matplotlib cannot read the formula.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "formula.svg"
        >>> draw_formula(r"\dfrac{Q K^{\mathsf{T}}}{\sqrt{d_k}}", path)
        >>> "</svg>" in path.read_text()
        True
    """
    import matplotlib
    from matplotlib.figure import Figure

    # The same file each time: no date, and names that do not depend on the process.
    with matplotlib.rc_context({"mathtext.fontset": "cm", "svg.hashsalt": "jaxformer"}):
        figure = Figure()
        figure.text(0, 0, f"${formula}$", fontsize=14)
        figure.savefig(
            path, bbox_inches="tight", pad_inches=0.03, transparent=True, metadata={"Date": None}
        )

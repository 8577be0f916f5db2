"""Writing figures into files, and saying why one cannot be drawn."""

import io
import pathlib
from typing import TYPE_CHECKING

from jaxformer.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["cannot_draw", "write_figure"]


def write_figure(figure: "Figure", path: pathlib.Path) -> None:
    """Writes a figure in the format of the file's name, whole or not at all.

    Raises:
        StorageError: the file cannot be written.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower())
    write_whole(path, drawn.getvalue())


def cannot_draw(error: Exception) -> str:
    """End of a message: what matplotlib, which raises anything, has said, and a remedy."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return (
        f"because matplotlib cannot be used: {said}; see MPLBACKEND and MPLCONFIGDIR, if they are "
        'set, or install it anew: pip install "jaxformer[viz]"'
    )

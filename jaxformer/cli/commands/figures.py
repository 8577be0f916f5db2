"""Writing figures to files, and explaining why one cannot be drawn."""

import io
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from jaxformer.errors import first_line
from jaxformer.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figure(figure: "Figure", path: pathlib.Path) -> None:
    """Writes a figure in the format of the file's suffix, completely or not at all."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower())
    write_whole(path, drawn.getvalue())


def draw(make: "Callable[[], Figure]", path: pathlib.Path) -> str:
    """Draws a figure of trained runs; returns the path of the file, or why there is none."""
    try:
        write_figure(make(), path)
    except ImportError:
        return 'not drawn, because matplotlib is not installed; pip install "jaxformer[viz]"'
    except Exception as error:  # of any class in matplotlib; the runs are trained nevertheless
        return f"not drawn: {first_line(error)}"
    return str(path)

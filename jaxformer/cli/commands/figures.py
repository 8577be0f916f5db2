"""Writing figures to files, and explaining why one cannot be drawn."""

import io
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from jaxformer.errors import DataError, StorageError
from jaxformer.storage import first_line, write_whole

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
    except (DataError, StorageError) as error:
        return f"not drawn: {error}"
    # The runs are trained, whatever is wrong with the fonts or settings of matplotlib.
    except Exception as error:
        return f"not drawn, {cannot_draw(error)}"
    return str(path)


def cannot_draw(error: Exception) -> str:
    """End of a message: the error from matplotlib, which can be of any class, and a remedy."""
    return (
        f"because matplotlib does not work: {first_line(error)}; check MPLBACKEND and MPLCONFIGDIR "
        'if they are set, or reinstall it: pip install "jaxformer[viz]"'
    )

"""Progress over bytes of text: a bar in a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from jaxformer.training.parallel import is_first_process


@contextlib.contextmanager
def byte_progress(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function that shows on standard error how many bytes are done."""
    console = Console(file=sys.stderr, quiet=not is_first_process())
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True,
                  disable=not console.is_terminal) as bar:  # fmt: skip
        task = bar.add_task(doing, total=total)
        yield lambda done: bar.update(task, completed=done)

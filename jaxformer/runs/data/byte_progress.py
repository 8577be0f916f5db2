"""Progress over bytes of text: a bar in a terminal, else a line every 30 seconds."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from jaxformer.training.parallel import is_first_process

_PATIENCE = 2.0  # seconds; shorter work shows nothing
_LINES = 30.0  # seconds between two lines


@contextlib.contextmanager
def byte_progress(
    doing: str, total: int, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Yields a function that shows on standard error how many bytes are done."""
    console = console or Console(file=sys.stderr, highlight=False, quiet=not is_first_process())
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True)
    bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True,
                   disable=not console.is_terminal)  # fmt: skip
    task = bar.add_task(doing, total=total)
    began_at = printed_at = time.monotonic()

    def update(done: int) -> None:
        nonlocal printed_at
        now = time.monotonic()
        bar.update(task, completed=done)  # also before it is shown, for the time left
        if now - began_at >= _PATIENCE:
            bar.start()
        if bar.disable and now - printed_at >= _LINES:
            printed_at = now
            mib = f"{done / 2**20:,.0f} of {total / 2**20:,.0f} MiB"
            console.print(f"{doing}: {mib}", markup=False, soft_wrap=True)

    try:
        yield update
    finally:
        bar.stop()

"""Progress over bytes of text: a bar in a terminal, else a line every 30 seconds."""

import pathlib
import sys
import time
from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import TransferSpeedColumn as SpeedColumn

from jaxformer.text.sources.file_states import file_stamps
from jaxformer.training.parallel import is_first_process

_PATIENCE = 2.0  # seconds; shorter work shows nothing
_LINES = 30.0  # seconds between two lines


def total_size(paths: Iterable[str | pathlib.Path]) -> int:
    """Bytes of files; reading reports those that are missing."""
    return sum(max(size, 0) for size, _ in file_stamps(paths))


class ByteProgress:
    """Progress over bytes on standard error, with the rate and the time left."""

    def __init__(self, doing: str, total: int, console: Console | None = None) -> None:
        self._console = console or Console(
            file=sys.stderr, highlight=False, quiet=not is_first_process()
        )
        self._doing, self._total = doing, total
        self._began_at = self._printed_at = time.monotonic()
        self._start: int | None = None
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True),
            SpeedColumn(), TimeRemainingColumn(), console=self._console, transient=True,
            disable=not self._console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(doing, total=total)
        self._is_shown = False

    def __enter__(self) -> "ByteProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, done: int) -> None:
        """Updates the bar, or prints a line; `done` bytes include those of an earlier start."""
        now = time.monotonic()
        if self._start is None:
            self._start = done
        if not self._bar.disable:
            self._bar.update(self._task, completed=done)  # also before it is shown, for the speed
        if now - self._began_at < _PATIENCE:
            return
        if not self._bar.disable:
            if not self._is_shown:
                self._is_shown = True
                self._bar.start()
        elif now - self._printed_at >= _LINES:
            self._printed_at = now
            speed = (done - self._start) / (now - self._began_at)
            left = (self._total - done) / speed if speed else 0
            self._console.print(
                f"{self._doing}: {done / 2**20:,.0f} of {self._total / 2**20:,.0f} MiB, "
                f"{speed / 2**20:,.1f} MiB/s, {left:,.0f} s left",
                markup=False, soft_wrap=True,
            )  # fmt: skip

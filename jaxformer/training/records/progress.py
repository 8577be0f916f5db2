"""Progress of a training run: a bar in a terminal, plain lines elsewhere."""

import time
from collections.abc import Collection

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class TrainingProgress:
    """Shows steps, loss, labels per second, and time left, of one run or several together."""

    def __init__(
        self,
        start: int,
        total: int,
        console: Console | None = None,
        unit: str = "token",
        is_quiet: bool = False,
    ) -> None:
        self.console = console or Console(highlight=False, quiet=is_quiet)
        self._start, self._total, self._unit = start, total, unit
        self._began_at = time.monotonic()
        self._progress = Progress(
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task("compiling", total=total, completed=start)

    def __enter__(self) -> "TrainingProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(
        self, step: int, losses: Collection[float], *, per_second: float, meters: str = ""
    ) -> None:
        """Moves the bar, or prints a line with the meters; losses of the runs are in nats."""
        ends = " to ".join(f"{loss:.3f}" for loss in sorted({min(losses), max(losses)}))
        count = f" in {len(losses)} runs" if len(losses) > 1 else ""
        status = f"loss {ends}{count}  {per_second:,.0f} {self._unit}s/s"
        self._progress.update(self._task, completed=step, description=status)
        if self._progress.disable:
            per_step = (time.monotonic() - self._began_at) / max(1, step - self._start)
            left = f"{per_step * (self._total - step):.0f} s left"
            parts = (f"step {step}/{self._total}", status, meters, left)
            self.print("  ".join(filter(None, parts)))

    def print_of(self, name: str, line: str) -> None:
        """Prints a line on a run of a sweep."""
        self.print(f"{name}: {line}" if name else line)

    def print(self, line: str) -> None:
        """Prints a line above the bar."""
        self.console.print(line, markup=False, soft_wrap=True)

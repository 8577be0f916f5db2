"""Progress of a training run: a bar in a terminal, plain lines elsewhere."""

import math
import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column


class TrainingProgress:
    """Shows steps, loss, labels per second, and time left; a bar for each of the runs `names`."""

    def __init__(
        self,
        start: int,
        total: int,
        console: Console | None = None,
        unit: str = "token",
        is_quiet: bool = False,
        names: Sequence[str] = ("",),
    ) -> None:
        self.console = console or Console(highlight=False, quiet=is_quiet)
        self._start, self._total, self._unit = start, total, unit
        self._began_at = time.monotonic()
        whole = Column(no_wrap=True)  # the bar shrinks first in a narrow terminal
        labels = [TextColumn("{task.description}")] if len(names) > 1 else []
        self._progress = Progress(
            *labels,
            BarColumn(),
            MofNCompleteColumn(table_column=whole),
            TextColumn("{task.fields[status]}"),
            TextColumn("elapsed"),
            TimeElapsedColumn(table_column=whole),
            TextColumn("left"),
            TimeRemainingColumn(table_column=whole),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._tasks = {
            name: self._progress.add_task(name, total=total, completed=start, status="compiling")
            for name in names
        }

    def __enter__(self) -> "TrainingProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(
        self, step: int, losses: Mapping[str, float], *, per_second: float, meters: str = ""
    ) -> None:
        """Moves the bar, or prints a line with the meters; losses are in nats."""
        speed = f"{per_second:,.0f} {self._unit}s/s"
        for name, loss in losses.items():
            self._progress.update(
                self._tasks[name], completed=step, status=f"loss {loss:.3f}  {speed}"
            )
        if self._progress.disable:
            per_step = (time.monotonic() - self._began_at) / max(1, step - self._start)
            left = per_step * (self._total - step)
            values = [*losses.values()] or [math.nan]
            ends = " to ".join(f"{x:.3f}" for x in sorted({min(values), max(values)}))
            count = f" in {len(losses)} runs" if len(self._tasks) > 1 else ""
            parts = (f"loss {ends}{count}", speed, *filter(None, [meters]), f"{left:.0f} s left")
            self.print("  ".join([f"step {step}/{self._total}", *parts]))

    def leave(self, name: str, reason: str) -> None:
        """Shows that a run of a sweep trains no longer, and why."""
        self._progress.update(self._tasks[name], status=reason)
        self.print_of(name, reason)

    def print_of(self, name: str, line: str) -> None:
        """Prints a line on a run of a sweep."""
        self.print(f"{name}: {line}" if name else line)

    def print(self, line: str) -> None:
        """Prints a line above the bar."""
        self.console.print(line, markup=False, soft_wrap=True)

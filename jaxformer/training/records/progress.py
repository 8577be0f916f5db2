"""Progress of a training: a line for each record of the loss."""

import math
import time
from collections.abc import Mapping


class TrainingProgress:
    """Prints steps, loss, labels per second and time left, of a run or of `num_runs` at once."""

    def __init__(
        self, start: int, total: int, *, unit: str = "token", num_runs: int = 1,
        is_quiet: bool = False,
    ) -> None:  # fmt: skip
        self._start, self._total, self._unit = start, total, unit
        self._num_runs, self._is_quiet = num_runs, is_quiet
        self._began_at = time.monotonic()

    def update(
        self, step: int, losses: Mapping[str, float], *, per_second: float, meters: str = ""
    ) -> None:
        """Prints the losses (nats) of runs by name, with the meters."""
        per_step = (time.monotonic() - self._began_at) / max(1, step - self._start)
        values = [*losses.values()] or [math.nan]
        ends = " to ".join(f"{loss:.3f}" for loss in sorted({min(values), max(values)}))
        count = f" in {len(losses)} runs" if self._num_runs > 1 else ""
        speed, left = f"{per_second:,.0f} {self._unit}s/s", per_step * (self._total - step)
        parts = (f"loss {ends}{count}", speed, *filter(None, [meters]), f"{left:.0f} s left")
        self.print("  ".join([f"step {step}/{self._total}", *parts]))

    def print(self, line: str, run: str = "") -> None:
        """Prints a line, on a run of a sweep if it has a name."""
        if not self._is_quiet:
            print(f"{run}: {line}" if run else line, flush=True)

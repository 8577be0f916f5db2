"""Where the wall time of a training goes, and the meters of its steps."""

import contextlib
import time
from collections.abc import Iterator, Mapping

import jax

from jaxformer.memory import readable_bytes

ACTIVITIES = STARTING, STEPS, DATA, COMPILING, EVALUATING, SAVING = (
    "starting", "steps", "waiting for data", "compiling", "evaluating", "saving"
)  # fmt: skip
_METRICS = {  # by activity
    DATA: "seconds_waiting_for_data", COMPILING: "seconds_compiling",
    EVALUATING: "seconds_evaluating", SAVING: "seconds_saving",
}  # fmt: skip


class WallClock:
    """Splits wall time by activity: at any time, the innermost activity that has begun counts.

    Example:
        >>> clock = WallClock()
        >>> with clock.during(COMPILING):
        ...     pass
        >>> [activity for activity, seconds in clock.seconds().items() if seconds]
        ['starting', 'compiling']
    """

    def __init__(self) -> None:
        self._spent = dict.fromkeys(ACTIVITIES, 0.0)
        self._activity, self._since = STARTING, time.monotonic()

    def begin(self, activity: str) -> str:
        """Begins an activity, and returns the one that it ends."""
        now, ended = time.monotonic(), self._activity
        self._spent[ended] += now - self._since
        self._activity, self._since = activity, now
        return ended

    @contextlib.contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Context of an activity, which a profile shows by its name."""
        ended = self.begin(activity)
        try:
            with jax.profiler.TraceAnnotation(activity):
                yield
        finally:
            self.begin(ended)

    def seconds(self) -> dict[str, float]:
        """Seconds of each activity until now."""
        self.begin(self._activity)
        return dict(self._spent)

    def since(self, earlier: Mapping[str, float]) -> dict[str, float]:
        """Seconds of each activity since an earlier result of `seconds`."""
        return {activity: now - earlier[activity] for activity, now in self.seconds().items()}

    def summary(self) -> str:
        """Line of the wall time by activity, the longest first."""
        spent = self.seconds()
        total = sum(spent.values())
        parts = [
            f"{activity} {spent[activity]:.1f} s ({spent[activity] / total:.0%})"
            for activity in sorted(spent, key=spent.__getitem__, reverse=True)
            if spent[activity]
        ]
        return f"wall time {total:.1f} s: {', '.join(parts)}"


def step_seconds(spent: Mapping[str, float]) -> float:
    """Seconds of steps, with waiting for data and for saving."""
    return sum(spent[activity] for activity in (STEPS, DATA, SAVING))


def activity_metrics(spent: Mapping[str, float]) -> dict[str, float]:
    """Metrics of the seconds that activities took."""
    return {metric: spent[activity] for activity, metric in _METRICS.items()}


def meter_text(metrics: Mapping[str, float]) -> str:
    """Meters of a record for the progress line."""
    per_step = metrics["seconds_per_step"]
    parts = [f"{per_step:.3g} s/step"]
    if (utilization := metrics.get("flops_utilization")) is not None:
        parts.append(f"{utilization:.0%} of peak FLOP/s")
    if (peak := metrics.get("peak_memory_bytes")) is not None:
        parts.append(readable_bytes(int(peak)))
    return "  ".join(parts)

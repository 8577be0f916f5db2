"""Wall time of a training, by activity."""

import contextlib
import enum
import time
from collections.abc import Callable, Iterator, Mapping

import jax


class Activity(enum.StrEnum):
    """What a training spends its wall time on; OTHER is all that is not named."""

    OTHER = "other"
    STEPS = "steps"
    DATA = "waiting for data"
    COMPILING = "compiling"
    EVALUATING = "evaluating"
    SAVING = "saving"

    @property
    def metric(self) -> str:
        """Name of the metric of the seconds spent on it."""
        return f"seconds_{self.replace(' ', '_')}"


RECORDED = (Activity.DATA, Activity.COMPILING, Activity.EVALUATING, Activity.SAVING)
"""Activities whose time is a metric, and which profiles show."""


class WallClock:
    """Splits wall time by activity: at any time, the innermost one that has begun counts."""

    def __init__(self) -> None:
        self._spent = dict.fromkeys(Activity, 0.0)
        self._activity, self._since = Activity.OTHER, time.monotonic()

    @contextlib.contextmanager
    def during(
        self, activity: Activity, *, counts: Callable[[], bool] = lambda: True
    ) -> Iterator[None]:
        """Context of an activity; its time belongs to the one around it unless `counts()`."""
        ended = self._begin(activity)
        try:
            with jax.profiler.TraceAnnotation(activity.value):
                yield
        finally:
            if not counts():
                self._activity = ended
            self._begin(ended)

    def _begin(self, activity: Activity) -> Activity:
        """Begins an activity, and returns the one that it ends."""
        now, ended = time.monotonic(), self._activity
        self._spent[ended] += now - self._since
        self._activity, self._since = activity, now
        return ended

    def seconds(self) -> dict[Activity, float]:
        """Seconds of each activity until now."""
        self._begin(self._activity)
        return dict(self._spent)

    def since(self, earlier: Mapping[Activity, float]) -> dict[Activity, float]:
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

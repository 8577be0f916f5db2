"""Wall time of a training by activity, and the time, utilization and memory of its steps."""

import contextlib
import enum
import time
from collections.abc import Callable, Iterator, Mapping

import jax

from jaxformer.memory import readable_bytes
from jaxformer.training.parallel import Runner


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

METERS = (
    "seconds_per_step", *(activity.metric for activity in RECORDED), "flops_utilization",
    "peak_memory_bytes",
)  # fmt: skip
"""Metrics that depend on the machine, besides labels per second."""


class WallClock:
    """Splits wall time by activity: at any time, the innermost one that has begun counts."""

    def __init__(self) -> None:
        self._spent = dict.fromkeys(Activity, 0.0)
        self._activity, self._since = Activity.OTHER, time.monotonic()
        self._measured_from, self._flops = dict(self._spent), list[float]()

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

    def start_steps(self) -> None:
        """Begins to measure steps."""
        self._measured_from, self._flops = self.seconds(), []

    def add_flops(self, flops: float | None) -> None:
        """Adds the model FLOPs of a step on all devices, if known."""
        if flops is not None:
            self._flops.append(flops)

    def read_steps(self, num_steps: int, runner: Runner) -> dict[str, float]:
        """Metrics of the steps since `start_steps`, by names of `METERS`; begins anew."""
        spent = {name: now - self._measured_from[name] for name, now in self.seconds().items()}
        per_step = (spent[Activity.STEPS] + spent[Activity.DATA]) / num_steps
        metrics = {"seconds_per_step": per_step}
        metrics |= {activity.metric: spent[activity] for activity in RECORDED}
        if runner.accelerator is not None and self._flops:
            peak = runner.accelerator.bfloat16 * runner.num_devices
            metrics["flops_utilization"] = sum(self._flops) / len(self._flops) / per_step / peak
        if (peak_memory := runner.peak_memory) is not None:
            metrics["peak_memory_bytes"] = peak_memory
        self.start_steps()
        return metrics

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


def meter_text(metrics: Mapping[str, float]) -> str:
    """Meters of a record for the progress line."""
    parts = [f"{metrics['seconds_per_step']:.3g} s/step"]
    if (utilization := metrics.get("flops_utilization")) is not None:
        parts.append(f"{utilization:.0%} model FLOPs utilization")
    if (peak := metrics.get("peak_memory_bytes")) is not None:
        parts.append(f"{readable_bytes(int(peak))} peak memory")
    return "  ".join(parts)

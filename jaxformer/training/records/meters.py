"""Meters of the steps between two records: their time, utilization and memory."""

from collections.abc import Mapping

from jaxformer.memory import readable_bytes
from jaxformer.training.parallel import Runner
from jaxformer.training.records.clock import RECORDED, Activity, WallClock

METERS = (
    "seconds_per_step", *(activity.metric for activity in RECORDED), "flops_utilization",
    "peak_memory_bytes",
)  # fmt: skip
"""Metrics that depend on the machine, besides labels per second."""


class StepMeters:
    """Measures the steps since the last record."""

    def __init__(self, clock: WallClock, runner: Runner) -> None:
        self._clock, self._runner = clock, runner
        self.begin()

    def begin(self) -> None:
        """Begins anew."""
        self._since = self._clock.seconds()
        self._flops: list[float] = []  # of each step

    def add(self, flops: float | None) -> None:
        """Adds a step with its model FLOPs on all devices, if known."""
        if flops is not None:
            self._flops.append(flops)

    def read(self, num_steps: int) -> dict[str, float]:
        """Metrics of the steps, by names of `METERS`; begins anew."""
        spent = self._clock.since(self._since)
        per_step = (spent[Activity.STEPS] + spent[Activity.DATA]) / num_steps
        metrics = {"seconds_per_step": per_step}
        metrics |= {activity.metric: spent[activity] for activity in RECORDED}
        accelerator = self._runner.accelerator
        if accelerator is not None and self._flops:
            peak = accelerator.bfloat16 * self._runner.num_devices
            flops = sum(self._flops) / len(self._flops)
            metrics["flops_utilization"] = flops / per_step / peak
        if (peak_memory := self._runner.peak_memory) is not None:
            metrics["peak_memory_bytes"] = peak_memory
        self.begin()
        return metrics


def meter_text(metrics: Mapping[str, float]) -> str:
    """Meters of a record for the progress line."""
    parts = [f"{metrics['seconds_per_step']:.3g} s/step"]
    if (utilization := metrics.get("flops_utilization")) is not None:
        parts.append(f"{utilization:.0%} model FLOPs utilization")
    if (peak := metrics.get("peak_memory_bytes")) is not None:
        parts.append(f"{readable_bytes(int(peak))} peak memory")
    return "  ".join(parts)

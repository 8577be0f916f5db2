"""Records of a run while it trains: metrics, progress, wall time, bad steps."""

from jaxformer.training.records.clock import Activity, WallClock
from jaxformer.training.records.meters import METERS, StepMeters
from jaxformer.training.records.metrics import MetricsWriter, read_metrics
from jaxformer.training.records.progress import TrainingProgress
from jaxformer.training.records.recorder import Recorder

__all__ = [
    "METERS", "Activity", "MetricsWriter", "Recorder", "StepMeters", "TrainingProgress",
    "WallClock", "read_metrics",
]  # fmt: skip

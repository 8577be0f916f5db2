"""Records of a run while it trains: metrics, progress, wall time, traces, bad steps."""

from jaxformer.training.records.clock import METERS, Activity, WallClock
from jaxformer.training.records.metrics import MetricsWriter, read_metrics
from jaxformer.training.records.profiles import StepProfile, StepProfiler, read_profile
from jaxformer.training.records.progress import TrainingProgress
from jaxformer.training.records.recorder import NotFinite, Recorder

__all__ = [
    "METERS", "Activity", "MetricsWriter", "NotFinite", "Recorder", "StepProfile", "StepProfiler",
    "TrainingProgress", "WallClock", "read_metrics", "read_profile",
]  # fmt: skip

"""Records of a run while it trains: metrics, progress, time, profiles, bad steps, spikes."""

from jaxformer.training.records.clock import WallClock
from jaxformer.training.records.metrics import MetricsWriter, read_metrics
from jaxformer.training.records.profiler import StepProfiler
from jaxformer.training.records.progress import TrainingProgress
from jaxformer.training.records.recorder import Recorder, open_checkpoints
from jaxformer.training.records.trace import StepProfile, read_profile

__all__ = [
    "MetricsWriter", "Recorder", "StepProfile", "StepProfiler", "TrainingProgress", "WallClock",
    "open_checkpoints", "read_metrics", "read_profile",
]  # fmt: skip

"""Records of a run while it trains: metrics, progress, bad steps and loss spikes."""

from jaxformer.training.records.metrics import MetricsWriter, read_metrics
from jaxformer.training.records.progress import TrainingProgress
from jaxformer.training.records.recorder import Recorder, open_checkpoints

__all__ = ["MetricsWriter", "Recorder", "TrainingProgress", "open_checkpoints", "read_metrics"]

"""Records of a run while it trains: metrics, progress, bad steps and loss spikes."""

from jaxformer.training.records.diagnosis import Diagnosis
from jaxformer.training.records.metrics import MetricsWriter, read_metrics
from jaxformer.training.records.progress import TrainingProgress
from jaxformer.training.records.recorder import Recorder, open_checkpoints
from jaxformer.training.records.spikes import LossSpikes

__all__ = [
    "Diagnosis", "LossSpikes", "MetricsWriter", "Recorder", "TrainingProgress",
    "open_checkpoints", "read_metrics",
]  # fmt: skip

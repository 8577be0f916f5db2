"""Training: losses, state, pure steps, runners, checkpoints, and the loop over all of them."""

from jaxformer.training.checkpoints import Checkpoints
from jaxformer.training.data import TrainingData
from jaxformer.training.evaluation import Evaluation, evaluate
from jaxformer.training.fit import FitResult, fit
from jaxformer.training.losses import LossFunction, classification_loss, language_model_loss
from jaxformer.training.metrics import MetricsWriter, read_metrics
from jaxformer.training.optimizers import decay_mask, make_optimizer, make_schedule
from jaxformer.training.parallel import (
    MeshRunner,
    PmapRunner,
    SingleRunner,
    make_runner,
    split_cpu,
)
from jaxformer.training.state import TrainState
from jaxformer.training.step import make_eval_step, make_train_step

__all__ = [
    "Checkpoints",
    "Evaluation",
    "FitResult",
    "LossFunction",
    "MetricsWriter",
    "MeshRunner",
    "PmapRunner",
    "SingleRunner",
    "TrainState",
    "TrainingData",
    "classification_loss",
    "decay_mask",
    "evaluate",
    "fit",
    "language_model_loss",
    "make_eval_step",
    "make_optimizer",
    "make_runner",
    "make_schedule",
    "make_train_step",
    "read_metrics",
    "split_cpu",
]

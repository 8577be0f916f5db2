"""Training: losses, state, pure steps, runners, checkpoints, and the training loop."""

from jaxformer.training.callbacks import EarlyStopping
from jaxformer.training.checkpoints import Checkpoints
from jaxformer.training.data import TrainingData
from jaxformer.training.evaluation import Evaluation, evaluate
from jaxformer.training.fit import FitResult, fit
from jaxformer.training.losses import LossFunction, classification_loss, language_model_loss
from jaxformer.training.low_rank import combine_low_rank, low_rank_params, merge_low_rank
from jaxformer.training.optimizers import (
    decay_mask,
    make_optimizer,
    make_schedule,
    mup_factors,
    scale_by_factors,
)
from jaxformer.training.parallel import MeshRunner, PmapRunner, SingleRunner, make_runner, split_cpu
from jaxformer.training.records import StepProfile, read_metrics, read_profile
from jaxformer.training.state import TrainState
from jaxformer.training.step import make_eval_step, make_train_step
from jaxformer.training.trial import Trial

__all__ = [
    "Checkpoints", "EarlyStopping", "Evaluation", "FitResult", "LossFunction",
    "MeshRunner", "PmapRunner", "SingleRunner", "StepProfile", "TrainState", "Trial",
    "TrainingData", "classification_loss", "combine_low_rank", "decay_mask", "evaluate", "fit",
    "language_model_loss", "low_rank_params", "make_eval_step",
    "make_optimizer", "make_runner", "make_schedule", "make_train_step", "merge_low_rank",
    "mup_factors", "read_metrics", "read_profile", "scale_by_factors", "split_cpu",
]  # fmt: skip

"""Batches of rows of the same length: windows of a stream, or packed conversations."""

import math

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.training import TrainingData
from jaxformer.training.data import BatchSource
from jaxformer.training.parallel import Runner


def training_batches(
    config: ExperimentConfig, source: text.Source | text.Mixture, runner: Runner
) -> BatchSource:
    """Makes batches of the rows of a source or mixture, in a new order in every epoch."""
    assert config.training.batch_size is not None  # the config requires it here
    return text.Batches(source, config.training.batch_size, seed=config.seed, host=runner.host)


def evaluation_batches(
    config: ExperimentConfig, source: text.Source, runner: Runner, unit: str
) -> TrainingData:
    """Makes batches of all rows, in order; `unit` is what is predicted."""
    training = config.training
    assert training.batch_size is not None
    # As many rows as in a micro-batch, which is known to fit in memory.
    rows = math.lcm(training.batch_size // training.accumulate_steps, runner.num_shards)
    return TrainingData(
        batches=(), unit=unit,
        validation=lambda: text.evaluation_batches(source, rows, host=runner.host),
    )  # fmt: skip

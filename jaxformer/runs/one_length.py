"""Batches of rows of one length: windows of a stream, or packed conversations."""

import math

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.training import TrainingData
from jaxformer.training.data import BatchSource
from jaxformer.training.parallel import Runner

__all__ = ["evaluation_batches", "training_batches"]


def training_batches(
    config: ExperimentConfig, source: text.Source | text.Mixture, runner: Runner
) -> BatchSource:
    """Makes batches of rows, or of those of a mixture, each epoch in another order."""
    assert config.training.batch_size is not None  # the config requires it of rows of one length
    return text.Batches(source, config.training.batch_size, seed=config.seed, host=runner.host)


def evaluation_batches(
    config: ExperimentConfig, source: text.Source, runner: Runner, unit: str
) -> TrainingData:
    """Makes batches of all rows, in their order.

    Args:
        config: the experiment.
        source: the rows.
        runner: of the devices.
        unit: what is predicted.
    """
    training = config.training
    assert training.batch_size is not None
    # The rows of a micro-batch, which are known to fit in memory.
    rows = math.lcm(training.batch_size // training.accumulate_steps, runner.num_shards)
    return TrainingData(
        batches=(), unit=unit,
        validation=lambda: text.evaluation_batches(source, rows, host=runner.host),
    )  # fmt: skip

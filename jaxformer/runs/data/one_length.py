"""Batches of rows of the same length: windows of a stream, or packed conversations."""

import math

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.training.parallel import Runner


def training_batches(
    config: ExperimentConfig, rows: text.Rows | text.Mixture, runner: Runner
) -> text.Batches:
    """Makes batches of rows or of a mixture, in a new order in every epoch."""
    assert config.training.batch_size is not None  # the config requires it here
    return text.Batches(rows, config.training.batch_size, seed=config.seed, host=runner.host)


def evaluation_batches(config: ExperimentConfig, rows: text.Rows, runner: Runner) -> text.Batches:
    """Makes batches of the size of a micro-batch, which is known to fit in memory."""
    training = config.training
    assert training.batch_size is not None
    size = math.lcm(training.batch_size // training.accumulate_steps, runner.num_shards)
    return text.Batches(rows, size, host=runner.host)

"""Model of an experiment without its data, and the rows of its batches."""

import dataclasses
from typing import Any

from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError
from jaxformer.runs import TextModel, task_class


def planned_model(config: ExperimentConfig, *, as_configured: bool = False) -> TextModel:
    """Model of a config without data, to be traced for estimates on any machine.

    With layers "auto" it scans them, which is traced faster than a loop and keeps as many bytes. In
    place of a kernel it has chunked attention, which keeps as little memory: cuDNN cannot be traced
    without a GPU, and products within kernels are not counted. With `as_configured`, it has the
    layers and the attention of the config, to be compiled.
    """
    changes: dict[str, Any] = {}
    if config.model.layer_execution == "auto" and not as_configured:
        changes["layer_execution"] = "scan"
    if config.model.attention_implementation in ("cudnn", "splash") and not as_configured:
        changes["attention_implementation"] = "chunked"
    schedule = config.schedule.ending_at(config.training.steps)
    model = dataclasses.replace(config.model, **changes)
    config = dataclasses.replace(config, model=model, schedule=schedule)
    return task_class(config).text_model.without_data(config)


def batch_rows(config: ExperimentConfig, num_shards: int) -> int:
    """Rows of a batch over all devices; for rows of unequal length, of a batch of the longest."""
    training, length = config.training, config.model.max_len
    parts = num_shards * training.accumulate_steps
    if training.batch_size is not None:
        if training.batch_size % parts:
            raise ConfigError(
                "training.batch_size must be a multiple of the devices that split the rows * "
                f"accumulate_steps = {num_shards} * {training.accumulate_steps}, got "
                f"{training.batch_size}; change one of them"
            )
        return training.batch_size
    assert training.batch_tokens is not None  # the config requires one of the two
    rows = training.batch_tokens // length // parts * parts
    if rows == 0:
        raise ConfigError(
            "training.batch_tokens must be at least devices * accumulate_steps rows of max_len "
            f"tokens, got batch_tokens={training.batch_tokens}, {num_shards} * "
            f"{training.accumulate_steps} and max_len={length}; try {length * parts}"
        )
    return rows

"""Runs: training one in its folder, and opening one to generate, translate, predict, evaluate."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxformer import run_folder
from jaxformer.config import ExperimentConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.runs import classification, language_model, masked, translation
from jaxformer.runs.base import PreparedRun, Run
from jaxformer.runs.classification import ClassificationRun
from jaxformer.runs.language_model import LanguageModelRun
from jaxformer.runs.masked import MaskedRun
from jaxformer.runs.positions import (
    PositionBiases,
    PositionRotations,
    Positions,
    PositionTable,
    model_positions,
)
from jaxformer.runs.translation import TranslationRun
from jaxformer.text import BucketedBatches
from jaxformer.training import (
    Checkpoints,
    FitResult,
    SingleRunner,
    fit,
    make_optimizer,
    make_runner,
    make_schedule,
)

__all__ = [
    "ClassificationRun",
    "LanguageModelRun",
    "LossLabels",
    "MaskedRun",
    "PositionBiases",
    "PositionRotations",
    "PositionTable",
    "Positions",
    "PreparedRun",
    "Run",
    "TranslationRun",
    "loss_labels",
    "model_positions",
    "open_run",
    "prepare_run",
    "train_run",
]


class LossLabels(NamedTuple):
    """What the losses of a run are, for who draws them.

    Args:
        unit: that the loss is the mean over: "token", "masked token" or "text".
        training: what to call the training loss, which has dropout and label smoothing in it where
            the run has them, as the validation loss never has.
    """

    unit: str
    training: str


class _Kind(NamedTuple):
    """What differs between runs: how one is prepared, how it starts, and what it can do."""

    prepare: Callable[[ExperimentConfig, pathlib.Path | None], PreparedRun]
    init_params: Callable[..., Any]
    run: type[Run]


_KINDS = {
    "language_model": _Kind(
        language_model.PreparedLanguageModel.prepare, language_model.init_params, LanguageModelRun
    ),
    "masked": _Kind(masked.PreparedMasked.prepare, masked.init_params, MaskedRun),
    "classification": _Kind(
        classification.PreparedClassifier.prepare, classification.init_params, ClassificationRun
    ),
    "translation": _Kind(
        translation.PreparedTranslation.prepare, translation.init_params, TranslationRun
    ),
}


def _kind(config: ExperimentConfig) -> _Kind:
    if config.model.architecture == "decoder":
        return _KINDS["language_model"]
    if config.model.architecture == "encoder_decoder":
        return _KINDS["translation"]
    return _KINDS["masked" if config.data.is_stream else "classification"]


def loss_labels(path: str | pathlib.Path) -> LossLabels:
    """Tells what the losses of a run are; it need not have a checkpoint yet.

    Args:
        path: of the run folder.

    Returns:
        Their labels.

    Raises:
        CheckpointError: the path is no run folder.
    """
    config = run_folder.read_run_config(pathlib.Path(path))
    parts = {
        "dropout": config.model.dropout_rate,
        "label smoothing": config.training.label_smoothing,
    }
    mixed_in = " and ".join(name for name, rate in parts.items() if rate)
    training = f"training (with {mixed_in})" if mixed_in else "training"
    return LossLabels(_kind(config).run.unit, training)


def open_run(path: str | pathlib.Path, step: int | None = None) -> Run:
    """Opens a run folder.

    Args:
        path: of the folder.
        step: which checkpoint; the one with the lowest validation loss when not given.

    Returns:
        The run, of the class for what its model does.

    Raises:
        CheckpointError: the path is no run folder, or has no such checkpoint.
    """
    folder = pathlib.Path(path)
    config = run_folder.read_run_config(folder)
    kind = _kind(config)
    with Checkpoints(folder / run_folder.CHECKPOINTS, read_only=True) as checkpoints:
        chosen = checkpoints.best_step if step is None else step
        shapes = jax.eval_shape(lambda: kind.init_params(config.model, jax.random.key(0)))
        params = checkpoints.restore_params(SingleRunner().template(shapes), chosen)
    assert chosen is not None  # else restore_params has raised
    return kind.run.open(folder, config, params, chosen)


def prepare_run(config: ExperimentConfig, folder: pathlib.Path | None = None) -> PreparedRun:
    """Reads what a config trains on, makes tokenizers, and fills in what the data decides.

    Args:
        config: the experiment.
        folder: of a run that goes on, whose tokenizers are taken; None for a new one.

    Returns:
        The run before its first step.

    Raises:
        ConfigError: the config is impossible with this data.
        DataError: the data cannot be used, or a prompt of the samples does not fit.
    """
    return _kind(config).prepare(config, folder)


def train_run(
    config: ExperimentConfig,
    on_start: Callable[[ExperimentConfig, tuple[str, ...]], None] | None = None,
) -> FitResult:
    """Trains in the run folder `config.out`, which it makes, or goes on with.

    Args:
        config: the experiment, its out set.
        on_start: called before the first step, with the config, all that the data decides filled
            in, and lines that say what became of the data.

    Returns:
        How it ended.

    Raises:
        ConfigError: the config is impossible on this machine or with this data.
        CheckpointError: out is a folder of something else, or of a run with another config.
        DataError: the data cannot be used, or a prompt of the samples does not fit.
    """
    if config.out is None:
        raise ConfigError("out, the run folder, must be set")
    folder, training = pathlib.Path(config.out), config.training
    goes_on = run_folder.is_run(folder)
    if not goes_on:
        run_folder.require_free(folder)
    runner = make_runner(
        training.runner,
        devices=training.devices,
        batch_size=training.batch_size,
        accumulate_steps=training.accumulate_steps,
    )
    run = prepare_run(config, folder if goes_on else None)
    data = run.training_data(runner)
    shapes = data.batches.shapes if isinstance(data.batches, BucketedBatches) else ()
    summary = dataclasses.replace(run.summary, shapes=shapes)
    if goes_on:
        run_folder.check_same_run(folder, run.config, summary)
        _check_steps(folder, training.steps)
        run_folder.update_config(folder, run.config)
    else:
        run_folder.start_folder(folder, run.config, summary, run.write)
    if on_start is not None:
        on_start(run.config, run.report)
    loss, validation_loss = run.losses()
    config = run.config
    return fit(
        loss, run.init_params, make_optimizer(config.optimizer, config.schedule), data, folder,
        training, runner=runner, validation_loss=validation_loss, seed=config.seed,
        learning_rate=make_schedule(config.optimizer.learning_rate, config.schedule),
    )  # fmt: skip


def _check_steps(folder: pathlib.Path, steps: int) -> None:
    with Checkpoints(folder / run_folder.CHECKPOINTS, read_only=True) as checkpoints:
        trained = checkpoints.latest_step or 0
    if trained > steps:
        raise CheckpointError(
            f"{folder} has been trained to step {trained} already, got training.steps={steps}; "
            f"set it to {trained} or more, or choose another out"
        )

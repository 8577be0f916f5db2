"""Starting a run from the weights and tokenizers of another: fine-tuning."""

import dataclasses
import pathlib
import re
from typing import Any

import jax

from jaxformer.config import (
    ExperimentConfig,
    LearnedConfig,
    ModelConfig,
    RotaryConfig,
    config_differences,
)
from jaxformer.errors import ConfigError
from jaxformer.runs.classification import ClassificationTask
from jaxformer.runs.folder import CHECKPOINTS, read_run_config
from jaxformer.runs.masked import MaskedTask
from jaxformer.runs.memory import param_shapes
from jaxformer.runs.stored import stored_params
from jaxformer.runs.task import Task
from jaxformer.runs.trained import task_class
from jaxformer.training import Checkpoints, SingleRunner
from jaxformer.training.checkpoint_manifest import checkpoint_fingerprint
from jaxformer.training.parallel import Runner

__all__ = [
    "new_parameters",
    "source_folder",
    "start_digest",
    "start_fingerprint",
    "start_params",
    "with_start",
]

# What may differ from the model that the weights were trained in: how it is computed, and what is
# new with the run.
_MAY_DIFFER = ("dropout_rate", "attention_implementation", "dtype", "remat", "layer_execution",
               "init_std", "num_classes")  # fmt: skip
# Settings that stretch rotary positions to longer texts.
_OF_ROTARY = ("positions.base", "positions.scaling")
_LAYER = re.compile(r"(first_)?layers\[\d+\]\.")  # in a key of one layer's settings

# What a run knows of its model and its config need not say.
_FILLED = ("vocab_size", "source_vocab_size", "embedding_dim")


def source_folder(config: ExperimentConfig) -> pathlib.Path | None:
    """Run folder that a new run starts from; None where it starts from nothing."""
    return None if config.init_from is None else _folder_and_step(config.init_from)[0]


def _folder_and_step(init_from: str) -> tuple[pathlib.Path, int | None]:
    """Splits "FOLDER" or "FOLDER@STEP"."""
    folder, _, step = init_from.rpartition("@")
    if folder and step.isdecimal():
        return pathlib.Path(folder), int(step)
    return pathlib.Path(init_from), None


def with_start(
    config: ExperimentConfig, task: type[Task], resumed: pathlib.Path | None
) -> ExperimentConfig:
    """Fills in what the run decides that a config starts from, and checks that the two fit.

    Args:
        config: the experiment; returned as it is where it has no init_from.
        task: what is trained.
        resumed: run folder that is resumed; what it has recorded is filled in, and the run that it
            started from is not needed any more. None for a new run.

    Returns:
        The config, with the step in init_from, and the sizes of the vocabularies.

    Raises:
        ConfigError: the run holds another kind of model, or other sizes or tokenizers.
        CheckpointError: there is no such run, or it has no such checkpoint.
    """
    if config.init_from is None:
        return config
    folder, step = _folder_and_step(config.init_from)
    if config.out is not None and folder.resolve() == pathlib.Path(config.out).resolve():
        raise ConfigError(
            f"init_from must be another run than out, got {folder} for both; choose another out"
        )
    if resumed is not None:
        before = read_run_config(resumed)
        recorded = before.init_from
        if recorded is not None and step is None:
            if _folder_and_step(recorded)[0].resolve() == folder.resolve():
                config = dataclasses.replace(config, init_from=recorded)
        return _filled(config, before.model)
    source = read_run_config(folder)
    _start_class(task, config, source)
    _check_same_model(config, source, folder)
    with Checkpoints(folder / CHECKPOINTS, read_only=True) as checkpoints:
        step = checkpoints.require_step(step)
    return dataclasses.replace(_filled(config, source.model), init_from=f"{folder}@{step}")


def start_params(task: Task, runner: Runner) -> tuple[Any, str]:
    """Parameters that a new run starts from, and a line that says whose they are.

    Args:
        task: before the first step, the init_from of its config set.
        runner: of the training. Where it splits parameters, no device ever has them all.

    Raises:
        CheckpointError: the checkpoint is missing or damaged, or has other parameters.
    """
    assert task.config.init_from is not None
    folder, step = _folder_and_step(task.config.init_from)
    kind = _start_class(type(task), task.config, read_run_config(folder))
    source = kind.load(folder, read_run_config(folder))
    loads = SingleRunner() if runner.has_all_params else runner
    params = stored_params(source, folder, step, loads)
    report = f"starting from the weights and tokenizers of {folder} at step {step}"
    if not new_parameters(task):
        return params, report
    drawn = loads.create(task.draw_params, jax.random.key(task.config.seed))
    # An encoder that predicts tokens may have an output table too, which classes do not need.
    encoder = {name: params["encoder"][name] for name in drawn["encoder"]}
    return {**drawn, "encoder": encoder}, f"{report}; the scores of the classes start anew"


def new_parameters(task: Task) -> tuple[str, ...]:
    """Names of the parameters that a run draws, though it starts from the weights of another.

    Args:
        task: the init_from of its config set.

    Raises:
        CheckpointError: there is no such run, or it is damaged.
    """
    assert task.config.init_from is not None
    if not isinstance(task, ClassificationTask):
        return ()
    folder, _ = _folder_and_step(task.config.init_from)
    kind = _start_class(type(task), task.config, read_run_config(folder))
    source = kind.load(folder, read_run_config(folder))
    if isinstance(source, ClassificationTask) and source.classes == task.classes:
        return ()
    return tuple(name for name in param_shapes(task) if name != "encoder")


def start_digest(config: ExperimentConfig) -> str:
    """SHA-256 of the weights that a new run starts from, wherever they lie.

    Args:
        config: as `with_start` returns it, its init_from set.
    """
    assert config.init_from is not None
    folder, step = _folder_and_step(config.init_from)
    return checkpoint_fingerprint(folder / CHECKPOINTS / str(step))


def start_fingerprint(config: ExperimentConfig) -> str | None:
    """What the weights that a new run starts from are known by; None where it has none.

    Args:
        config: as `with_start` returns it.
    """
    if config.init_from is None:
        return None
    return f"{config.init_from}, {start_digest(config)}"


def _start_class(
    task: type[Task], config: ExperimentConfig, source: ExperimentConfig
) -> type[Task]:
    """Class that a run is opened with that a task can start from."""
    own, other = ((one.model.architecture, one.data_kind) for one in (config, source))
    if own == other:
        return task
    if own == ("encoder", "labelled") and other == ("encoder", "stream"):
        return MaskedTask
    if own[0] == other[0] == "decoder":
        return task_class(source)
    raise ConfigError(
        f"init_from must be a run of the same kind, or for a classifier a masked language model, "
        f"got {config.init_from}, which holds {task_class(source).kind}, for {task.kind}; choose "
        "another run, or leave init_from out"
    )


def _check_same_model(
    config: ExperimentConfig, source: ExperimentConfig, folder: pathlib.Path
) -> None:
    """Raises ConfigError where the weights would mean something else in the config's model."""
    allowed: tuple[str, ...] = _MAY_DIFFER
    if isinstance(config.model.positions, RotaryConfig):
        allowed += _OF_ROTARY
    if not isinstance(config.model.positions, LearnedConfig):  # whose table has max_len rows
        allowed += ("max_len",)
    if config.model.architecture == "encoder" and config.data_kind != source.data_kind:
        allowed += ("logit_softcap",)  # of logits of tokens, which a classifier does not make
    differences = {
        f"model.{key}": pair
        for key, pair in config_differences(source.model, config.model).items()
        if not _LAYER.sub("", key).startswith(allowed) and not (key in _FILLED and pair[1] is None)
    } | config_differences(source.tokenizer, config.tokenizer, "tokenizer.")
    if differences:
        listed = "; ".join(
            f"{key}: {before!r} there, {after!r} here"
            for key, (before, after) in differences.items()
        )
        raise ConfigError(
            f"init_from needs the model and tokenizer of that run, got {listed}; set them as in "
            f"{folder}/config.toml, or leave init_from out"
        )


def _filled(config: ExperimentConfig, model: ModelConfig) -> ExperimentConfig:
    """The config with what a run's model says of its tables, where it says nothing itself."""
    missing = {
        name: getattr(model, name) for name in _FILLED if getattr(config.model, name) is None
    }
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **missing))

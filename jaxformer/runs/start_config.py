"""Config of a run that starts from another run or from a Hugging Face folder."""

import dataclasses
import pathlib
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from jaxformer.config import (
    ExperimentConfig,
    LearnedConfig,
    RotaryConfig,
    config_differences,
    config_to_toml,
)
from jaxformer.errors import ConfigError
from jaxformer.interop.hub import local_folder
from jaxformer.runs.classification import ClassificationTask
from jaxformer.runs.folder import CHECKPOINTS, is_run, read_run_config
from jaxformer.runs.masked import MaskedTask
from jaxformer.runs.pretrained import Pretrained
from jaxformer.runs.pretrained_tokens import is_pretrained
from jaxformer.runs.task import Task
from jaxformer.runs.trained import task_class
from jaxformer.training import Checkpoints

__all__ = [
    "complete_tables",
    "folder_and_step",
    "read_pretrained",
    "source_folder",
    "start_class",
    "with_start",
]

# Model settings that may differ from those of the weights: how it is computed, and what the new run
# decides.
_MAY_DIFFER = ("dropout_rate", "attention_implementation", "dtype", "remat", "layer_execution",
               "init_std", "num_classes")  # fmt: skip
# Settings that extend rotary positions to longer texts.
_OF_ROTARY = ("positions.base", "positions.scaling")
_LAYER = re.compile(r"(first_)?layers\[\d+\]\.")  # prefix of the keys of a single layer

# Settings that are filled in from the run to start from.
_FILLED = ("vocab_size", "source_vocab_size", "embedding_dim")


def source_folder(config: ExperimentConfig) -> pathlib.Path | None:
    """Folder that a new run starts from; None if it starts from scratch."""
    if config.init_from is None:
        return None
    folder = folder_and_step(config.init_from)[0]
    return local_folder(folder) if is_pretrained(folder) else folder


def folder_and_step(init_from: str) -> tuple[pathlib.Path, int | None]:
    """Splits "FOLDER" or "FOLDER@STEP"."""
    folder, _, step = init_from.rpartition("@")
    if folder and step.isdecimal():
        return pathlib.Path(folder), int(step)
    return pathlib.Path(init_from), None


def complete_tables(values: Mapping[str, Any], init_from: str, out: str) -> dict[str, Any]:
    """Completes the tables "model" and "tokenizer" of a config file that starts from a model.

    Keys of the file override those of the run or Hugging Face folder that it starts from. A resumed
    run keeps its own values.

    Args:
        values: contents of the file.
        init_from: run or Hugging Face folder that the run starts from.
        out: run folder of the config; may exist.

    Returns:
        The completed contents.

    Raises:
        CheckpointError: the run or folder is missing or damaged.
        ConfigError: the folder's model is not supported, or init_from is not a path.
    """
    for name, value in (("init_from", init_from), ("out", out)):
        if not isinstance(value, str):
            raise ConfigError(f"{name} must be a string, got {value!r}")
    folder = folder_and_step(init_from)[0]
    _require_other(folder, out)
    if is_run(pathlib.Path(out)):
        source = read_run_config(pathlib.Path(out))
    elif is_pretrained(folder):
        source = Pretrained.read(folder, dtype="float32", param_dtype="float32").config
    else:
        source = read_run_config(folder)
    tables = tomllib.loads(config_to_toml(source))
    new = [*_MAY_DIFFER]  # decided by the new run or its data
    training = values.get("training")
    if source.model.architecture == "encoder" and source.data_kind == "stream":
        in_rows = isinstance(training, Mapping) and "batch_tokens" in training
        new += _of_token_logits(source) if in_rows else ()
    for key in new:
        tables["model"].pop(key, None)
    own_model = values.get("model", {})
    model = {**tables["model"], **own_model} if isinstance(own_model, Mapping) else own_model
    tokenizer = values.get("tokenizer", tables["tokenizer"])
    return {**values, "model": model, "tokenizer": tokenizer}


def _require_other(folder: pathlib.Path, out: str) -> None:
    """Raises ConfigError if a run would start from itself."""
    if folder.resolve() == pathlib.Path(out).resolve():
        raise ConfigError(
            f"init_from must be another run than out, got {folder} for both; choose another out"
        )


def _of_token_logits(source: ExperimentConfig) -> tuple[str, ...]:
    """Settings of token logits, which a classifier does not have."""
    # With a pooler, head_bias is the bias of the pooler.
    head = ("head_bias",) if source.model.pooler is None else ()
    return ("logit_softcap", "logit_scale", "output_bias", *head)


def with_start(
    config: ExperimentConfig, task: type[Task], resumed: pathlib.Path | None
) -> ExperimentConfig:
    """Completes a config from its steps and the run that it starts from, and checks that they fit.

    Args:
        config: the experiment.
        task: class of the task.
        resumed: run folder to resume. Its recorded values are filled in, and the run that it
            started from is no longer needed. None for a new run.

    Returns:
        The config, with decay_steps, the step in init_from, and the vocabulary sizes.

    Raises:
        ConfigError: the run has another kind of model, or other sizes or tokenizers.
        CheckpointError: the run or the checkpoint is missing.
    """
    before = None if resumed is None else read_run_config(resumed)
    end = None  # a resumed run keeps the end of its decay, unless the start is moved
    if before is not None and before.schedule.decay_start == config.schedule.decay_start:
        end = before.schedule.decay_steps
    schedule = config.schedule.ending_at(end or config.training.steps)
    config = dataclasses.replace(config, schedule=schedule)
    if config.init_from is None:
        return config
    folder, step = folder_and_step(config.init_from)
    if config.out is not None:
        _require_other(folder, config.out)
    if before is not None:
        recorded = before.init_from
        if recorded is not None and step is None:
            if folder_and_step(recorded)[0].resolve() == folder.resolve():
                config = dataclasses.replace(config, init_from=recorded)
        return _filled(config, before)
    source = _source_config(folder, config)
    if is_pretrained(folder) and not issubclass(task, ClassificationTask):
        if read_pretrained(config).opened.kind == "pooled":
            raise ConfigError(
                f"{folder} holds an encoder without a head, from which a classifier can start, got "
                f"{task.kind}; use the folder of a model with a head"
            )
    start_class(task, config, source)
    _check_same_model(config, source, folder)
    if is_pretrained(folder):
        return _filled(config, source)
    with Checkpoints(folder / CHECKPOINTS, read_only=True) as checkpoints:
        step = checkpoints.require_step(step)
    return dataclasses.replace(_filled(config, source), init_from=f"{folder}@{step}")


def _source_config(folder: pathlib.Path, config: ExperimentConfig) -> ExperimentConfig:
    """Config of the run or Hugging Face folder to start from."""
    return read_pretrained(config).config if is_pretrained(folder) else read_run_config(folder)


def read_pretrained(config: ExperimentConfig) -> Pretrained:
    """The Hugging Face folder to start from, with the dtypes of the config."""
    assert config.init_from is not None
    folder, model = folder_and_step(config.init_from)[0], config.model
    return Pretrained.read(folder, dtype=model.dtype, param_dtype=model.param_dtype)


def start_class(task: type[Task], config: ExperimentConfig, source: ExperimentConfig) -> type[Task]:
    """Task class for opening the run that a task starts from; ConfigError if they do not match."""
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
    """Raises ConfigError if the weights do not fit the config's model."""
    allowed: tuple[str, ...] = _MAY_DIFFER
    if isinstance(config.model.positions, RotaryConfig):
        allowed += _OF_ROTARY
    learned = isinstance(config.model.positions, LearnedConfig)  # a table of max_len rows
    if not learned or config.model.max_len <= source.model.max_len:
        allowed += ("max_len",)
    if config.model.architecture == "encoder" and config.data_kind != source.data_kind:
        allowed += (*_of_token_logits(source), "pooling", "pooler")
    of_tokenizer = config_differences(source.tokenizer, config.tokenizer, "tokenizer.")
    if config.tokenizer.kind == "pretrained":
        of_tokenizer = {}
    differences = {
        f"model.{key}": pair
        for key, pair in config_differences(source.model, config.model).items()
        if not _LAYER.sub("", key).startswith(allowed) and not (key in _FILLED and pair[1] is None)
    } | of_tokenizer
    if differences:
        listed = "; ".join(
            f"{key}: {before!r} there, {after!r} here"
            for key, (before, after) in differences.items()
        )
        raise ConfigError(
            f"init_from needs the model and tokenizer of that run, got {listed}; set them as in "
            f"{folder}, or leave these keys out, or leave init_from out"
        )


def _filled(config: ExperimentConfig, source: ExperimentConfig) -> ExperimentConfig:
    """The config, completed with the source's tokenizer and table sizes."""
    missing = {
        name: getattr(source.model, name) for name in _FILLED if getattr(config.model, name) is None
    }
    takes = config.tokenizer.kind == "pretrained"
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, **missing),
        tokenizer=source.tokenizer if takes else config.tokenizer,
    )

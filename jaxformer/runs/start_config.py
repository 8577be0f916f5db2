"""What a run starts from, as its config says it: another run, or a folder of Hugging Face."""

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
    """Folder that a new run starts from; None where it starts from nothing."""
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
    """Fills the tables "model" and "tokenizer" of a config file from what its run starts from.

    A key that the file has stands; the others are those of the run, or of the folder of Hugging
    Face, that it starts from. Of a run that is resumed they are its own.

    Args:
        values: contents of the file.
        init_from: what the run starts from.
        out: run folder of the config, which may be there.

    Returns:
        The contents, completed.

    Raises:
        CheckpointError: there is no such run or folder, or it is damaged.
        ConfigError: the folder's model is not supported, or init_from is no path.
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
    new = [*_MAY_DIFFER]  # what the run says itself, or its data
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
    """Raises ConfigError where a run would start from itself."""
    if folder.resolve() == pathlib.Path(out).resolve():
        raise ConfigError(
            f"init_from must be another run than out, got {folder} for both; choose another out"
        )


def _of_token_logits(source: ExperimentConfig) -> tuple[str, ...]:
    """Settings of logits of tokens, which a classifier does not make."""
    # The bias of the head is that of the pooler, where an encoder has one.
    head = ("head_bias",) if source.model.pooler is None else ()
    return ("logit_softcap", "logit_scale", "output_bias", *head)


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
    folder, step = folder_and_step(config.init_from)
    if config.out is not None:
        _require_other(folder, config.out)
    if resumed is not None:
        before = read_run_config(resumed)
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
                f"{task.kind}; take the folder of a model with the head"
            )
    start_class(task, config, source)
    _check_same_model(config, source, folder)
    if is_pretrained(folder):
        return _filled(config, source)
    with Checkpoints(folder / CHECKPOINTS, read_only=True) as checkpoints:
        step = checkpoints.require_step(step)
    return dataclasses.replace(_filled(config, source), init_from=f"{folder}@{step}")


def _source_config(folder: pathlib.Path, config: ExperimentConfig) -> ExperimentConfig:
    """Config of the run to start from, or what a folder of Hugging Face says of it.

    Its parameters are read in the dtypes of the config.
    """
    return read_pretrained(config).config if is_pretrained(folder) else read_run_config(folder)


def read_pretrained(config: ExperimentConfig) -> Pretrained:
    """The folder of Hugging Face to start from, its parameters in the dtypes of the config."""
    assert config.init_from is not None
    folder, model = folder_and_step(config.init_from)[0], config.model
    return Pretrained.read(folder, dtype=model.dtype, param_dtype=model.param_dtype)


def start_class(task: type[Task], config: ExperimentConfig, source: ExperimentConfig) -> type[Task]:
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
    """The config with the source's tokenizer, and with what its model says of its tables."""
    missing = {
        name: getattr(source.model, name) for name in _FILLED if getattr(config.model, name) is None
    }
    takes = config.tokenizer.kind == "pretrained"
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, **missing),
        tokenizer=source.tokenizer if takes else config.tokenizer,
    )

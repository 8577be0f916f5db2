"""Config and data of a run, completed from the weights that it starts from."""

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from jaxformer.config import ExperimentConfig, config_differences
from jaxformer.config.files import tables_of
from jaxformer.errors import ConfigError
from jaxformer.runs.folder.files import is_run, read_run_config
from jaxformer.runs.tasks import task_class
from jaxformer.runs.tasks.task import Task
from jaxformer.runs.text_models.classifier import Classifier
from jaxformer.runs.text_models.language_model import LanguageModel
from jaxformer.runs.text_models.masked import MaskedModel
from jaxformer.runs.weights.huggingface import HuggingFaceWeights
from jaxformer.runs.weights.run_folder import RunWeights, weight_source
from jaxformer.runs.weights.source import WeightSource
from jaxformer.storage import as_path

# Model settings that may differ from those of the weights: how it is computed, and what the new run
# decides.
_MAY_DIFFER = ("dropout_rate", "attention_implementation", "dtype", "remat", "layer_execution",
               "init_std", "num_classes")  # fmt: skip
# Settings that extend rotary positions to longer texts.
_OF_ROTARY = ("positions.base", "positions.scaling")
_LAYER = re.compile(r"(first_)?layers\[\d+\]\.")  # prefix of the keys of a single layer

# Settings that are filled in from the run to start from.
_FILLED = ("vocab_size", "source_vocab_size", "embedding_dim")


def complete_tables(values: Mapping[str, Any], init_from: str, out: str) -> dict[str, Any]:
    """Completes "model" and "tokenizer" of a config file from what it starts from, or resumes."""
    folder = as_path(str(out))
    source = read_run_config(folder) if is_run(folder) else weight_source(str(init_from)).config
    tables, changes = tables_of(source), values.get("model", {})
    if not isinstance(changes, Mapping):  # the reader says what is wrong
        return {**values}
    new = [*_MAY_DIFFER]  # decided by the new run or its data
    is_masked, training = task_class(source).text_model is MaskedModel, values.get("training", {})
    if is_masked and "batch_tokens" in training:
        new += _token_logit_keys(source)
    model = {name: value for name, value in tables["model"].items() if name not in new}
    tokenizer = values.get("tokenizer", tables["tokenizer"])
    return {**values, "model": {**model, **changes}, "tokenizer": tokenizer}


def _token_logit_keys(source: ExperimentConfig) -> tuple[str, ...]:
    """Settings of token logits, which a classifier does not have."""
    # With a pooler, head_bias is the bias of the pooler.
    head = ("head_bias",) if source.model.pooler is None else ()
    return ("logit_softcap", "logit_scale", "output_bias", *head)


def prepare_task(
    config: ExperimentConfig,
    *,
    task: type[Task] | None = None,
    folder: pathlib.Path | None = None,
) -> Task:
    """Prepares the data of an experiment, as `train_run` does before the first step.

    Args:
        config: the experiment.
        task: task to train; by default the built-in task that the config describes.
        folder: run folder to resume, whose tokenizers are used again.

    Returns:
        The task. Its config includes everything that the data determines. Its `source` are the
        weights that the run starts from, which are not read yet.

    Raises:
        ConfigError: the config is invalid, or does not fit the data or the model of `init_from`.
        CheckpointError: the model of `init_from` is missing or damaged.
        OSError: tokens cannot be written.
        DataError: the data cannot be used, or a sample prompt is too long.
    """
    kind = task_class(config) if task is None else task
    if folder is not None:
        run = RunWeights(folder, None, kind.text_model, config)
        return _prepare_resumed(config, kind, run)
    schedule = config.schedule.ending_at(config.training.steps)
    config = dataclasses.replace(config, schedule=schedule)
    if config.init_from is None:
        return kind.prepare(config)
    source = weight_source(config.init_from, kind.text_model, config)
    _require_same_model(config, kind, source)
    config = dataclasses.replace(_filled(config, source.config), init_from=source.pin())
    return dataclasses.replace(kind.prepare(config, source.model), source=source)


def _prepare_resumed(config: ExperimentConfig, kind: type[Task], run: RunWeights) -> Task:
    """Prepares a run that goes on, which may have been stopped before its first checkpoint."""
    stored, end, source = run.config, config.training.steps, None
    if stored.schedule.decay_start == config.schedule.decay_start:  # it keeps its end, too
        end = stored.schedule.decay_steps or end
    config = dataclasses.replace(config, schedule=config.schedule.ending_at(end))
    if config.init_from is not None:
        # With the recorded step, unless the config has one.
        name, recorded = weight_source(config.init_from).name, stored.init_from or ""
        init_from = recorded if recorded.startswith(f"{name}@") else name
        source = weight_source(init_from, kind.text_model, config)
        config = dataclasses.replace(_filled(config, stored), init_from=init_from)
    return dataclasses.replace(kind.prepare(config, run.model), source=source)


def _require_same_model(config: ExperimentConfig, kind: type[Task], source: WeightSource) -> None:
    """Raises ConfigError if a task cannot start from the parameters of a source."""
    if isinstance(source, HuggingFaceWeights) and not issubclass(kind.text_model, Classifier):
        source.require_head()
    stored, positions = source.config, config.model.positions.kind
    new_model, stored_model = task_class(config).text_model, task_class(stored).text_model
    are_decoders = issubclass(new_model, LanguageModel) and issubclass(stored_model, LanguageModel)
    gets_head = new_model is Classifier and stored_model is MaskedModel
    if new_model is not stored_model and not are_decoders and not gets_head:
        raise ConfigError(
            f"init_from must be a run of the same kind, or for a classifier a masked language "
            f"model, got {config.init_from}, which holds {stored_model.kind}, for "
            f"{kind.text_model.kind}; choose another run, or leave init_from out"
        )
    allowed: tuple[str, ...] = _MAY_DIFFER
    if positions == "rotary":
        allowed += _OF_ROTARY
    if positions != "learned" or config.model.max_len <= stored.model.max_len:  # rows of a table
        allowed += ("max_len",)
    if gets_head:
        allowed += (*_token_logit_keys(stored), "pooling", "pooler")
    differences = {
        f"model.{key}": pair
        for key, pair in config_differences(stored.model, config.model).items()
        if not _LAYER.sub("", key).startswith(allowed) and not (key in _FILLED and pair[1] is None)
    }
    if config.tokenizer.kind != "pretrained":
        differences |= config_differences(stored.tokenizer, config.tokenizer, "tokenizer.")
    if differences:
        listed = "; ".join(
            f"{key}: {before!r} there, {after!r} here"
            for key, (before, after) in differences.items()
        )
        raise ConfigError(
            f"init_from needs the model and tokenizer of that run, got {listed}; set them as in "
            f"{source.path}, or leave these keys out, or leave init_from out"
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

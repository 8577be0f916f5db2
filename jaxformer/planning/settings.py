"""Model and batches of an experiment, without reading its data."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError
from jaxformer.runs import TextModel, task_class
from jaxformer.runs.data.prepare import train_tokenizer


def planned_model(config: ExperimentConfig) -> TextModel:
    """Model of a config, without data; an unknown vocabulary is as large as it can become."""
    model = config.model
    sizes: dict[str, Any] = {"vocab_size": _known(config, "vocab_size")}
    if model.architecture == "encoder_decoder" and not config.tokenizer.joint:
        sizes["source_vocab_size"] = _known(config, "source_vocab_size")
    if model.architecture == "encoder" and not config.data.is_stream and model.num_classes is None:
        raise _only_data_says("the number of classes", "--model.num-classes 5")
    if config.tokenizer.word_vectors is not None and model.embedding_dim is None:
        raise _only_data_says("the width of the word vectors", "--model.embedding-dim 300")
    if model.layer_execution == "auto":
        model = dataclasses.replace(model, layer_execution="scan")  # as on any accelerator
    if model.attention_implementation == "cudnn":  # needs a GPU to be traced; chunked saves as much
        model = dataclasses.replace(
            model, attention_implementation="chunked"
        )  # takes as little memory
    model, schedule = dataclasses.replace(model, **sizes), config.schedule
    schedule = schedule.ending_at(config.training.steps)
    config = dataclasses.replace(config, model=model, schedule=schedule)
    return task_class(config).text_model(config=config, tokenizers=())


def _known(config: ExperimentConfig, key: str) -> int:
    """Number of tokens of a vocabulary."""
    size: int | None = getattr(config.model, key)
    if size is not None:
        return size
    tokenizer = config.tokenizer
    if tokenizer.most_tokens is not None:
        return tokenizer.most_tokens
    if tokenizer.kind == "byte" or tokenizer.path is not None:  # not trained
        added = task_class(config).text_model.added_tokens(config)
        return train_tokenizer(tokenizer, (), (), None, added).vocab_size
    flag = f"--model.{key.replace('_', '-')}"
    raise _only_data_says(f"the vocabulary of a {tokenizer.kind} tokenizer", f"{flag} 256")


def _only_data_says(what: str, flag: str) -> ConfigError:
    return ConfigError(f"a plan reads no data, so it needs {what} from a flag; for example, {flag}")


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


def batch_shapes(config: ExperimentConfig, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Arrays of a batch of rows of max_len tokens, by name."""
    tokens = jax.ShapeDtypeStruct((rows, config.model.max_len), jnp.int32)
    of_rows = jax.ShapeDtypeStruct((rows,), jnp.int32)
    batch: dict[str, Any] = {"tokens": tokens, "labels": tokens}
    if config.model.architecture == "encoder_decoder":
        return batch | {"lengths": of_rows, "source_tokens": tokens, "source_lengths": of_rows}
    if config.model.architecture == "encoder":
        labels = tokens if config.data.is_stream else of_rows
        return batch | {"lengths": of_rows, "labels": labels}
    if config.data.packing == "documents" or config.data_kind == "conversations":
        batch |= {"segment_ids": tokens, "positions": tokens}
    return batch

"""Model of an experiment without its data, the rows of its batches, and its traced gradient."""

import collections
import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError
from jaxformer.flops import count_products
from jaxformer.functional import platforms
from jaxformer.functional.sharding import on_one_device
from jaxformer.runs import TextModel, task_class
from jaxformer.runs.weights.shapes import split_shapes
from jaxformer.runs.weights.trials import combine_of
from jaxformer.training.parallel import check_batch_size
from jaxformer.training.step import checked_loss


def planned_model(config: ExperimentConfig, *, as_configured: bool = False) -> TextModel:
    """Model of a config without data, to be traced on any machine or compiled `as_configured`."""
    changes: dict[str, Any] = {}
    # A scan is traced faster than a loop and keeps as many bytes. Chunked attention keeps as little
    # memory as a kernel, and cuDNN cannot be traced without a GPU.
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
        check_batch_size(training.batch_size, num_shards, training.accumulate_steps)
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


class TracedStep(NamedTuple):
    """FLOPs of both passes of a micro-batch, and bytes kept between them besides parameters."""

    flops: float  # also of what remat computes again; with LoRA, of what its gradients need
    residual_bytes: int


@functools.lru_cache(maxsize=256)
def trace_step(config: ExperimentConfig, rows: int) -> TracedStep:
    """Traces both passes of a micro-batch of some rows on one device; computes nothing."""
    # Automatic attention counts as what runs without a fused kernel. The config may be one device's
    # share of a model, without its mesh.
    model = planned_model(config)
    params, frozen = split_shapes(model)
    loss = checked_loss(model.loss(config.training.label_smoothing), combine_of(config.lora))

    def passes(params: Any, frozen: Any, batch: Any, rng: jax.Array) -> tuple[Any, Any]:
        value, backward = jax.vjp(lambda params: loss(params, batch, rng, frozen)[0], params)
        return jax.tree.leaves(backward), backward(jnp.ones_like(value))

    rng = jax.eval_shape(jax.random.key, 0)
    batch, platform = model.batch_shapes(rows), platforms.default_platform()
    with platforms.compiling_for(platform), on_one_device():
        jaxpr = jax.make_jaxpr(passes)(params, frozen, batch, rng).jaxpr
    residuals = jaxpr.outvars[: -len(jax.tree.leaves(params))]  # the gradients follow
    avals: dict[int, Any] = {id(var): var.aval for var in residuals}  # without duplicates
    shapes = collections.Counter((aval.shape, aval.dtype) for aval in avals.values())
    # Remat keeps its inputs under other names; those that are parameters exist anyway.
    shapes.subtract((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves((params, frozen)))
    num_bytes = sum(
        max(count, 0) * math.prod(shape) * dtype.itemsize
        for (shape, dtype), count in shapes.items()
    )
    return TracedStep(count_products(jaxpr), num_bytes)

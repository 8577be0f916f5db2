"""The traced gradient of a micro-batch: its products, and what it keeps between its passes."""

import collections
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.config import ExperimentConfig
from jaxformer.flops import Flops, count_products
from jaxformer.functional import platforms
from jaxformer.functional.sharding import on_one_device
from jaxformer.planning.settings import planned_model
from jaxformer.runs import TextModel
from jaxformer.runs.weights.lora import combine_of
from jaxformer.runs.weights.memory import split_shapes
from jaxformer.training.step import checked_loss


class TracedStep(NamedTuple):
    """FLOPs of both passes of a micro-batch, and bytes kept between them besides parameters."""

    flops: Flops
    kept: int


@functools.lru_cache(maxsize=256)
def step_of_config(config: ExperimentConfig, rows: int, device_kind: str) -> TracedStep:
    """`trace_step` of the model of a config, remembered.

    The config has no mesh, since it may be one device's share of a model, which no mesh divides.
    A kind of TPU may change what its program computes; "" is for any other device.
    """
    return trace_step(planned_model(config), rows, device_kind)


def trace_step(model: TextModel, rows: int, device_kind: str) -> TracedStep:
    """Traces both passes of a micro-batch of some rows on one device; computes nothing.

    Its FLOPs are what the passes run: also what remat computes again, and with LoRA only what its
    gradients need. Automatic attention counts as what runs without a fused kernel.
    """
    config, (params, frozen) = model.config, split_shapes(model)
    loss = checked_loss(model.loss(config.training.label_smoothing), combine_of(config.lora))

    def passes(params: Any, frozen: Any, batch: Any, rng: jax.Array) -> tuple[Any, Any]:
        value, backward = jax.vjp(lambda params: loss(params, batch, rng, frozen)[0], params)
        return jax.tree.leaves(backward), backward(jnp.ones_like(value))

    rng = jax.eval_shape(jax.random.key, 0)
    batch, platform = model.batch_shapes(rows), platforms.default_platform()
    with platforms.compiling_for(platform, device_kind), on_one_device():
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

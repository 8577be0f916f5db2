"""Bytes that a training step needs on each device, exact or estimated."""

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from jaxformer.config import ExperimentConfig, MeshConfig, ModelConfig
from jaxformer.planning.settings import batch_rows, batch_shapes, planned_model
from jaxformer.runs.weights.lora import combine_of
from jaxformer.runs.weights.memory import split_shapes, state_shapes
from jaxformer.training.parallel import bytes_per_device
from jaxformer.training.step import checked_loss


class MemoryNeeds(NamedTuple):
    """Bytes on each device.

    Args:
        parameters: parameters, exact.
        gradients: gradients of trained parameters, exact; twice if micro-batches are summed.
        optimizer: optimizer state, exact.
        activations: activations, estimated as `memory_needs` says.
        optimizer_on_host: whether the optimizer state is on the device only for its update, when
            there are no activations.
        frozen: the part of the parameters that is not trained.
        average: moving average of the trained parameters, exact.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    optimizer_on_host: bool = False
    frozen: int = 0
    average: int = 0

    @property
    def trained(self) -> int:
        """Parameters that are trained."""
        return self.parameters - self.frozen

    @property
    def state(self) -> int:
        """Bytes that stay between steps."""
        return self.parameters + self.optimizer + self.average

    @property
    def total(self) -> int:
        """Largest number of bytes at a time."""
        held = (self.optimizer, self.activations)
        of_step = max(held) if self.optimizer_on_host else sum(held)
        return self.parameters + self.average + self.gradients + of_step


def state_needs(config: ExperimentConfig, sizes: Mapping[str, int]) -> MemoryNeeds:
    """Bytes of parameters, gradients and optimizer on each device, without activations."""
    model = planned_model(config)
    state, (_, frozen), rules = state_shapes(model), split_shapes(model), config.mesh.rules
    trained = bytes_per_device(state.params, rules, sizes, frozen)
    kept = bytes_per_device(frozen, rules, sizes, state.params)
    average = bytes_per_device(state.average, rules, sizes, state.params, frozen)
    return MemoryNeeds(
        parameters=trained + kept,
        gradients=trained * min(config.training.accumulate_steps, 2),
        optimizer=bytes_per_device(state, rules, sizes, frozen) - trained - average,
        activations=0,
        optimizer_on_host=config.mesh.optimizer_state == "host",
        frozen=kept,
        average=average,
    )


def memory_needs(config: ExperimentConfig, sizes: Mapping[str, int]) -> MemoryNeeds:
    """Bytes that a step needs on each device of a mesh.

    Activations are what the forward pass of a micro-batch keeps for the backward pass, found by
    tracing both with the device's share of rows, heads and widths; with remat, also what one layer
    keeps without it, since the backward pass recomputes one layer at a time. XLA may keep less,
    because it recomputes cheap operations. Automatic attention counts as what keeps the most.

    Args:
        config: the experiment.
        sizes: number of devices along each axis of the mesh.
    """
    config = planned_model(config).config
    shards = sizes["data"] * sizes["fsdp"]
    rows = batch_rows(config, shards) // shards // config.training.accumulate_steps
    own = dataclasses.replace(
        config, mesh=MeshConfig(), model=_part_of_model(config.model, sizes["tensor"])
    )
    activations = _kept(own, rows)
    if config.model.remat != "none":
        plain = dataclasses.replace(own.model, remat="none", layers=(), first_layers=())
        activations += _kept_by_layer(dataclasses.replace(own, model=plain), rows)
    needs = state_needs(config, sizes)
    return needs._replace(activations=activations // sizes["sequence"])


def _part_of_model(model: ModelConfig, parts: int) -> ModelConfig:
    """The part of a model that one device computes, if heads and widths are split."""
    if parts == 1:
        return model
    vocab_size = model.vocab_size
    if vocab_size is not None and vocab_size % parts == 0:
        vocab_size //= parts
    experts = model.experts
    if experts is not None and experts.d_ff is not None:
        experts = dataclasses.replace(experts, d_ff=max(1, experts.d_ff // parts))
    return dataclasses.replace(
        model, experts=experts, vocab_size=vocab_size, num_heads=max(1, model.num_heads // parts),
        num_kv_heads=max(1, model.kv_heads // parts), head_dim=model.key_dim,
        value_head_dim=model.value_dim, d_ff=max(1, model.ff_dim // parts),
    )  # fmt: skip


def _kept_by_layer(config: ExperimentConfig, rows: int) -> int:
    """Bytes that one layer keeps: the difference between two layers and one."""
    one, two = (
        dataclasses.replace(
            config, model=dataclasses.replace(config.model, num_layers=n, num_encoder_layers=None)
        )
        for n in (1, 2)
    )
    of_one = _kept(one, rows)
    share = 2 if config.model.architecture == "encoder_decoder" else 1  # one of each stack
    return max(0, _kept(two, rows) - of_one) // share


@functools.lru_cache(maxsize=256)
def _kept(config: ExperimentConfig, rows: int) -> int:
    """Bytes kept between the passes of a micro-batch, without the parameters."""
    model = planned_model(config)
    loss = checked_loss(model.loss(config.training.label_smoothing), combine_of(config.lora))
    batch = batch_shapes(config, rows)

    def residuals(params: Any, frozen: Any, batch: Any, rng: jax.Array) -> list[jax.Array]:
        _, backward = jax.vjp(lambda params: loss(params, batch, rng, frozen)[0], params)
        return jax.tree.leaves(backward)

    rng = jax.eval_shape(lambda: jax.random.key(0))
    params, frozen = split_shapes(model)
    jaxpr = jax.make_jaxpr(residuals)(params, frozen, batch, rng).jaxpr
    kept: dict[int, Any] = {id(var): var.aval for var in jaxpr.outvars}  # without duplicates
    shapes = collections.Counter((aval.shape, aval.dtype) for aval in kept.values())
    # Remat keeps its inputs under other names; those that are parameters exist anyway.
    shapes.subtract((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves((params, frozen)))
    return sum(
        max(count, 0) * math.prod(shape) * dtype.itemsize
        for (shape, dtype), count in shapes.items()
    )

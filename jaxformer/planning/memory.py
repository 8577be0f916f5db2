"""Bytes that a training step needs on each device, exact or estimated."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from jaxformer.config import ExperimentConfig, MeshConfig, ModelConfig
from jaxformer.planning.settings import batch_rows, planned_model, trace_step
from jaxformer.runs.weights.shapes import param_shapes, split_shapes, state_shapes
from jaxformer.training.parallel import bytes_per_device, num_row_parts


class MemoryNeeds(NamedTuple):
    """Bytes on each device.

    Args:
        parameters: parameters, exact.
        gradients: gradients of trained parameters, exact; twice if micro-batches are summed.
        optimizer: optimizer state, exact.
        activations: activations, estimated as `memory_needs` says.
        frozen: the part of the parameters that is not trained.
        average: moving average of the trained parameters, exact.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    frozen: int = 0
    average: int = 0

    @property
    def trained(self) -> int:
        """Parameters that are trained."""
        return self.parameters - self.frozen

    @property
    def total(self) -> int:
        """Largest number of bytes at a time."""
        return self.parameters + self.average + self.gradients + self.optimizer + self.activations


def state_needs(config: ExperimentConfig, sizes: Mapping[str, int]) -> MemoryNeeds:
    """Bytes of parameters, gradients and optimizer on each device, without activations."""
    model = planned_model(config)
    state, (_, frozen) = state_shapes(model), split_shapes(model)
    trained, frozen_bytes, average = (
        bytes_per_device(part, sizes) for part in (state.params, frozen, state.average)
    )
    return MemoryNeeds(
        parameters=trained + frozen_bytes,
        gradients=trained * min(config.training.accumulate_steps, 2),
        optimizer=bytes_per_device(state, sizes) - trained - average,
        activations=0,
        frozen=frozen_bytes,
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
    shards = num_row_parts(sizes)
    rows = batch_rows(config, shards) // shards // config.training.accumulate_steps
    part = _part_of_model(config.model, sizes["tensor"])
    local_config = dataclasses.replace(config, mesh=MeshConfig(), model=part)
    activations = trace_step(local_config, rows).residual_bytes
    if config.model.remat != "none":
        plain = dataclasses.replace(local_config.model, remat="none", layers=(), first_layers=())
        activations += _kept_by_layer(dataclasses.replace(local_config, model=plain), rows)
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
    one_layer, two_layers = (
        dataclasses.replace(
            config, model=dataclasses.replace(config.model, num_layers=n, num_encoder_layers=None)
        )
        for n in (1, 2)
    )
    num_bytes = [trace_step(layers, rows).residual_bytes for layers in (one_layer, two_layers)]
    return max(0, num_bytes[1] - num_bytes[0]) // _num_layers(
        param_shapes(planned_model(one_layer))
    )


def _num_layers(params: Any) -> int:
    """Number of layers of all stacks, by the shapes of parameters."""
    return sum(
        leaf.shape[0]  # the axis of layers
        for path, leaf in jax.tree.leaves_with_path(params)
        if [entry.key for entry in path[-2:]] == ["attention", "query_kernel"]
    )


def memory_traffic(needs: MemoryNeeds, accumulate_steps: int) -> int:
    """Least number of bytes that a device reads and writes in a step."""
    # Parameters are read in both passes; all else is written and read.
    of_micro_batch = 2 * needs.parameters + 2 * needs.activations
    of_state = needs.trained + needs.optimizer + needs.average
    return accumulate_steps * of_micro_batch + 2 * needs.gradients + 2 * of_state

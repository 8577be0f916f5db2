"""Bytes that a step moves, at least, through memory and between devices, where no compiler says."""

import math
from collections.abc import Iterable, Mapping

import jax.numpy as jnp

from jaxformer.config import ExperimentConfig
from jaxformer.planning.accelerators import Accelerator
from jaxformer.planning.collectives import Collective, total_by_kind
from jaxformer.planning.memory import MemoryNeeds
from jaxformer.training.parallel import runner_kind

__all__ = ["expected_collectives", "memory_traffic", "seconds_of"]


def memory_traffic(needs: MemoryNeeds, accumulate_steps: int) -> int:
    """Bytes that a device reads and writes at least.

    Parameters are read in both passes of each micro-batch, and what the backward pass needs is
    written and read; gradients are written and read, the state is read and written.
    """
    of_micro_batch = 2 * needs.parameters + 2 * needs.activations
    return accumulate_steps * of_micro_batch + 2 * needs.gradients + 2 * needs.state


def expected_collectives(
    config: ExperimentConfig, needs: MemoryNeeds, sizes: Mapping[str, int], rows: int
) -> list[Collective]:
    """Collectives of a step as a mesh needs them: what a program of a GPU should have.

    Gradients are summed over "data"; with "fsdp" parameters are gathered in both passes, and
    gradients summed into parts. Over "tensor" the outputs of attention and of the feed-forward
    layer are summed, and their gradients; over "sequence" keys and values are gathered, and their
    gradients summed into parts. All but data-parallel steps by pmap do so in every micro-batch.

    Args:
        config: the experiment, as of a planned task.
        needs: of a device.
        sizes: number of devices along each axis of the mesh.
        rows: of a batch.
    """
    model, steps = config.model, config.training.accumulate_steps
    # Devices of one host: with several, a data-parallel run has a mesh as well, and sums alike.
    splits = runner_kind(config.training.runner, config.mesh, 1) == "mesh"
    times = steps if splits else 1
    gradients = needs.parameters  # of one micro-batch
    width = jnp.dtype(model.dtype).itemsize
    gathered = gradients * sizes["fsdp"] * width // jnp.dtype(model.param_dtype).itemsize
    shards = sizes["data"] * sizes["fsdp"]
    tokens = rows * model.max_len // (shards * steps)  # of a micro-batch, of a whole sequence
    depth = model.num_layers
    if model.architecture == "encoder_decoder":
        depth += model.encoder.num_layers
    hidden = tokens // sizes["sequence"] * model.d_model * width
    keys = tokens * (model.kv_heads // sizes["tensor"] or 1) * width
    keys *= model.key_dim + model.value_dim
    parts = sizes["sequence"]
    found = [
        Collective("all-reduce", sizes["data"], times, times * gradients),
        Collective("all-gather", sizes["fsdp"], 2 * steps, 2 * steps * gathered),
        Collective("reduce-scatter", sizes["fsdp"], steps, steps * gradients),
        Collective("all-reduce", sizes["tensor"], 4 * depth * steps, 4 * depth * steps * hidden),
        Collective("all-gather", parts, depth * steps, depth * steps * keys),
        Collective("reduce-scatter", parts, depth * steps, depth * steps * keys // parts),
    ]
    return total_by_kind(one for one in found if one.group > 1)


def seconds_of(collectives: Iterable[Collective], accelerator: Accelerator, share: float) -> float:
    """Time of collectives, if nothing else is done meanwhile and all links are used.

    Groups larger than a host go through the network. Smaller ones are taken to be within a host.

    Args:
        collectives: of a step.
        accelerator: whose links there are.
        share: of an accelerator that a device is.
    """
    seconds = []
    for one in collectives:
        within = one.group <= accelerator.devices_per_host
        speed = accelerator.interconnect if within else accelerator.network
        seconds.append(one.traffic / (speed * share))
    return math.fsum(seconds)

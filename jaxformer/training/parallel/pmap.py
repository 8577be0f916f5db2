"""Data-parallel steps with `jax.pmap`: every device holds all parameters."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from einops import rearrange
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxformer.errors import ConfigError
from jaxformer.training.parallel.runner import Runner, num_hosts


class PmapRunner(Runner):
    """Runs steps data-parallel with `jax.pmap`: every device holds all parameters.

    The rows of a batch are split evenly over the devices; the state is replicated.

    Args:
        devices: devices of one host; all when not given.

    Raises:
        ConfigError: the devices are on several hosts.

    Example:
        >>> PmapRunner(jax.local_devices()[:1]).axis_name
        'batch'
    """

    axis_name: str = "batch"

    def __init__(self, devices: Sequence[jax.Device] | None = None) -> None:
        devices = list(devices) if devices is not None else jax.devices()
        if num_hosts(devices) > 1:
            raise ConfigError(
                f"pmap needs devices of one host, got {num_hosts(devices)} hosts; choose the "
                "runner 'mesh', or in Python, MeshRunner()"
            )
        # The layout that pmap returns; with any other, the second step would recompile.
        mesh = Mesh(np.asarray(devices), (self.axis_name,))
        super().__init__(devices, NamedSharding(mesh, PartitionSpec()))
        self.num_shards = self.num_local_shards = len(devices)

    def put(self, batch: Any) -> Any:
        """Splits the rows of a batch over the local devices; a tuple, see `_compiled`."""
        count = len(self._devices)
        return (jax.tree.map(lambda x: rearrange(x, "(d b) ... -> d b ...", d=count), batch),)

    def template(self, shapes: Any) -> Any:
        """Shapes of a pytree of state, for `Program.lower`; every device holds all of it."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), shapes)

    def batch_template(self, shapes: Any) -> Any:
        """Splits the shapes of a global batch over the devices, for `Program.lower`."""
        count = self.num_devices
        split = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                (count, leaf.shape[0] // count, *leaf.shape[1:]), leaf.dtype
            ),
            shapes,
        )
        return (split,)

    def _compiled(self, step: Callable[..., Any], **options: Any) -> Any:
        """Pmaps a function of a replicated, a split and a replicated pytree to a replicated one."""

        def step_of_split(tree: Any, batch: tuple[Any], rest: Any) -> Any:
            return step(tree, *batch, rest)

        # The batch is in a tuple because pmap (jax 0.11, 0.12) takes axes that are all numbers for
        # those of the arrays wherever there happen to be as many arrays as arguments.
        return jax.pmap(
            step_of_split, axis_name=self.axis_name, in_axes=(None, (0,), None), out_axes=None,
            devices=self._devices, **options,
        )  # fmt: skip

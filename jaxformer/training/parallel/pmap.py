"""Data-parallel steps with `jax.pmap`: every device holds all parameters."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxformer.errors import ConfigError
from jaxformer.text import Host
from jaxformer.training.parallel.checksums import checksum_range, drifted
from jaxformer.training.parallel.devices import least_memory, num_hosts, one_at_a_time
from jaxformer.training.parallel.program import Program
from jaxformer.training.parallel.single import num_bytes

__all__ = ["PmapRunner"]


class PmapRunner:
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
    num_sequence_parts: int = 1
    num_hosts: int = 1
    has_all_params: bool = True
    host: Host = Host()

    def __init__(self, devices: Sequence[jax.Device] | None = None) -> None:
        self._devices = list(devices) if devices is not None else jax.devices()
        if num_hosts(self._devices) > 1:
            raise ConfigError(
                f"pmap needs devices of one host, got {num_hosts(self._devices)} hosts; choose the "
                "runner 'mesh', or in Python, MeshRunner()"
            )
        self.num_devices = self.num_local_devices = len(self._devices)
        self.num_shards = self.num_local_shards = len(self._devices)
        mesh = Mesh(np.asarray(self._devices), (self.axis_name,))
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._checksum_ranges = self._pmap(functools.partial(_checksum_ranges, self.axis_name))

    @property
    def memory(self) -> int:
        """Bytes of memory per device."""
        return least_memory(self._devices)

    def num_bytes(self, shapes: Any, *others: Any) -> int:
        """Bytes of a pytree of parameters or state on each device; ignores `others`."""
        return num_bytes(shapes)

    def create(self, make: Callable[[Any], Any], start: Any, *others: Any) -> Any:
        """Computes the state `make(start)` by one program, and places it; ignores `others`."""
        return self.place(jax.jit(make)(start))

    def place(self, tree: Any) -> Any:
        """Copies a pytree to the local devices; a copy, because steps donate their state.

        The layout is the one that pmap returns; with any other, the second step would recompile.
        """
        return self.place_frozen(jax.tree.map(jnp.copy, tree))

    def place_frozen(self, tree: Any) -> Any:
        """Places a pytree that no step changes; a device that has it gets no copy."""
        return jax.device_put(tree, self._replicated)

    def _split(self, batch: Any) -> Any:
        """Splits the rows of a batch over the local devices."""
        count = len(self._devices)
        return jax.tree.map(lambda x: rearrange(x, "(d b) ... -> d b ...", d=count), batch)

    def template(self, shapes: Any) -> Any:
        """Shapes of a pytree of state, for `Program.lower`; every device holds all of it."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), shapes)

    def batch_template(self, shapes: Any) -> Any:
        """Splits the shapes of a global batch over the devices, for `Program.lower`."""
        count = self.num_devices
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                (count, leaf.shape[0] // count, *leaf.shape[1:]), leaf.dtype
            ),
            shapes,
        )

    def compile_train(self, step: Callable[..., Any], frozen: Any = None) -> Program:
        """Makes a program of a training step of (state, batch), which donates the state.

        Args:
            step: the step; with frozen parameters, a function of (state, batch, frozen).
            frozen: frozen parameters from `place_frozen`, if any.
        """
        return self._program(step, frozen, donate_argnums=0)

    def compile_eval(self, step: Callable[..., Any], frozen: Any = None) -> Program:
        """Makes a program of an evaluation step of (params, batch), or (params, batch, frozen)."""
        return self._program(step, frozen)

    def _program(self, step: Callable[..., Any], frozen: Any, **options: Any) -> Program:
        function = self._pmap(step, has_frozen=frozen is not None, **options)
        return Program(function, self._split, one_at_a_time(self._devices), frozen=frozen)

    def _pmap(
        self, function: Callable[..., Any], *, has_frozen: bool = False, **options: Any
    ) -> Callable[..., Any]:
        """Pmaps a function of a replicated and a split pytree to a replicated result."""
        in_axes = (None, 0, None) if has_frozen else (None, 0)
        return jax.pmap(
            function, axis_name=self.axis_name, in_axes=in_axes, out_axes=None,
            devices=self._devices, **options,
        )  # fmt: skip

    def check_replicas(self, tree: Any) -> None:
        """Raises TrainingError if the devices' copies differ in any bit; pmap never checks."""
        # pmap needs an argument that is split over the devices; the zeros are not used.
        if np.asarray(self._checksum_ranges(tree, np.zeros(len(self._devices)))).any():
            raise drifted()

    def on_one_host(self, params: Any) -> Any:
        """Returns parameters on one local device, without copying."""
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), params)


def _checksum_ranges(axis_name: str, tree: Any, _: jax.Array) -> jax.Array:
    """Range of the checksums of each leaf over the devices; 0 where they agree."""
    return jnp.stack([checksum_range(leaf, axis_name) for leaf in jax.tree.leaves(tree)])

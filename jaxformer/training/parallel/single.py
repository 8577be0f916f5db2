"""Steps on one device."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.memory import device_memory
from jaxformer.text import Host
from jaxformer.training.parallel.program import Program

__all__ = ["SingleRunner", "num_bytes"]


class SingleRunner:
    """Runs steps on one device, without any collective.

    Args:
        device: the device; JAX's default when not given.

    Example:
        >>> runner = SingleRunner()
        >>> runner.axis_name, runner.num_devices
        (None, 1)
    """

    axis_name: str | None = None
    num_devices: int = 1
    num_local_devices: int = 1
    num_shards: int = 1
    num_local_shards: int = 1
    num_sequence_parts: int = 1
    num_hosts: int = 1
    has_all_params: bool = True
    host: Host = Host()

    def __init__(self, device: jax.Device | None = None) -> None:
        self._device = device or jax.local_devices()[0]

    @property
    def memory(self) -> int:
        """Bytes of memory of the device."""
        return device_memory(self._device)

    def num_bytes(self, shapes: Any, *others: Any) -> int:
        """Bytes of a pytree of parameters or state; ignores `others`."""
        return num_bytes(shapes)

    def create(self, make: Callable[[Any], Any], start: Any, *others: Any) -> Any:
        """Computes the state `make(start)` by one program, and places it; ignores `others`."""
        return self.place(jax.jit(make)(start))

    def place(self, tree: Any) -> Any:
        """Copies a pytree to the device; a copy, because steps donate their state."""
        return self.place_frozen(jax.tree.map(jnp.copy, tree))

    def place_frozen(self, tree: Any) -> Any:
        """Places a pytree that no step changes; leaves already on the device are not copied."""
        return jax.device_put(tree, self._device)

    def template(self, shapes: Any) -> Any:
        """Adds the device to a pytree of `jax.ShapeDtypeStruct`s, as a template for restoring."""
        sharding = jax.sharding.SingleDeviceSharding(self._device)
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes
        )

    def batch_template(self, shapes: Any) -> Any:
        """Adds the device to the shapes of a batch, for `Program.lower`."""
        return self.template(shapes)

    def compile_train(self, step: Callable[..., Any], frozen: Any = None) -> Program:
        """Makes a program of a training step of (state, batch), which donates the state.

        Args:
            step: the step; with frozen parameters, a function of (state, batch, frozen).
            frozen: frozen parameters from `place_frozen`, if any.
        """
        return Program(jax.jit(step, donate_argnums=0), self._put, frozen=frozen)

    def compile_eval(self, step: Callable[..., Any], frozen: Any = None) -> Program:
        """Makes a program of an evaluation step of (params, batch), or (params, batch, frozen)."""
        return Program(jax.jit(step), self._put, frozen=frozen)

    def _put(self, batch: Any) -> Any:
        return jax.device_put(batch, self._device)

    def check_replicas(self, tree: Any) -> None:
        """Does nothing, because there is only one copy."""

    def on_one_host(self, params: Any) -> Any:
        """Returns the parameters unchanged."""
        return params


def num_bytes(shapes: Any) -> int:
    """Bytes of a pytree of arrays or shapes; as Python integers, which do not overflow."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))

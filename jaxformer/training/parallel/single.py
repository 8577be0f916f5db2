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
        """Bytes that there are for the device."""
        return device_memory(self._device)

    def num_bytes(self, shapes: Any, *others: Any) -> int:
        """Bytes that a pytree of parameters or state takes on the device, whatever others take."""
        return num_bytes(shapes)

    def create(self, make: Callable[[Any], Any], start: Any, *others: Any) -> Any:
        """Computes a pytree of state by one program, and places it.

        Args:
            make: function of `start` to the state.
            start: PRNG key, or parameters.
            *others: the model's frozen parameters, which are not placed here.
        """
        return self.place(jax.jit(make)(start))

    def place(self, tree: Any) -> Any:
        """Copies a pytree to the device. A copy, because steps donate their state."""
        return self.place_frozen(jax.tree.map(jnp.copy, tree))

    def place_frozen(self, tree: Any) -> Any:
        """Places a pytree that no step changes: without a copy, where it is on the device."""
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
        """Makes a program of a training step of (state, batch); the state passed in is donated.

        Args:
            step: the step; where there are frozen parameters, of (state, batch, frozen).
            frozen: these, from `place_frozen`.
        """
        return Program(jax.jit(step, donate_argnums=0), self._put, frozen=frozen)

    def compile_eval(self, step: Callable[..., Any], frozen: Any = None) -> Program:
        """Makes a program of an evaluation step of (params, batch), or (params, batch, frozen)."""
        return Program(jax.jit(step), self._put, frozen=frozen)

    def _put(self, batch: Any) -> Any:
        return jax.device_put(batch, self._device)

    def check_replicas(self, tree: Any) -> None:
        """Does nothing: there is one copy."""

    def on_one_host(self, params: Any) -> Any:
        """Returns parameters on one device, where they are."""
        return params


def num_bytes(shapes: Any) -> int:
    """Bytes of a pytree of arrays or shapes; in Python's integers, which do not overflow."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))

"""Runners compile and run steps on devices; no other file names pmap, a mesh or a process."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxformer.errors import ConfigError, TrainingError
from jaxformer.memory import device_memory
from jaxformer.text import Host

__all__ = [
    "PmapRunner",
    "Program",
    "Runner",
    "SingleRunner",
    "is_first_process",
    "make_runner",
    "split_cpu",
    "wait_for_processes",
]


def is_first_process() -> bool:
    """Tells whether this is the process that writes files for all."""
    return jax.process_index() == 0


def wait_for_processes(reason: str) -> None:
    """Waits until every process of the job has come here.

    Args:
        reason: what for; the same in every process.
    """
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(reason)


def split_cpu(count: int) -> None:
    """Splits this machine's CPU into `count` virtual devices; call it before JAX starts.

    Args:
        count: number of virtual devices.

    Raises:
        ConfigError: JAX has already started with another number.
    """
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX has started; that is no error with the same number
        if len(jax.local_devices(backend="cpu")) != count:
            raise ConfigError(
                f"training.cpu_devices={count} must be set before JAX starts, which has "
                f"{len(jax.local_devices(backend='cpu'))} CPU devices already"
            ) from None


class Program:
    """A step on devices, compiled once for each shape of batch: a function of (tree, batch).

    Compiling is a call of its own for who wants to be between it and the step, which takes the
    state away. Calling compiles, too, where that was not done.

    Args:
        function: result of `jax.jit` or `jax.pmap`.
        put: from a batch to what the function takes.
        finish: what is done with its result.
    """

    def __init__(
        self, function: Any, put: Callable[[Any], Any], finish: Callable[[Any], Any] = lambda x: x
    ) -> None:
        self._function, self._put, self._finish = function, put, finish
        self._compiled: set[Any] = set()

    def is_compiled(self, batch: Any) -> bool:
        """Tells whether `compile` was called for a batch of this shape."""
        return _shapes(batch) in self._compiled

    def compile(self, tree: Any, batch: Any) -> None:
        """Compiles for the shapes of a batch; JAX keeps the result, and a call then uses it."""
        self._function.lower(tree, self._put(batch)).compile()
        self._compiled.add(_shapes(batch))

    def __call__(self, tree: Any, batch: Any) -> Any:
        """Runs the step."""
        return self._finish(self._function(tree, self._put(batch)))


def _shapes(batch: Any) -> Any:
    """What a program is compiled for: structure, shapes and dtypes of a batch."""
    leaves, structure = jax.tree.flatten(batch)
    return structure, tuple((np.shape(leaf), leaf.dtype) for leaf in leaves)


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
    host: Host = Host()

    def __init__(self, device: jax.Device | None = None) -> None:
        self._device = device or jax.local_devices()[0]

    @property
    def memory(self) -> int:
        """Bytes that there are for the device."""
        return device_memory(self._device)

    def place(self, tree: Any) -> Any:
        """Copies a pytree to the device. A copy, because steps donate their state."""
        return jax.device_put(jax.tree.map(jnp.copy, tree), self._device)

    def template(self, shapes: Any) -> Any:
        """Adds the device to a pytree of `jax.ShapeDtypeStruct`s, as a template for restoring."""
        sharding = jax.sharding.SingleDeviceSharding(self._device)
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes
        )

    def compile_train(self, step: Callable[..., Any]) -> Program:
        """Makes a program of a training step of (state, batch); the state passed in is donated."""
        return Program(jax.jit(step, donate_argnums=0), self._put)

    def compile_eval(self, step: Callable[..., Any]) -> Program:
        """Makes a program of an evaluation step of (params, batch)."""
        return Program(jax.jit(step), self._put)

    def _put(self, batch: Any) -> Any:
        return jax.device_put(batch, self._device)

    def check_replicas(self, tree: Any) -> None:
        """Does nothing: there is one copy."""

    def one_copy(self, tree: Any) -> Any:
        """Returns a pytree of state on one device: the same pytree."""
        return tree


class PmapRunner:
    """Runs steps data-parallel with `jax.pmap`: every device holds all parameters.

    A batch's rows are cut evenly over the devices; state goes in and comes out replicated.

    Args:
        devices: devices to use; all devices of all hosts when not given.

    Example:
        >>> PmapRunner(jax.local_devices()[:1]).axis_name
        'batch'
    """

    axis_name: str = "batch"

    def __init__(self, devices: Sequence[jax.Device] | None = None) -> None:
        self._devices = list(devices) if devices is not None else jax.devices()
        self._local = [d for d in self._devices if d.process_index == jax.process_index()]
        self.num_devices = len(self._devices)
        self.num_local_devices = len(self._local)
        # A runner on one host's devices has a whole run, even where there are other processes.
        num_hosts = len({device.process_index for device in self._devices})
        self.host = Host(jax.process_index() if num_hosts > 1 else 0, num_hosts)
        mesh = Mesh(np.asarray(self._local), (self.axis_name,))
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._checksum_ranges = self._pmap(functools.partial(_checksum_range, self.axis_name))

    @property
    def memory(self) -> int:
        """Bytes that there are for each device; virtual ones share the memory of the host."""
        shared = len(self._local) if self._local[0].platform == "cpu" else 1
        return min(map(device_memory, self._local)) // shared

    def place(self, tree: Any) -> Any:
        """Copies a pytree to the local devices, in the layout that pmap returns.

        With any other layout the second step would compile anew. A copy, because steps donate
        their state.
        """
        return jax.device_put(jax.tree.map(jnp.copy, tree), self._replicated)

    def _block_on_cpu(self, result: Any) -> Any:
        """Waits for a program on several virtual CPU devices, so that two never run at a time.

        Virtual devices share one pool of threads, in which a device at a collective waits for the
        others. Two programs in flight, such as two evaluation batches, can fill the pool with
        waiting devices: a deadlock.
        """
        if len(self._local) > 1 and self._local[0].platform == "cpu":
            return jax.block_until_ready(result)
        return result

    def _split(self, batch: Any) -> Any:
        """Splits the rows of a batch over the local devices."""
        count = len(self._local)
        return jax.tree.map(lambda x: rearrange(x, "(d b) ... -> d b ...", d=count), batch)

    def compile_train(self, step: Callable[..., Any]) -> Program:
        """Makes a program of a training step of (state, batch); the state passed in is donated."""
        return Program(self._pmap(step, donate_argnums=0), self._split, self._block_on_cpu)

    def compile_eval(self, step: Callable[..., Any]) -> Program:
        """Makes a program of an evaluation step of (params, batch)."""
        return Program(self._pmap(step), self._split, self._block_on_cpu)

    def _pmap(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """Pmaps a function of a replicated and a split pytree, whose result is replicated."""
        return jax.pmap(
            function, axis_name=self.axis_name, in_axes=(None, 0), out_axes=None,
            devices=self._devices, **options,
        )  # fmt: skip

    def check_replicas(self, tree: Any) -> None:
        """Checks that all devices hold the same bits, which pmap itself never does.

        Args:
            tree: pytree of replicated arrays.

        Raises:
            TrainingError: two devices differ.
        """
        # pmap wants an argument that is split over the devices; the zeros are not used.
        if np.asarray(self._checksum_ranges(tree, np.zeros(len(self._local)))).any():
            raise TrainingError(
                "the devices' copies of the parameters have drifted apart; a value that differs "
                "by device was not reduced, or a device computes wrongly"
            )

    def one_copy(self, tree: Any) -> Any:
        """Returns a pytree of state on one local device, without copying."""
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


Runner = SingleRunner | PmapRunner


def _checksum_range(axis_name: str, tree: Any, _: jax.Array) -> jax.Array:
    """Largest minus smallest checksum over the devices, of each leaf; 0 where they agree."""
    sums = jnp.stack([_checksum(leaf) for leaf in jax.tree.leaves(tree)])
    return jax.lax.pmax(sums, axis_name) - jax.lax.pmin(sums, axis_name)


def _checksum(leaf: jax.Array) -> jax.Array:
    """Sum of an array's bits as uint32; unlike floats, it compares NaNs, and 0 with -0."""
    width = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[leaf.dtype.itemsize]
    return jax.lax.bitcast_convert_type(leaf, width).astype(jnp.uint32).sum(dtype=jnp.uint32)


def make_runner(
    kind: str, *, devices: int | None, batch_size: int | None, accumulate_steps: int
) -> Runner:
    """Creates the runner of a config.

    Args:
        kind: "pmap" or "single".
        devices: number of local devices to use; all when None.
        batch_size: global rows per step, to check that they divide over devices and micro-batches;
            None where the number differs by batch, and is checked with each.
        accumulate_steps: micro-batches per step.

    Returns:
        The runner.

    Raises:
        ConfigError: there are not so many devices, or the batch does not divide.

    Example:
        >>> make_runner("single", devices=None, batch_size=4, accumulate_steps=2).num_devices
        1
    """
    available = jax.local_device_count()
    if devices is not None and devices > available:
        raise ConfigError(f"training.devices={devices}, but this machine has {available}")
    if devices is not None and jax.process_count() > 1:
        raise ConfigError(
            f"training.devices={devices} is for one host, got {jax.process_count()}; remove it"
        )
    if kind == "single":
        return SingleRunner()
    runner = PmapRunner(None if devices is None else jax.local_devices()[:devices])
    parts = runner.num_devices * accumulate_steps
    if batch_size is not None and batch_size % parts:
        raise ConfigError(
            f"training.batch_size must be a multiple of devices * accumulate_steps = "
            f"{runner.num_devices} * {accumulate_steps}, got {batch_size}; change one of them, or "
            "set training.devices"
        )
    return runner

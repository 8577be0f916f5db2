"""Programs and runners: steps compiled and run on devices, here on one of them."""

import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from jaxformer.accelerators import Accelerator, accelerator_of
from jaxformer.errors import ConfigError
from jaxformer.flops import count_model_flops
from jaxformer.memory import device_memory, peak_memory
from jaxformer.text import Host

_turn = threading.Lock()  # of this process, because all runners share its devices


class Program:
    """A step on devices: a function of ``(tree, batch, *rest)``, compiled once per batch shape."""

    def __init__(self, function: Any, runner: "Runner") -> None:
        self._function, self._runner = function, runner
        self._compiled: dict[Any, Any] = {}
        self._model_flops: dict[Any, float] = {}

    def is_compiled(self, batch: Any) -> bool:
        """Whether `compile` was called for a batch of this shape."""
        return _shapes(batch) in self._compiled

    # Separate, so that a caller can be interrupted before the step takes the state away.
    def compile(self, tree: Any, batch: Any, *rest: Any) -> None:
        """Compiles for the shapes of a batch; JAX caches the result for later calls."""
        with self._runner.context():
            lowered = self._function.lower(tree, self._runner.put(batch), rest)
            self._compiled[_shapes(batch)] = lowered.compile()

    def texts(self) -> list[str]:
        """The compiled programs as XLA writes them, one for each batch shape."""
        return [compiled.as_text() for compiled in self._compiled.values()]

    def count_flops(self, tree: Any, batch: Any, *rest: Any) -> None:
        """Counts the model FLOPs of a step for the shapes of a batch, by tracing it."""
        with self._runner.context(), contextlib.suppress(ConfigError):  # a loop of unknown length
            self._model_flops[_shapes(batch)] = count_model_flops(
                self._function, tree, self._runner.put(batch), rest
            )

    def model_flops(self, batch: Any) -> float | None:
        """Model FLOPs of a step on all devices, if they were counted and can be."""
        return self._model_flops.get(_shapes(batch)) if self._model_flops else None

    def lower(self, tree: Any, batch: Any, *rest: Any) -> Any:
        """Lowers the step for shapes of the runner's templates, even of devices not here."""
        with self._runner.context():
            return self._function.lower(tree, batch, rest)

    def __call__(self, tree: Any, batch: Any, *rest: Any) -> Any:
        """Runs the step."""
        if not self.is_compiled(batch):
            self.compile(tree, batch, *rest)
        with self._runner.context():
            return self._runner.run(self._function, tree, self._runner.put(batch), rest)


def _shapes(batch: Any) -> Any:
    """Structure, shapes and dtypes of a batch, which determine the compiled program."""
    leaves, structure = jax.tree.flatten(batch)
    return structure, tuple((np.shape(leaf), leaf.dtype) for leaf in leaves)


class Runner:
    """Compiles and runs steps; by default, each device of one host holds all parameters."""

    axis_name: str | None = None  # mapped axis that a step sums over
    num_shards: int = 1  # parts that the rows of a batch are split into
    num_local_shards: int = 1
    num_sequence_parts: int = 1  # parts of each row
    has_all_params: bool = True  # on each device
    host: Host = Host()  # which rows are this host's

    def __init__(self, devices: Sequence[jax.Device], whole: Sharding) -> None:
        self._devices = list(devices)
        self._local = [d for d in self._devices if d.process_index == jax.process_index()]
        self._whole = whole  # sharding of what every device holds
        self.num_devices, self.num_local_devices = len(self._devices), len(self._local)
        self.num_hosts = num_hosts(self._devices)
        # Virtual CPU devices share one thread pool, where a device at a collective waits for the
        # others. Two programs in flight, such as two evaluation batches, can fill it with waiting
        # ones, and then wait for each other forever.
        self._can_deadlock = len(self._local) > 1 and self._local[0].platform == "cpu"

    @property
    def memory(self) -> int:
        """Bytes of memory per device; virtual CPU devices share the memory of their host."""
        shared = len(self._local) if self._local[0].platform == "cpu" else 1
        return min(map(device_memory, self._local)) // shared

    @property
    def accelerator(self) -> Accelerator | None:
        """Accelerator of the devices; None for CPUs and for unlisted ones."""
        return accelerator_of(self._devices[0])

    @property
    def peak_memory(self) -> int | None:
        """Most bytes in use on a local device so far; None if the devices do not report it."""
        return max(filter(None, map(peak_memory, self._local)), default=None)

    def num_bytes(self, shapes: Any) -> int:
        """Bytes of parameters or state on each device."""
        return num_bytes(shapes)

    def create(self, make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Computes the state `make(*arguments)` by one program, and places it."""
        return self.place(jax.jit(make)(*arguments))

    def place(self, tree: Any) -> Any:
        """Copies a pytree to the devices; a copy, because steps donate their state."""
        return self.place_frozen(jax.tree.map(jnp.copy, tree))

    def place_frozen(self, tree: Any) -> Any:
        """Places a pytree that no step changes; leaves already in place are not copied."""
        return jax.device_put(tree, self._whole)

    def template(self, shapes: Any) -> Any:
        """Adds shardings to a pytree of `jax.ShapeDtypeStruct`s, as a template for restoring."""
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            shapes, self._shardings(shapes),
        )  # fmt: skip

    def _shardings(self, tree: Any) -> Any:
        """Shardings of a pytree between steps."""
        return jax.tree.map(lambda _: self._whole, tree)

    def batch_template(self, shapes: Any) -> Any:
        """Shapes of a global batch, for `Program.lower`."""
        return self.template(shapes)

    def compile_train(self, step: Callable[..., Any]) -> Program:
        """Program of a training step ``(state, batch, *rest)``; the state is donated."""
        return self._program(step, donate_argnums=0)

    def compile_eval(self, step: Callable[..., Any]) -> Program:
        """Makes a program of an evaluation step of ``(params, batch, *rest)``."""
        return self._program(step)

    def _program(self, step: Callable[..., Any], **options: Any) -> Program:
        def step_of_rest(tree: Any, batch: Any, rest: tuple[Any, ...]) -> Any:
            return step(tree, batch, *rest)

        function = self._compiled(step_of_rest, **options)
        return Program(function, self)

    def _compiled(self, step: Callable[..., Any], **options: Any) -> Any:
        return jax.jit(step, **options)

    def put(self, batch: Any) -> Any:
        """Places this host's rows of a batch for a program."""
        return jax.device_put(batch, self._whole)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a compiled function, alone and until its result is there if it could deadlock."""
        if not self._can_deadlock:
            return function(*args)
        with _turn:
            return jax.block_until_ready(function(*args))

    def context(self) -> AbstractContextManager[Any]:
        """Context in which programs are traced and called."""
        return contextlib.nullcontext()

    def take(self, tree: Any, index: int) -> Any:
        """One run's part of a pytree of all runs; only `TogetherRunner` has several."""
        return tree

    def join(self, trees: Sequence[Any]) -> Any:
        """A pytree of all runs, from one for each run."""
        return trees[0]

    def on_one_host(self, params: Any) -> Any:
        """Returns parameters on one local device, without copying."""
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), params)


class SingleRunner(Runner):
    """Runs steps on one device, without any collective.

    Args:
        device: the device; JAX's default when not given.

    Example:
        >>> runner = SingleRunner()
        >>> runner.axis_name, runner.num_devices
        (None, 1)
    """

    def __init__(self, device: jax.Device | None = None) -> None:
        device = device or jax.local_devices()[0]
        super().__init__([device], SingleDeviceSharding(device))


def num_bytes(shapes: Any) -> int:
    """Bytes of a pytree of arrays or shapes; as Python integers, which do not overflow."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def num_hosts(devices: Sequence[jax.Device]) -> int:
    """Number of hosts that the devices are on."""
    return len({device.process_index for device in devices})

"""Steps on a mesh of devices, which splits parameters, rows and tokens."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxformer.config import MESH_AXES, MeshConfig
from jaxformer.errors import ShapeError
from jaxformer.training.parallel.layout import (
    BATCH_SPEC,
    ROW_AXES,
    axis_sizes,
    num_row_parts,
    share_of_host,
)
from jaxformer.training.parallel.placement import bytes_per_device, partition_specs
from jaxformer.training.parallel.runner import Program, Runner

# Mesh axes of activations, by the axis names that modules use.
_ACTIVATIONS = (
    ("batch", ROW_AXES), ("sequence", "sequence"), ("heads", "tensor"), ("mlp", "tensor"),
    ("experts", "expert"),
)  # fmt: skip


class MeshRunner(Runner):
    """Runs steps by `jax.jit` on a mesh of devices, for models that outgrow one device.

    The step is that of a single device: XLA partitions it according to the sharding of parameters
    and batches, and inserts the communication. Dropout is the same as on a single device, unless
    ring attention serves the model, which reorders tokens and drops weights block by block.

    Args:
        config: axes of the mesh; data-parallel when not given.
        devices: devices to use; all devices of all hosts when not given.

    Raises:
        ConfigError: the product of the axes is not the number of devices, or hosts have unequal
            parts.

    Example:
        >>> runner = MeshRunner(MeshConfig(fsdp=1), jax.local_devices()[:1])
        >>> runner.sizes
        {'data': 1, 'fsdp': 1, 'expert': 1, 'sequence': 1, 'tensor': 1}
    """

    def __init__(
        self, config: MeshConfig | None = None, devices: Sequence[jax.Device] | None = None
    ) -> None:
        config = config or MeshConfig()
        devices = list(devices) if devices is not None else jax.devices()
        self.sizes = axis_sizes(config, len(devices))
        self._config = config
        self._mesh = jax.make_mesh(
            tuple(self.sizes.values()), MESH_AXES, devices=devices,
            axis_types=(AxisType.Auto,) * len(MESH_AXES),
        )  # fmt: skip
        super().__init__(devices, NamedSharding(self._mesh, PartitionSpec()))
        self.num_shards = num_row_parts(self.sizes)
        self.num_sequence_parts = self.sizes["sequence"]
        self.has_all_params = not any(self.sizes[axis] > 1 for axis in ("fsdp", "expert", "tensor"))
        self.host, self._own_shards = share_of_host(
            self._mesh.devices.reshape(self.num_shards, -1), jax.process_index()
        )
        self.num_local_shards = len(self._own_shards)

    @classmethod
    def for_inference(cls, trained_on: MeshConfig, devices: Sequence[jax.Device]) -> "MeshRunner":
        """Creates a runner that splits parameters over devices of one host.

        They are split as in training, but experts by "fsdp", or, if there are too few devices,
        by "fsdp" over all.
        """
        fsdp, tensor = trained_on.fsdp * trained_on.expert, trained_on.tensor
        if not 1 < fsdp * tensor <= len(devices):
            fsdp, tensor = len(devices), 1
        config = MeshConfig(data=1, fsdp=fsdp, tensor=tensor)
        return cls(config, devices[: fsdp * tensor])

    def num_bytes(self, shapes: Any) -> int:
        """Bytes of a pytree of parameters or state on each device, during its update."""
        return bytes_per_device(shapes, self.sizes)

    def create(self, make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Computes a pytree of state directly in its shards; no device ever holds all of it."""
        shardings = self._shardings(jax.eval_shape(make, *arguments))
        create = jax.jit(make, out_shardings=shardings)
        return self.run(create, *map(self.place, arguments))

    def place(self, tree: Any) -> Any:
        """Copies a pytree to the devices by leaf; a copy, because steps donate their state."""
        return jax.tree.map(_place_leaf, tree, self._shardings(tree))

    def place_frozen(self, tree: Any) -> Any:
        """Places a pytree that no step changes; leaves already in place are not copied."""
        place = functools.partial(_place_leaf, copy=False)
        return jax.tree.map(place, tree, self._shardings(tree))

    def _shardings(self, tree: Any) -> Any:
        """Shardings of a pytree between steps."""
        specs = partition_specs(tree, self.sizes)
        return jax.tree.map(functools.partial(NamedSharding, self._mesh), specs)

    def compile_train(self, step: Callable[..., Any]) -> Program:
        """Makes a program of a training step, as in `Runner`."""

        def placed_step(state: Any, batch: Any, *rest: Any) -> tuple[Any, Any]:
            with nn.logical_axis_rules(_ACTIVATIONS):
                state, metrics = step(state, batch, *rest)
            # The shardings it came with, so that the next step is the same program.
            state = jax.lax.with_sharding_constraint(state, self._shardings(state))
            return state, self._constrain_all(metrics)

        return super().compile_train(placed_step)

    def compile_eval(self, step: Callable[..., Any]) -> Program:
        """Makes a program of an evaluation step, as in `Runner`."""

        def placed_step(params: Any, batch: Any, *rest: Any) -> Any:
            with nn.logical_axis_rules(_ACTIVATIONS):
                return self._constrain_all(step(params, batch, *rest))

        return super().compile_eval(placed_step)

    def _constrain_all(self, tree: Any) -> Any:
        """Replicates a pytree on every device."""
        return jax.lax.with_sharding_constraint(tree, self._whole)

    def context(self) -> AbstractContextManager[Any]:
        """Context of the mesh."""
        return jax.set_mesh(self._mesh)

    def put(self, batch: Any) -> Any:
        """Splits this host's rows of a batch over its devices, and their tokens over "sequence"."""
        return jax.tree_util.tree_map_with_path(self._put_leaf, batch)

    def _put_leaf(self, path: tuple[Any, ...], leaf: Any) -> jax.Array:
        leaf = np.asarray(leaf)
        shape = (leaf.shape[0] * self.host.count, *leaf.shape[1:])
        sharding = self._batch_sharding(path, shape)
        num_rows = leaf.shape[0] // self.num_local_shards

        def shard(index: Any) -> np.ndarray:
            """Part of this host's rows, by slices of the global batch."""
            place = self._own_shards.index((index[0].start or 0) // num_rows)
            return leaf[(slice(place * num_rows, (place + 1) * num_rows), *index[1:])]

        return jax.make_array_from_callback(shape, sharding, shard)

    def _batch_sharding(self, path: tuple[Any, ...], shape: tuple[int, ...]) -> NamedSharding:
        """Sharding of an array of a batch: rows, and tokens over "sequence"."""
        parts = self.sizes["sequence"]
        by_token = len(shape) > 1 and shape[1] != 1  # an axis of size 1, as in masks, is not split
        if by_token and shape[1] % parts:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise ShapeError(
                f"mesh.sequence={parts} must divide the length of every sequence, got "
                f"{shape[1]} of {name} {list(shape)} in a batch; change one of them"
            )
        spec = BATCH_SPEC if by_token else PartitionSpec(ROW_AXES)
        return NamedSharding(self._mesh, spec)

    def batch_template(self, shapes: Any) -> Any:
        """Adds shardings to the shapes of a global batch, for `Program.lower`."""
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=self._batch_sharding(path, leaf.shape)
            ),
            shapes,
        )

    def on_one_host(self, params: Any) -> Any:
        """Returns parameters on one device or, if the mesh splits them, on this host's devices.

        With several hosts, all must call this: they exchange one array at a time, and each device
        needs room for the largest array besides its shard.
        """
        if self.has_all_params:
            return super().on_one_host(params)
        if self.num_hosts == 1:
            return params
        inner = MeshRunner.for_inference(self._config, self._local)

        def gather(leaf: jax.Array, sharding: NamedSharding) -> jax.Array:
            return jax.device_put(jax.device_put(leaf, self._whole).addressable_data(0), sharding)

        return jax.tree.map(gather, params, inner._shardings(params))


def _place_leaf(leaf: Any, sharding: NamedSharding, *, copy: bool = True) -> jax.Array:
    """Copies an array, which every host has in full, to devices on any hosts."""
    is_everywhere = isinstance(leaf, jax.Array) and not leaf.is_fully_addressable
    if sharding.is_fully_addressable or is_everywhere:
        return jax.device_put(jnp.copy(leaf) if copy else leaf, sharding)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _place_leaf(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    whole = np.asarray(leaf)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

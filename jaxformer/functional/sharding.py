"""The mesh, if any, over which jit splits the program being traced."""

import contextlib
import math
from typing import TypeVar

import jax

Tree = TypeVar("Tree")


def automatic_axes() -> dict[str, int]:
    """Axes of the mesh over which jit splits a program automatically, with their sizes.

    The mesh comes from `jax.set_mesh`; its axes should be Auto. Inside a mapped function there is
    none, because the program there runs on a single device.
    """
    return _not_manual(jax.sharding.get_abstract_mesh())


def axes_of(array: jax.Array) -> dict[str, int]:
    """Likewise, of the mesh of an array: jit takes it from its arguments, also without set_mesh."""
    return _not_manual(jax.typeof(array).sharding.mesh)


def _not_manual(mesh: jax.sharding.AbstractMesh) -> dict[str, int]:
    manual = () if mesh.empty else mesh.manual_axes
    return {name: size for name, size in mesh.shape.items() if name not in manual}


def is_one_device() -> bool:
    """Whether the program being traced surely runs on one device.

    The mesh, or the process if there is none, has only one device, or `jax.pmap` or `jax.shard_map`
    maps the program over all. Otherwise jit may split it: its in_shardings are not known yet.
    """
    if jax.sharding.get_abstract_mesh().empty:
        return jax.device_count() == 1
    return math.prod(automatic_axes().values()) == 1


def on_one_device() -> contextlib.AbstractContextManager[object]:
    """Context that traces a program as for one device, where `is_one_device` holds."""
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("device",)))


def varying_alike(tree: Tree) -> Tree:
    """Marks all arrays as varying over every mapped mesh axis that one of them varies over.

    Under jax.shard_map, loops, branches and linear maps need the same marks on inputs and outputs.
    Values do not change; the gradient of an array that was the same everywhere is summed.
    """

    def varies_over(array: jax.Array) -> frozenset[str]:
        return jax.typeof(array).manual_axis_type.varying  # empty if JAX does not track it

    axes = frozenset().union(*map(varies_over, jax.tree.leaves(tree)))

    def mark(array: jax.Array) -> jax.Array:
        missing = tuple(sorted(axes - varies_over(array)))
        return jax.lax.pcast(array, missing, to="varying") if missing else array

    return jax.tree.map(mark, tree)

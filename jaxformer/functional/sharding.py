"""The mesh, if any, over which jit splits the program being traced."""

import contextlib
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import AxisType

Tree = TypeVar("Tree")


def automatic_axes(mesh: jax.sharding.AbstractMesh | None = None) -> dict[str, int]:
    """Auto axes of a mesh, with their sizes; None = that of `jax.set_mesh`."""
    # There are none inside a mapped function.
    mesh = jax.sharding.get_abstract_mesh() if mesh is None else mesh
    manual = () if mesh.empty else mesh.manual_axes
    return {name: size for name, size in mesh.shape.items() if name not in manual}


def is_one_device() -> bool:
    """Whether the program being traced surely runs on one device."""
    # Without a mesh, jit may still split a program: its in_shardings are not known yet.
    if jax.sharding.get_abstract_mesh().empty:
        return jax.device_count() == 1
    return math.prod(automatic_axes().values()) == 1


def on_one_device() -> contextlib.AbstractContextManager[object]:
    """Context that traces a program as for one device, where `is_one_device` holds."""
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("device",)))


def has_explicit_axes(*arrays: jax.Array) -> bool:
    """Whether the mesh of one of the arrays has axes of the type Explicit."""
    meshes = (jax.typeof(array).sharding.mesh for array in arrays)
    return any(AxisType.Explicit in mesh.axis_types for mesh in meshes if not mesh.empty)


def explicit_spec(array: jax.Array) -> tuple[Any, ...]:
    """Mesh axes that split each axis of an array on a mesh with Explicit axes."""
    spec = tuple(jax.typeof(array).sharding.spec)
    return spec + (None,) * (array.ndim - len(spec))


def on_automatic_axes(function: Callable[..., Tree], out_specs: Any, *arguments: Any) -> Tree:
    """Calls a function as on Auto axes; its results are split as `out_specs` says."""
    # Loops over an axis that is split, and gathering from it, are for Auto axes alone.
    automatic: Callable[..., Tree] = jax.sharding.auto_axes(function, out_sharding=out_specs)
    return automatic(*arguments)


def varying_alike(tree: Tree) -> Tree:
    """Marks all arrays as varying over every mapped mesh axis that one of them varies over."""

    # Under jax.shard_map, loops, branches and linear maps need the same marks on inputs and
    # outputs. The gradient of an array that was the same everywhere is summed.
    def varies_over(array: jax.Array) -> frozenset[str]:
        return jax.typeof(array).manual_axis_type.varying  # empty if JAX does not track it

    axes = frozenset().union(*map(varies_over, jax.tree.leaves(tree)))

    def mark(array: jax.Array) -> jax.Array:
        missing = tuple(sorted(axes - varies_over(array)))
        return jax.lax.pcast(array, missing, to="varying") if missing else array

    return jax.tree.map(mark, tree)

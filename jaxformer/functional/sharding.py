"""The mesh, if any, over which jit splits the program being traced."""

import jax


def automatic_axes() -> dict[str, int]:
    """Axes of the mesh over which jit splits a program automatically, with their sizes.

    The mesh comes from `jax.set_mesh`; its axes should be Auto. Inside a mapped function there is
    none, because the program there runs on a single device.
    """
    mesh = jax.sharding.get_abstract_mesh()
    manual = () if mesh.empty else mesh.manual_axes
    return {name: size for name, size in mesh.shape.items() if name not in manual}

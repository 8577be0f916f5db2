"""Kernels with a correction of low rank beside them, which can be trained alone (LoRA)."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxformer.errors import ShapeError
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.options import static_number
from jaxformer.functional.shapes import check_axes, check_dtype

__all__ = ["Kernel", "LowRankKernel", "checked_base", "matmul"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LowRankKernel:
    r"""A kernel and a correction of low rank: $W + s A B$, of base $W$, down $A$ and up $B$.

    Every function of this package that takes a kernel takes this in its place. Where only down and
    up are differentiated, no gradient of the base is computed. What knows nothing of it, such as
    Flax's Dense in a block of one's own, takes it as the merged array. A pytree, whose leaves may
    have leading axes, such as that of the layers of a stack; not checked before it is used.

    Args:
        base: float `[..., D, F]`.
        down: float `[..., D, R]`.
        up: float `[..., R, F]`; with zeros, the kernel is the base.
        scale: s; in LoRA alpha / R.

    References:
        Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021.

    Example:
        >>> kernel = LowRankKernel(jnp.eye(3), jnp.ones((3, 1)), jnp.ones((1, 3)), scale=2.0)
        >>> kernel.merge().tolist()
        [[3.0, 2.0, 2.0], [2.0, 3.0, 2.0], [2.0, 2.0, 3.0]]
    """

    # The base is the first leaf: Flax compares the first leaf of what is in place of a parameter
    # with the shape that its module declares.
    base: jax.Array
    down: jax.Array
    up: jax.Array
    scale: float = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the base."""
        return self.base.shape

    @property
    def ndim(self) -> int:
        """Number of axes of the base."""
        return self.base.ndim

    @property
    def dtype(self) -> jnp.dtype:
        """Dtype of the base."""
        return self.base.dtype

    def __jax_array__(self) -> jax.Array:
        """The merged kernel, for functions that make arrays of their arguments."""
        return self.merge()

    def merge(self) -> jax.Array:
        """The kernel as one array: float `[..., D, F]`, in the dtype of the base.

        The correction is computed in float32 or better, at full precision.

        Raises:
            ShapeError: the three do not fit together.
        """
        checked_base("kernel", self)
        wide = at_least(self.base.dtype, jnp.float32)
        down, up = self.down.astype(wide), self.up.astype(wide)
        product = jnp.matmul(down, up, precision=jax.lax.Precision.HIGHEST)
        return (self.base.astype(wide) + self.scale * product).astype(self.base.dtype)


Kernel = jax.Array | LowRankKernel
"""Kernel of a projection: an array `[D, F]`, or a `LowRankKernel` of that shape."""


def checked_base(name: str, kernel: Kernel) -> jax.Array:
    """The array that says a kernel's shape and dtype, after a check of the matrices beside it.

    Args:
        name: what the caller calls the kernel, for messages.
        kernel: of any leading axes; what is no `LowRankKernel` is returned as it is, unchecked.

    Returns:
        The base of a `LowRankKernel`.

    Raises:
        ShapeError: a shape does not match, or an array is not of floats.
        ConfigError: the scale is no number.

    Example:
        >>> checked_base("kernel", LowRankKernel(jnp.eye(3), jnp.eye(3), jnp.eye(3), 1.0)).shape
        (3, 3)
    """
    if not isinstance(kernel, LowRankKernel):
        return kernel
    check_axes(name, kernel.base, "... D F")
    for part in ("base", "down", "up"):
        check_dtype(f"{name}.{part}", getattr(kernel, part), "floating")
    *leading, width, output = kernel.base.shape
    rank = check_axes(f"{name}.down", kernel.down, "... D R", {"D": width})["R"]
    for part, expected in (("down", (*leading, width, rank)), ("up", (*leading, rank, output))):
        if getattr(kernel, part).shape != expected:
            raise ShapeError(
                f"{name}.{part} must be {list(expected)} beside a base {list(kernel.shape)}, got "
                f"shape {getattr(kernel, part).shape}"
            )
    static_number(f"{name}.scale", kernel.scale)
    return kernel.base


def matmul(
    x: jax.Array, kernel: Kernel, *, precision: jax.lax.Precision | None = None
) -> jax.Array:
    """Product with a kernel, in the dtype of x.

    With a `LowRankKernel`, `x @ base + scale * (x @ down) @ up`: in this order the kernel as a
    whole is never made, nor a gradient of its shape.

    Args:
        x: float `[..., D]`.
        kernel: float `[D, F]`.
        precision: of the products; that of the backend when not given.

    Returns:
        float `[..., F]`.

    Example:
        >>> kernel = LowRankKernel(jnp.eye(3), jnp.ones((3, 1)), jnp.ones((1, 3)), scale=2.0)
        >>> matmul(jnp.arange(3.0), kernel).tolist()
        [6.0, 7.0, 8.0]
    """
    if not isinstance(kernel, LowRankKernel):
        return jnp.matmul(x, kernel.astype(x.dtype), precision=precision)
    inner = jnp.matmul(x, kernel.down.astype(x.dtype), precision=precision)
    correction = jnp.matmul(kernel.scale * inner, kernel.up.astype(x.dtype), precision=precision)
    return jnp.matmul(x, kernel.base.astype(x.dtype), precision=precision) + correction

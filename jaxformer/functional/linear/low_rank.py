"""Kernels with a low-rank correction that can be trained alone (LoRA)."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import check_axes, check_dtype, static_number
from jaxformer.functional.dtypes import widened


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LowRankKernel:
    r"""A kernel with a low-rank correction: $W + s A B$, with base $W$, down $A$ and up $B$.

    Every function of this package that takes a kernel also accepts this class. If only down and up
    are differentiated, no gradient of the base is computed. Code that does not know the class, such
    as Flax's Dense in your own block, converts it to the merged array. It is a pytree; its leaves
    may have leading axes, as in a stack of layers. Shapes are checked on use, not on construction.

    Args:
        base: float `[..., D, F]`.
        down: float `[..., D, R]`.
        up: float `[..., R, F]`; if zero, the kernel equals the base.
        scale: s; alpha / R in LoRA.

    References:
        Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021.

    Example:
        >>> kernel = LowRankKernel(jnp.eye(3), jnp.ones((3, 1)), jnp.ones((1, 3)), scale=2.0)
        >>> kernel.merge().tolist()
        [[3.0, 2.0, 2.0], [2.0, 3.0, 2.0], [2.0, 2.0, 3.0]]
    """

    # The base is the first leaf, because Flax compares the first leaf of a parameter with the shape
    # that its module declares.
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
        """The merged kernel, for functions that convert their arguments to arrays."""
        return self.merge()

    def merge(self) -> jax.Array:
        """The kernel as one array: float `[..., D, F]`, in the dtype of the base.

        The correction is computed in float32 or better, at full precision.

        Raises:
            ShapeError: the shapes do not fit together.
        """
        checked_base("kernel", self)
        base = widened(self.base)
        down, up = self.down.astype(base.dtype), self.up.astype(base.dtype)
        product = jnp.matmul(down, up, precision=jax.lax.Precision.HIGHEST)
        return (base + self.scale * product).astype(self.base.dtype)


Kernel = jax.Array | LowRankKernel
"""Kernel of a projection: an array `[D, F]`, or a `LowRankKernel` of that shape."""


def checked_base(name: str, kernel: Kernel) -> jax.Array:
    """The base of a checked `LowRankKernel`; another kernel is returned unchecked."""
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
                f"{name}.{part} must be {list(expected)} for a base {list(kernel.shape)}, got "
                f"shape {getattr(kernel, part).shape}"
            )
    static_number(f"{name}.scale", kernel.scale)
    return kernel.base


def matmul(
    x: jax.Array,
    kernel: Kernel,
    *,
    product: Callable[[jax.Array, jax.Array], jax.Array] = jnp.matmul,
) -> jax.Array:
    """Product of x `[..., D]` with a kernel `[D, F]`, in the dtype of x."""
    if not isinstance(kernel, LowRankKernel):
        return product(x, kernel.astype(x.dtype))
    # This order never builds the merged kernel, nor a gradient of its shape.
    inner = product(x, kernel.down.astype(x.dtype))
    correction = product(kernel.scale * inner, kernel.up.astype(x.dtype))
    return product(x, kernel.base.astype(x.dtype)) + correction

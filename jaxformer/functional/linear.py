"""Linear layers: their matrix products, and kernels with a low-rank correction (LoRA)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from einops import pack, unpack

from jaxformer.functional.checks import check_array, check_axes, check_fields, static_number
from jaxformer.functional.dtypes import widened
from jaxformer.functional.sharding import automatic_axes


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Products:
    """How a layer computes the products of its inputs with its kernels.

    Args:
        precision: a `jax.lax.Precision`, or its name, such as "highest"; None = JAX's default.
        dot_general: function with the signature of `jax.lax.dot_general`, such as a quantizer's;
            None = JAX's.

    Example:
        >>> linear(jnp.ones(3), jnp.eye(3), products=Products(precision="highest")).tolist()
        [1.0, 1.0, 1.0]
    """

    precision: jax.lax.PrecisionLike = None
    dot_general: Callable[..., jax.Array] | None = None

    def matmul(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        """Product of x `[..., D]` with a kernel `[D, F]`, in the dtype of x."""
        return self.contract(x, kernel, kernel_axis=0).astype(x.dtype)

    def contract(
        self, x: jax.Array, kernel: jax.Array, *, kernel_axis: int, **options: Any
    ) -> jax.Array:
        """Sum over the last axis of x `[..., D]` and one axis of a kernel `[D, F]` or `[F, D]`."""
        # JAX's is looked up in each call, because quantizers such as qwix replace it.
        dot_general = self.dot_general or jax.lax.dot_general
        axes = (((x.ndim - 1,), (kernel_axis,)), ((), ()))
        return dot_general(x, kernel, axes, precision=self.precision, **options)


DEFAULT_PRODUCTS = Products()


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


def linear(
    x: jax.Array, kernel: Kernel, bias: jax.Array | None = None,
    *, products: Products = DEFAULT_PRODUCTS, name: str = "kernel",
) -> jax.Array:  # fmt: skip
    """Linear layer over the last axis: `x @ kernel + bias`, in the dtype of x.

    Args:
        x: float `[..., D]`.
        kernel: float `[D, F]`, or a `LowRankKernel` of that shape.
        bias: float `[F]`.
        products: precision and function of the matrix product.
        name: the caller's name for the kernel, for messages.

    Returns:
        float `[..., F]`, in the dtype of x.

    Raises:
        ShapeError: the widths do not match, or an array is not floating.

    Example:
        >>> linear(jnp.ones((2, 3)), jnp.ones((3, 5)), jnp.ones(5)).tolist()[0]
        [4.0, 4.0, 4.0, 4.0, 4.0]
    """
    sizes = check_param(name, kernel, "D F", check_array("x", x, "floating", "... D"))
    if bias is not None:
        check_param(name.replace("kernel", "bias"), bias, "F", sizes)
    check_fields("products", products, Products)
    return project(x, kernel, bias, products)


def project(x: jax.Array, kernel: Kernel, bias: jax.Array | None, products: Products) -> jax.Array:
    """`linear` of checked arguments."""
    output = on_rows(lambda rows: kernel_product(rows, kernel, products.matmul), x)  # [..., F]
    return add_bias(output, bias)


def add_bias(x: jax.Array, bias: jax.Array | None) -> jax.Array:
    """Adds a bias to the last axis of x, in the dtype of x."""
    return x if bias is None else x + jnp.broadcast_to(bias.astype(x.dtype), x.shape)


# What an axis of a kernel has to equal, for messages.
_ORIGINS = {"D": "D is x's last axis", "F": "F is up_kernel's last axis"}


def check_param(name: str, param: Kernel, axes: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Checks a kernel, bias or scale against known sizes, and returns all sizes by letter."""
    base = checked_base(name, param)
    remedy = _ORIGINS.get(axes[0], "") if " " in axes else ""
    return check_array(name, base, "floating", axes, sizes, remedy=remedy)


def check_params(params: Any, kind: type, axes: Mapping[str, str], x: jax.Array) -> dict[str, int]:
    """Checks x `[..., D]` and a layer's parameters against each other, and returns all sizes."""
    check_fields("params", params, kind)
    known = check_array("x", x, "floating", "... D")
    for name, letters in axes.items():
        param = getattr(params, name)
        if param is not None or name not in params._field_defaults:
            known = check_param(name, param, letters, known)
    return known


def checked_base(name: str, kernel: Kernel) -> jax.Array:
    """The base of a checked `LowRankKernel`; another kernel is returned unchecked."""
    if not isinstance(kernel, LowRankKernel):
        return kernel
    check_axes(name, kernel.base, "... D F")
    leading = " ".join(f"axis{i}" for i in range(kernel.base.ndim - 2))
    sizes = check_array(name, kernel.base, "floating", f"{leading} D F")
    sizes = check_array(f"{name}.down", kernel.down, "floating", f"{leading} D R", sizes)
    check_array(f"{name}.up", kernel.up, "floating", f"{leading} R F", sizes)
    static_number(f"{name}.scale", kernel.scale)
    return kernel.base


def kernel_product(
    x: jax.Array, kernel: Kernel, product: Callable[[jax.Array, jax.Array], jax.Array]
) -> jax.Array:
    """Product of x `[..., D]` with a kernel `[D, F]`, in the dtype of x."""
    if not isinstance(kernel, LowRankKernel):
        return product(x, kernel.astype(x.dtype))
    # This order never builds the merged kernel, nor a gradient of its shape.
    inner = product(x, kernel.down.astype(x.dtype))  # [..., R]
    correction = product(kernel.scale * inner, kernel.up.astype(x.dtype))  # [..., F]
    return product(x, kernel.base.astype(x.dtype)) + correction


def on_rows(product: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Computes a product `[..., D]` to `[..., F]` over the last axis in 2-D, if that is faster."""
    # XLA's CPU backend is slower with more axes, mostly in the gradients. Over a mesh, tokens split
    # by row and by position would have to be gathered before they can be one axis.
    if automatic_axes():
        return product(x)
    rows, leading = pack([x], "* d")
    (result,) = unpack(product(rows), leading, "* f")
    return result

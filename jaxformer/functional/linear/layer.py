"""The linear layer behind every projection."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from einops import pack, unpack

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import check_axes, check_dtype
from jaxformer.functional.linear.low_rank import Kernel, checked_base, matmul
from jaxformer.functional.sharding import automatic_axes


def linear(
    x: jax.Array, kernel: Kernel, bias: jax.Array | None = None, *, name: str = "kernel"
) -> jax.Array:
    """Linear layer over the last axis: `x @ kernel + bias`, in the dtype of x.

    Args:
        x: float `[..., D]`.
        kernel: float `[D, F]`, or a `LowRankKernel` of that shape.
        bias: float `[F]`.
        name: the caller's name for the kernel, for messages.

    Returns:
        float `[..., F]`, in the dtype of x.

    Raises:
        ShapeError: the widths do not match, or an array is not floating.

    Example:
        >>> linear(jnp.ones((2, 3)), jnp.ones((3, 5)), jnp.ones(5)).tolist()[0]
        [4.0, 4.0, 4.0, 4.0, 4.0]
    """
    check_dtype("x", x, "floating", remedy="cast it with .astype")
    if x.ndim == 0:
        raise ShapeError("x must be [..., D], got a scalar")
    check_linear(name, x.shape[-1], kernel, bias)
    result = on_rows(lambda rows: matmul(rows, kernel), x)
    if bias is None:
        return result
    return result + jnp.broadcast_to(bias.astype(x.dtype), result.shape)


def on_rows(product: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Computes a product `[..., D]` to `[..., F]` over the last axis in 2-D, if that is faster."""
    # XLA's CPU backend is slower with more axes, mostly in the gradients. Over a mesh, tokens split
    # by row and by position would have to be gathered before they can be one axis.
    if automatic_axes():
        return product(x)
    rows, leading = pack([x], "* d")
    (result,) = unpack(product(rows), leading, "* f")
    return result


def check_linear(
    name: str, width: int, kernel: Kernel, bias: jax.Array | None, *, output: int | None = None
) -> int:
    """Checks kernel `[D, F]` and bias `[F]` of a linear layer; returns F."""
    base = checked_base(name, kernel)
    sizes = check_axes(name, base, "D F", {"D": width}, remedy="D is x's last axis")
    check_dtype(name, base, "floating")
    if output is not None and sizes["F"] != output:
        raise ShapeError(f"{name} must be [{width}, {output}], got shape {kernel.shape}")
    if bias is not None:
        bias_name = name.replace("kernel", "bias")
        check_axes(bias_name, bias, "F", sizes)
        check_dtype(bias_name, bias, "floating")
    return sizes["F"]

"""The linear layer that every projection uses."""

import jax
import jax.numpy as jnp
from einops import pack, unpack

from jaxformer.errors import ShapeError
from jaxformer.functional.shapes import check_axes, check_dtype

__all__ = ["linear"]


def linear(
    x: jax.Array, kernel: jax.Array, bias: jax.Array | None = None, *, name: str = "kernel"
) -> jax.Array:
    """Linear layer over the last axis: `x @ kernel + bias`, in the dtype of x.

    Args:
        x: float `[..., D]`.
        kernel: float `[D, F]`.
        bias: float `[F]`.
        name: what the caller calls the kernel, for messages.

    Returns:
        float `[..., F]`, in the dtype of x.

    Raises:
        ShapeError: the widths do not match, or x is not of floats.

    Example:
        >>> linear(jnp.ones((2, 3)), jnp.ones((3, 5)), jnp.ones(5)).tolist()[0]
        [4.0, 4.0, 4.0, 4.0, 4.0]
    """
    check_dtype("x", x, "floating", remedy="cast it with .astype")
    if x.ndim == 0:
        raise ShapeError("x must be [..., D], got a scalar")
    sizes = check_axes(name, kernel, "D F", {"D": x.shape[-1]}, remedy="D is x's last axis")
    # One 2-D product: XLA's CPU backend is slower on more axes, mostly in the gradients.
    rows, leading = pack([x], "* d")
    (result,) = unpack(rows @ kernel.astype(x.dtype), leading, "* f")
    if bias is None:
        return result
    check_axes(name.replace("kernel", "bias"), bias, "F", sizes)
    return result + jnp.broadcast_to(bias.astype(x.dtype), result.shape)

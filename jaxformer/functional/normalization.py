"""Layer normalization and root-mean-square normalization."""

import jax
import jax.numpy as jnp

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import check_dtype, check_nonnegative, is_int
from jaxformer.functional.dtypes import widened

Axes = int | tuple[int, ...]


def layer_norm(
    x: jax.Array, scale: jax.Array | None = None, bias: jax.Array | None = None,
    *, eps: float = 1e-5, axis: Axes = -1,
) -> jax.Array:  # fmt: skip
    r"""Layer normalization: mean 0 and variance 1, then scale and shift.

    $$y = \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} \gamma + \beta$$

    Statistics are in float32 (float64 for float64). The input is centred twice, because one
    subtraction leaves the rounding error of the mean: 2e-3 at mean 1e4.

    Args:
        x: float `[..., D]`.
        scale: float, of the shape of the normalized axes; 1 when not given.
        bias: float, of the shape of the normalized axes; 0 when not given.
        eps: added to the variance.
        axis: the last axis or axes to normalize over, such as (-2, -1).

    Returns:
        Normalized x, in its shape and dtype.

    Raises:
        ShapeError: axis is not a run of last axes, or scale or bias has another shape.
        ConfigError: eps is negative.

    References:
        Ba, Kiros and Hinton, "Layer Normalization", 2016.

    Example:
        >>> [round(float(y), 3) for y in layer_norm(jnp.array([1.0, 3.0]))]
        [-1.0, 1.0]
    """
    axes = _check(x, scale, bias, eps, axis)
    wide = widened(x)  # squares overflow float16 from 256 on; a bfloat16 mean has only 8 bits
    centred = wide - wide.mean(axes, keepdims=True)
    centred -= centred.mean(axes, keepdims=True)  # removes the rounding error of the mean
    normalized = centred * jax.lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + eps)
    return _affine(normalized, scale, bias).astype(x.dtype)


def rms_norm(
    x: jax.Array, scale: jax.Array | None = None, *, eps: float = 1e-6, axis: Axes = -1
) -> jax.Array:
    r"""RMS normalization: divides by the root mean square, then scales.

    $$y = \frac{x}{\sqrt{\mathrm{mean}(x^2) + \epsilon}} \gamma$$

    Args:
        x: float `[..., D]`.
        scale: float, of the shape of the normalized axes; 1 when not given.
        eps: added to the mean square.
        axis: the last axis or axes to normalize over.

    Returns:
        Normalized x, in its shape and dtype; statistics are in float32 (float64 for float64).

    Raises:
        ShapeError: axis is not a run of last axes, or scale has another shape.
        ConfigError: eps is negative.

    References:
        Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    Example:
        >>> [round(float(y), 3) for y in rms_norm(jnp.array([3.0, 4.0]))]
        [0.849, 1.131]
    """
    axes = _check(x, scale, None, eps, axis)
    wide = widened(x)  # as in layer_norm
    normalized = wide * jax.lax.rsqrt(jnp.square(wide).mean(axes, keepdims=True) + eps)
    return _affine(normalized, scale, None).astype(x.dtype)


def _check(
    x: jax.Array, scale: jax.Array | None, bias: jax.Array | None, eps: float, axis: Axes
) -> tuple[int, ...]:
    """Checks the arguments of a norm, and returns the normalized axes, such as (-2, -1)."""
    check_dtype("x", x, "floating")
    check_nonnegative("eps", eps)
    axes = _last_axes(x, axis)
    shape = x.shape[-len(axes) :]
    for name, parameter in (("scale", scale), ("bias", bias)):
        if parameter is None:
            continue
        check_dtype(name, parameter, "floating")
        if parameter.shape != shape:
            raise ShapeError(
                f"{name} must have the shape of the normalized axes {shape}, got {parameter.shape}"
            )
    return axes


def _last_axes(x: jax.Array, axis: Axes) -> tuple[int, ...]:
    axes: tuple[int, ...] = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    last = tuple(range(-len(axes), 0))
    if (
        not axes
        or not all(map(is_int, axes))
        or len(axes) > x.ndim
        or tuple(sorted(a - x.ndim if a >= 0 else a for a in axes)) != last
    ):
        raise ShapeError(
            f"axis must name the last axes of x, such as -1 or (-2, -1), got axis={axis} and x of "
            f"shape {x.shape}; move the others to the front first"
        )
    return last


def _affine(x: jax.Array, scale: jax.Array | None, bias: jax.Array | None) -> jax.Array:
    if scale is not None:
        x = x * jnp.broadcast_to(scale.astype(x.dtype), x.shape)
    if bias is not None:
        x = x + jnp.broadcast_to(bias.astype(x.dtype), x.shape)
    return x

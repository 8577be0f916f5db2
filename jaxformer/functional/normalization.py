"""Layer normalization and root-mean-square normalization."""

import jax
import jax.numpy as jnp

from jaxformer.functional.checks import check_array, check_nonnegative
from jaxformer.functional.dtypes import widened
from jaxformer.functional.linear import add_bias, check_param


def layer_norm(
    x: jax.Array, scale: jax.Array | None = None, bias: jax.Array | None = None,
    *, eps: float = 1e-5,
) -> jax.Array:  # fmt: skip
    r"""Layer normalization: mean 0 and variance 1, then scale and shift.

    $$y = \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} \gamma + \beta$$

    Statistics are in float32 (float64 for float64). The input is centred twice, because one
    subtraction leaves the rounding error of the mean: 2e-3 at mean 1e4.

    Args:
        x: float `[..., D]`.
        scale: float `[D]`; 1 when not given.
        bias: float `[D]`; 0 when not given.
        eps: added to the variance.

    Returns:
        Normalized x, in its shape and dtype.

    Raises:
        ShapeError: scale or bias is not `[D]`, or an array is not floating.
        ConfigError: eps is negative.

    References:
        Ba, Kiros and Hinton, "Layer Normalization", 2016.

    Example:
        >>> [round(float(y), 3) for y in layer_norm(jnp.array([1.0, 3.0]))]
        [-1.0, 1.0]
    """
    _check(x, eps, scale=scale, bias=bias)
    wide = widened(x)  # squares overflow float16 from 256 on; a bfloat16 mean has only 8 bits
    centred = wide - wide.mean(-1, keepdims=True)  # [..., D]
    centred -= centred.mean(-1, keepdims=True)  # removes the rounding error of the mean
    normalized = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + eps)
    return _affine(normalized, scale, bias).astype(x.dtype)


def rms_norm(x: jax.Array, scale: jax.Array | None = None, *, eps: float = 1e-6) -> jax.Array:
    r"""RMS normalization: divides by the root mean square, then scales.

    $$y = \frac{x}{\sqrt{\mathrm{mean}(x^2) + \epsilon}} \gamma$$

    Args:
        x: float `[..., D]`.
        scale: float `[D]`; 1 when not given.
        eps: added to the mean square.

    Returns:
        Normalized x, in its shape and dtype; statistics are in float32 (float64 for float64).

    Raises:
        ShapeError: scale is not `[D]`, or an array is not floating.
        ConfigError: eps is negative.

    References:
        Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    Example:
        >>> [round(float(y), 3) for y in rms_norm(jnp.array([3.0, 4.0]))]
        [0.849, 1.131]
    """
    _check(x, eps, scale=scale)
    wide = widened(x)  # as in layer_norm
    normalized = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + eps)  # [..., D]
    return _affine(normalized, scale, None).astype(x.dtype)


def _check(x: jax.Array, eps: float, **parameters: jax.Array | None) -> None:
    """Checks the arguments of a norm; the parameters are `[D]`."""
    sizes = check_array("x", x, "floating", "... D")
    check_nonnegative("eps", eps)
    for name, parameter in parameters.items():
        if parameter is not None:
            check_param(name, parameter, "D", sizes)


def _affine(x: jax.Array, scale: jax.Array | None, bias: jax.Array | None) -> jax.Array:
    if scale is not None:
        x = x * jnp.broadcast_to(scale.astype(x.dtype), x.shape)
    return add_bias(x, bias)

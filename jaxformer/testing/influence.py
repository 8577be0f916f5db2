"""Influence of inputs on outputs, measured by gradients and by replacing inputs."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional.checks import Array
from jaxformer.testing.failures import check_output_shape, fail, first_index, run

__tracebackhide__ = True  # a failure in pytest shows the test's own line, not this module's


def influence(
    function: Callable[[Any], jax.Array], inputs: Any, *, rule: str,
    output_axes: tuple[int, ...], input_axes: tuple[int, ...],
) -> Any:  # fmt: skip
    """Largest absolute gradient by output_axes, then, for every input, input_axes."""
    output = jax.eval_shape(function, inputs)
    check_output_shape(rule, output, (), "...")
    sizes = [output.shape[axis] for axis in output_axes]
    positions = np.arange(math.prod(sizes)).reshape(
        [size if axis in output_axes else 1 for axis, size in enumerate(output.shape)]
    )
    # Over the other axes of the output, a random combination is differentiated.
    weights = np.random.default_rng(2).uniform(1, 2, output.shape)
    weights *= np.random.default_rng(3).choice([-1, 1], output.shape)

    def gradients(inputs: Any) -> Any:
        _, pull = jax.vjp(function, inputs)

        def gradients_of(position: jax.Array) -> Any:
            here = jnp.where(positions == position, jnp.asarray(weights, output.dtype), 0)
            (gradient,) = pull(here)
            return jax.tree.map(
                lambda g: jnp.abs(g).max(
                    axis=tuple(axis for axis in range(g.ndim) if axis not in input_axes)
                ),
                gradient,
            )

        # One by one: a custom kernel may not support vmap.
        return jax.lax.map(gradients_of, jnp.arange(positions.size))

    magnitudes = run(gradients, inputs)
    return jax.tree.map(lambda g: g.reshape(*sizes, *g.shape[1:]), magnitudes)


def replacements(inputs: Array) -> jax.Array:
    """Valid inputs, integer `[B, T]` or float `[B, T, ...]`, that differ from these everywhere."""
    inputs = jnp.asarray(inputs)
    floating = jnp.issubdtype(inputs.dtype, jnp.floating)
    if inputs.ndim < 2 or inputs.shape[1] < 2 or not (floating or inputs.ndim == 2):
        raise ShapeError(
            "inputs must be integer [B, T] or float [B, T, ...] with a T of at least 2, got "
            f"{inputs.dtype} of shape {inputs.shape}"
        )
    if floating:
        noise = np.random.default_rng(4).standard_normal(inputs.shape)
        return inputs + jnp.asarray(noise, inputs.dtype) * jnp.maximum(inputs.std(), 1)
    low, high = inputs.min(), inputs.max()
    if low == high:
        raise DataError(
            f"inputs must hold at least two different tokens, got {int(low)} everywhere; the "
            "check exchanges them for each other"
        )
    return jnp.where(inputs == low, high, low)


def changes_by_exchange(
    apply: Callable[[jax.Array], jax.Array], inputs: jax.Array, *, rule: str
) -> np.ndarray:
    """Relative change of output t when input s is exchanged, float64 `[B, T, T]`."""
    new_inputs, places = replacements(inputs), jnp.arange(inputs.shape[1])
    check_output_shape(rule, jax.eval_shape(apply, inputs), inputs.shape[:2], "B T")

    def changes(inputs: jax.Array) -> jax.Array:
        output = apply(inputs)

        def change(s: jax.Array) -> jax.Array:
            here = jnp.expand_dims(places == s, (0, *range(2, inputs.ndim)))
            difference = jnp.abs(apply(jnp.where(here, new_inputs, inputs)) - output)
            return difference.max(axis=tuple(range(2, difference.ndim)))

        largest = jnp.maximum(jnp.abs(output).max(), jnp.finfo(output.dtype).tiny)
        return jnp.moveaxis(jax.lax.map(change, places), 0, -1) / largest

    magnitudes: np.ndarray = run(changes, inputs)
    return magnitudes


EXCHANGED = "relative change of the output when the input is exchanged"


def check_causal_influence(
    rule: str, magnitudes: np.ndarray, *, name: str, reach: int | None, tolerance: float = 0.0,
    unit: str = "|d output / d input|",
) -> None:  # fmt: skip
    """Checks that outputs `[T, T]` depend on no later input, and on each of the last `reach`."""
    t, s = np.indices(magnitudes.shape)
    leaks = (s > t) & ~(magnitudes <= tolerance)  # NaN leaks
    blind = (s <= t) & (magnitudes == 0) & (s > t - (len(magnitudes) if reach is None else reach))
    if not leaks.any() and not blind.any():
        return
    output, source = first_index(leaks if leaks.any() else blind)
    fail(
        rule,
        where=f"output at position {output}, {name} at position {source}; "
        f"{int((leaks | blind).sum())} such pairs in total",
        got=f"{unit} = {magnitudes[output, source]:.3g}",
        expected=(f"at most {tolerance:.2g}" if tolerance else "exactly 0")
        if leaks.any()
        else "more than 0",
        cause=_cause(leaks, blind, np.asarray(s - t)),
    )


INVERTED = 'the mask is inverted: True is read as "hide", should be read as "attend"'


def _cause(leaks: np.ndarray, blind: np.ndarray, distance: np.ndarray) -> str:
    if leaks.any():
        # The softmax over one key is constant, so the first query may have no gradient.
        rows = slice(0 if leaks[0].any() else 1, None)
        if (leaks == (distance == 1))[rows].all():
            return "the mask is off by one: it is s <= t + 1, should be s <= t (query t, key s)"
        # The last query then sees nothing, and softmax implementations differ on that.
        sees_only_later = (blind == (distance <= 0))[:-1].all()
        if (leaks == (distance > 0))[rows].all() and sees_only_later:
            return INVERTED
        return (
            "nothing is masked, the mask is transposed or not low enough, or an operation reaches "
            "later positions (a mean or normalization over time, a softmax over the queries, a "
            "window, a convolution)"
        )
    if blind[distance == 0].any() and not blind[distance < 0].any():
        return "the mask is off by one: it is s < t, should be s <= t (query t, key s)"
    return (
        "earlier positions are out of reach (a window, a mask along the wrong axis, a stopped "
        "gradient), or everything computed there is 0"
    )

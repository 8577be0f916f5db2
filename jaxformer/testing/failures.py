"""Runs the functions under test, compares their results, and reports failures."""

from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.functional.checks import Array

__tracebackhide__ = True  # a failure in pytest shows the test's own line, not this module's


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Jits a function of arrays, at full float32 precision on every backend."""
    # jit hashes its function; a lambda is hashable, a module with arrays is not.
    jitted = jax.jit(lambda *args: function(*args))

    def call(*args: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return jitted(*args)

    return call


def fetch(tree: Any) -> Any:
    """Converts the JAX arrays of a pytree to NumPy, floats to float64."""

    def leaf(x: jax.Array) -> np.ndarray:
        return np.asarray(x, np.float64 if jnp.issubdtype(x.dtype, jnp.floating) else None)

    return jax.tree.map(leaf, tree)


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function of arrays once, compiled, and fetches its result."""
    return fetch(compiled(function)(*args))


def fail(rule: str, *, where: str, got: object, expected: object, cause: str) -> NoReturn:
    """Raises an AssertionError with the rule, where it fails, values, likely cause and remedy."""
    raise AssertionError(
        f"{rule}\n  where:        {where}\n  got:          {got}\n  expected:     {expected}\n"
        f"  likely cause: {cause}"
    ) from None  # else pytest shows errors caught on the way here


def named_index(name: str, axes: str, index: tuple[int, ...]) -> str:
    """Formats an index, as `output[b=0, t=3, axis2=5]`; numbers axes without a letter."""
    letters = axes.lower().split()
    letters += [f"axis{axis}" for axis in range(len(letters), len(index))]
    pairs = [f"{letter}={i}" for letter, i in zip(letters, index, strict=False)]
    return f"{name}[{', '.join(pairs)}]" if pairs else name


def first_index(wrong: np.ndarray) -> tuple[int, ...]:
    """Index of the first True in a bool array; there must be one."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def check_close(
    rule: str, got: np.ndarray, expected: np.ndarray, *, axes: str, tolerance: float, cause: str,
    name: str = "output",
) -> None:  # fmt: skip
    """Checks that two arrays differ nowhere by more than the tolerance, as in `differs`."""
    if got.shape != expected.shape:
        shapes = {"got": f"shape {got.shape}", "expected": f"shape {expected.shape}"}
        fail(rule, where=name, **shapes, cause=cause)
    if not expected.size:
        return
    wrong = differs(got, expected, tolerance)
    if not wrong.any():
        return
    difference = np.abs(got - expected)
    difference = np.where(np.isnan(difference), np.inf, difference)
    index = first_index(difference == difference.max())
    fail(
        rule,
        where=f"{named_index(name, axes, index)}, the largest of {int(wrong.sum())} differences "
        f"in {wrong.size} elements",
        got=f"{got[index]:.6g}",
        expected=f"{expected[index]:.6g} within {_allowed(expected, tolerance):.2g}",
        cause=cause,
    )


def differs(got: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    """Mask of differences beyond `tolerance` times the largest expected magnitude, at least 1."""
    return ~(np.abs(got - expected) <= _allowed(expected, tolerance))  # NaN compares False


def _allowed(expected: np.ndarray, tolerance: float) -> float:
    return tolerance * max(1.0, float(np.nanmax(np.abs(expected), initial=0)))


def check_output_shape(rule: str, output: Any, leading: tuple[int, ...], axes: str) -> None:
    """Checks that an output is one array whose first axes have the sizes `leading`."""
    expected = f"one array [{', '.join(axes.split())}, ...] with leading sizes {leading}"
    is_array = isinstance(output, Array | jax.ShapeDtypeStruct)
    if is_array and output.shape[: len(leading)] == leading:
        return
    fail(
        rule,
        where="the return value",
        got=f"shape {output.shape}" if is_array else type(output).__name__,
        expected=expected,
        cause="axes are missing or in another order; transpose in a lambda around the function"
        if is_array
        else "the function returns more than the output; pass lambda *args: f(*args)[0] or the "
        "like",
    )

"""How a check runs what it checks, and how it says what it found."""

from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.functional.shapes import Array

__all__ = [
    "check_close", "check_output_shape", "compiled", "fail", "fetch", "first_index", "named_index",
    "run",
]  # fmt: skip


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function, at full float32 precision on every backend.

    Args:
        function: of arrays; `jax.disable_jit()` around the check runs it uncompiled.

    Returns:
        The same function.

    Example:
        >>> float(compiled(lambda x: x + 1)(2.0))
        3.0
    """
    # A function of our own: jit hashes what it is given, which modules with arrays refuse.
    jitted = jax.jit(lambda *args: function(*args))

    def call(*args: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return jitted(*args)

    return call


def fetch(tree: Any) -> Any:
    """Turns arrays into NumPy arrays, those of floats into float64.

    Args:
        tree: of arrays.

    Returns:
        The same tree.

    Example:
        >>> fetch(jnp.ones(1, jnp.bfloat16)).dtype
        dtype('float64')
    """

    def leaf(x: jax.Array) -> np.ndarray:
        return np.asarray(x, np.float64 if jnp.issubdtype(x.dtype, jnp.floating) else None)

    return jax.tree.map(leaf, tree)


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function once, compiled, and fetches what it returns.

    Args:
        function: of arrays.
        *args: its arguments.

    Returns:
        Its result with NumPy arrays, floats as float64.

    Example:
        >>> float(run(lambda x: x + 1, 2.0))
        3.0
    """
    return fetch(compiled(function)(*args))


def fail(rule: str, *, where: str, got: object, expected: object, cause: str) -> NoReturn:
    """Raises the AssertionError of a check.

    Args:
        rule: the claim that does not hold.
        where: which array and index.
        got: what was there.
        expected: what should have been.
        cause: what usually leads to it, and the remedy.

    Raises:
        AssertionError: always.
    """
    raise AssertionError(
        f"{rule}\n  where:        {where}\n  got:          {got}\n  expected:     {expected}\n"
        f"  likely cause: {cause}"
    )


def named_index(name: str, axes: str, index: tuple[int, ...]) -> str:
    """Writes an index with its axes.

    Args:
        name: of the array.
        axes: axis letters separated by spaces; axes beyond them are numbered.
        index: one integer an axis.

    Returns:
        The text.

    Example:
        >>> named_index("output", "B T", (0, 3, 5))
        'output[b=0, t=3, axis2=5]'
    """
    letters = axes.lower().split()
    letters += [f"axis{axis}" for axis in range(len(letters), len(index))]
    pairs = [f"{letter}={i}" for letter, i in zip(letters, index, strict=False)]
    return f"{name}[{', '.join(pairs)}]" if pairs else name


def first_index(wrong: np.ndarray) -> tuple[int, ...]:
    """Finds the first True of an array that has one.

    Args:
        wrong: bool array.

    Returns:
        Its index.

    Example:
        >>> first_index(np.array([[False, False], [True, True]]))
        (1, 0)
    """
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def check_close(
    rule: str, got: np.ndarray, expected: np.ndarray, *, name: str, axes: str, tolerance: float,
    cause: str,
) -> None:  # fmt: skip
    """Checks that two arrays differ by at most `tolerance` times the largest expected magnitude.

    Args:
        rule: the claim.
        got: float array.
        expected: float array of the same shape; NaN equals nothing.
        name: of the array, for the message.
        axes: its axis letters.
        tolerance: relative to the largest magnitude, or to 1 where that is less.
        cause: what usually leads to a difference, and the remedy.

    Raises:
        AssertionError: naming the index of the largest difference.

    Example:
        >>> check_close("equal", np.ones(2), np.ones(2), name="x", axes="T", tolerance=0, cause="")
    """
    if got.shape != expected.shape:
        shapes = {"got": f"shape {got.shape}", "expected": f"shape {expected.shape}"}
        fail(rule, where=name, **shapes, cause=cause)
    if not expected.size:
        return
    difference = np.abs(got - expected)
    allowed = tolerance * max(1.0, float(np.nanmax(np.abs(expected), initial=0)))
    wrong = ~(difference <= allowed)  # NaN compares False
    if not wrong.any():
        return
    difference = np.where(np.isnan(difference), np.inf, difference)
    index = first_index(difference == difference.max())
    fail(
        rule,
        where=f"{named_index(name, axes, index)}, the largest of {int(wrong.sum())} differences "
        f"in {wrong.size} elements",
        got=f"{got[index]:.6g}",
        expected=f"{expected[index]:.6g} within {allowed:.2g}",
        cause=cause,
    )


def check_output_shape(rule: str, output: Any, leading: tuple[int, ...], axes: str) -> None:
    """Checks that an output is one array whose first axes have the sizes that they should.

    Args:
        rule: the claim being checked, for the message.
        output: what the user's function returned.
        leading: expected sizes of its first axes.
        axes: their letters.

    Raises:
        AssertionError: it is something else.

    Example:
        >>> check_output_shape("causal", np.ones((2, 3, 5)), (2, 3), "B T")
    """
    expected = f"one array [{', '.join(axes.split())}, ...] with leading sizes {leading}"
    if not isinstance(output, Array | jax.ShapeDtypeStruct):
        fail(
            rule,
            where="what the function returned",
            got=f"{type(output).__name__}",
            expected=expected,
            cause="the function returns more than the output; pass lambda *args: f(*args)[0] "
            "or the like",
        )
    if output.shape[: len(leading)] != leading:
        fail(
            rule,
            where="what the function returned",
            got=f"shape {output.shape}",
            expected=expected,
            cause="axes are missing or in another order; transpose in a lambda around the function",
        )

"""Assertions on whole models: causality and padding invariance.

Here a model is a plain function: `lambda tokens: model.apply(variables, tokens).logits`, a Haiku
apply with its parameters bound, or an Equinox or NNX module under vmap.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import DataError
from jaxformer.functional.checks import Array
from jaxformer.testing.failures import check_close, check_output_shape, compiled, fetch
from jaxformer.testing.influence import (
    EXCHANGED,
    changes_by_exchange,
    check_causal_influence,
    replacements,
)

__tracebackhide__ = True  # a failure in pytest shows the test's own line, not this module's


def assert_model_is_causal(
    apply: Callable[[jax.Array], jax.Array], inputs: Array, *, reach: int | None = None,
    tolerance: float = 1e-5,
) -> None:  # fmt: skip
    """Asserts that outputs depend on earlier inputs and on no later ones.

    Replaces each input in turn and finds the outputs that change.

    Args:
        apply: `apply(inputs)` returns one float array `[B, T, ...]`.
        inputs: integer `[B, T]` with at least two different tokens, or float `[B, T, ...]`.
        reach: number of inputs, up to its own, that an output must depend on; all when not given,
            fewer for local windows, 0 to check only that later inputs have no influence.
        tolerance: largest allowed change by a later input, relative to the largest output.

    Raises:
        AssertionError: naming the positions of output and input.
        ShapeError: inputs are not `[B, T]` or `[B, T, ...]` with T at least 2.
        DataError: all tokens are equal.

    Example:
        >>> tokens = np.array([[3, 1, 4, 1, 5]])
        >>> assert_model_is_causal(lambda tokens: jnp.cumsum(tokens * 1.0, axis=1), tokens)
    """
    inputs = jnp.asarray(inputs)
    rule = "causal: the output at t must depend on the inputs up to t, and on no later ones"
    changes = changes_by_exchange(apply, inputs, rule=rule).max(axis=0)
    check_causal_influence(
        rule, changes, name="input", reach=reach, tolerance=tolerance, unit=EXCHANGED
    )


def assert_padding_invariant(
    apply: Callable[[jax.Array, jax.Array], jax.Array], inputs: Array, lengths: Array, *,
    per_token: bool = True, tolerance: float = 1e-5,
) -> None:  # fmt: skip
    """Asserts that outputs depend neither on the contents nor on the amount of padding.

    Replaces the padding, and computes the shortest row without any padding.

    Args:
        apply: `apply(inputs, mask)` with a bool mask `[B, T]`, True = real, returns one float
            array: `[B, T, ...]`, compared only at real positions, or `[B, ...]` if the output is
            pooled.
        inputs: integer `[B, T]` with at least two different tokens, or float `[B, T, ...]`.
        lengths: integer `[B]`, number of real inputs at the start of each row; at least 1 each,
            and at least one less than T.
        per_token: False if the output is pooled.
        tolerance: relative to the largest output.

    Raises:
        AssertionError: naming the element that differs.
        ShapeError: the shape of the inputs does not fit.
        DataError: the lengths do not fit, or all tokens are equal.

    Example:
        >>> def mean(inputs, mask):
        ...     return (inputs * mask).sum(axis=1) / mask.sum(axis=1)
        >>> inputs, lengths = np.array([[3.0, 1.0, 4.0], [1.0, 5.0, 9.0]]), np.array([2, 3])
        >>> assert_padding_invariant(mean, inputs, lengths, per_token=False)
    """
    inputs, lengths = jnp.asarray(inputs), np.asarray(lengths)
    new_inputs = replacements(inputs)
    rows, length = inputs.shape[:2]
    if lengths.shape != (rows,) or not 1 <= lengths.min() < length >= lengths.max():
        raise DataError(
            f"lengths must be {rows} integers from 1 to T={length}, at least one less than T, got "
            f"{lengths.tolist()}"
        )
    mask = jnp.asarray(np.arange(length) < lengths[:, None])
    leading, axes = ((rows, length), "B T") if per_token else ((rows,), "B")
    rule = "padding: the results of real inputs must not depend on"
    check_output_shape(f"{rule} padding", jax.eval_shape(apply, inputs, mask), leading, axes)
    call = compiled(apply)
    expected = fetch(call(inputs, mask))

    is_real = jnp.expand_dims(mask, tuple(range(2, inputs.ndim)))
    got = fetch(call(jnp.where(is_real, inputs, new_inputs), mask))
    if per_token:
        hidden = np.asarray(~mask)
        expected[hidden] = got[hidden] = 0
    check_close(
        f"{rule} the contents of the padding",
        got,
        expected,
        axes=axes,
        tolerance=tolerance,
        cause="the mask does not reach every layer, or a mean, sum or normalization over time "
        "includes the padding",
    )

    row = int(np.argmin(lengths))
    short = inputs[row : row + 1, : lengths[row]]
    alone = fetch(call(short, jnp.ones(short.shape[:2], bool)))
    in_batch = expected[row : row + 1]
    check_close(
        f"{rule} the amount of padding (got: row {row} of the batch; expected: that row alone "
        "without padding)",
        in_batch[:, : lengths[row]] if per_token else in_batch,
        alone,
        axes=axes,
        tolerance=tolerance,
        cause="something is divided by the padded length, or taken at the last position instead "
        "of the last real one, or positions are counted from the padded end",
    )

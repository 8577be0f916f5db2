"""What a whole model may depend on: not the future, not the padding.

Models are plain functions here: `lambda tokens: model.apply(variables, tokens).logits`, a Haiku
apply with its parameters bound, an Equinox or NNX module under vmap.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional.shapes import Array
from jaxformer.testing.failures import check_close, check_output_shape, compiled, fetch, run
from jaxformer.testing.influence import check_causal_influence, influence

__all__ = ["assert_model_is_causal", "assert_padding_invariant"]


def assert_model_is_causal(
    apply: Callable[[jax.Array], jax.Array], inputs: Array, *, reach: int | None = None,
    tolerance: float = 1e-5,
) -> None:  # fmt: skip
    """Asserts that outputs depend on no later input, and on the earlier ones.

    One position after the other is exchanged for something else, and what changes is compared.
    Where the inputs are floats (embeddings), the gradient by later ones must be exactly 0, too.

    Args:
        apply: `apply(inputs)` gives one float array `[B, T, ...]`.
        inputs: integer `[B, T]` of at least two different tokens, or float `[B, T, ...]`.
        reach: how many inputs up to its own an output must depend on (a model of local windows
            sees fewer); all when not given, 0 to check only that the future is hidden.
        tolerance: how much an output may change with a later input, relative to the largest.

    Raises:
        AssertionError: naming the positions of output and input.
        ShapeError: inputs are not `[B, T]` or `[B, T, ...]` with a T of at least 2.
        DataError: all tokens are equal.

    Example:
        >>> tokens = np.array([[3, 1, 4, 1, 5]])
        >>> assert_model_is_causal(lambda tokens: jnp.cumsum(tokens * 1.0, axis=1), tokens)
    """
    inputs = jnp.asarray(inputs)
    others = _others(inputs)
    length = inputs.shape[1]
    rule = "causal: the output at t must depend on the inputs up to t, and on no later ones"
    check_output_shape(rule, jax.eval_shape(apply, inputs), inputs.shape[:2], "B T")

    def changes(inputs: jax.Array) -> jax.Array:
        output = apply(inputs)

        def change(s: jax.Array) -> jax.Array:
            here = jnp.expand_dims(jnp.arange(length) == s, (0, *range(2, inputs.ndim)))
            difference = jnp.abs(apply(jnp.where(here, others, inputs)) - output)
            return difference.max(axis=tuple(a for a in range(difference.ndim) if a != 1))

        largest = jnp.maximum(jnp.abs(output).max(), jnp.finfo(output.dtype).tiny)
        return jax.lax.map(change, jnp.arange(length)).T / largest

    check_causal_influence(
        rule,
        run(changes, inputs),
        name="input",
        reach=reach,
        tolerance=tolerance,
        unit="relative change of the output when the input is exchanged",
    )
    if jnp.issubdtype(inputs.dtype, jnp.floating):
        found = influence(apply, inputs, rule=rule, output_axes=(1,), input_axes=(1,))
        check_causal_influence(rule, found, name="input", reach=0)


def _others(inputs: jax.Array) -> jax.Array:
    """Something else than the inputs, everywhere, that is just as valid."""
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


def assert_padding_invariant(
    apply: Callable[[jax.Array, jax.Array], jax.Array], inputs: Array, lengths: Array, *,
    per_token: bool = True, tolerance: float = 1e-5,
) -> None:  # fmt: skip
    """Asserts that what stands in the padding, and how much of it there is, changes nothing.

    The padding's contents are exchanged, and the shortest row is computed without any padding.

    Args:
        apply: `apply(inputs, mask)` with a bool mask `[B, T]`, True = real, gives one float array
            `[B, T, ...]`, of which only real positions are compared, or, pooled, `[B, ...]`.
        inputs: integer `[B, T]` of at least two different tokens, or float `[B, T, ...]`.
        lengths: integer `[B]`, real inputs in each row, the first ones; at least 1 each, and one
            of them less than T.
        per_token: False where the output is pooled.
        tolerance: relative to the largest output.

    Raises:
        AssertionError: naming the element that differs.
        ShapeError: the inputs' shape does not fit.
        DataError: the lengths do not, or all tokens are equal.

    Example:
        >>> def mean(inputs, mask):
        ...     return (inputs * mask).sum(axis=1) / mask.sum(axis=1)
        >>> inputs, lengths = np.array([[3.0, 1.0, 4.0], [1.0, 5.0, 9.0]]), np.array([2, 3])
        >>> assert_padding_invariant(mean, inputs, lengths, per_token=False)
    """
    inputs, lengths = jnp.asarray(inputs), np.asarray(lengths)
    others = _others(inputs)
    rows, length = inputs.shape[:2]
    if lengths.shape != (rows,) or not 1 <= lengths.min() < length >= lengths.max():
        raise DataError(
            f"lengths must be {rows} integers from 1 to T={length}, one of them less than T, got "
            f"{lengths.tolist()}"
        )
    mask = jnp.asarray(np.arange(length) < lengths[:, None])
    leading, axes = ((rows, length), "B T") if per_token else ((rows,), "B")
    rule = "padding: the results of real inputs must not depend on"
    check_output_shape(f"{rule} padding", jax.eval_shape(apply, inputs, mask), leading, axes)
    call = compiled(apply)
    expected = fetch(call(inputs, mask))

    real = jnp.expand_dims(mask, tuple(range(2, inputs.ndim)))
    got = fetch(call(jnp.where(real, inputs, others), mask))
    if per_token:
        hidden = np.asarray(~mask)
        expected[hidden] = got[hidden] = 0
    check_close(
        f"{rule} what stands in the padding",
        got,
        expected,
        name="output",
        axes=axes,
        tolerance=tolerance,
        cause="the mask does not reach every layer, or a mean, sum or normalisation over time "
        "takes in the padding",
    )

    row = int(np.argmin(lengths))
    short = inputs[row : row + 1, : lengths[row]]
    alone = fetch(call(short, jnp.ones(short.shape[:2], bool)))
    in_batch = expected[row : row + 1]
    check_close(
        f"{rule} how much padding there is (got: row {row} of the batch; expected: that row alone "
        "without padding)",
        in_batch[:, : lengths[row]] if per_token else in_batch,
        alone,
        name="output",
        axes=axes,
        tolerance=tolerance,
        cause="something is divided by the padded length, or taken at the last position instead "
        "of the last real one, or positions are counted from the padded end",
    )

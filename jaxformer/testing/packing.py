"""Assertion on documents packed into one row: each must get the same outputs as alone."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional.checks import Array
from jaxformer.testing.failures import (
    check_close,
    check_output_shape,
    compiled,
    fail,
    fetch,
    first_index,
    named_index,
)
from jaxformer.testing.influence import EXCHANGED, changes_by_exchange

__tracebackhide__ = True  # a failure in pytest shows the test's own line, not this module's


Document = tuple[int, int, int]
"""Row, start and end of a document: `inputs[row, start:end]`."""


def assert_packing_invariant(
    apply: Callable[[jax.Array, jax.Array, jax.Array], jax.Array], inputs: Array,
    segment_ids: Array, *, tolerance: float = 1e-5,
) -> None:  # fmt: skip
    """Asserts that documents packed into one row get the same outputs as each alone.

    First, no output may depend on another document of its row or on the padding: each input in turn
    is replaced. Then every document is computed alone, with positions from 0, and must have the
    same outputs as in its row.

    Args:
        apply: `apply(inputs, segment_ids, positions)` returns one float array `[B, T, ...]`. It
            gets int32 `[B, T]` segment ids as below, and int32 `[B, T]` positions, from 0 in each
            document. If your function takes a mask, pass
            `segment_ids[:, None, :, None] == segment_ids[:, None, None, :]`.
        inputs: integer `[B, T]` with at least two different tokens, or float `[B, T, ...]`.
        segment_ids: integer `[B, T]`, a positive number for each document of a row, and 0 in the
            padding at its end, if any; at least one row has two documents.
        tolerance: relative to the largest output.

    Raises:
        AssertionError: naming the positions of output and input, or the element that differs.
        ShapeError: the shape of the inputs or of the segment ids does not fit.
        DataError: the segment ids do not fit, or all tokens are equal.

    Example:
        >>> def mean(inputs, segment_ids, positions):
        ...     same = segment_ids[:, :, None] == segment_ids[:, None, :]
        ...     return jnp.einsum("bts,bs->bt", same, inputs) / same.sum(axis=-1)
        >>> inputs, segment_ids = np.array([[3.0, 1.0, 4.0, 1.0]]), np.array([[1, 1, 2, 0]])
        >>> assert_packing_invariant(mean, inputs, segment_ids)
    """
    inputs, ids = jnp.asarray(inputs), np.asarray(segment_ids)
    documents = _documents(ids, inputs.shape[:2])
    ids, positions = ids.astype(np.int32), np.zeros(ids.shape, np.int32)
    for row, start, end in documents:
        positions[row, start:end] = np.arange(end - start)
    rule = "packing: the outputs of a document must not depend on"

    segments = jnp.asarray(ids), jnp.asarray(positions)

    def packed(inputs: jax.Array) -> jax.Array:
        return apply(inputs, *segments)

    separate = f"{rule} other documents or padding of its row"
    changes = changes_by_exchange(packed, inputs, rule=separate)
    _check_separate(separate, changes, ids, tolerance)

    call = compiled(apply)
    got = fetch(call(inputs, *segments))
    got[ids == 0] = 0
    alone = np.zeros_like(got)
    for row, start, end in documents:
        shape = (1, end - start)
        segment = jnp.ones(shape, jnp.int32), jnp.arange(end - start, dtype=jnp.int32)[None]
        output = fetch(call(inputs[row : row + 1, start:end], *segment))
        check_output_shape(f"{rule} its row", output, shape, "B T")
        alone[row, start:end] = output[0]
    check_close(
        f"{rule} its place in the row (got: packed; expected: each document alone)",
        got,
        alone,
        axes="B T",
        tolerance=tolerance,
        cause="positions continue through the row (they must restart at 0 in each document; use "
        "the given positions), attention treats key 0 specially, such as a sink (each document "
        "needs its own, at its first key), or something depends on the length of the row",
    )


def _documents(ids: np.ndarray, shape: tuple[int, ...]) -> list[Document]:
    """Checks segment ids and finds the documents."""
    if ids.ndim != 2 or ids.shape != shape or not np.issubdtype(ids.dtype, np.integer):
        raise ShapeError(
            f"segment_ids must be integer [B, T] of the inputs, {shape}, got {ids.dtype} of shape "
            f"{ids.shape}"
        )
    documents, counts = [], []
    for row, numbers in enumerate(ids.tolist()):
        starts = [t for t in range(len(numbers)) if t == 0 or numbers[t] != numbers[t - 1]]
        runs = [numbers[t] for t in starts]
        if len(set(runs)) < len(runs) or min(runs) < 0 or 0 in runs[:-1]:
            raise DataError(
                "segment_ids must be a positive number for each document of a row, such as 1, 1, "
                f"2, 2, 2, and 0 in the padding at its end, got {numbers} in row {row}"
            )
        ends = [*starts[1:], len(numbers)]
        documents += [(row, a, b) for a, b in zip(starts, ends, strict=True) if numbers[a]]
        counts.append(sum(number > 0 for number in runs))
    if max(counts) < 2:
        raise DataError(
            f"segment_ids must have a row of two documents or more, got {counts} in the rows; "
            "otherwise nothing is packed"
        )
    return documents


def _check_separate(rule: str, changes: np.ndarray, ids: np.ndarray, tolerance: float) -> None:
    """Checks that the influence `[B, T, T]` of input s on output t stays within documents."""
    other = (ids[:, :, None] != ids[:, None, :]) & (ids != 0)[:, :, None]
    leaks = other & ~(changes <= tolerance)  # NaN leaks
    if not leaks.any():
        return
    row, t, s = index = first_index(leaks)
    source = f"document {ids[row, s]}" if ids[row, s] else "the padding"
    _, query, key = np.indices(changes.shape)
    if (leaks == other).all() or (leaks == (other & (key < query))).all():
        cause = (
            "attention does not use the segment ids (causal order and restarting positions do not "
            "separate documents), or a mean or normalization is computed over the whole row; "
            "mask with segment_ids[:, None, :, None] == segment_ids[:, None, None, :]"
        )
    else:
        cause = (
            "one document influences the next: through a layer without the segment mask, a "
            "convolution or a shift along time, a state that is not reset, or key 0 of the row, as "
            "a sink that every query may attend to"
        )
    fail(
        rule,
        where=f"{named_index('output', 'B T', (row, t))} of document {ids[row, t]}, "
        f"{named_index('input', 'B T', (row, s))} of {source}; "
        f"{int(leaks.sum())} such pairs in total",
        got=f"{EXCHANGED} = {changes[index]:.3g}",
        expected=f"at most {tolerance:.2g}",
        cause=cause,
    )

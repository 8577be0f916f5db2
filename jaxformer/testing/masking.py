"""Assertions on attention masks: masked keys, causality, padding, and fully masked rows.

Checks call `attention` with `mask=`, bool `[B, 1, T, S]`, True = attend, or with `is_causal=True`,
as each documents. Wrap a function with other argument names in a lambda.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.testing.attention import (
    DEFAULT_SIZES,
    Attention,
    AttentionSizes,
    draw,
    draw_mask,
    shaped,
    tolerance_of,
)
from jaxformer.testing.failures import check_close, compiled, fail, fetch, first_index, named_index
from jaxformer.testing.influence import INVERTED, check_causal_influence, influence

__tracebackhide__ = True  # a failure in pytest shows the test's own line, not this module's


def check_mask(attention: Attention, sizes: AttentionSizes) -> None:
    """Asserts by gradient that a query attends to exactly the values that the mask allows."""
    # They must be in its own batch row and key head. Only in a batch that is as large as the number
    # of heads does a mask with mixed-up axes broadcast without an error.
    for batch_size in sorted({max(2, sizes.num_heads), max(2, sizes.kv_heads)}):
        _check_mask(attention, dataclasses.replace(sizes, batch_size=batch_size))


def _check_mask(attention: Attention, sizes: AttentionSizes) -> None:
    rule = "mask: a query must read exactly the values that the mask allows"
    query, key, value = draw(sizes)
    mask = draw_mask(sizes)
    magnitudes = influence(
        lambda value: shaped(attention)(query, key, value, mask=jnp.asarray(mask)),
        value,
        rule=rule,
        output_axes=(0, 1, 2),
        input_axes=(0, 1, 2),
    )  # [B, T, N, B, S, K]
    row, t, head, value_row, s, kv_head = np.indices(magnitudes.shape)
    own_row, own_head = row == value_row, kv_head == head // sizes.group_size
    reads = magnitudes != 0  # NaN reads
    expected = own_row & own_head & mask[row, 0, t, s]
    wrong = reads != expected
    if not wrong.any():
        return
    b, t_, n, value_b, s_, k = index = first_index(wrong)
    cause = (
        "the mask is not used, is added as a number that is not low enough, or is broadcast along "
        "the wrong axis: keep its head axis, [B, 1, T, S], or insert it with mask[:, None]"
    )
    if (reads == (own_row & own_head & ~mask[row, 0, t, s])).all():
        cause = INVERTED
    elif (reads & ~(own_row & own_head)).any():
        cause = (
            "rows of the batch or heads are mixed: query head n should use key head n // (N / K) "
            "of its own row, and no other"
        )
    fail(
        rule,
        where=f"{named_index('output', 'B T N', (b, t_, n))} and "
        f"{named_index('value', 'B S K', (value_b, s_, k))}, one of {int(wrong.sum())} pairs; "
        f"mask[b={b}, 0, t={t_}, s={s_}] is {bool(mask[b, 0, t_, s_])}",
        got=f"|d output / d value| = {magnitudes[index]:.3g}",
        expected="more than 0" if expected[index] else "exactly 0",
        cause=cause,
    )


def assert_causal(attention: Attention, sizes: AttentionSizes = DEFAULT_SIZES) -> None:
    """Asserts by gradient that an output depends on no later input, and on every earlier value.

    Args:
        attention: called as `attention(query, key, value, is_causal=True)`, with T = S.
        sizes: sizes of the arrays; the number of queries is not used.

    Raises:
        AssertionError: an output depends on a later query, key or value, or does not depend on an
            earlier value.

    Example:
        >>> assert_causal(jax.nn.dot_product_attention)
    """
    rule = "causal: the output at t must depend on the inputs up to t, and on no later ones"
    magnitudes = influence(
        lambda inputs: shaped(attention)(*inputs, is_causal=True),
        draw(dataclasses.replace(sizes, num_queries=sizes.num_keys)),
        rule=rule,
        output_axes=(1,),
        input_axes=(1,),
    )
    # Key gradients may be 0 (the softmax over one key is constant); value gradients may not.
    for name, reach in (("value", None), ("key", 0), ("query", 0)):
        of_input = magnitudes[("query", "key", "value").index(name)]
        check_causal_influence(rule, of_input, name=name, reach=reach)


_RESULTS = {
    "output": "B T N H",
    "gradient of the query": "B T N H",
    "gradient of the key": "B S K H",
    "gradient of the value": "B S K H",
}


def _outcome(attention: Attention) -> Callable[..., dict[str, np.ndarray]]:
    """Function from query, key, value, mask and cotangent to output and gradients, by name."""

    def outcome(*inputs: jax.Array) -> tuple[jax.Array, ...]:
        *arrays, mask, cotangent = inputs
        output, pull = jax.vjp(lambda *x: shaped(attention)(*x, mask=mask), *arrays)
        return output, *pull(cotangent.astype(output.dtype))

    call = compiled(outcome)
    return lambda *inputs: dict(zip(_RESULTS, fetch(call(*inputs)), strict=True))


def check_padding(attention: Attention, sizes: AttentionSizes, *, fill: float = 100.0) -> None:
    """Asserts that keys and values that are masked for every query have no effect.

    The last keys of each row are masked and overwritten with `fill`. Neither the output nor any
    gradient may change, and the gradients of masked keys and values must be exactly 0.
    """
    query, key, value = draw(sizes)
    rows = np.arange(sizes.batch_size)[:, None]
    is_real = np.arange(sizes.num_keys) < 1 + (rows + 1) % (sizes.num_keys - 1)  # [B, S]
    mask = np.broadcast_to(
        is_real[:, None, None], (sizes.batch_size, 1, sizes.num_queries, sizes.num_keys)
    )
    cotangent = np.ones((*query.shape[:3], sizes.value_dim), np.float32)

    def filled(array: jax.Array) -> jax.Array:
        return jnp.where(is_real[..., None, None], array, jnp.asarray(fill, array.dtype))

    outcome = _outcome(attention)
    expected = outcome(query, key, value, mask, cotangent)
    for name in ("gradient of the key", "gradient of the value"):
        expected[name] = np.where(is_real[..., None, None], expected[name], 0)
    got = outcome(query, filled(key), filled(value), mask, cotangent)
    for name, axes in _RESULTS.items():
        check_close(
            f"padding: the contents of hidden keys and values, here {fill}, must have no effect",
            got[name],
            expected[name],
            name=name,
            axes=axes,
            tolerance=tolerance_of(sizes.dtype),
            cause="0 * NaN is NaN: set hidden keys and values to 0 with jnp.where before they are "
            "multiplied"
            if np.isnan(fill)
            else "weights that are zeroed after the softmax but not renormalized, a mask that is "
            "not low enough (use -inf or jnp.where), or a sum over all keys outside the softmax",
        )


def assert_fully_masked_rows_are_zero(
    attention: Attention, sizes: AttentionSizes = DEFAULT_SIZES
) -> None:
    """Asserts that a query without visible keys has output 0 and gradients of 0.

    Such rows occur as padding of queries or of a batch. Any other output, such as NaN or the mean
    of all values, comes from masked values, and NaN gradients spread to all parameters.

    Args:
        attention: called as `attention(query, key, value, mask=mask)`.
        sizes: sizes of the arrays.

    Raises:
        AssertionError: an output or gradient of such a row is not 0, or another output is not
            finite.

    Example:
        >>> from jaxformer.functional import dot_product_attention
        >>> assert_fully_masked_rows_are_zero(dot_product_attention)
    """
    query, key, value = draw(sizes)
    mask, empty = draw_mask(sizes), np.zeros((sizes.batch_size, sizes.num_queries), bool)
    empty[0, 1] = empty[1, 0] = True
    mask = mask & ~empty[:, None, :, None]

    rows = np.broadcast_to(empty[..., None, None], (*query.shape[:3], sizes.value_dim))
    results = _outcome(attention)(query, key, value, mask, rows.astype(np.float32))
    output = results["output"]
    if np.isnan(output[rows]).any():
        cause = "a softmax over only -inf is 0 / 0"
    elif (output[rows] != 0).any():
        cause = "fully masked scores still give weights; over equal low scores, they are uniform"
    else:
        cause = (
            "the output is set to 0 after the softmax, but the gradient still flows through the "
            "softmax, where 0 * NaN is NaN"
        )
    cause += (
        "; use jnp.where twice: before the softmax, to replace the scores of fully masked rows "
        "with a finite number, and after it, to set their weights to 0"
    )
    for name, array in results.items():
        is_zero = rows if name == "output" else np.ones(array.shape, bool)
        wrong = np.where(is_zero, array != 0, ~np.isfinite(array))
        if wrong.any():
            index = first_index(wrong)
            place = named_index(name, _RESULTS[name], index)
            fail(
                "empty rows: a query without visible keys must give exactly 0, with gradients of "
                "exactly 0",
                where=f"{place}, one of {int(wrong.sum())} elements",
                got=f"{array[index]:.6g}",
                expected="exactly 0" if is_zero[index] else "a finite number",
                cause=cause,
            )

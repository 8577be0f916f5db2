"""The attention contract: all assertions on an attention function at once."""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection

from jaxformer.errors import ConfigError
from jaxformer.testing.attention import (
    DEFAULT_SIZES,
    Attention,
    AttentionSizes,
    assert_scaled_dot_product,
    check_dtype,
    check_precision,
    check_shape,
)
from jaxformer.testing.masking import (
    assert_causal,
    assert_fully_masked_rows_are_zero,
    check_mask,
    check_padding,
)

__tracebackhide__ = True  # a failure in pytest shows the test's own line, not this module's


def _grouped_heads(attention: Attention, sizes: AttentionSizes) -> None:
    if sizes.group_size == 1:
        sizes = dataclasses.replace(
            sizes, num_heads=2 * sizes.num_heads, num_kv_heads=sizes.kv_heads
        )
    _assert_values("grouped heads: K key heads, each shared by N / K query heads", attention, sizes)


def _value_width(attention: Attention, sizes: AttentionSizes) -> None:
    if sizes.value_dim == sizes.head_dim:
        sizes = dataclasses.replace(sizes, value_head_dim=sizes.head_dim + 3)
    _assert_values("value width: values may be wider or narrower than keys", attention, sizes)


def _assert_values(claim: str, attention: Attention, sizes: AttentionSizes) -> None:
    """Checks the values; a function that raises does not support the claim and so fails."""
    try:
        assert_scaled_dot_product(attention, sizes)
    except AssertionError as error:
        raise AssertionError(f"{claim}\n{error}") from None
    except Exception as error:
        # `assert_attention_contract` collects the messages of all claims, so no cause would last.
        name, message = claim.partition(":")[0].replace(" ", "_"), str(error).strip()
        first_line = (message or "no message").splitlines()[0]
        raise AssertionError(
            f"{claim}\n  got:          {type(error).__name__}: {first_line}\n"
            "  likely cause: the function does not support it; to skip this claim, pass "
            f"without=({name!r},)"
        ) from None


_CHECKS: dict[str, Callable[[Attention, AttentionSizes], None]] = {
    "shape": check_shape,
    "dtype": check_dtype,
    "values": assert_scaled_dot_product,
    "grouped_heads": _grouped_heads,
    "value_width": _value_width,
    "precision": check_precision,
    "causal": assert_causal,
    "mask": check_mask,
    "padding": check_padding,
    "nan_padding": functools.partial(check_padding, fill=math.nan),
    "empty_rows": assert_fully_masked_rows_are_zero,
}
ATTENTION_CLAIMS = tuple(_CHECKS)


def assert_attention_contract(
    attention: Attention, sizes: AttentionSizes = DEFAULT_SIZES, *, without: Collection[str] = ()
) -> None:
    """Asserts that attention keeps the contract of `jaxformer.functional.dot_product_attention`.

    | claim | what must hold |
    |---|---|
    | shape | the output is one array `[B, T, N, Hv]` |
    | dtype | the output has the dtype of the inputs: float32, bfloat16, float16 |
    | values | `assert_scaled_dot_product` |
    | grouped_heads | values, with fewer key heads than query heads |
    | value_width | values, with values and keys of different width |
    | precision | bfloat16 inputs have scores and softmax in float32 |
    | causal | `assert_causal` |
    | mask | a query attends to exactly the values that the mask allows (by gradient) |
    | padding | keys and values that every query's mask hides change no output or gradient |
    | nan_padding | the same if they are NaN |
    | empty_rows | `assert_fully_masked_rows_are_zero` |

    Checks all claims and reports all failures together. A wrong shape ends the check, and so does a
    failing mask, because the last three claims build on it.

    Args:
        attention: called as `attention(query, key, value)`, also with `mask=`, bool
            `[B, 1, T, S]`, True = attend, and with `is_causal=True`.
        sizes: sizes of the arrays. The claims grouped_heads and value_width change them, unless
            they already have grouped heads, or values of another width.
        without: claims to skip, such as "mask", "padding", "nan_padding" and "empty_rows" for a
            function without a mask.

    Raises:
        AssertionError: a claim does not hold.
        ConfigError: `without` names an unknown claim.

    Example:
        >>> import jax
        >>> lacks = ("value_width", "mask", "padding", "nan_padding", "empty_rows")
        >>> assert_attention_contract(jax.nn.dot_product_attention, without=lacks)
    """
    unknown = sorted(set(without) - set(_CHECKS))
    if unknown or isinstance(without, str) or len(set(without)) == len(_CHECKS):
        raise ConfigError(
            f"without must be a collection of some of {', '.join(_CHECKS)}, got {without!r}"
        )
    claims = [claim for claim in _CHECKS if claim not in without]
    failures, skipped = [], []
    for number, claim in enumerate(claims, start=1):
        try:
            _CHECKS[claim](attention, sizes)
        except AssertionError as error:
            failures.append(str(error))
            if claim in ("shape", "mask"):  # what follows would fail for the same reason
                skipped = claims[number:]
                break
    if failures:
        notes = [f"{', '.join(sorted(without))} left out"] if without else []
        notes += [f"{', '.join(skipped)} not reached"] if skipped else []
        raise AssertionError(
            f"{len(failures)} of {len(claims)} claims of the attention contract do not hold"
            f"{' (' + '; '.join(notes) + ')' if notes else ''}\n\n" + "\n\n".join(failures)
        )

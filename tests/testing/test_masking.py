import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.testing import AttentionSizes, assert_causal, assert_fully_masked_rows_are_zero
from jaxformer.testing.influence import check_causal_influence
from tests.testing.foreign import GROUPED, attention, check


def softmax_attention(query, key, value, allowed, hide, after=lambda weights, allowed: weights):
    scores = jnp.einsum("btnh,bsnh->bnts", query, key) / 4
    weights = after(jax.nn.softmax(hide(scores, allowed), axis=-1), allowed)
    return jnp.einsum("bnts,bsnh->btnh", weights, value)


def mask_ignored(query, key, value, mask):
    return attention(query, key, value)


def mask_inverted(query, key, value, mask):
    return attention(query, key, value, mask=~mask)


def mask_without_its_head_axis(query, key, value, mask):
    """[B, T, S] against weights [B, N, T, S], which raises only where B is not N."""
    mask = mask[:, 0][None]
    return softmax_attention(query, key, value, mask, lambda s, m: jnp.where(m, s, -1e30))


def mask_paired_with_key_heads(query, key, value, mask):
    """[B, 1, T, S] against weights [B, K, G, T, S]."""
    groups = query.shape[2] // key.shape[2]
    query = query.reshape(*query.shape[:2], key.shape[2], groups, -1)
    scores = jnp.einsum("btkgh,bskh->bkgts", query, key)
    weights = jax.nn.softmax(jnp.where(mask[None], scores, -1e30), axis=-1)
    output = jnp.einsum("bkgts,bskh->btkgh", weights, value)
    return output.reshape(*output.shape[:2], -1, output.shape[-1])


def rows_mixed(query, key, value, mask):
    return attention(query, key, value, mask=mask) + value.mean() * 1e-3


@pytest.mark.parametrize(
    ("broken", "cause", "sizes"),
    [
        (mask_ignored, "is False\n.*= 0.*\n.*exactly 0\n.*the mask is not used", AttentionSizes()),
        (mask_inverted, 'inverted: True is read as "hide", should', AttentionSizes()),
        (mask_without_its_head_axis, r"along the wrong axis: .*mask\[:, None\]", AttentionSizes()),
        (mask_paired_with_key_heads, "along the wrong axis", GROUPED),
        (rows_mixed, "rows of the batch or heads are mixed: query head n should", GROUPED),
    ],
)
def test_mask_check_names_the_mistake(broken, cause, sizes):
    with pytest.raises(AssertionError, match=rf"output\[b=.*mask\[b=(.*\n)*.*{cause}"):
        check("mask", broken, sizes)


def causal_by(rule):
    """Attention where the query at t sees the key at s if rule(t, s)."""

    def broken(query, key, value, is_causal):
        place = jnp.arange(query.shape[1])
        return attention(query, key, value, mask=rule(place[:, None], place[None])[None, None])

    return broken


def normalized_over_time(query, key, value, is_causal):
    return attention(query - query.mean(1, keepdims=True), key, value, is_causal=True)


@pytest.mark.essential
@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (causal_by(lambda t, s: s <= t + 1), r"position 0, value at position 1; 6 such pairs "
         r"in total\n.*got: +\|d output / d input\| = \S+\n.*exactly 0\n"
         r".*off by one: it is s <= t \+ 1, should"),
        (causal_by(lambda t, s: s < t), r"got: .* = 0\n.*more than 0\n.*is s < t, should"),
        (normalized_over_time, r"query at position(.*\n)*.*a mean or normalization over time"),
    ],
)  # fmt: skip
def test_causal_check_names_the_mistake(broken, message):
    with pytest.raises(AssertionError, match=message):
        assert_causal(broken)


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        (lambda t, s: s == s, "nothing is masked, the mask is transposed"),
        (lambda t, s: (s > t) | (t == 6), "the mask is inverted"),
        (lambda t, s: s // 2 <= t // 2, "an operation reaches later positions"),
        (lambda t, s: (s <= t) & (s > t - 3), "earlier positions are out of reach"),
        (lambda t, s: np.where(s == t, np.nan, s <= t), None),
        (lambda t, s: np.where(s > t, np.nan, 1), "later positions"),
    ],
)
def test_causal_check_tells_patterns_apart(rule, cause):
    pattern = rule(*np.indices((7, 7))).astype(float)
    if cause is None:
        check_causal_influence("rule", pattern, name="x", reach=None)
        return
    with pytest.raises(AssertionError, match=cause):
        check_causal_influence("rule", pattern, name="x", reach=None)


def not_renormalized(query, key, value, mask):
    return softmax_attention(query, key, value, mask, lambda s, m: s, lambda w, m: w * m)


def not_low_enough(query, key, value, mask):
    return softmax_attention(query, key, value, mask, lambda s, m: s + jnp.where(m, 0, -50))


@pytest.mark.essential
@pytest.mark.parametrize("broken", [not_renormalized, not_low_enough, mask_ignored])
def test_padding_check_catches(broken):
    with pytest.raises(AssertionError, match=r"100.0, .*\n.*output\[(.*\n)*.*not renormalized"):
        check("padding", broken)


def test_padding_check_catches_what_only_the_gradient_shows():
    def gradient_leaks(query, key, value, mask):
        hidden = ~mask.any(2)[:, 0, :, None, None]
        rest = jnp.where(hidden, value, 0).sum() * 1e-3
        return attention(query, key, value, mask=mask) + rest - jax.lax.stop_gradient(rest)

    with pytest.raises(AssertionError, match=r"gradient of the value\[b=0, s=2"):
        check("padding", gradient_leaks)


def test_nan_padding_check_catches_jax_nn_which_passes_the_weaker_one():
    check("padding", jax.nn.dot_product_attention)
    with pytest.raises(AssertionError, match=r"output\[(.*\n).*nan\n(.*\n).*0 \* NaN is NaN"):
        check("nan_padding", jax.nn.dot_product_attention)


def infinitely_low(query, key, value, mask):
    return softmax_attention(query, key, value, mask, lambda s, m: jnp.where(m, s, -jnp.inf))


def zeroed_too_late(query, key, value, mask):
    output = infinitely_low(query, key, value, mask)
    return jnp.where(mask.any(-1).swapaxes(1, 2)[..., None], output, 0)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (jax.nn.dot_product_attention, r"output\[b=0, t=1, n=0, h=0\], one of 96 elements\n(.*\n)*"
         ".*still give weights; over equal low scores, they are uniform"),
        (infinitely_low, r"got: +nan\n.*exactly 0\n.*0 / 0"),
        (zeroed_too_late, r"gradient of the value\[b=0, s=0(.*\n)*"
         r".*0 \* NaN is NaN"),
    ],
)  # fmt: skip
def test_empty_row_check_names_the_mistake(broken, message):
    with pytest.raises(AssertionError, match=message):
        assert_fully_masked_rows_are_zero(broken)


def test_empty_row_check_catches_nan_in_other_rows():
    def nan_elsewhere(query, key, value, mask):
        output = attention(query, key, value, mask=mask)
        return jnp.where(mask.any(-1).swapaxes(1, 2)[..., None], jnp.nan, output)

    with pytest.raises(AssertionError, match="expected: +a finite number"):
        assert_fully_masked_rows_are_zero(nan_elsewhere)

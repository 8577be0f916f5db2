import re

import jax
import jax.numpy as jnp
import pytest

from jaxformer.errors import ConfigError
from jaxformer.functional import dot_product_attention
from jaxformer.testing import ATTENTION_CLAIMS, assert_attention_contract
from tests.testing.foreign import GROUPED, attention, check


@pytest.mark.parametrize("function", [dot_product_attention, attention])
def test_attention_keeps_the_contract(function):
    assert_attention_contract(function, GROUPED)


def test_contract_reports_the_three_claims_that_jax_nn_breaks_and_no_others():
    with pytest.raises(AssertionError) as caught:
        assert_attention_contract(jax.nn.dot_product_attention)
    message = str(caught.value)
    assert message.startswith(
        "3 of 11 claims of the attention contract do not hold\n\nvalue width: "
    )
    assert "pass without=('value_width',)" in message
    assert message.count("likely cause:") == 3
    assert "\n\npadding: " in message and "\n\nempty rows: " in message


def test_contract_tries_grouped_heads_without_being_told():
    """Key heads that are tiled are in the order n % K, where n // (N / K) is right."""

    def tiled(query, key, value, **keywords):
        groups = query.shape[2] // key.shape[2]
        key, value = (jnp.tile(x, (1, 1, groups, 1)) for x in (key, value))
        return attention(query, key, value, **keywords)

    other_claims = [claim for claim in ATTENTION_CLAIMS if claim not in ("values", "grouped_heads")]
    with pytest.raises(AssertionError, match=r"1 of 2 claims .*left out\)\n\ngrouped heads: "):
        assert_attention_contract(tiled, without=other_claims)


@pytest.mark.essential
def test_contract_checks_every_claim_and_leaves_out_what_it_is_told():
    def fails_all(query, key, value, *, mask=None, is_causal=False):
        return (query + jnp.nan).astype(jnp.float32)

    with pytest.raises(AssertionError, match="7 of 11 claims") as caught:
        assert_attention_contract(fails_all)
    assert str(caught.value).count("likely cause:") == 7
    for claim in ("dtype", "padding"):
        with pytest.raises(AssertionError, match=f"1 of 1 claims(.*\n)*{claim}: "):
            check(claim, fails_all)


def test_contract_stops_at_a_wrong_shape():
    with pytest.raises(AssertionError, match=r"1 of 11 claims(.*\n)*shape: .*(.*\n)*.*back behind"):
        assert_attention_contract(lambda *args, **kw: attention(*args, **kw).swapaxes(1, 2))


@pytest.mark.parametrize(
    ("low", "flipped", "failures", "cause"),
    [
        (-5.0, False, 2, "(the mask|nothing) is .*not low enough"),
        (-1e30, True, 1, "the mask is inverted"),
    ],
)
def test_contract_names_one_cause_of_a_wrong_mask(low, flipped, failures, cause):
    """What is not reached would fail for the same reason, and name others."""

    def wrong(query, key, value, *, mask=None, is_causal=False):
        shown = jnp.ones((1, 1, query.shape[1], key.shape[1]), bool)
        if is_causal:
            shown = jnp.tril(shown)
        elif mask is not None:
            shown = ~mask if flipped else mask
        scores = jnp.einsum("btnh,bsnh->bnts", query, key) / query.shape[-1] ** 0.5
        weights = jax.nn.softmax(scores + jnp.where(shown, 0, low))
        return jnp.einsum("bnts,bsnh->btnh", weights, value)

    lacks = [c for c in ATTENTION_CLAIMS if c not in ("causal", "mask", "padding", "empty_rows")]
    message = rf"^{failures} of 4 claims .*left out; padding, empty_rows not reached\)"
    with pytest.raises(AssertionError, match=message) as caught:
        assert_attention_contract(wrong, without=lacks)
    assert len(re.findall(f"likely cause: {cause}", str(caught.value))) == failures


@pytest.mark.parametrize("without", [("masks",), "mask", ATTENTION_CLAIMS])
def test_contract_refuses_claims_that_there_are_not(without):
    with pytest.raises(ConfigError, match="some of shape, dtype, values"):
        assert_attention_contract(attention, without=without)

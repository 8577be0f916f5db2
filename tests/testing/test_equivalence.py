import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import ConfigError
from jaxformer.testing import assert_cached_decoding_equals_full, assert_scanned_equals_looped

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(11, size=(2, 7))
TABLE, POSITIONS = jnp.asarray(RANDOM.standard_normal((2, 11, 3)))


def attend(query, key, allowed):
    scores = jnp.einsum("btd,bsd->bts", query, key)
    weights = jax.nn.softmax(jnp.where(allowed[None], scores, -1e30), axis=-1)
    return jnp.einsum("bts,bsd->btd", weights, key) @ TABLE.T


def full(tokens):
    """A language model of one attention layer."""
    x = TABLE[tokens] + POSITIONS[None, : tokens.shape[1]]
    return attend(x, x, jnp.tril(jnp.ones((tokens.shape[1],) * 2, bool)))


def empty():
    return jnp.zeros((2, 9, 3)), jnp.int32(0)


def step(tokens, cache, position=0, slot=0, advance=True, visible=lambda s, t, end: s <= t):
    """The same with a cache, and with ways to get it wrong."""
    keys, length = cache
    new = jnp.arange(tokens.shape[1])
    x = TABLE[tokens] + POSITIONS[new + (length if advance else 0) + position][None]
    keys = jax.lax.dynamic_update_slice(keys, x, (0, length + slot, 0))
    end = length + tokens.shape[1]
    allowed = visible(jnp.arange(keys.shape[1])[None], (length + new)[:, None], end)
    return attend(x, keys, allowed), (keys, end)


def test_plain_function_decodes_with_a_cache_what_it_computes_in_full():
    assert_cached_decoding_equals_full(full, step, empty, TOKENS)
    assert_cached_decoding_equals_full(full, step, empty, TOKENS, chunks=[(7,), (2, 2, 3)])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"advance": False}, "chunks of 1, 1, 1, .*\n(.*\n)*.*position 1, .*these: positions, or"),
        ({"slot": 1}, "position 0, which suggests one of these: the empty slots of the"),
        ({"position": 1}, "position 0, .*positions do not start where"),
        ({"visible": lambda s, t, end: (s < t) | (t == 0) & (s == 0)}, "misses the newest token"),
        ({"visible": lambda s, t, end: s + 0 * t < end},
         "chunks of 3, 1, 1, 1, 1\n(.*\n)*.*position 0, .*causal mask among themselves"),
    ],
)  # fmt: skip
def test_cached_decoding_check_names_the_mistake(fault, message):
    with pytest.raises(AssertionError, match=message):
        assert_cached_decoding_equals_full(full, functools.partial(step, **fault), empty, TOKENS)


def test_cached_decoding_check_looks_at_the_chunks_it_is_given():
    prefill_wrong = functools.partial(step, visible=lambda s, t, end: s + 0 * t < end)
    assert_cached_decoding_equals_full(full, prefill_wrong, empty, TOKENS, chunks=[[1] * 7])
    with pytest.raises(ConfigError, match=r"add up to T=7, got \(3, 3\)"):
        assert_cached_decoding_equals_full(full, step, empty, TOKENS, chunks=[(3, 3)])


def test_cached_decoding_check_wants_logits_of_all_tokens_of_a_step():
    def last_only(tokens, cache):
        logits, cache = step(tokens, cache)
        return logits[:, -1:], cache

    with pytest.raises(AssertionError, match=r"got: +shape \(2, 1, 11\)\n.*leading sizes \(2, 3\)"):
        assert_cached_decoding_equals_full(full, last_only, empty, TOKENS)


KERNELS = jnp.asarray(RANDOM.standard_normal((3, 2, 2)))
X = jnp.asarray(RANDOM.standard_normal((5, 2)))


def layer(x, kernel):
    return jnp.tanh(x @ kernel)


def looped(kernels, x):
    return functools.reduce(layer, kernels, x)


def scanned(kernels, x, **options):
    return jax.lax.scan(lambda x, kernel: (layer(x, kernel), None), x, kernels, **options)[0]


@pytest.mark.essential
def test_plain_scan_equals_its_loop():
    assert_scanned_equals_looped(scanned, looped, KERNELS, X)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (functools.partial(scanned, reverse=True), "'output'"),
        (lambda kernels, x: scanned(kernels[:1].repeat(3, axis=0), x), "'output'"),
        (lambda kernels, x: scanned(jax.lax.stop_gradient(kernels), x), "'gradient'"),
        (lambda kernels, x: jax.lax.scan(lambda x, k: (layer(x, k),) * 2, x, kernels), "tree"),
        (lambda kernels, x: scanned(kernels, x).astype(jnp.bfloat16), "dtype"),
        (lambda kernels, x: scanned(kernels, x).at[0].set(jnp.nan), "finite"),
    ],
)  # fmt: skip
def test_scan_check_catches(broken, message):
    with pytest.raises(AssertionError, match=message):
        assert_scanned_equals_looped(broken, looped, KERNELS, X)


def test_scan_check_knows_what_is_rounding():
    """Of a softmax, the gradient of a shift is 0 but for rounding."""

    def shifted(sign):
        return lambda shift, x: jax.nn.softmax(x + shift + sign * 1e-7)

    assert_scanned_equals_looped(shifted(1), shifted(-1), jnp.float32(0.3), X)


def test_scan_check_refuses_what_is_not_finite():
    both = lambda kernels, x: scanned(kernels, x) * jnp.inf  # noqa: E731
    with pytest.raises(AssertionError, match="finite"):
        assert_scanned_equals_looped(both, both, KERNELS, X)

"""Cross-entropy of logits, and in chunks of tokens, where the table is the identity."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.errors import DataError
from jaxformer.functional import chunked_cross_entropy, cross_entropy
from tests.functional import oracle

SHAPE, VOCAB = (2, 3), 7
STATIC = ("label_smoothing", "ignore_label", "z_loss")


def in_chunks(logits, labels, **options):
    return chunked_cross_entropy(logits, np.eye(VOCAB), labels, chunk_size=4, **options)


def with_gradient(loss):
    """Loss and weight, and the gradient of the loss by the logits; labels are traced."""
    return jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnames=STATIC)


FUNCTIONS = {"dense": cross_entropy, "chunked": in_chunks}
COMPILED = {name: with_gradient(function) for name, function in FUNCTIONS.items()}
EACH = pytest.mark.parametrize("name", FUNCTIONS)


def random_logits(seed, dtype=np.float32, shape=SHAPE):
    return (3 * np.random.default_rng(seed).standard_normal((*shape, VOCAB))).astype(dtype)


def random_labels(seed, shape=SHAPE):
    return np.asarray(np.random.default_rng(seed).integers(0, VOCAB, shape))


def reference(logits, labels, label_smoothing=0.0, **options):
    """Loss, weight and gradient in float64: logits are hidden states of an identity matrix."""
    results, (gradient, _) = oracle.cross_entropy(
        logits, np.eye(VOCAB), labels, label_smoothing, **options
    )
    return results, gradient


OPTIONS = [
    {},
    {"label_smoothing": 0.1},
    {"z_loss": 0.25},
    {"label_smoothing": 0.3, "z_loss": 1e-2, "ignore_label": None},
    {"ignore_label": 0},
    {"ignore_label": -100},
]


@pytest.mark.essential
@EACH
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    options=st.sampled_from(OPTIONS),
    ignored=st.lists(st.booleans(), min_size=6, max_size=6),
    shift=st.sampled_from([0, 100, -1000]),
)
def test_cross_entropy_and_its_gradient_equal_float64(name, seed, options, ignored, shift):
    logits, labels = random_logits(seed) + np.float32(shift), random_labels(seed)
    ignore_label = options.get("ignore_label", -1)
    if ignore_label is not None:
        labels[np.reshape(ignored, SHAPE)] = ignore_label
    (loss, weight), gradient = COMPILED[name](logits, labels, **options)
    (expected, count), slopes = reference(logits, labels, **options)
    assert loss.shape == weight.shape == () and weight == count
    assert loss.dtype == gradient.dtype == jnp.float32
    tolerance = 2e-6 * max(1, abs(shift))
    np.testing.assert_allclose(loss, expected, rtol=2e-6, atol=tolerance)
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=50 * tolerance)


@EACH
def test_cross_entropy_without_any_counted_label_is_zero(name):
    results = COMPILED[name](random_logits(3), np.full(SHAPE, -1))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(results))


@EACH
@pytest.mark.parametrize("leading", [(0,), (2, 0), ()])
def test_cross_entropy_takes_any_leading_axes(name, leading):
    inputs = random_logits(4, shape=leading), random_labels(4, leading)
    chex.assert_trees_all_close(COMPILED[name](*inputs), reference(*inputs), rtol=1e-5, atol=1e-5)


@EACH
def test_cross_entropy_of_float64_stays_float64(name):
    logits, labels = random_logits(6, np.float64), random_labels(6)
    with jax.enable_x64(True):
        results = COMPILED[name](logits, labels, label_smoothing=0.2, z_loss=0.1)
        assert {leaf.dtype for leaf in jax.tree.leaves(results)} == {jnp.dtype(np.float64)}
        chex.assert_trees_all_close(
            results, reference(logits, labels, 0.2, z_loss=0.1), rtol=1e-13, atol=1e-13
        )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_cross_entropy_of_narrow_logits_is_that_of_their_float32_values(dtype):
    logits, labels = jnp.asarray(random_logits(7), dtype), random_labels(7)
    (loss, weight), _ = COMPILED["dense"](logits, labels, z_loss=0.25)
    assert loss.dtype == weight.dtype == jnp.float32
    expected = reference(np.asarray(logits, np.float64), labels, z_loss=0.25)[0][0]
    np.testing.assert_allclose(loss, expected, rtol=2e-6)


def test_cross_entropy_is_stable_for_huge_logits():
    logits = np.zeros((*SHAPE, VOCAB), np.float32)
    logits[..., 2], logits[..., 3] = 1e30, -1e30
    (loss, _), gradient = COMPILED["dense"](logits, np.full(SHAPE, 2))
    assert loss == 0 and not gradient.any()
    (loss, _), gradient = COMPILED["dense"](logits, np.full(SHAPE, 3))
    np.testing.assert_allclose(loss, 6 * 2e30, rtol=1e-6)
    np.testing.assert_array_equal(gradient[0, 0], [0, 0, 1, -1, 0, 0, 0])


def test_cross_entropy_lets_tokens_be_ruled_out():
    logits = random_logits(8)
    logits[..., 4:] = -np.inf
    labels = random_labels(8) % 4
    (loss, _), gradient = COMPILED["dense"](logits, labels)
    finite = reference(np.where(np.isfinite(logits), logits, -1e9), labels)[0][0]
    np.testing.assert_allclose(loss, finite, rtol=2e-6)
    assert not gradient[..., 4:].any()


@EACH
@pytest.mark.parametrize("bad", [VOCAB, -1, -2, VOCAB + 100])
@pytest.mark.parametrize("ignore_label", [None, -100])
def test_cross_entropy_of_a_known_bad_label_names_its_index(name, bad, ignore_label):
    labels = random_labels(9)
    labels[0, 1] = -100 if ignore_label else 0
    labels[1, 2] = bad
    for known in (labels, jnp.asarray(labels)):
        with pytest.raises(DataError) as error:
            FUNCTIONS[name](jnp.asarray(random_logits(9)), known, ignore_label=ignore_label)
        assert f"got {bad} at index (1, 2)" in str(error.value)
        assert f"V-1 = {VOCAB - 1} or ignore_label={ignore_label}" in str(error.value)


@EACH
@pytest.mark.parametrize(
    ("bad", "options"),
    [
        *((bad, {"label_smoothing": 0.1}) for bad in (VOCAB, -2, -VOCAB)),
        *((bad, {"ignore_label": ignored}) for bad in (VOCAB, -1, -2) for ignored in (None, -100)),
    ],
)
def test_cross_entropy_of_a_traced_bad_label_is_nan(name, bad, options):
    labels = random_labels(10)
    labels[1, 1] = bad
    loss, weight = COMPILED[name](random_logits(10), labels, **options)[0]
    assert np.isnan(loss) and weight == 6


@EACH
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_cross_entropy_and_its_gradient_ignore_the_logits_of_ignored_labels(name, poison):
    logits, labels = random_logits(12), random_labels(12)
    labels[0, 2] = -1
    expected = COMPILED[name](logits, labels)
    logits[0, 2, 3] = poison
    results = COMPILED[name](logits, labels)
    chex.assert_trees_all_equal(results, expected)
    assert not results[1][0, 2].any()


@EACH
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint32, np.int64, np.uint64])
def test_cross_entropy_takes_labels_of_any_integer_dtype(name, dtype):
    """The largest unsigned label is not taken for -1, nor one beyond 32 bits for its rest."""
    logits, labels = np.zeros((2, VOCAB), np.float32), np.array([0, VOCAB - 1], dtype)
    with jax.enable_x64(True):
        (loss, weight), _ = COMPILED[name](logits, labels)
        np.testing.assert_allclose(loss, 2 * np.log(VOCAB), rtol=1e-6)
        assert weight == 2
        bad = [np.iinfo(dtype).max] + ([2**32] if np.iinfo(dtype).bits == 64 else [])
        for label in bad:
            labels[0] = label
            (loss, weight), _ = COMPILED[name](logits, labels)
            assert np.isnan(loss) and weight == 2

"""Cross-entropy of logits, and in chunks of tokens, where the table is the identity."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.errors import DataError
from jaxformer.functional import chunked_cross_entropy, cross_entropy

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


def reference(logits, labels, label_smoothing=0.0, ignore_label=-1, z_loss=0.0):
    """Loss, weight and gradient in float64, label by label."""
    logits = np.asarray(logits, np.float64)
    loss, weight, gradient = 0.0, 0, np.zeros_like(logits)
    for index in np.ndindex(labels.shape):
        row, label = logits[index], labels[index]
        if ignore_label is not None and label == ignore_label:
            continue
        log_normalizer = row.max() + np.log(np.exp(row - row.max()).sum())
        target = np.full(VOCAB, label_smoothing / VOCAB)
        target[label] += 1 - label_smoothing
        loss += target @ (log_normalizer - row) + z_loss * log_normalizer**2
        weight += 1
        gradient[index] = np.exp(row - log_normalizer) * (1 + 2 * z_loss * log_normalizer) - target
    return (loss, weight), gradient


def assert_equal(results, expected, tolerance):
    for result, value in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(result, value, rtol=tolerance, atol=tolerance)


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


def test_gradient_of_the_reference_is_that_of_its_loss():
    logits, labels = random_logits(5, np.float64), random_labels(5)
    labels[0, 1] = -1
    options = {"label_smoothing": 0.2, "z_loss": 0.1}
    gradient = reference(logits, labels, **options)[1]
    for index in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[index] = 1e-5
        ahead, behind = (reference(logits + d, labels, **options)[0][0] for d in (step, -step))
        np.testing.assert_allclose(gradient[index], (ahead - behind) / 2e-5, rtol=0, atol=1e-8)


@EACH
def test_cross_entropy_is_the_same_eagerly_and_jitted(name):
    logits, labels = jnp.asarray(random_logits(0)), random_labels(0)
    labels[1, 2] = -1
    expected = COMPILED[name](logits, labels, label_smoothing=0.1)[0]
    assert expected[1] == 5
    for known_labels in (labels, jnp.asarray(labels)):
        assert_equal(FUNCTIONS[name](logits, known_labels, label_smoothing=0.1), expected, 1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_agrees_with_optax(smoothing):
    logits, labels = random_logits(1), random_labels(1)
    (loss, weight), _ = COMPILED["dense"](logits, labels, label_smoothing=smoothing)
    targets = optax.smooth_labels(jax.nn.one_hot(labels, VOCAB), smoothing)
    expected = optax.softmax_cross_entropy(logits, targets).sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert weight == 6


def test_cross_entropy_sums_over_shards():
    logits, labels = random_logits(2), random_labels(2)
    labels[0, :2] = -1
    (loss, weight), _ = COMPILED["dense"](logits, labels, z_loss=0.25)
    shards = [
        COMPILED["dense"](logits[i : i + 1], labels[i : i + 1], z_loss=0.25)[0] for i in range(2)
    ]
    np.testing.assert_allclose(sum(loss for loss, _ in shards), loss, rtol=1e-6)
    assert [float(count) for _, count in shards] == [1, 3]
    assert weight == 4


@EACH
def test_cross_entropy_without_any_counted_label_is_zero(name):
    results = COMPILED[name](random_logits(3), np.full(SHAPE, -1))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(results))


@EACH
@pytest.mark.parametrize("leading", [(0,), (2, 0), ()])
def test_cross_entropy_takes_any_leading_axes(name, leading):
    inputs = random_logits(4, shape=leading), random_labels(4, leading)
    assert_equal(COMPILED[name](*inputs), reference(*inputs), 1e-5)


@EACH
def test_cross_entropy_of_float64_stays_float64(name):
    logits, labels = random_logits(6, np.float64), random_labels(6)
    with jax.enable_x64(True):
        results = COMPILED[name](logits, labels, label_smoothing=0.2, z_loss=0.1)
        assert {leaf.dtype for leaf in jax.tree.leaves(results)} == {jnp.dtype(np.float64)}
        assert_equal(results, reference(logits, labels, 0.2, z_loss=0.1), 1e-13)


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
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"ignore_label": None}])
@pytest.mark.parametrize("bad", [VOCAB, -2, -VOCAB])
def test_cross_entropy_of_a_traced_bad_label_is_nan(name, bad, options):
    labels = random_labels(10)
    labels[1, 1] = bad
    loss, weight = COMPILED[name](random_logits(10), labels, **options)[0]
    assert np.isnan(loss)
    assert weight == 6


@EACH
def test_cross_entropy_of_a_traced_minus_one_is_nan_when_nothing_is_ignored(name):
    labels = random_labels(11)
    labels[0, 0] = -1
    losses = [
        COMPILED[name](random_logits(11), labels, ignore_label=ignore_label)[0][0]
        for ignore_label in (None, -100, -1)
    ]
    assert np.isnan(losses).tolist() == [True, True, False]


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


def test_cross_entropy_counts_unsigned_labels():
    _, weight = jax.jit(cross_entropy)(np.zeros((1, 257), np.float32), np.array([255], np.uint8))
    assert weight == 1


@EACH
def test_cross_entropy_does_not_take_a_huge_unsigned_label_for_minus_one(name):
    labels = jnp.array([2**32 - 1], jnp.uint32)
    loss, weight = COMPILED[name](np.zeros((1, VOCAB), np.float32), labels)[0]
    assert np.isnan(loss)
    assert weight == 1


@EACH
def test_cross_entropy_takes_64_bit_labels(name):
    with jax.enable_x64(True):
        for dtype in (np.uint64, np.int64):
            logits, labels = np.zeros((2, VOCAB), np.float32), np.array([0, VOCAB - 1], dtype)
            loss = COMPILED[name](logits, labels)[0][0]
            np.testing.assert_allclose(loss, 2 * np.log(VOCAB), rtol=1e-6)
            assert np.isnan(COMPILED[name](logits, labels + 2**32)[0][0])

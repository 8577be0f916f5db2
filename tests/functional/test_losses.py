import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.errors import DataError
from jaxformer.functional import cross_entropy

SHAPE, VOCAB = (2, 3), 7
loss_of = jax.jit(
    cross_entropy, static_argnames=("label_smoothing", "ignore_label", "z_loss")
)  # labels are traced


def random_logits(seed, dtype=np.float32, scale=3.0):
    return (scale * np.random.default_rng(seed).standard_normal((*SHAPE, VOCAB))).astype(dtype)


def random_labels(seed):
    return np.random.default_rng(seed).integers(0, VOCAB, SHAPE)


def reference(logits, labels, label_smoothing=0.0, ignore_label=-1, z_loss=0.0):
    total, count = 0.0, 0
    for row, label in zip(np.float64(logits).reshape(-1, VOCAB), labels.ravel(), strict=True):
        if ignore_label is not None and label == ignore_label:
            continue
        log_normalizer = row.max() + np.log(np.exp(row - row.max()).sum())
        target = np.full(VOCAB, label_smoothing / VOCAB)
        target[label] += 1 - label_smoothing
        total += target @ (log_normalizer - row) + z_loss * log_normalizer**2
        count += 1
    return total, count


OPTIONS = [
    {},
    {"label_smoothing": 0.1},
    {"z_loss": 0.25},
    {"label_smoothing": 0.3, "z_loss": 1e-2, "ignore_label": None},
    {"ignore_label": 0},
    {"ignore_label": -100},
]


@pytest.mark.essential
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    options=st.sampled_from(OPTIONS),
    ignored=st.lists(st.booleans(), min_size=6, max_size=6),
    shift=st.sampled_from([0, 100, -1000]),
)
def test_cross_entropy_equals_float64(seed, options, ignored, shift):
    logits, labels = random_logits(seed) + np.float32(shift), random_labels(seed)
    ignore_label = options.get("ignore_label", -1)
    if ignore_label is not None:
        labels[np.reshape(ignored, SHAPE)] = ignore_label
    loss, weight = loss_of(logits, labels, **options)
    expected, count = reference(logits, labels, **options)
    assert loss.shape == weight.shape == ()
    assert loss.dtype == jnp.float32
    assert weight == count
    np.testing.assert_allclose(loss, expected, rtol=2e-6, atol=2e-6 * max(1, abs(shift)))


def test_cross_entropy_is_the_same_eagerly_and_jitted():
    logits, labels = jnp.asarray(random_logits(0)), random_labels(0)
    labels[1, 2] = -1
    for given_labels in (labels, jnp.asarray(labels)):
        loss, weight = cross_entropy(logits, given_labels, label_smoothing=0.1)
        jitted_loss, jitted_weight = loss_of(logits, labels, label_smoothing=0.1)
        np.testing.assert_allclose(loss, jitted_loss, rtol=1e-6)
        assert weight == jitted_weight == 5


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_agrees_with_optax(smoothing):
    logits, labels = random_logits(1), random_labels(1)
    loss, weight = loss_of(logits, labels, label_smoothing=smoothing)
    targets = optax.smooth_labels(jax.nn.one_hot(labels, VOCAB), smoothing)
    expected = optax.softmax_cross_entropy(logits, targets).sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert weight == 6


def test_cross_entropy_sums_over_shards():
    logits, labels = random_logits(2), random_labels(2)
    labels[0, :2] = -1
    loss, weight = loss_of(logits, labels, z_loss=0.25)
    shards = [loss_of(logits[i : i + 1], labels[i : i + 1], z_loss=0.25) for i in range(2)]
    np.testing.assert_allclose(sum(loss for loss, _ in shards), loss, rtol=1e-6)
    assert [float(count) for _, count in shards] == [1, 3]
    assert weight == 4


def test_cross_entropy_without_any_counted_label_is_zero():
    labels = np.full(SHAPE, -1)
    (loss, weight), gradient = jax.jit(
        lambda x: (cross_entropy(x, labels), jax.grad(lambda x: cross_entropy(x, labels)[0])(x))
    )(random_logits(3))
    assert loss == weight == 0
    np.testing.assert_array_equal(gradient, np.zeros((*SHAPE, VOCAB)))


def test_cross_entropy_gradient_is_softmax_minus_one_hot():
    logits, labels = random_logits(4), random_labels(4)
    labels[1, 0] = -1
    gradient = jax.jit(jax.grad(lambda x: cross_entropy(x, labels)[0]))(logits)
    expected = np.exp(np.float64(logits))
    expected /= expected.sum(-1, keepdims=True)
    expected -= np.eye(VOCAB)[labels]
    expected[1, 0] = 0
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6)
    assert not gradient[1, 0].any()


def test_cross_entropy_gradient_with_all_options_equals_finite_differences():
    logits, labels = random_logits(5, np.float64), random_labels(5)
    labels[0, 1] = -1
    options = {"label_smoothing": 0.2, "z_loss": 0.1}
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(lambda x: cross_entropy(x, labels, **options)[0]))(logits)
        assert gradient.dtype == jnp.float64
        gradient = np.array(gradient)
    for index in np.ndindex(*SHAPE, VOCAB):
        step = np.zeros(logits.shape)
        step[index] = 1e-5
        ahead = reference(logits + step, labels, **options)[0]
        behind = reference(logits - step, labels, **options)[0]
        np.testing.assert_allclose(gradient[index], (ahead - behind) / 2e-5, rtol=0, atol=1e-8)


def test_cross_entropy_of_float64_stays_float64():
    logits, labels = random_logits(6, np.float64), random_labels(6)
    with jax.enable_x64(True):
        loss, weight = loss_of(logits, labels)
        assert loss.dtype == weight.dtype == jnp.float64
        np.testing.assert_allclose(loss, reference(logits, labels)[0], rtol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_cross_entropy_of_narrow_logits_is_that_of_their_float32_values(dtype):
    logits, labels = jnp.asarray(random_logits(7), dtype), random_labels(7)
    loss, weight = loss_of(logits, labels, z_loss=0.25)
    assert loss.dtype == weight.dtype == jnp.float32
    expected = reference(np.asarray(logits, np.float64), labels, z_loss=0.25)[0]
    np.testing.assert_allclose(loss, expected, rtol=2e-6)


def test_cross_entropy_is_stable_for_huge_logits():
    logits = np.zeros((*SHAPE, VOCAB), np.float32)
    logits[..., 2], logits[..., 3] = 1e30, -1e30
    right, wrong = np.full(SHAPE, 2), np.full(SHAPE, 3)
    gradient = jax.jit(jax.grad(lambda x, labels: cross_entropy(x, labels)[0]))
    assert loss_of(logits, right)[0] == 0
    np.testing.assert_allclose(loss_of(logits, wrong)[0], 6 * 2e30, rtol=1e-6)
    np.testing.assert_array_equal(gradient(logits, right), np.zeros_like(logits))
    np.testing.assert_array_equal(gradient(logits, wrong)[0, 0], [0, 0, 1, -1, 0, 0, 0])


def test_cross_entropy_lets_tokens_be_ruled_out():
    logits = random_logits(8)
    logits[..., 4:] = -np.inf
    labels = random_labels(8) % 4
    loss, _ = loss_of(logits, labels)
    kept = reference(np.where(np.isfinite(logits), logits, -1e9), labels)[0]
    np.testing.assert_allclose(loss, kept, rtol=2e-6)
    gradient = jax.jit(jax.grad(lambda x: cross_entropy(x, labels)[0]))(logits)
    np.testing.assert_array_equal(gradient[..., 4:], np.zeros((*SHAPE, 3)))


@pytest.mark.parametrize("bad", [VOCAB, -1, -2, VOCAB + 100])
@pytest.mark.parametrize("ignore_label", [None, -100])
def test_cross_entropy_of_a_known_bad_label_names_its_index(bad, ignore_label):
    labels = random_labels(9)
    labels[0, 1] = -100 if ignore_label else 0
    labels[1, 2] = bad
    for known in (labels, jnp.asarray(labels)):
        with pytest.raises(DataError) as error:
            cross_entropy(jnp.asarray(random_logits(9)), known, ignore_label=ignore_label)
        assert f"got {bad} at index (1, 2)" in str(error.value)
        assert f"V-1 = {VOCAB - 1} or ignore_label={ignore_label}" in str(error.value)


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"ignore_label": None}])
@pytest.mark.parametrize("bad", [VOCAB, -2, -VOCAB])
def test_cross_entropy_of_a_traced_bad_label_is_nan(bad, options):
    labels = random_labels(10)
    labels[1, 1] = bad
    loss, weight = loss_of(random_logits(10), labels, **options)
    assert np.isnan(loss)
    assert weight == 6


def test_cross_entropy_of_a_traced_minus_one_is_nan_when_nothing_is_ignored():
    labels = random_labels(11)
    labels[0, 0] = -1
    assert np.isnan(loss_of(random_logits(11), labels, ignore_label=None)[0])
    assert np.isnan(loss_of(random_logits(11), labels, ignore_label=-100)[0])
    assert np.isfinite(loss_of(random_logits(11), labels)[0])


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_cross_entropy_ignores_the_logits_of_ignored_labels(poison):
    logits, labels = random_logits(12), random_labels(12)
    labels[0, 2] = -1
    expected = loss_of(logits, labels)
    logits[0, 2, 3] = poison
    assert loss_of(logits, labels) == expected


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_cross_entropy_gradient_of_ignored_labels_is_zero_for_any_logits(poison):
    logits, labels = random_logits(12), random_labels(12)
    labels[0, 2] = -1
    logits[0, 2, 3] = poison
    gradient = jax.jit(jax.grad(lambda x: cross_entropy(x, labels)[0]))(logits)
    np.testing.assert_array_equal(gradient[0, 2], np.zeros(VOCAB))


def test_cross_entropy_counts_unsigned_labels():
    _, weight = loss_of(np.zeros((1, 257), np.float32), np.array([255], np.uint8))
    assert weight == 1


def test_cross_entropy_does_not_take_a_huge_unsigned_label_for_minus_one():
    labels = jnp.array([2**32 - 1], jnp.uint32)
    loss, weight = loss_of(np.zeros((1, VOCAB), np.float32), labels)
    assert np.isnan(loss)
    assert weight == 1


def test_cross_entropy_takes_64_bit_labels():
    with jax.enable_x64(True):
        for dtype in (np.uint64, np.int64):
            logits, labels = np.zeros((2, VOCAB), np.float32), np.array([0, VOCAB - 1], dtype)
            np.testing.assert_allclose(loss_of(logits, labels)[0], 2 * np.log(VOCAB), rtol=1e-6)
            assert np.isnan(loss_of(logits, labels + 2**32)[0])

"""Cross-entropy from hidden states, in chunks of tokens."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from jaxformer.functional import Products, chunked_cross_entropy, cross_entropy, unembed
from tests.functional import oracle

# 21 tokens in chunks of at most 5: 4 are filled up.
SHAPE, VOCAB, WIDTH, SIZE = (3, 7), 13, 5, 5
STATIC = ("label_smoothing", "ignore_label", "z_loss", "softcap", "chunk_size", "reduction")


def dense(hidden, table, labels, bias=None, *, chunk_size=None, **options):
    of_logits = {n: options.pop(n) for n in ("softcap", "products") if n in options}
    return cross_entropy(unembed(table, hidden, bias, **of_logits), labels, **options)


def gradients_of(function, argnums=(0, 1)):
    """Losses and weights, and the gradients of their sum, or of the product with a cotangent."""

    def total(*arrays, cotangent=1.0, **options):
        losses, weights = function(*arrays, **options)
        return (losses * cotangent).sum(), (losses, weights)

    @functools.partial(jax.jit, static_argnames=STATIC)
    def evaluate(*arrays, **options):
        gradients, results = jax.grad(total, argnums, has_aux=True)(*arrays, **options)
        return results, gradients

    return evaluate


assert_close = chex.assert_trees_all_close
loss_and_gradients = gradients_of(chunked_cross_entropy)
dense_loss_and_gradients = gradients_of(dense)


def draw(seed, dtype=np.float64, leading=SHAPE):
    rng = np.random.default_rng(seed)
    hidden, table = rng.standard_normal((*leading, WIDTH)), rng.standard_normal((VOCAB, WIDTH))
    return hidden.astype(dtype), table.astype(dtype), rng.integers(0, VOCAB, leading)


OPTIONS = [
    {"chunk_size": SIZE},
    {"chunk_size": 1, "label_smoothing": 0.1, "ignore_label": 0},
    {"chunk_size": 8, "softcap": 1.5, "z_loss": 0.25},
    {"label_smoothing": 0.3, "z_loss": 1e-2, "ignore_label": None, "softcap": 30.0},
]


@pytest.mark.essential
@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    options=st.sampled_from(OPTIONS),
    ignored=st.lists(st.booleans(), min_size=21, max_size=21),
)
def test_chunked_cross_entropy_and_gradients_equal_float64_and_dense(seed, options, ignored):
    hidden, table, labels = draw(seed, np.float32)
    ignore_label = options.get("ignore_label", -1)
    if ignore_label is not None:
        labels[np.reshape(ignored, SHAPE)] = ignore_label
    got = loss_and_gradients(hidden, table, labels, **options)
    assert {leaf.dtype for leaf in jax.tree.leaves(got)} == {jnp.dtype(np.float32)}
    oracle_options = {k: v for k, v in options.items() if k != "chunk_size"}
    assert_close(
        got, oracle.cross_entropy(hidden, table, labels, **oracle_options), rtol=2e-5, atol=2e-5
    )
    assert_close(
        got, dense_loss_and_gradients(hidden, table, labels, **options), rtol=2e-5, atol=2e-5
    )


@pytest.mark.parametrize("options", OPTIONS)
def test_losses_of_each_token_and_their_gradients_equal_float64(options):
    hidden, table, labels = draw(5)
    if (ignore_label := options.get("ignore_label", -1)) is not None:
        labels[[0, 2], [4, 6]] = ignore_label
    cotangent = np.random.default_rng(6).standard_normal(SHAPE)
    reference = {name: value for name, value in options.items() if name != "chunk_size"}
    expected = oracle.cross_entropy(hidden, table, labels, cotangent=cotangent, **reference)
    with jax.enable_x64(True):
        for evaluate in (loss_and_gradients, dense_loss_and_gradients):
            got = evaluate(hidden, table, labels, cotangent=cotangent, reduction="none", **options)
            assert_close(got, expected, rtol=1e-12, atol=1e-12)
            chex.assert_type(jax.tree.leaves(got), np.float64)


def test_chunked_cross_entropy_of_capped_and_biased_logits_and_its_gradients_equal_dense():
    hidden, table, labels = draw(9, np.float32)
    bias = np.linspace(-2, 2, VOCAB, dtype=np.float32)
    labels[0, 1] = -1

    def evaluate(function):
        def capped(hidden, table, bias):
            return function(hidden, table, labels, bias, softcap=2.0, chunk_size=SIZE)

        return gradients_of(capped, (0, 1, 2))(hidden, table, bias)

    got = evaluate(chunked_cross_entropy)
    assert_close(got, evaluate(dense), rtol=2e-5, atol=2e-5)
    assert np.abs(got[1][2]).min() > 1e-3


@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize(
    ("scale", "value", "smoothing"),
    [(1e4, 0, 0), (1, -np.inf, 0), (1, -np.inf, 0.1), (1, np.inf, 0), (1, np.inf, 0.1)],
)
def test_chunked_cross_entropy_of_huge_and_of_infinite_logits_equals_dense(
    scale, value, smoothing, reduction
):
    hidden, table, labels = draw(7, np.float32)
    bias = np.zeros(VOCAB, np.float32)
    bias[3], labels[labels == 3] = value, 4
    got, expected = (
        gradients_of(function, (0, 1, 3))(
            scale * hidden, table, labels, bias,
            chunk_size=SIZE, label_smoothing=smoothing, reduction=reduction,
        )
        for function in (chunked_cross_entropy, dense)
    )  # fmt: skip
    assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_chunked_cross_entropy_computes_logits_by_the_products_of_the_caller(reduction):
    def tripled(*arguments, **options):
        return 3 * jax.lax.dot_general(*arguments, **options)

    hidden, table, labels = draw(4, np.float32)
    labels[1, 2] = -1
    options = {"chunk_size": SIZE, "reduction": reduction}
    got, expected, thrice = (
        evaluate(factor * hidden, table, labels, products=products, **options)
        for evaluate, factor, products in (
            (loss_and_gradients, 1, Products(dot_general=tripled)),
            (dense_loss_and_gradients, 1, Products(dot_general=tripled)),
            (loss_and_gradients, 3, Products()),
        )
    )
    assert_close(got, expected, rtol=2e-5, atol=2e-5)
    assert_close(got[0], thrice[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_chunked_cross_entropy_of_narrow_hidden_states_is_no_worse_than_dense(dtype):
    hidden, table, labels = draw(2, np.float32, (64,))
    hidden = jnp.asarray(hidden, dtype)
    expected = oracle.cross_entropy(hidden, table.astype(dtype), labels)
    (got, gradients), (_, dense_gradients) = (
        function(hidden, table, labels, chunk_size=SIZE)
        for function in (loss_and_gradients, dense_loss_and_gradients)
    )
    assert got[0].dtype == got[1].dtype == jnp.float32
    assert_close(got, expected[0], rtol=2e-6, atol=2e-6)
    assert [g.dtype for g in gradients] == [dtype, jnp.float32]
    for gradient, dense_gradient, exact in zip(
        gradients, dense_gradients, expected[1], strict=True
    ):
        errors = [np.abs(np.float64(g) - exact).max() for g in (gradient, dense_gradient)]
        assert errors[0] <= errors[1]
    assert_close(gradients[1], expected[1][1], rtol=2e-5, atol=2e-5)  # not rounded on the way


@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_chunked_cross_entropy_ignores_the_hidden_states_of_ignored_labels(poison, reduction):
    hidden, table, labels = draw(3, np.float32)
    labels[[0, 2], [4, 6]] = -1
    options = {"chunk_size": SIZE, "reduction": reduction}
    expected = loss_and_gradients(hidden, table, labels, **options)
    hidden[[0, 2], [4, 6]] = poison
    got = loss_and_gradients(hidden, table, labels, **options)
    chex.assert_trees_all_equal(got, expected)
    assert np.isfinite(got[0][0]).all()
    assert not got[1][0][0, 4].any()


def test_labels_of_32_bits_need_no_promotion_beside_64():
    hidden, table, labels = (jnp.asarray(array) for array in draw(8, np.float32))
    loss = jax.value_and_grad(lambda *inputs: chunked_cross_entropy(*inputs)[0])
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        got = loss(hidden, table, labels.astype(jnp.int32))
    chex.assert_trees_all_close(got, loss(hidden, table, labels), rtol=1e-6, atol=1e-6)


# Leading axis 8: one for each device.
BATCH = draw(8, np.float32, (8, 7))
BATCH[2][3, 2:5] = -1
BATCH[2][6] = -1


def in_threes(hidden, table, labels, wrap=lambda f: f):
    """Loss, weight and gradients of some tokens, in chunks of 3."""
    function = functools.partial(chunked_cross_entropy, chunk_size=3, z_loss=0.1)
    return jax.value_and_grad(wrap(function), (0, 1), has_aux=True)(hidden, table, labels)


def scanned(hidden, table, labels):
    def step(_, row):
        return None, in_threes(row[0], table, row[1])

    return jax.lax.scan(step, None, (hidden, labels))[1]


def sharded(hidden, table, labels):
    def local(hidden, table, labels):
        # JAX sums the gradient of a replicated table over the devices, but not the loss.
        (loss, weight), gradients = in_threes(hidden, table, labels)
        return (loss[None], weight[None]), gradients

    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, all_of_it = PartitionSpec("data"), PartitionSpec()
    out_specs = ((rows, rows), (rows, all_of_it))
    in_specs = (rows, all_of_it, rows)
    return jax.shard_map(local, mesh=mesh, in_specs=in_specs, out_specs=out_specs)(
        hidden, table, labels
    )


TRANSFORMED = {
    "vmap": jax.jit(jax.vmap(in_threes, (0, None, 0))),
    "scan": jax.jit(scanned),
    "remat": jax.jit(functools.partial(in_threes, wrap=jax.checkpoint)),
    "shard_map": jax.jit(sharded),
}


@pytest.mark.parametrize("transformed", TRANSFORMED.values(), ids=TRANSFORMED)
def test_chunked_cross_entropy_is_the_same_under(transformed):
    (loss, weight), (by_hidden, by_table) = transformed(*BATCH)
    by_table = by_table.reshape(-1, VOCAB, WIDTH).sum(axis=0)
    got, expected = (loss.sum(), weight.sum()), oracle.cross_entropy(*BATCH, z_loss=0.1)
    assert_close((got, (by_hidden, by_table)), expected, rtol=2e-5, atol=2e-5)


def test_chunked_cross_entropy_derivative_is_the_same_forward_as_backward():
    (hidden, table, labels), directions = draw(9, np.float32), draw(10, np.float32)[:2]

    @jax.jit
    def push(inputs, directions, labels):
        return jax.jvp(lambda h, t: chunked_cross_entropy(h, t, labels)[0], inputs, directions)[1]

    gradients = oracle.cross_entropy(hidden, table, labels)[1]
    expected = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(push((hidden, table), directions, labels), expected, rtol=1e-5)


def test_chunked_cross_entropy_second_derivative_is_that_of_plain_jax():
    *inputs, labels = draw(11)
    directions = draw(12)[:2]

    def chunked(*inputs):
        return chunked_cross_entropy(*inputs, labels, softcap=3.0, z_loss=0.1, chunk_size=SIZE)[0]

    def plain(hidden, table):  # shares no derivative with the library
        logits = 3.0 * jnp.tanh(hidden @ table.T / 3.0)
        log_normalizer = jax.nn.logsumexp(logits, axis=-1)
        targets = jnp.sum(logits * jax.nn.one_hot(labels, VOCAB), axis=-1)
        return jnp.sum(log_normalizer - targets + 0.1 * log_normalizer**2)

    def products_with_hessian(loss):
        forward = jax.jvp(jax.grad(loss, (0, 1)), tuple(inputs), directions)[1]
        backward = jax.vjp(jax.grad(loss, (0, 1)), *inputs)[1](directions)
        return forward, backward

    with jax.enable_x64(True):
        forward, backward = jax.jit(lambda: products_with_hessian(chunked))()
        expected, _ = jax.jit(lambda: products_with_hessian(plain))()
        assert_close(forward, expected, rtol=1e-12, atol=1e-12)
        assert_close(backward, expected, rtol=1e-12, atol=1e-12)

"""Cross-entropy of hidden states on TPUs that go through the vocabulary in blocks."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from jaxformer.flops import count_flops, count_model_flops
from jaxformer.functional import chunked_cross_entropy, cross_entropy, unembed
from jaxformer.functional.losses import chunked
from jaxformer.functional.platforms import compiling_for
from tests.functional.losses.test_chunked_losses import assert_close
from tests.functional.losses.test_chunked_programs import largest, products, trace

# Blocks of 128, 128 and 128 rows: the last one starts early, at 172.
TOKENS, VOCAB, WIDTH = 12, 300, 5


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(chunked, "_BLOCK_LOGITS", 128 * 128)


@contextlib.contextmanager
def one_tpu(kind="TPU v6 lite"):
    mesh = jax.make_mesh((1,), ("device",), axis_types=(AxisType.Auto,))
    with compiling_for("tpu", kind), jax.set_mesh(mesh):
        yield


def dense(hidden, table, labels, bias=None, *, scale=None, softcap=None, **options):
    logits = unembed(table, hidden, bias, scale=scale, softcap=softcap)
    return cross_entropy(logits, labels, **options)


def loss(*inputs):
    return chunked_cross_entropy(*inputs)[0]


def products_of(function, *inputs):
    return str(jax.make_jaxpr(function)(*inputs)).count("dot_general[")


def draw(seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, VOCAB, TOKENS)
    labels[:6] = 0, 127, 128, 171, 172, 299  # at both ends of blocks
    hidden, table = rng.standard_normal((TOKENS, WIDTH)), rng.standard_normal((VOCAB, WIDTH))
    return hidden.astype(dtype), table.astype(dtype), labels, rng.standard_normal(VOCAB)


@pytest.mark.essential
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"label_smoothing": 0.1, "ignore_label": 172},
        {"z_loss": 0.25, "softcap": 1.5, "scale": 0.7},
        {"label_smoothing": 0.3, "z_loss": 1e-2, "ignore_label": None, "softcap": 30.0},
    ],
)
def test_loss_in_blocks_and_its_gradients_equal_dense(options):
    with jax.enable_x64(True):
        hidden, table, labels, bias = draw(0)

        def of(function, **more):
            def total(hidden, table, bias):
                return function(hidden, table, labels, bias, **options, **more)

            return jax.value_and_grad(total, (0, 1, 2), has_aux=True)

        with one_tpu():
            got = of(chunked_cross_entropy, chunk_size=5)(hidden, table, bias)
        assert_close(got, of(dense)(hidden, table, bias), 1e-12)


def test_loss_in_blocks_has_all_derivatives():
    with jax.enable_x64(True):
        hidden, table, labels, _ = draw(1)
        directions = draw(2)[:2]

        def derivatives(function):
            def total(hidden, table):
                return function(hidden, table, labels, softcap=3.0, z_loss=0.1)[0]

            gradient = jax.grad(total, (0, 1))
            of_loss = jax.jvp(total, (hidden, table), directions)
            forward = jax.jvp(gradient, (hidden, table), directions)[1]
            backward = jax.vjp(gradient, hidden, table)[1](directions)
            return of_loss, forward, backward

        with one_tpu():
            got = derivatives(functools.partial(chunked_cross_entropy, chunk_size=5))
        assert_close(got, derivatives(dense), 1e-12)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_loss_in_blocks_of_narrow_hidden_states_equals_dense(dtype):
    hidden, table, labels, _ = draw(5, np.float32)
    hidden = jnp.asarray(hidden, dtype)
    gradient = functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    with one_tpu():
        got = gradient(chunked_cross_entropy)(hidden, table, labels)
    assert got[1][0].dtype == dtype
    assert_close(got, gradient(dense)(hidden, table, labels), 2e-2)


def test_loss_in_blocks_is_the_same_mapped_and_by_one_argument():
    hidden, table, labels, _ = draw(6, np.float32)
    expected = jax.grad(lambda *x: dense(*x)[0], (0, 1))(hidden, table, labels)
    whole, split = PartitionSpec(), PartitionSpec("data")
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    with compiling_for("tpu", "TPU v6 lite"):
        mapped = jax.shard_map(
            jax.grad(lambda *x: jax.lax.psum(loss(*x), "data"), (0, 1)), mesh=mesh,
            in_specs=(split, whole, split), out_specs=(split, whole),
        )  # fmt: skip
        assert_close(mapped(hidden, table, labels), expected, 2e-5)
    with one_tpu():
        for argument in (0, 1):
            got = jax.grad(loss, argument)(hidden, table, labels)
            assert_close(got, expected[argument], 2e-5)
        rows = jax.vmap(jax.grad(loss), (0, None, 0))(hidden[:, None], table, labels[:, None])
        assert_close(rows[:, 0], expected[0], 2e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("row", [20, 200])  # 200 is in both of the last blocks
@pytest.mark.parametrize("value", [-np.inf, np.inf])
def test_infinite_logits_give_the_loss_of_dense(value, row, smoothing):
    hidden, table, labels, bias = draw(7, np.float32)
    bias[row], labels[labels == row] = value, row + 1
    options = {"label_smoothing": smoothing}
    expected = dense(hidden, table, labels, bias, **options)[0]
    with one_tpu():
        in_blocks = chunked_cross_entropy(hidden, table, labels, bias, **options)[0]
    for got in (in_blocks, chunked_cross_entropy(hidden, table, labels, bias, **options)[0]):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_block_that_a_bias_hides_adds_nothing():
    hidden, table, labels, bias = draw(3, np.float32)
    bias[:130], labels[labels < 130] = -np.inf, 130
    with one_tpu():
        got = jax.grad(lambda *x: chunked_cross_entropy(*x, labels, bias)[0], (0, 1))(hidden, table)
    assert not np.any(got[1][:130])
    expected = jax.grad(lambda *x: dense(*x, labels, bias)[0], (0, 1))(hidden, table)
    assert_close(got, expected, 2e-5)


def test_loss_in_blocks_of_huge_logits_is_finite_and_of_a_bad_label_nan():
    hidden, table, labels, _ = draw(4, np.float32)
    bad = jnp.asarray(labels).at[3].set(VOCAB)
    with one_tpu():
        (total, weight), gradient = jax.value_and_grad(chunked_cross_entropy, has_aux=True)(
            hidden * 1e4, table, labels
        )
        traced = jax.jit(chunked_cross_entropy)(hidden, table, bad)
    np.testing.assert_allclose(total, dense(hidden * 1e4, table, labels)[0], rtol=1e-6)
    assert np.isfinite(gradient).all() and weight == TOKENS
    assert np.isnan(traced[0])


def test_loss_in_blocks_holds_one_block_of_logits_and_computes_it_twice():
    with one_tpu():
        program = trace(chunked_cross_entropy, 64, vocab_size=3000)
        assert largest(program) == 3000 * WIDTH  # the table
        assert products(program) == 4
        assert products(trace(chunked_cross_entropy, 64, vocab_size=128)) == 3  # a single block
        (any_size,) = export.symbolic_shape("v")
        assert products(trace(chunked_cross_entropy, 64, vocab_size=any_size)) == 3
        forward = (jnp.zeros((64, WIDTH)), jnp.zeros((VOCAB, WIDTH)), jnp.zeros(64, jnp.int32))
        assert products_of(loss, *forward) == 1
        for width, count in ((1024, 4), (2048, 3)):  # wider ones are written and read sooner
            table, labels = jnp.zeros((VOCAB, width)), jnp.zeros(4, jnp.int32)
            assert (
                products_of(jax.grad(loss, (0, 1)), jnp.zeros((4, width)), table, labels) == count
            )
    for kind in ("TPU v5 lite", ""):
        with one_tpu(kind):
            assert products(trace(chunked_cross_entropy, 64, vocab_size=3000)) == 3


def test_chunks_and_blocks_fit_into_the_vector_memory(monkeypatch):
    monkeypatch.undo()  # blocks of 2^22 logits
    with one_tpu():
        assert chunked._chunks_and_height(20_000, 50_257, 768, None) == (3, 512)
        assert chunked._chunks_and_height(1024, 50_257, 768, None) == (1, 4096)
        assert chunked._chunks_and_height(20_000, 50_257, 768, 1000) == (20, 4096)
        assert chunked._chunks_and_height(20_000, 50_257, 768, 10_000) == (2, None)
        assert chunked._chunks_and_height(100_000, 512, 768, None) == (1, None)
    with compiling_for("tpu", "TPU v5 lite"):
        assert chunked._chunks_and_height(20_000, 2**16, 768, None) == (5, None)


def test_products_of_logits_computed_again_are_not_of_the_model():
    inputs = jnp.zeros((12, WIDTH)), jnp.zeros((256, WIDTH)), jnp.zeros(12, jnp.int32)
    gradient = jax.grad(loss, (0, 1))
    with one_tpu():
        assert count_flops(gradient, *inputs).total == 4 * 2 * 12 * 256 * WIDTH
        assert count_model_flops(gradient, *inputs) == 3 * 2 * 12 * 256 * WIDTH


def test_loss_is_in_blocks_where_jit_cannot_split_the_table():
    two = AbstractMesh((2,), ("data",), axis_types=(AxisType.Auto,))
    split, whole = PartitionSpec("data"), PartitionSpec()
    mapped = jax.shard_map(
        lambda *x: jax.lax.psum(loss(*x), "data"), in_specs=(split, whole, split), out_specs=whole
    )
    inputs = jnp.zeros((4, WIDTH)), jnp.zeros((VOCAB, WIDTH)), jnp.zeros(4, jnp.int32)
    with compiling_for("tpu", "TPU v6 lite"), jax.sharding.use_abstract_mesh(two):
        assert products_of(jax.grad(loss, (0, 1)), *inputs) == 3
        assert products_of(jax.grad(mapped, (0, 1)), *inputs) == 4


@pytest.mark.parametrize("blocks", [False, True])
def test_labels_of_32_bits_need_no_promotion_beside_64(blocks):
    hidden, table, labels, _ = (jnp.asarray(array) for array in draw(8, np.float32))
    # Both in blocks, or neither: sums in another order differ by more on some machines.
    with one_tpu() if blocks else contextlib.nullcontext():
        with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
            got = jax.value_and_grad(loss)(hidden, table, labels.astype(jnp.int32))
        assert_close(got, jax.value_and_grad(loss)(hidden, table, labels), 1e-6)

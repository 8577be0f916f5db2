"""Functions on a mesh with Explicit axes, which `jax.make_mesh` makes by default."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxformer.config import ModelConfig
from jaxformer.functional import dot_product_attention, embed
from jaxformer.models import Decoder

HEADS, TOKENS = PartitionSpec("rows", None, "heads", None), PartitionSpec(None, "rows")


@pytest.fixture
def mesh():
    return jax.make_mesh((2, 2), ("rows", "heads"), devices=jax.devices()[:4])


def put(array, mesh, spec):
    return jax.device_put(array, NamedSharding(mesh, spec))


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.essential
@pytest.mark.parametrize("spec", [HEADS, TOKENS])
@pytest.mark.parametrize("implementation", ["chunked", "dense"])
def test_attention_and_its_gradient_are_split_as_the_queries(mesh, implementation, spec):
    arrays, lengths = [draw(seed, 2, 14, 2, 3) for seed in range(3)], jnp.array([14, 11])

    def attend(query, key, value):
        output, residual = dot_product_attention(
            query, key, value, is_causal=True, key_value_seq_lengths=lengths,
            implementation=implementation, return_residual=True,
        )  # fmt: skip
        return (output**2).sum(), (output, residual)

    gradient = jax.value_and_grad(attend, argnums=(0, 1, 2), has_aux=True)
    (_, expected), expected_gradients = gradient(*arrays)
    with jax.set_mesh(mesh):
        (_, results), gradients = jax.jit(gradient)(*(put(array, mesh, spec) for array in arrays))
    assert jax.typeof(results[0]).sharding.spec[:3] == (*spec, None, None)[:3]
    got, expected = (*results, *gradients), (*expected, *expected_gradients)
    chex.assert_trees_all_close(got, expected, rtol=1e-5, atol=1e-6)


def test_rows_of_a_split_table_are_split_as_table_and_tokens(mesh):
    table, tokens = draw(0, 6, 4), np.array([[1, 2, 5], [3, 0, 1]])
    split = put(table, mesh, PartitionSpec("rows", "heads"))
    with jax.set_mesh(mesh):
        rows = embed(split, put(tokens, mesh, PartitionSpec("rows")))
    assert jax.typeof(rows).sharding.spec == PartitionSpec("rows", None, "heads")
    np.testing.assert_array_equal(rows, table[tokens])


def test_model_with_whole_parameters_takes_split_rows(mesh):
    model = Decoder(ModelConfig(vocab_size=7, max_len=5, num_layers=2, d_model=4, num_heads=2))
    params, tokens = model.init_params(jax.random.key(0)), np.array([[1, 2, 3], [3, 5, 1]])
    expected = model.apply({"params": params}, tokens).logits
    rows = put(tokens, mesh, PartitionSpec("rows"))
    with jax.set_mesh(mesh):
        logits = jax.jit(lambda tokens: model.apply({"params": params}, tokens).logits)(rows)
    assert jax.typeof(logits).sharding.spec[0] == "rows"
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional import KVCache
from jaxformer.modules import Stack, stack_layers, unstack_layers

SCANNED = ModelConfig(max_len=16, num_layers=3, d_model=12, num_heads=2, init_std=0.3)
LOOPED = dataclasses.replace(SCANNED, layer_execution="loop")
X = jax.random.normal(jax.random.key(1), (2, 5, 12))


@pytest.fixture(scope="module")
def params():
    return jax.jit(Stack(SCANNED).init)(jax.random.key(0), X)["params"]


def value_and_grad(config, params):
    def loss(params):
        return jnp.square(Stack(config).apply({"params": params}, X)[0]).sum()

    return jax.jit(jax.value_and_grad(loss))(params)


def assert_close(a, b, tolerance):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), a, b
    )


def test_layers_start_from_different_parameters(params):
    kernel = params["layers"]["attention"]["query_kernel"]
    assert kernel.shape[0] == 3
    assert float(jnp.abs(kernel[0] - kernel[1]).max()) > 0.1


def test_scanned_equals_looped_forward_and_backward(params):
    scanned, scanned_grads = value_and_grad(SCANNED, params)
    looped, looped_grads = value_and_grad(LOOPED, unstack_layers(params))
    np.testing.assert_allclose(scanned, looped, rtol=1e-6)
    assert_close(scanned_grads, stack_layers(looped_grads), 2e-4)


@pytest.mark.parametrize("remat", ["dots", "full"])
@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_remat_changes_no_gradient(params, remat, execution):
    config = dataclasses.replace(SCANNED, layer_execution=execution)
    own = params if execution == "scan" else unstack_layers(params)
    loss, grads = value_and_grad(config, own)
    again, remat_grads = value_and_grad(dataclasses.replace(config, remat=remat), own)
    np.testing.assert_allclose(loss, again, rtol=1e-6)
    assert_close(grads, remat_grads, 2e-4)


def test_remat_recomputes_what_it_says(params):
    """The gradient's program holds the softmax's exponential twice only where it recomputes."""

    def exponentials(remat):
        stack = Stack(dataclasses.replace(SCANNED, remat=remat, activation="relu"))
        jaxpr = jax.make_jaxpr(jax.grad(lambda p: stack.apply({"params": p}, X)[0].sum()))(params)
        return str(jaxpr).count("= exp ")

    assert [exponentials(remat) for remat in ("none", "dots", "full")] == [1, 2, 2]


def test_dropout_differs_between_layers():
    """Equal layers on equal inputs would drop equal positions if they shared an rng."""
    config = dataclasses.replace(SCANNED, dropout_rate=0.5, num_layers=2)
    stack = Stack(config)
    variables = jax.jit(stack.init)(jax.random.key(0), X)
    # Only the output biases act: the result is the sum of two dropped constants.
    params = jax.tree.map(jnp.zeros_like, variables["params"])
    bias = jnp.stack([jnp.full(12, 1.0), jnp.full(12, 10.0)])
    params["layers"]["feed_forward"]["down_bias"] = bias
    rngs = {"dropout": jax.random.key(3)}
    run = jax.jit(lambda p: stack.apply({"params": p}, X, deterministic=False, rngs=rngs)[0])
    out = run(params)
    added = np.round(np.asarray(out - X), 3)  # 2 where layer 0 kept, 20 where layer 1 did
    assert {0.0, 2.0, 20.0, 22.0} == set(np.unique(added))


def test_stacking_and_unstacking_round_trip(params):
    jax.tree.map(np.testing.assert_array_equal, params, stack_layers(unstack_layers(params)))
    assert sorted(unstack_layers(params)) == ["layer_0", "layer_1", "layer_2"]


def test_stacking_keeps_layer_order_beyond_ten():
    looped = {f"layer_{i}": {"scale": jnp.full(2, i)} for i in range(12)}
    assert stack_layers(looped)["layers"]["scale"][:, 0].tolist() == list(range(12))


def test_cache_with_scanned_layers_says_what_to_do(params):
    cache = (KVCache.init(2, 8, num_kv_heads=2, head_dim=6),) * 3
    with pytest.raises(ConfigError, match="unstack_layers"):
        Stack(SCANNED).apply({"params": params}, X, cache=cache)


def test_cache_must_have_one_entry_per_layer(params):
    cache = (KVCache.init(2, 8, num_kv_heads=2, head_dim=6),) * 2
    with pytest.raises(ConfigError, match="got 2 and num_layers=3"):
        Stack(LOOPED).apply({"params": unstack_layers(params)}, X, cache=cache)

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional import KVCache
from jaxformer.functional.platforms import compiling_for
from jaxformer.modules import AttentionContext, Block, Stack, layer_execution
from jaxformer.modules.stacked_layers import split_layers

SCANNED = ModelConfig(
    max_len=16,
    num_layers=3,
    d_model=12,
    num_heads=2,
    init_std=0.3,
    layer_execution="scan",
    positions="none",
)
LOOPED = dataclasses.replace(SCANNED, layer_execution="loop")
X = jax.random.normal(jax.random.key(1), (2, 5, 12))
WHOLE = AttentionContext()


@pytest.fixture(scope="module")
def params():
    return nn.unbox(jax.jit(Stack(SCANNED).init)(jax.random.key(0), X, WHOLE))["params"]


@functools.partial(jax.jit, static_argnums=0)
def value_and_grad(config, params):
    def loss(params):
        return jnp.square(Stack(config).apply({"params": params}, X, WHOLE)[0]).sum()

    return jax.value_and_grad(loss)(params)


def test_layers_start_from_different_parameters(params):
    kernel = params["layers"]["attention"]["query_kernel"]
    assert kernel.shape[0] == 3
    assert float(jnp.abs(kernel[0] - kernel[1]).max()) > 0.1


@pytest.mark.essential
@pytest.mark.parametrize("remat", ["none", "dots", "full"])
@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_outputs_and_gradients_do_not_depend_on_how_layers_run(params, remat, execution):
    loss, gradients = value_and_grad(SCANNED, params)
    config = dataclasses.replace(SCANNED, layer_execution=execution, remat=remat)
    result, result_gradients = value_and_grad(config, params)
    np.testing.assert_allclose(result, loss, rtol=1e-6)
    chex.assert_trees_all_close(result_gradients, gradients, rtol=2e-4, atol=2e-4)


@pytest.mark.essential
def test_remat_recomputes_what_it_says(params):
    """Both compute norms again, "full" also attention, whose gradient has its own exponential."""

    def counts(remat):
        stack = Stack(dataclasses.replace(SCANNED, remat=remat, activation="relu"))
        jaxpr = jax.make_jaxpr(jax.grad(lambda p: stack.apply({"params": p}, X, WHOLE)[0].sum()))(
            params
        )
        return tuple(str(jaxpr).count(f"= {operation} ") for operation in ("rsqrt", "exp"))

    assert [counts(remat) for remat in ("none", "dots", "full")] == [(2, 2), (4, 2), (4, 3)]


@pytest.mark.parametrize("implementation", ["dense", "chunked"])
@pytest.mark.parametrize("sinks", [False, True])
def test_backward_pass_of_remat_dots_does_not_attend_again(implementation, sinks):
    """Of a softmax, the maximum is computed in the forward pass alone."""

    def maxima(remat):
        stack = Stack(
            dataclasses.replace(
                SCANNED, remat=remat, attention_implementation=implementation,
                attention_sinks=sinks, num_layers=1, layer_execution="loop",
            )
        )  # fmt: skip
        params = jax.eval_shape(stack.init, jax.random.key(0), X, WHOLE)["params"]
        gradient = jax.grad(lambda p: stack.apply({"params": p}, X, WHOLE)[0].sum())
        return str(jax.make_jaxpr(gradient)(params)).count("= reduce_max[")

    assert [maxima(remat) for remat in ("none", "dots", "full")] == [1, 1, 2]


def test_dropout_differs_between_layers():
    """Equal layers on equal inputs would drop equal positions if they shared an rng."""
    config = dataclasses.replace(SCANNED, dropout_rate=0.5, num_layers=2)
    stack = Stack(config)
    variables = nn.unbox(jax.jit(stack.init)(jax.random.key(0), X, WHOLE))
    # Only the output biases act: the result is the sum of two dropped constants.
    params = jax.tree.map(jnp.zeros_like, variables["params"])
    bias = jnp.stack([jnp.full(12, 1.0), jnp.full(12, 10.0)])
    params["layers"]["feed_forward"]["down_bias"] = bias
    rngs = {"dropout": jax.random.key(3)}
    run = jax.jit(lambda p: stack.apply({"params": p}, X, WHOLE, deterministic=False, rngs=rngs)[0])
    out = run(params)
    added = np.round(np.asarray(out - X), 3)  # 2 where layer 0 kept, 20 where layer 1 did
    assert {0.0, 2.0, 20.0, 22.0} == set(np.unique(added))


def test_parameters_do_not_depend_on_how_layers_run(params):
    looped = nn.unbox(jax.jit(Stack(LOOPED).init)(jax.random.key(0), X, WHOLE))["params"]
    chex.assert_trees_all_equal(looped, params)


def test_loop_takes_parameters_that_are_split_already(params):
    run = jax.jit(lambda params: Stack(LOOPED).apply({"params": params}, X, WHOLE)[0])
    split = split_layers({"stack": params})["stack"]
    assert [leaf.shape for leaf in split["layers"]["attention"]["query_bias"]] == [(12,)] * 3
    np.testing.assert_array_equal(run(split), run(params))
    looped = jax.jit(lambda params: Stack(SCANNED).apply({"params": params}, X, WHOLE)[0])
    np.testing.assert_array_equal(looped(split), run(params))
    whole = jax.jit(split_layers)({"stack": params})["stack"]  # as on other devices
    chex.assert_trees_all_equal(whole, params)


def test_split_layers_share_the_memory_of_their_stack_on_a_cpu():
    stack = jnp.arange(2.0 * 16).reshape(2, 16)  # a layer of 64 bytes, to which XLA aligns
    split = split_layers({"stack": {"layers": {"scale": stack}}})["stack"]["layers"]["scale"]
    addresses = [layer.unsafe_buffer_pointer() for layer in split]
    assert addresses == [stack.unsafe_buffer_pointer() + offset for offset in (0, 64)]
    # An array that is given away keeps what others still read.
    jax.jit(jnp.zeros_like, donate_argnums=0)(stack)
    assert [float(layer[-1]) for layer in split] == [15.0, 31.0]


@pytest.mark.parametrize(
    ("options", "platform", "execution"),
    [
        ({"layer_execution": "scan"}, "cpu", "scan"),
        ({"layer_execution": "loop"}, "tpu", "loop"),
        ({}, "cpu", "loop"),
        ({"num_layers": 13}, "cpu", "scan"),
        ({}, "cuda", "scan"),
    ],
)
def test_layer_execution_is_chosen_by_platform_and_depth(options, platform, execution):
    config = dataclasses.replace(SCANNED, **{"layer_execution": "auto"} | options)
    with compiling_for(platform):
        assert layer_execution(config) == execution


@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_chosen_execution_is_what_runs(params, execution):
    stack = Stack(dataclasses.replace(SCANNED, layer_execution=execution))
    program = str(jax.make_jaxpr(lambda p: stack.apply({"params": p}, X, WHOLE)[0])(params))
    assert ("scan[" in program) == (execution == "scan")


@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_cache_must_have_one_entry_per_layer(params, execution):
    cache = (KVCache.init(2, 8, num_kv_heads=2, head_dim=6),) * 2
    config = dataclasses.replace(SCANNED, layer_execution=execution)
    with pytest.raises(ConfigError, match="got 2 and num_layers=3"):
        Stack(config).apply({"params": params}, X, WHOLE, cache=cache)


class PerturbedBlock(Block):
    """A block whose input can be perturbed, and that draws numbers from a stream of its own."""

    @nn.compact
    def __call__(self, x, *args, **kwargs):
        if self.has_rng("noise"):
            x = x + jax.random.normal(self.make_rng("noise"), x.shape)
        return super().__call__(self.perturb("input", x), *args, **kwargs)


PATTERN = {"layers": (LayerConfig(), LayerConfig())}


@pytest.mark.parametrize("layers", [{}, PATTERN], ids=["alike", "pattern"])
def test_variables_of_any_collection_are_stacked_by_layer(layers):
    """Gradients by the input of each layer, scanned and looped."""
    gradients = []
    for config in (SCANNED, LOOPED):
        stack = Stack(dataclasses.replace(config, **layers), block=PerturbedBlock)
        variables = nn.unbox(jax.jit(stack.init)(jax.random.key(0), X, WHOLE))

        def loss(perturbations, stack=stack, params=variables["params"]):
            x = stack.apply({"params": params, "perturbations": perturbations}, X, WHOLE).x
            return jnp.square(x).sum()

        gradients.append(jax.jit(jax.grad(loss))(variables["perturbations"])["layers"]["input"])
    assert gradients[0].shape == (3, *X.shape)
    assert len({float(jnp.abs(gradient).sum()) for gradient in gradients[0]}) == 3
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", [SCANNED, LOOPED], ids=["scan", "loop"])
def test_blocks_may_draw_from_a_stream_of_their_own(params, config):
    stack = Stack(config, block=PerturbedBlock)
    plain, noisy = (
        stack.apply({"params": params}, X, WHOLE, rngs=rngs).x
        for rngs in (None, {"noise": jax.random.key(3)})
    )
    assert float(jnp.abs(noisy - plain).max()) > 0.1


@pytest.mark.parametrize("config", [SCANNED, LOOPED], ids=["scan", "loop"])
def test_tabulate_lists_the_stacked_parameters(config):
    config = dataclasses.replace(config, remat="full")
    plain = {"width": 200, "color_system": None}
    table = Stack(config).tabulate(jax.random.key(0), X, WHOLE, console_kwargs=plain)
    assert "query_kernel: float32[3,12,12]" in table

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import ExpertsConfig, ModelConfig
from jaxformer.functional import ExpertsParams, Routing, mixture_of_experts
from jaxformer.models import Decoder
from jaxformer.modules import AttentionContext, Block, ExpertsFeedForward, FeedForward
from jaxformer.text import PackedExamples
from jaxformer.training import language_model_loss
from tests.numpy_transformer import draw_params

CONFIG = ModelConfig(
    vocab_size=13, max_len=16, num_layers=3, d_model=12, num_heads=2, d_ff=17, init_std=0.3,
    activation="swiglu",
)  # fmt: skip
EXPERTS = ExpertsConfig(num_experts=7, num_experts_per_token=2, router_z_weight=0.25)
TOKENS = np.random.default_rng(1).integers(0, 13, (2, 5), np.int32)
SIZES = ((0, 5), (1, 3), (0, 2))  # row of TOKENS, and number of its tokens
X = jax.random.normal(jax.random.key(1), (2, 5, 12))


def test_initial_weights_have_the_scales_of_a_feed_forward_layer():
    config = dataclasses.replace(CONFIG, d_model=64, d_ff=64, num_layers=8, param_dtype="bfloat16")
    x = jnp.ones((2, 64))
    layer = ExpertsFeedForward(config, EXPERTS)
    params = nn.unbox(jax.jit(layer.init)(jax.random.key(0), x))["params"]
    assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {"bfloat16"}
    spreads = {name: np.std(np.float32(leaf)) for name, leaf in params.items()}
    for name in ("router_kernel", "gate_kernel", "up_kernel"):
        np.testing.assert_allclose(spreads[name], 0.3, rtol=0.1)
    np.testing.assert_allclose(spreads["down_kernel"], 0.3 / 4, rtol=0.05)  # sqrt(2 * 8 layers)
    assert spreads["up_bias"] == spreads["down_bias"] == spreads["gate_bias"] == 0


@pytest.mark.parametrize(
    ("activation", "inner"), [("swiglu", "silu"), ("geglu", "gelu"), ("relu", "relu")]
)
def test_layer_is_one_call_of_the_function(activation, inner):
    config = dataclasses.replace(CONFIG, activation=activation)
    experts = dataclasses.replace(EXPERTS, normalize_weights=False, router_bias=True)
    layer, mask = ExpertsFeedForward(config, experts), np.arange(10).reshape(2, 5) % 3 > 0
    params = draw_params(layer, X)
    output, sown = layer.apply({"params": params}, X, mask, mutable=["losses"])
    expected = mixture_of_experts(
        ExpertsParams(**params), X, num_experts_per_token=2, activation=inner,
        routing=Routing(normalize_weights=False), mask=mask,
    )  # fmt: skip
    np.testing.assert_array_equal(output, expected.output)
    assert sown["losses"] == {
        "load_balancing": (0.01 * expected.load_balancing_loss,),
        "router_z": (0.25 * expected.router_z_loss,),
    }


@pytest.mark.parametrize("shared_gate", [False, True])
def test_shared_experts_are_a_wide_feed_forward_layer_beside_the_mixture(shared_gate):
    experts = dataclasses.replace(EXPERTS, d_ff=5, num_shared_experts=3, shared_gate=shared_gate)
    layer = ExpertsFeedForward(CONFIG, experts)
    params = draw_params(layer, X)
    routed = {name: leaf for name, leaf in params.items() if not name.startswith("shared")}
    mixture = ExpertsFeedForward(CONFIG, dataclasses.replace(EXPERTS, d_ff=5))
    network = FeedForward(dataclasses.replace(CONFIG, d_ff=15))
    shared = network.apply({"params": params["shared"]}, X)
    if shared_gate:
        assert params["shared_weight_kernel"].shape == (12, 1)
        shared /= 1 + jnp.exp(-(X @ params["shared_weight_kernel"]))
    expected = mixture.apply({"params": routed}, X) + shared
    np.testing.assert_allclose(layer.apply({"params": params}, X), expected, rtol=1e-5, atol=1e-5)


def test_a_loss_of_weight_zero_is_not_sown():
    experts = dataclasses.replace(EXPERTS, load_balancing_weight=0.0, router_z_weight=0.0)
    layer = ExpertsFeedForward(CONFIG, experts)
    assert "losses" not in jax.eval_shape(layer.init, jax.random.key(0), X)


def decoder(**changes):
    feed_forward = functools.partial(ExpertsFeedForward, experts=EXPERTS)
    return Decoder(
        dataclasses.replace(CONFIG, **changes),
        block=functools.partial(Block, feed_forward=feed_forward),
    )


@pytest.fixture(scope="module")
def params():
    return draw_params(decoder(), TOKENS)


def losses_by_layer(params):
    """Losses and largest load of each layer, from the inputs of its feed-forward layer."""
    model = decoder(layer_execution="loop")
    losses, loads = [], []

    def listen(next_call, args, kwargs, context):
        if isinstance(context.module, ExpertsFeedForward) and context.method_name == "__call__":
            params_of_layer = ExpertsParams(**context.module.variables["params"])
            result = mixture_of_experts(params_of_layer, *args, num_experts_per_token=2)
            losses.append(0.01 * result.load_balancing_loss + 0.25 * result.router_z_loss)
            loads.append(result.expert_load.max() / result.expert_load.mean())
        return next_call(*args, **kwargs)

    with nn.intercept_methods(listen):
        model.apply({"params": params}, TOKENS)
    return np.array(losses), np.array(loads)


@pytest.mark.parametrize(("execution", "remat"), [("scan", "dots"), ("loop", "none")])
def test_losses_of_all_layers_are_added_to_the_training_loss(params, execution, remat):
    model = decoder(layer_execution=execution, remat=remat)
    loss = jax.jit(language_model_loss(model))
    batch = {"tokens": TOKENS, "labels": np.where(np.arange(5) > 0, TOKENS, -1)}
    plain, weight = loss(params, batch, None)
    trained, _, metrics = loss(params, batch, jax.random.key(0))
    expected, loads = losses_by_layer(params)
    assert expected.shape == (3,)
    np.testing.assert_allclose((trained - plain) / weight, expected.sum(), rtol=1e-4)
    assert metrics.keys() == {"largest_expert_load"}
    np.testing.assert_allclose(metrics["largest_expert_load"] / weight, loads.mean(), rtol=1e-5)


def test_losses_do_not_count_the_padding_of_packed_rows():
    """The same texts in rows of 5 tokens, without padding, and of 8, with 6 tokens of it."""
    config = dataclasses.replace(CONFIG, positions="none", experts=EXPERTS)
    block, texts = Block(config), [{"labels": TOKENS[row, :size]} for row, size in SIZES]
    params = draw_params(block, X, AttentionContext())

    @jax.jit
    def losses(rows, segment_ids):
        context = AttentionContext(is_causal=True, segment_ids=segment_ids)
        x = jax.nn.one_hot(rows, 12)
        return block.apply({"params": params}, x, context, mutable=["losses"])[1]

    full, padded = (
        losses(*(np.stack([row[name] for row in rows]) for name in ("labels", "segment_ids")))
        for rows in (PackedExamples(texts, 5), PackedExamples(texts, 8))
    )
    assert full.keys() == {"losses"}
    chex.assert_trees_all_close(padded, full, rtol=1e-6)


def test_gradient_of_the_training_loss_is_the_same_under_scan_and_loop(params):
    batch = {"tokens": TOKENS, "labels": TOKENS}

    def gradient(**changes):
        loss = language_model_loss(decoder(**changes))
        return jax.jit(jax.grad(lambda p: loss(p, batch, jax.random.key(0))[0]))(params)

    scanned, looped = gradient(layer_execution="scan", remat="dots"), gradient()
    chex.assert_trees_all_close(scanned, looped, rtol=1e-4, atol=1e-4)


def test_choices_are_dropped_in_training_alone(params):
    """In use, a result depends neither on other rows nor on later tokens."""

    def logits(capacity_factor, **options):
        experts = dataclasses.replace(EXPERTS, capacity_factor=capacity_factor)
        model = Decoder(dataclasses.replace(CONFIG, experts=experts))
        return model.apply({"params": params}, TOKENS, **options).logits

    np.testing.assert_array_equal(logits(0.5), logits(None))
    training = logits(0.5, deterministic=False)
    assert jnp.abs(training - logits(None)).max() > 1e-2

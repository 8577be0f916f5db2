import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import ModelConfig
from jaxformer.modules import Block, FeedForward, MultiHeadAttention, Norm

CONFIG = ModelConfig(max_len=16, num_layers=3, d_model=12, num_heads=3, positions="none")
X = jax.random.normal(jax.random.key(1), (2, 5, 12))


def shapes(variables):
    return jax.tree.map(jnp.shape, variables["params"])


def test_attention_parameters_have_the_configured_widths():
    config = dataclasses.replace(
        CONFIG, num_heads=6, num_kv_heads=2, head_dim=4, value_head_dim=7, use_bias=False
    )
    variables = jax.eval_shape(MultiHeadAttention(config).init, jax.random.key(0), X)
    assert shapes(variables) == {
        "query_kernel": (12, 24),
        "key_kernel": (12, 8),
        "value_kernel": (12, 14),
        "output_kernel": (42, 12),
    }


def test_qk_norm_adds_one_scale_for_all_query_heads_and_one_for_all_key_heads():
    config = dataclasses.replace(CONFIG, qk_norm=True, num_heads=6, num_kv_heads=2, head_dim=4)
    variables = jax.jit(MultiHeadAttention(config).init)(jax.random.key(0), X)
    scales = {k: v for k, v in variables["params"].items() if k.endswith("norm_scale")}
    assert {k: v.tolist() for k, v in scales.items()} == {
        "query_norm_scale": [1.0] * 4,
        "key_norm_scale": [1.0] * 4,
    }


def test_attention_biases_appear_with_use_bias():
    variables = jax.eval_shape(MultiHeadAttention(CONFIG).init, jax.random.key(0), X)
    biases = {k: v for k, v in shapes(variables).items() if k.endswith("bias")}
    names = ("query_bias", "key_bias", "value_bias", "output_bias")
    assert biases == dict.fromkeys(names, (12,))


@pytest.mark.parametrize(
    ("activation", "kernels"),
    [
        ("gelu", {"up_kernel": (12, 29), "down_kernel": (29, 12)}),
        ("geglu", {"gate_kernel": (12, 29), "up_kernel": (12, 29), "down_kernel": (29, 12)}),
    ],
)
def test_feed_forward_parameters_follow_the_activation(activation, kernels):
    config = dataclasses.replace(CONFIG, activation=activation, d_ff=29, use_bias=False)
    variables = jax.eval_shape(FeedForward(config).init, jax.random.key(0), X)
    assert shapes(variables) == kernels


def test_gated_activations_differ_from_each_other():
    outputs = []
    for activation in ("swiglu", "geglu"):
        layer = FeedForward(dataclasses.replace(CONFIG, activation=activation, init_std=1.0))
        outputs.append(layer.apply(layer.init(jax.random.key(0), X), X))
    assert float(jnp.abs(outputs[0] - outputs[1]).max()) > 1e-2


@pytest.mark.essential
def test_norm_kinds_have_their_parameters():
    for norm, use_bias, expected in [
        ("layer_norm", True, {"scale", "bias"}),
        ("layer_norm", False, {"scale"}),
        ("rms_norm", True, {"scale"}),
    ]:
        config = dataclasses.replace(CONFIG, norm=norm, use_bias=use_bias)
        assert set(Norm(config).init(jax.random.key(0), X)["params"]) == expected


@pytest.mark.parametrize(
    "wiring", ["pre", "post", "sandwich", "output", "parallel", "parallel_one_norm"]
)
def test_block_wires_residuals_and_norms(wiring):
    key = "residual" if wiring.startswith("parallel") else "norm_position"
    config = dataclasses.replace(CONFIG, init_std=0.3, **{key: wiring})
    block = Block(config)
    params = block.init(jax.random.key(0), X)["params"]
    # Scales of their own, so that one norm is not another.
    draws = iter(range(2, 99))
    params = {
        name: {key: leaf + next(draws) / 9 for key, leaf in layer.items()}
        if name.endswith("norm")
        else layer
        for name, layer in params.items()
    }

    def attention(x):
        return MultiHeadAttention(config).apply({"params": params["attention"]}, x).output

    def feed_forward(x):
        return FeedForward(config).apply({"params": params["feed_forward"]}, x)

    def norm(name, x):
        return Norm(config).apply({"params": params[name]}, x)

    if wiring == "parallel":
        inner = feed_forward(norm("feed_forward_norm", X))
        expected = X + attention(norm("attention_norm", X)) + inner
    elif wiring == "parallel_one_norm":
        x = norm("attention_norm", X)
        expected = X + attention(x) + feed_forward(x)
    elif wiring == "output":
        x = X + norm("attention_output_norm", attention(X))
        expected = x + norm("feed_forward_output_norm", feed_forward(x))
    elif wiring == "sandwich":
        x = X + norm("attention_output_norm", attention(norm("attention_norm", X)))
        inner = feed_forward(norm("feed_forward_norm", x))
        expected = x + norm("feed_forward_output_norm", inner)
    elif wiring == "pre":
        x = X + attention(norm("attention_norm", X))
        expected = x + feed_forward(norm("feed_forward_norm", x))
    else:
        x = norm("attention_norm", X + attention(X))
        expected = norm("feed_forward_norm", x + feed_forward(x))
    output = block.apply({"params": params}, X).x
    np.testing.assert_allclose(output, expected, atol=1e-6)


def test_block_dropout_needs_training_mode_and_an_rng():
    block = Block(dataclasses.replace(CONFIG, dropout_rate=0.5))
    variables = block.init(jax.random.key(0), X)
    still = block.apply(variables, X).x
    plain = Block(CONFIG).apply(variables, X).x
    np.testing.assert_array_equal(still, plain)
    dropped = [
        block.apply(variables, X, deterministic=False, rngs={"dropout": jax.random.key(k)})[0]
        for k in (1, 1, 2)
    ]
    np.testing.assert_array_equal(dropped[0], dropped[1])
    assert float(jnp.abs(dropped[0] - dropped[2]).max()) > 1e-3


def test_residual_projections_start_smaller():
    config = dataclasses.replace(CONFIG, d_model=96, num_layers=8)
    x = jnp.zeros((1, 2, 96))
    params = jax.jit(Block(config).init)(jax.random.key(0), x)["params"]
    assert float(params["attention"]["query_kernel"].std()) == pytest.approx(0.02, rel=0.05)
    for name, kernel in (("attention", "output_kernel"), ("feed_forward", "down_kernel")):
        assert float(params[name][kernel].std()) == pytest.approx(0.02 / 4, rel=0.05)

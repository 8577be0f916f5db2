import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import ExpertsConfig, ModelConfig
from jaxformer.functional import Products
from jaxformer.modules import (
    AttentionContext,
    Block,
    Embedding,
    ExpertsFeedForward,
    FeedForward,
    MultiHeadAttention,
    Norm,
)

CONFIG = ModelConfig(max_len=16, num_layers=3, d_model=12, num_heads=3, positions="none")
X = jax.random.normal(jax.random.key(1), (2, 5, 12))
GROUPED = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 4}
NO_BIAS = {"use_bias": False}


def experts(**options):
    config = ExpertsConfig(num_experts=7, num_experts_per_token=2, **options)
    return functools.partial(ExpertsFeedForward, experts=config)


UP_AND_DOWN = {"up_kernel": (12, 29), "down_kernel": (29, 12)}


@pytest.mark.essential
@pytest.mark.parametrize(
    ("module", "options", "expected"),
    [
        (MultiHeadAttention, {**GROUPED, **NO_BIAS, "value_head_dim": 7, "qk_norm": True}, {
            "query_kernel": (12, 24), "key_kernel": (12, 8), "value_kernel": (12, 14),
            "output_kernel": (42, 12), "query_norm_scale": (4,), "key_norm_scale": (4,),
        }),
        (MultiHeadAttention, {}, {
            f"{name}_{part}": (12,) * size
            for name in ("query", "key", "value", "output")
            for part, size in (("kernel", 2), ("bias", 1))
        }),
        (FeedForward, {**NO_BIAS, "activation": "gelu", "d_ff": 29}, UP_AND_DOWN),
        (FeedForward, {**NO_BIAS, "activation": "geglu", "d_ff": 29},
         UP_AND_DOWN | {"gate_kernel": (12, 29)}),
        (experts(), {"activation": "swiglu", "d_ff": 17}, {
            "router_kernel": (12, 7), "gate_kernel": (7, 12, 17), "up_kernel": (7, 12, 17),
            "down_kernel": (7, 17, 12), "gate_bias": (7, 17), "up_bias": (7, 17),
            "down_bias": (7, 12),
        }),
        (experts(d_ff=3, router_bias=True), {**NO_BIAS, "activation": "gelu"}, {
            "router_kernel": (12, 7), "router_bias": (7,), "up_kernel": (7, 12, 3),
            "down_kernel": (7, 3, 12),
        }),
        (Norm, {"norm": "layer_norm"}, {"scale": (12,), "bias": (12,)}),
        (Norm, {"norm": "layer_norm", **NO_BIAS}, {"scale": (12,)}),
        (Norm, {"norm": "rms_norm"}, {"scale": (12,)}),
    ],
)  # fmt: skip
def test_parameters_have_the_configured_shapes(module, options, expected):
    layer = module(dataclasses.replace(CONFIG, **options))
    params = nn.unbox(jax.eval_shape(layer.init, jax.random.key(0), X))["params"]
    assert {name: leaf.shape for name, leaf in params.items()} == expected


@pytest.mark.parametrize(
    "wiring", ["pre", "post", "sandwich", "output", "parallel", "parallel_one_norm"]
)
def test_block_wires_residuals_and_norms(wiring):
    key = "residual" if wiring.startswith("parallel") else "norm_position"
    config = dataclasses.replace(CONFIG, init_std=0.3, **{key: wiring})
    block = Block(config)
    context = AttentionContext()
    params = nn.unbox(block.init(jax.random.key(0), X, context))["params"]
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
    output = block.apply({"params": params}, X, context).x
    np.testing.assert_allclose(output, expected, atol=1e-6)


HIGHEST = Products(precision="highest")
EXPERTS = ExpertsConfig(
    num_experts=5, num_experts_per_token=2, num_shared_experts=2, shared_gate=True
)
NARROW = dataclasses.replace(CONFIG, vocab_size=11, embedding_dim=7)


@pytest.mark.parametrize(
    "layer",
    [
        FeedForward(CONFIG, products=HIGHEST),
        FeedForward(dataclasses.replace(CONFIG, activation="geglu"), products=HIGHEST),
        ExpertsFeedForward(CONFIG, EXPERTS, products=HIGHEST),
        MultiHeadAttention(CONFIG, products=HIGHEST),
        Embedding(NARROW, products=HIGHEST),
    ],
    ids=["plain", "gated", "experts", "attention", "embedding"],
)
def test_layers_have_a_precision_of_their_products(layer):
    def output(x):
        if not isinstance(layer, Embedding):
            return layer.init_with_output(jax.random.key(0), x)[0]

        def logits(layer):
            layer(jnp.zeros(3, int))
            return layer.logits(layer.narrowed(x))

        return nn.init_with_output(logits, layer)(jax.random.key(0))[0]

    program = str(jax.make_jaxpr(output)(X))
    assert "Precision.HIGHEST" in program and "precision=None" not in program

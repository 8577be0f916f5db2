"""Decoders that between them use every option of the layers, and random parameters for them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.config import (
    ExpertsConfig,
    ModelConfig,
    RelativeConfig,
    RotaryConfig,
    YarnScalingConfig,
)
from jaxformer.models import Decoder
from jaxformer.models.init_shapes import init_shapes
from tests import numpy_transformer

VOCAB = 11
BASE = ModelConfig(
    vocab_size=VOCAB, max_len=24, num_layers=2, d_model=12, num_heads=2, init_std=0.3,
    activation="relu", norm="rms_norm", layer_execution="loop",
)  # fmt: skip
OPTIONS = {
    "composed": dict(
        num_heads=6, num_kv_heads=3, head_dim=4, qk_norm=True, norm_eps=0.1,
        norm_position="sandwich", local_window_size=2, attention_softcap=1.5, logit_softcap=2.0,
        positions=RotaryConfig(scaling=YarnScalingConfig(factor=4.0, original_max_len=6)),
        residual_scale=0.6,
    ),
    "alibi": dict(
        positions="alibi", num_heads=3, value_head_dim=5, local_window_size=4, activation="relu2",
        norm_scale=False,
    ),
    "relative": dict(
        positions=RelativeConfig(num_buckets=5, max_distance=6), qk_norm=True,
        attention_softcap=3.0, init_std=0.5,
    ),
    "parallel": dict(
        num_heads=4, num_kv_heads=2, head_dim=6, positions=RotaryConfig(rotary_dim=4),
        residual="parallel_one_norm", norm="layer_norm", attention_sinks=True, embedding_norm=True,
        residual_scale=1.7,
        use_bias=False, qkv_bias=True, local_window_size=3, num_token_types=3,
        experts=ExpertsConfig(
            num_experts=7, num_experts_per_token=2, d_ff=5, normalize_weights=False,
            num_shared_experts=3, shared_gate=True,
        ),
    ),
    "output_norms": dict(
        num_heads=4, num_kv_heads=2, head_dim=6, norm_position="output", zero_centered_norm=True,
        qk_norm=True, qk_norm_over="all_heads", activation="geglu_tanh", attention_scale=0.8,
        logit_scale=0.4, output_bias=True, feed_forward_bias=False, attention_sinks=True,
        positions="alibi", embedding_scale=3.0, embedding_dim=5,
    ),
}  # fmt: skip
# Decoders as they were published.
PUBLISHED = {
    "gpt2": dict(positions="learned", norm="layer_norm", activation="gelu_tanh"),
    "llama": dict(
        positions=RotaryConfig(layout="interleaved"), activation="swiglu", use_bias=False,
        num_heads=6, num_kv_heads=3, tied_embeddings=False,
    ),
    "original": dict(
        positions="sinusoidal", norm="layer_norm", norm_position="post", scale_embeddings=True
    ),
    "nameless": dict(
        positions="none", norm="layer_norm", activation="geglu", value_head_dim=5
    ),
}  # fmt: skip


def config(name, **changes):
    """The config of one set of options, with changes."""
    return dataclasses.replace(BASE, **(OPTIONS | PUBLISHED)[name] | changes)


def random_params(config, seed=0, make=Decoder):
    """Parameters of a model in which no scale is 1 and no bias 0, or they could be left out."""
    shapes = init_shapes(make(config))
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        is_scale = path[-1].key.endswith("scale") and not config.zero_centered_norm
        centre = 1.0 if is_scale else 0.0
        noise = config.init_std * rng.standard_normal(leaf.shape)
        return jnp.asarray(centre + noise, leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def reference_logits(config, params, tokens):
    """Logits `[B, T, V]` in float64 NumPy."""
    return numpy_transformer.decoder(config, numpy_transformer.float64(params), tokens)[0]

"""Decoders that between them use every option of the attention, and their logits in float64."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.config import ModelConfig, RelativeConfig, RotaryConfig, YarnScalingConfig
from jaxformer.functional import YarnScaling, rotary_tables
from jaxformer.models import Decoder
from tests.functional import oracle

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
    ),
    "alibi": dict(positions="alibi", num_heads=3, value_head_dim=5, local_window_size=4),
    "relative": dict(
        positions=RelativeConfig(num_buckets=5, max_distance=6), qk_norm=True,
        attention_softcap=3.0, init_std=0.5,
    ),
}  # fmt: skip


def config(name, **changes):
    """The config of one set of options, with changes."""
    return dataclasses.replace(BASE, **OPTIONS[name] | changes)


def random_params(config, seed=0):
    """Parameters of a decoder in which no scale is 1 and no bias 0, or they could be left out."""
    tokens = jnp.zeros((1, 2), jnp.int32)
    shapes = jax.eval_shape(Decoder(config).init, jax.random.key(0), tokens)["params"]
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        centre = 1.0 if path[-1].key.endswith("scale") else 0.0
        noise = config.init_std * rng.standard_normal(leaf.shape)
        return jnp.asarray(centre + noise, leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def reference_logits(config, params, tokens):
    """Logits `[B, T, V]` by NumPy; rotary tables apart, it shares no code with the library."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    table = params["embedding"]["embedding"]
    length, x = tokens.shape[1], table[np.asarray(tokens)]
    bias, tables = _bias(config, params, length), None
    if config.positions.kind == "rotary":
        base, own = config.positions.base, config.positions.scaling
        scaling = YarnScaling(own.factor, own.original_max_len)
        tables = rotary_tables(length, config.key_dim, base=base, scaling=scaling)

    def norm(scale, x):
        return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + config.norm_eps) * scale

    def projected(layer, name, x, heads=None):
        flat = x @ layer[f"{name}_kernel"] + layer[f"{name}_bias"]
        return flat if heads is None else rearrange(flat, "b t (n h) -> b t n h", n=heads)

    def rotated(x):
        if tables is None:
            return x
        cosine, sine = (np.asarray(table, np.float64)[:, None] for table in tables)
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate(
            [first * cosine - second * sine, second * cosine + first * sine], axis=-1
        )

    def attention(layer, x):
        query = projected(layer, "query", x, config.num_heads)
        key = projected(layer, "key", x, config.kv_heads)
        if config.qk_norm:
            query, key = norm(layer["query_norm_scale"], query), norm(layer["key_norm_scale"], key)
        attended = oracle.attention(
            rotated(query), rotated(key), projected(layer, "value", x, config.kv_heads), bias,
            is_causal=True, local_window_size=(config.local_window_size, None),
            softcap=config.attention_softcap,
        )  # fmt: skip
        return projected(layer, "output", rearrange(attended, "b t n h -> b t (n h)"))

    def feed_forward(layer, x):
        return projected(layer, "down", np.maximum(projected(layer, "up", x), 0))

    for index in range(config.num_layers):
        layers = params["stack"][f"layer_{index}"]
        for name, function in (("attention", attention), ("feed_forward", feed_forward)):
            output = function(layers[name], norm(layers[f"{name}_norm"]["scale"], x))
            if config.norm_position == "sandwich":
                output = norm(layers[f"{name}_output_norm"]["scale"], output)
            x = x + output
    logits = norm(params["final_norm"]["scale"], x) @ table.T
    cap = config.logit_softcap
    return logits if cap is None else cap * np.tanh(logits / cap)


def _bias(config, params, length):
    """The bias on the scores `[N, T, S]`, for keys at or before the query."""
    distance = np.arange(length)[:, None] - np.arange(length)
    if config.positions.kind == "alibi":  # of three heads: two of two, and the first of four
        return -np.array([2.0**-4, 2.0**-8, 2.0**-2])[:, None, None] * distance
    if config.positions.kind == "relative":
        buckets, most = config.positions.num_buckets, config.positions.max_distance
        exact = buckets // 2
        growing = np.log(np.maximum(distance, 1) / exact) / np.log(most / exact)
        bucket = exact + (growing * (buckets - exact)).astype(int)
        bucket = np.where(distance < exact, distance, np.minimum(bucket, buckets - 1))
        return np.moveaxis(params["position_bias"]["table"][bucket.clip(0)], -1, 0)
    return None

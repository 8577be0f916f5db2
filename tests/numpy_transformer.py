"""Encoders, decoders and both together in float64 NumPy, which share no code with the library."""

import dataclasses
import math

import jax
import numpy as np


def draw_params(model, *inputs, std=0.3, seed=0):
    """Parameters in which no scale is 1 and no bias 0, or they could be left out unnoticed."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), *inputs)["params"]
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        centre = 1.0 if path[-1].key.endswith("scale") else 0.0
        return np.asarray(centre + std * rng.standard_normal(leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def float64(params):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)


def encoder(config, params, tokens, lengths=None, *, embedding=None):
    """Hidden states `[B, T, D]` and weights `[L, B, N, T, T]` of an encoder."""
    embedding = params["embedding"] if embedding is None else embedding
    x, weights, _ = _stack(config, params, tokens, lengths, embedding, causal=False)
    return x, weights


def decoder(config, params, tokens, lengths=None):
    """Logits `[B, T, V]`, hidden states `[B, T, D]` and weights `[L, B, N, T, T]` of a decoder."""
    embedding = params["embedding"]
    x, weights, _ = _stack(config, params, tokens, lengths, embedding, causal=True)
    table = embedding["embedding"] if config.tied_embeddings else embedding["output_embedding"]
    return x @ table.T, x, weights


def encoder_decoder(config, params, source, tokens, source_lengths=None, lengths=None):
    """Logits `[B, T, V]`, and the weights of the encoder, of self- and of cross-attention."""
    embedding = params["embedding"]
    encoded, encoder_weights = encoder(
        config.encoder, params["encoder"], source, source_lengths,
        embedding=params.get("source_embedding", embedding),
    )  # fmt: skip
    x, own, cross = _stack(
        config, params["decoder"], tokens, lengths, embedding, causal=True,
        encoded=encoded, encoded_lengths=source_lengths,
    )  # fmt: skip
    table = embedding["embedding"] if config.tied_embeddings else embedding["output_embedding"]
    return x @ table.T, (encoder_weights, own, cross)


def _stack(
    config, params, tokens, lengths, embedding, *, causal, encoded=None, encoded_lengths=None
):
    batch, length = tokens.shape
    table = embedding.get("embedding", embedding.get("frozen_embedding"))
    x = table[np.asarray(tokens)]
    if "projection_kernel" in embedding:
        x = x @ embedding["projection_kernel"]
    if config.scale_embeddings:
        x = x * np.sqrt(config.d_model)
    position = np.arange(length)
    if config.positions.kind == "sinusoidal":
        x = x + _sinusoidal(length, config.d_model)
    if config.positions.kind == "learned":
        x = x + params["positions"]["embedding"][:length]
    real = _real(lengths, batch, length)[:, None] & _real(lengths, batch, length)[..., None]
    if causal:
        real = real & (position <= position[:, None])
    own, cross, model, first = [], [], config, len(config.first_layers)
    for index, override in enumerate(model.layer_overrides):
        config, visible = _layer_config(model, override), real
        if config.local_window_size is not None:
            visible = visible & (abs(position - position[:, None]) <= config.local_window_size)
        bias = _bias(config, params, length, causal)
        name, row = ("first_layers", index) if index < first else ("layers", index - first)
        layer = jax.tree.map(lambda leaf, i=row: leaf[i], params["stack"][name])

        def attend(inputs, layer=layer, config=config, visible=visible, bias=bias):
            output, weights = _attention(
                config, layer["attention"], inputs, inputs, visible, bias, is_self=True
            )
            own.append(weights)
            return output

        def attend_to_encoder(inputs, layer=layer, config=config):
            seen = _real(encoded_lengths, batch, encoded.shape[1])[:, None]
            seen = seen & _real(lengths, batch, length)[..., None]
            output, weights = _attention(
                config, layer["cross_attention"], inputs, encoded, seen, 0.0, is_self=False
            )
            cross.append(weights)
            return output

        def feed_forward(inputs, layer=layer, config=config):
            return _feed_forward(config, layer["feed_forward"], inputs)

        x = _residual(config, layer, "attention", attend, x)
        if encoded is not None:
            x = _residual(config, layer, "cross_attention", attend_to_encoder, x)
        x = _residual(config, layer, "feed_forward", feed_forward, x)
    if config.norm_position != "post":
        x = norm(config, params["final_norm"], x)
    return x, np.stack(own), np.stack(cross) if cross else None


def _layer_config(config, override):
    """The config of a model all of whose layers are as this one."""
    given = {
        name: value
        for name, value in (
            ("positions", override.positions), ("local_window_size", override.local_window_size),
        )
        if value is not None
    }  # fmt: skip
    return dataclasses.replace(config, layers=(), first_layers=(), **given)


def _real(lengths, batch, length):
    if lengths is None:
        return np.ones((batch, length), bool)
    return np.arange(length) < np.asarray(lengths)[:, None]


def _residual(config, layer, name, function, x):
    if config.norm_position == "post":
        return norm(config, layer[f"{name}_norm"], x + function(x))
    inputs = norm(config, layer[f"{name}_norm"], x) if f"{name}_norm" in layer else x
    output = function(inputs)
    if config.norm_position == "sandwich":
        output = norm(config, layer[f"{name}_output_norm"], output)
    return x + output


def norm(config, params, x):
    if config.norm == "layer_norm":
        x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + config.norm_eps)
    return x * params["scale"] + params.get("bias", 0.0)


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def _feed_forward(config, params, x):
    def projected(name, x):
        return x @ params[f"{name}_kernel"] + params.get(f"{name}_bias", 0.0)

    functions = {
        "relu": lambda x: np.maximum(x, 0),
        "gelu": gelu,
        "silu": lambda x: x / (1 + np.exp(-x)),
    }
    gate = {"swiglu": "silu", "geglu": "gelu"}.get(config.activation)
    if gate is None:
        return projected("down", functions[config.activation](projected("up", x)))
    return projected("down", functions[gate](projected("gate", x)) * projected("up", x))


def _attention(config, params, x, others, visible, bias, *, is_self):
    """Output `[B, T, D]` and weights `[B, N, T, S]`, one query head after the other."""

    def projected(name, x, heads):
        flat = x @ params[f"{name}_kernel"] + params.get(f"{name}_bias", 0.0)
        return np.split(flat, heads, axis=-1)

    def head(name, x):
        if config.qk_norm:
            size = np.sqrt(np.square(x).mean(-1, keepdims=True) + config.norm_eps)
            x = x / size * params[f"{name}_norm_scale"]
        if config.positions.kind != "rotary" or not is_self:
            return x
        half = config.key_dim // 2
        angles = np.arange(x.shape[1])[:, None] * config.positions.base ** (-np.arange(half) / half)
        turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
        return np.concatenate([turned.real, turned.imag], axis=-1)

    queries = projected("query", x, config.num_heads)
    keys, values = (projected(name, others, config.kv_heads) for name in ("key", "value"))
    attended, every = [], []
    for n, query in enumerate(queries):
        k = n // (config.num_heads // config.kv_heads)
        scores = head("query", query) @ head("key", keys[k]).swapaxes(1, 2)
        scores = scores / np.sqrt(config.key_dim) + (bias[n] if np.ndim(bias) else bias)
        weights = np.where(visible, np.exp(scores), 0.0)
        weights = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300)
        attended.append(weights @ values[k])
        every.append(weights)
    merged = np.concatenate(attended, axis=-1)
    output = merged @ params["output_kernel"] + params.get("output_bias", 0.0)
    return output, np.stack(every, axis=1)


def _sinusoidal(length, width):
    table = np.zeros((length, width))
    for position in range(length):
        for feature in range(width):
            angle = position / 10_000 ** ((feature - feature % 2) / width)
            table[position, feature] = math.cos(angle) if feature % 2 else math.sin(angle)
    return table


def _bias(config, params, length, causal):
    """What the position adds to the scores: `[N, T, S]`, or 0."""
    ahead = np.arange(length) - np.arange(length)[:, None]
    if config.positions.kind == "alibi":  # for a power of two of heads
        slopes = 2.0 ** (-8 * np.arange(1, config.num_heads + 1) / config.num_heads)
        return -slopes[:, None, None] * abs(ahead)
    if config.positions.kind == "relative":
        table = params["positions"]["table"]
        bucket = np.vectorize(lambda d: _bucket(config, int(d), causal))(ahead)
        return np.moveaxis(table[bucket], -1, 0)
    return 0.0


def _bucket(config, ahead, causal):
    """T5's bucket of a key so many tokens ahead of its query."""
    count = config.positions.num_buckets if causal else config.positions.num_buckets // 2
    start = 0 if causal or ahead <= 0 else count
    distance = max(-ahead, 0) if causal else abs(ahead)
    exact = count // 2
    if distance < exact:
        return start + distance
    ratio = math.log(distance / exact) / math.log(config.positions.max_distance / exact)
    return start + min(exact + int(ratio * (count - exact)), count - 1)

"""Encoders, decoders and both together in float64 NumPy, which share no code with the library."""

import dataclasses
import math
import types

import jax
import numpy as np
from flax import linen as nn

from tests.functional.experts.small_experts import choose
from tests.numpy_positions import position_bias, rotated, sinusoidal


def draw_params(model, *inputs, std=0.3, seed=0):
    """Parameters in which no scale is 1 and no bias 0, or they could be left out unnoticed."""
    shapes = nn.unbox(jax.eval_shape(model.init, jax.random.key(0), *inputs))["params"]
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        is_scale = path[-1].key.endswith("scale") and not model.config.zero_centered_norm
        centre = 1.0 if is_scale else 0.0
        return np.asarray(centre + std * rng.standard_normal(leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def float64(params):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)


def encoder(config, params, tokens, lengths=None, *, embedding=None, token_types=None):
    """Hidden states `[B, T, D]` and weights `[L, B, N, T, T]` of an encoder."""
    embedding = params["embedding"] if embedding is None else embedding
    x, weights, _ = _stack(
        config, params, tokens, lengths, embedding, causal=False, token_types=token_types
    )
    return x, weights


def decoder(config, params, tokens, lengths=None):
    """Logits `[B, T, V]`, hidden states `[B, T, D]` and weights `[L, B, N, T, T]` of a decoder."""
    embedding = params["embedding"]
    x, weights, _ = _stack(config, params, tokens, lengths, embedding, causal=True)
    if "output_projection_kernel" in embedding:
        x = x @ embedding["output_projection_kernel"]
    return logits(config, embedding, x), x, weights


def encoder_decoder(config, params, source, tokens, source_lengths=None, lengths=None):
    """Logits `[B, T, V]`, and the weights of the encoder, of self- and of cross-attention."""
    embedding = params["embedding"]
    encoded, encoder_weights = encoder(
        config.encoder, params["encoder"], source, source_lengths,
        embedding=params.get("source_embedding", embedding),
    )  # fmt: skip
    x, self_weights, cross = _stack(
        config, params["decoder"], tokens, lengths, embedding, causal=True,
        encoded=encoded, encoded_lengths=source_lengths,
    )  # fmt: skip
    return logits(config, embedding, x), (encoder_weights, self_weights, cross)


def logits(config, embedding, hidden):
    """Logits `[..., V]` of hidden states."""
    table = embedding["embedding"] if config.tied_embeddings else embedding["output_embedding"]
    scores = (config.logit_scale or 1) * (hidden @ table.T) + embedding.get("output_bias", 0.0)
    return _capped(scores, config.logit_softcap)


def _capped(scores, cap):
    return scores if cap is None else cap * np.tanh(scores / cap)


def _stack(
    config, params, tokens, lengths, embedding, *, causal, encoded=None, encoded_lengths=None,
    token_types=None,
):  # fmt: skip
    batch, length = tokens.shape
    table = embedding["embedding"]
    x = table[np.asarray(tokens)]
    if "projection_kernel" in embedding:
        x = x @ embedding["projection_kernel"]
    factor = np.sqrt(config.d_model) if config.scale_embeddings else 1
    x = x * (config.embedding_scale or factor)
    position = np.arange(length)
    if config.positions.kind == "sinusoidal":
        x = x + sinusoidal(length, config.d_model, config.positions.offset)
    if config.positions.kind == "learned":
        x = x + params["positions"]["embedding"][:length]
    if config.num_token_types is not None:
        x = x + params["token_type_embedding"][0 if token_types is None else token_types]
    if config.embedding_norm:
        x = norm(config, params.get("embedding_norm", {}), x)
    real = _real(lengths, batch, length)[:, None] & _real(lengths, batch, length)[..., None]
    if causal:
        real = real & (position <= position[:, None])
    self_weights, cross, model, first = [], [], config, len(config.first_layers)
    for index, override in enumerate(model.layer_overrides):
        config, visible = _layer_config(model, override), real
        if config.local_window_size is not None:
            visible = visible & (abs(position - position[:, None]) <= config.local_window_size)
        bias = position_bias(config, params, length, causal)
        name, row = ("first_layers", index) if index < first else ("layers", index - first)
        layer = jax.tree.map(lambda leaf, i=row: leaf[i], params["stack"][name])

        def attend(inputs, layer=layer, config=config, visible=visible, bias=bias):
            output, weights = _attention(
                config, layer["attention"], inputs, inputs, visible, bias, is_self=True
            )
            self_weights.append(weights)
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

        if config.residual != "sequential":
            has_one_norm = config.residual == "parallel_one_norm"
            inputs = [
                norm(config, layer.get("attention_norm" if has_one_norm else f"{part}_norm", {}), x)
                for part in ("attention", "feed_forward")
            ]
            x = x + config.residual_scale * (attend(inputs[0]) + feed_forward(inputs[1]))
            continue
        x = _residual(config, layer, "attention", attend, x)
        if encoded is not None:
            x = _residual(config, layer, "cross_attention", attend_to_encoder, x)
        x = _residual(config, layer, "feed_forward", feed_forward, x)
    if config.norm_position != "post":
        x = norm(config, params.get("final_norm", {}), x)
    return x, np.stack(self_weights), np.stack(cross) if cross else None


def _layer_config(config, override):
    """The config of a model all of whose layers are as this one."""
    overrides = {
        name: value
        for name, value in (
            ("positions", override.positions), ("local_window_size", override.local_window_size),
        )
        if value is not None
    }  # fmt: skip
    if override.experts is False:
        overrides["experts"] = None
    return dataclasses.replace(config, layers=(), first_layers=(), **overrides)


def _real(lengths, batch, length):
    if lengths is None:
        return np.ones((batch, length), bool)
    return np.arange(length) < np.asarray(lengths)[:, None]


def _residual(config, layer, name, function, x):
    scale = config.residual_scale
    if config.norm_position == "post":
        return norm(config, layer[f"{name}_norm"], x + scale * function(x))
    is_there = f"{name}_norm" in layer or not config.norm_scale
    inputs = norm(config, layer.get(f"{name}_norm", {}), x) if is_there else x
    output = function(inputs)
    if config.norm_position in ("sandwich", "output"):
        output = norm(config, layer[f"{name}_output_norm"], output)
    return x + scale * output


def norm(config, params, x):
    if config.norm == "layer_norm":
        x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + config.norm_eps)
    scale = _scale(config, params["scale"]) if config.norm_scale else 1
    return x * scale + params.get("bias", 0.0)


def _scale(config, stored):
    return 1 + stored if config.zero_centered_norm else stored


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def _feed_forward(config, params, x):
    if config.experts is None:
        return _network(config, params, x)
    experts, output = config.experts, np.zeros_like(x)
    routing = types.SimpleNamespace(
        scores=experts.router_scores, scale=experts.routed_scale, **vars(experts)
    )
    logits = x @ params["router_kernel"] + params.get("router_bias", 0.0)
    for index in np.ndindex(x.shape[:-1]):
        bias, count = params.get("selection_bias", 0.0), experts.num_experts_per_token
        _, chosen, weights = choose(logits[index], bias, count, routing)
        for expert, weight in zip(chosen, weights, strict=True):
            params_of_expert = {
                k: leaf[expert]
                for k, leaf in params.items()
                if not k.startswith(("router", "shared", "selection"))
            }
            output[index] += weight * _network(config, params_of_expert, x[index])
    if config.experts.num_shared_experts:
        share = x @ params["shared_weight_kernel"] if config.experts.shared_gate else np.inf
        output += _network(config, params["shared"], x) / (1 + np.exp(-share))
    return output


def _network(config, params, x):
    def projected(name, x):
        return x @ params[f"{name}_kernel"] + params.get(f"{name}_bias", 0.0)

    functions = {
        "relu": lambda x: np.maximum(x, 0),
        "relu2": lambda x: np.maximum(x, 0) ** 2,
        "gelu": gelu,
        "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
        "silu": lambda x: x / (1 + np.exp(-x)),
    }
    gates = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}
    gate = gates.get(config.activation)
    if gate is None:
        return projected("down", functions[config.activation](projected("up", x)))
    return projected("down", functions[gate](projected("gate", x)) * projected("up", x))


def _attention(config, params, x, memory, visible, bias, *, is_self):
    """Output `[B, T, D]` and weights `[B, N, T, S]`, one query head after the other."""

    def normed(name, x):
        size = np.sqrt(np.square(x).mean(-1, keepdims=True) + config.norm_eps)
        return x / size * _scale(config, params[f"{name}_norm_scale"])

    def projected(name, x, heads):
        flat = x @ params[f"{name}_kernel"] + params.get(f"{name}_bias", 0.0)
        if config.qk_norm_over == "all_heads" and name != "value":
            flat = normed(name, flat)
        return np.split(flat, heads, axis=-1)

    def head(name, x):
        if config.qk_norm and config.qk_norm_over == "head":
            x = normed(name, x)
        return rotated(config, x) if config.positions.kind == "rotary" and is_self else x

    queries = projected("query", x, config.num_heads)
    keys, values = (projected(name, memory, config.kv_heads) for name in ("key", "value"))
    attended, every = [], []
    for n, query in enumerate(queries):
        k = n // (config.num_heads // config.kv_heads)
        scores = head("query", query) @ head("key", keys[k]).swapaxes(1, 2)
        scores = scores * (config.attention_scale or config.key_dim**-0.5)
        scores = _capped(scores, config.attention_softcap) + (bias[n] if np.ndim(bias) else bias)
        weights = np.where(visible, np.exp(scores), 0.0)
        sink = np.exp(params["sinks"][n]) if "sinks" in params else 0.0
        weights = weights / np.maximum(weights.sum(-1, keepdims=True) + sink, 1e-300)
        attended.append(weights @ values[k])
        every.append(weights)
    merged = np.concatenate(attended, axis=-1)
    output = merged @ params["output_kernel"] + params.get("output_bias", 0.0)
    return output, np.stack(every, axis=1)

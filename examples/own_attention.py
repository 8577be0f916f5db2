"""Attention functions of your own: linear attention in all layers, softmax with a sink in some.

    python examples/own_attention.py

They are called with query, key and value and, as keyword arguments, whatever else the model uses:
causal order, windows, lengths, documents, a cache. `attention_mask` combines all of these into one
mask. The sink is an additional score of 0 in the softmax. Katharopoulos et al., "Transformers are
RNNs", 2020; Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.functional import attention_mask
from jaxformer.models import Decoder, init_cache
from jaxformer.training import TrainState, language_model_loss, make_train_step

STEPS, ROWS, LENGTH, CUT, NUMBERS = 60, 16, 20, 8, 16


def linear_attention(query, key, value, mask=None, *, is_causal=False, **structure):
    query, key = jax.nn.elu(query) + 1, jax.nn.elu(key) + 1
    if is_causal and mask is None and not structure:  # running sums: linear in the length
        states = jnp.cumsum(jnp.einsum("bsnh,bsnv->bsnhv", key, value), axis=1)
        total = jnp.einsum("btnh,btnh->btn", query, jnp.cumsum(key, axis=1))
        return jnp.einsum("btnh,btnhv->btnv", query, states) / total[..., None]
    mask = attention_mask(query, key, mask, is_causal=is_causal, **structure)
    weights = jnp.einsum("btnh,bsnh->bnts", query, key) * (True if mask is None else mask)
    weights /= jnp.maximum(weights.sum(-1, keepdims=True), 1e-6)  # a row may attend to nothing
    return jnp.einsum("bnts,bsnv->btnv", weights, value)


def softmax_with_sink(query, key, value, mask=None, **structure):
    mask = attention_mask(query, key, mask, **structure)
    scores = jnp.einsum("btnh,bsnh->bnts", query, key) / query.shape[-1] ** 0.5
    scores = jnp.where(True if mask is None else mask, scores, -jnp.inf)
    scores = jnp.concatenate([scores, jnp.zeros_like(scores[..., :1])], axis=-1)
    return jnp.einsum("bnts,bsnv->btnv", jax.nn.softmax(scores)[..., :-1], value)


config = ModelConfig(vocab_size=NUMBERS, max_len=LENGTH, num_layers=2, d_model=32, num_heads=2)
some = (LayerConfig(attention="sink", local_window_size=4), LayerConfig())
place = np.arange(LENGTH)  # two documents in every row: counting by ones, and then by threes
tokens = (np.arange(ROWS)[:, None] + np.where(place < CUT, place, 3 * place)) % NUMBERS
segments, positions = 1 + (place >= CUT), np.where(place < CUT, place, place - CUT)
packing = {"segment_ids": segments + 0 * tokens, "positions": positions + 0 * tokens}
labels = np.where(np.isin(place, [CUT - 1, LENGTH - 1]), -1, np.roll(tokens, -1, axis=1))

for name, functions, layers in [
    ("linear attention", linear_attention, ()),
    ("a sink in layer 0", {"sink": softmax_with_sink}, some),
]:
    model = Decoder(dataclasses.replace(config, layers=layers), attention_fn=functions)
    optimizer = optax.adam(1e-2)
    params = model.init_params(jax.random.key(0))
    state = TrainState.create(params, optimizer)
    step = jax.jit(make_train_step(language_model_loss(model), optimizer, seed=0))
    for _ in range(STEPS):
        state, metrics = step(state, {"tokens": tokens, "labels": labels, **packing})

    call = jax.jit(lambda tokens, **x: model.apply({"params": state.params}, tokens, **x))  # noqa: B023
    packed, alone = call(tokens, **packing).logits[:, CUT:], call(tokens[:, CUT:]).logits
    cache = call(tokens[:, CUT : CUT + 5], cache=init_cache(model.config, ROWS, LENGTH)).cache
    cached = call(tokens[:, CUT + 5 :], cache=cache).logits
    gap = max(abs(packed - alone).max(), abs(cached - alone[:, 5:]).max())
    print(f"{name}: loss {metrics['loss']:.3f}; packed, alone, cached logits differ by {gap:.0e}")
    if metrics["loss"] > 0.3 or gap > 1e-3:
        raise SystemExit("the loss should fall, and packed, alone and cached logits be the same")

"""An attention layer with parameters of its own: differential attention, which learns a factor.

    python examples/own_attention_layer.py

The weights are the difference of two softmaxes, whose common noise cancels. The layer passes its
attention function to a `MultiHeadAttention`, so caches, windows, packed rows and taps work as
before. Ye et al., "Differential Transformer", 2024, here without the norm of each head.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from jaxformer.config import ModelConfig, SamplingConfig
from jaxformer.functional import dot_product_attention
from jaxformer.inference import generate
from jaxformer.models import Decoder
from jaxformer.modules import Block, MultiHeadAttention
from jaxformer.training import TrainState, language_model_loss, make_train_step

STEPS, ROWS, HALF, NUMBERS = 150, 32, 8, 12
GREEDY = SamplingConfig(temperature=0)


class DifferentialAttention(nn.Module):
    config: ModelConfig

    @nn.compact
    def __call__(self, x, context, **options):
        factor = self.param("factor", nn.initializers.constant(0.2), (self.config.num_heads, 1))

        def attend(query, key, value, mask=None, **structure):
            halves = jnp.split(query, 2, axis=-1), jnp.split(key, 2, axis=-1)
            first, second = (
                dot_product_attention(q, k, value, mask=mask, **structure)
                for q, k in zip(*halves, strict=True)
            )
            return first - factor.astype(value.dtype) * second

        context = dataclasses.replace(context, attention_fn=attend)
        layer = MultiHeadAttention(self.config, name="heads")
        return layer(x, context, **options)


config = ModelConfig(vocab_size=NUMBERS, max_len=2 * HALF, num_layers=2, d_model=64, num_heads=4)
model = Decoder(config, block=functools.partial(Block, attention=DifferentialAttention))
params, optimizer = model.init_params(jax.random.key(0)), optax.adam(5e-3)
state = TrainState.create(params, optimizer)
step = jax.jit(make_train_step(language_model_loss(model), optimizer, seed=0))
for number in range(STEPS):  # rows that repeat their first half
    half = np.random.default_rng(number).integers(0, NUMBERS, (ROWS, HALF))
    tokens = np.concatenate([half, half], axis=1)
    labels = np.where(np.arange(1, 2 * HALF) < HALF, -1, tokens[:, 1:])
    state, metrics = step(state, {"tokens": tokens[:, :-1], "labels": labels})

options = {"max_new_tokens": HALF - 1, "rng": jax.random.key(0), "sampling": GREEDY}
prompts, expected = tokens[:, : HALF + 1], tokens[:, HALF + 1 :]
cached = np.stack(generate(model, state.params, prompts.tolist(), **options))
rows = np.concatenate([prompts, cached[:, :-1]], axis=1)
uncached = jax.jit(model.apply)({"params": state.params}, rows).logits[:, HALF:].argmax(-1)
right = np.mean(cached == expected)
factors = state.params["stack"]["layers"]["attention"]["factor"]
print(f"{right:.0%} repeated; the factors are {factors.min():.2f} to {factors.max():.2f}")
if right < 0.9 or (cached != uncached).any():
    raise SystemExit("the rows should be repeated, with and without a cache alike")

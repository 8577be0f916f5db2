"""Blocks of your own: attention and feed-forward in parallel, and a mixture of experts.

    python examples/own_block.py

Values that a block or its feed-forward layer sows into "losses" are added to the training loss.
Wang and Komatsuzaki, "GPT-J", 2021; Fedus et al., "Switch Transformers", 2022, equation 4.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.models import Decoder
from jaxformer.modules import Block, BlockOutput, FeedForward, MultiHeadAttention, Norm
from jaxformer.training import TrainState, language_model_loss, make_train_step

STEPS, ROWS, LENGTH, EXPERTS, CHOSEN, BALANCE = 80, 16, 32, 4, 2, 0.01


class ParallelBlock(nn.Module):
    config: ModelConfig

    @nn.compact
    def __call__(self, x, context, *, cache=None, cross_cache=None, **options):
        inputs = Norm(self.config)(x)
        attended = MultiHeadAttention(self.config)(inputs, context, cache=cache, **options)
        x = x + attended.output + FeedForward(self.config)(inputs)
        return BlockOutput(x, attended.cache)


class MixtureOfExperts(nn.Module):
    config: ModelConfig

    @nn.compact
    def __call__(self, x):
        gates = jax.nn.softmax(nn.Dense(EXPERTS, use_bias=False, name="router")(x))
        best, index = jax.lax.top_k(gates, CHOSEN)
        chosen = jax.nn.one_hot(index, EXPERTS)  # [B, T, CHOSEN, EXPERTS]
        even = EXPERTS * chosen.mean((0, 1, 2)) @ gates.mean((0, 1))
        self.sow("losses", "balance", BALANCE * even)
        axis = {"axis_size": EXPERTS, "metadata_params": {nn.PARTITION_NAME: "experts"}}
        many = nn.vmap(FeedForward, {"params": 0}, {"params": True}, None, **axis)
        outputs = many(self.config, name="experts")(x)  # [EXPERTS, B, T, D]
        return jnp.einsum("btc,btce,ebtd->btd", best / best.sum(-1, keepdims=True), chosen, outputs)


text = np.frombuffer(inspect.getsource(inspect).encode(), np.uint8).astype(np.int32)
config = ModelConfig(vocab_size=128, max_len=LENGTH, num_layers=2, d_model=64, num_heads=4, d_ff=64)
experts = functools.partial(Block, feed_forward=MixtureOfExperts)
for name, block in [("in parallel", ParallelBlock), ("with experts", experts)]:
    model, optimizer = Decoder(config, block=block), optax.adam(1e-2)
    params = model.init_params(jax.random.key(0))
    state, loss = TrainState.create(params, optimizer), language_model_loss(model)
    step = jax.jit(make_train_step(loss, optimizer, seed=0))
    for number in range(STEPS):
        starts = np.random.default_rng(number).integers(0, text.size - LENGTH, ROWS)
        rows = text[starts[:, None] + np.arange(LENGTH + 1)]
        batch = {"tokens": rows[:, :-1], "labels": rows[:, 1:]}
        state, metrics = step(state, batch)
    rngs, count = (None, jax.random.key(0)), batch["labels"].size
    plain, trained = (loss(state.params, batch, rng)[0] / count for rng in rngs)
    sown = model.apply({"params": state.params}, batch["tokens"], mutable=["losses"])[1]
    added = sum(leaf.sum() for leaf in jax.tree.leaves(sown))
    print(f"{name}: loss {plain:.3f} nats per byte; in training {added:.4f} more, sown by blocks")
    if plain > 2.6 or abs(trained - plain - added) > 1e-4:
        raise SystemExit("the loss should fall, and what blocks sow be added to it in training")

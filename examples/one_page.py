"""A decoder on one page: model, training and samples in plain Flax Linen, einops and optax.

    python examples/one_page.py

Read this first: it is what jaxformer does, without what makes it fast, general and safe. Trained
for a minute on the text that ships inside Python, byte by byte. The logits are those of
`jaxformer.models.Decoder` with the same parameters, whose tree has the same names.

A name says its shape: x_BTD is `[B, T, D]`. B batch, T tokens (S as keys), D width of the model,
N heads, H width of a head, F hidden width, V vocabulary. Vaswani et al., "Attention Is All You
Need", 2017, with three later habits: norms before the sublayers (Xiong et al., 2020), RMS norm
(Zhang and Sennrich, 2019), rotary positions (Su et al., 2021).
"""

import functools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from einops import rearrange
from flax import linen as nn

from jaxformer.text import python_documents


class Config(NamedTuple):
    V: int = 256
    T: int = 64  # longest text
    L: int = 4  # layers
    D: int = 128
    N: int = 4
    F: int = 512


class Norm(nn.Module):  # jaxformer.functional.rms_norm
    @nn.compact
    def __call__(self, x_BTD):
        scale_D = self.param("scale", nn.initializers.ones, (x_BTD.shape[-1],))
        mean_BT1 = jnp.square(x_BTD).mean(axis=-1, keepdims=True)
        return x_BTD * jax.lax.rsqrt(mean_BT1 + 1e-5) * scale_D


def rotate(x_BTNH):  # jaxformer.functional.apply_rotary
    """Turns each pair of numbers by the position times a frequency of its own."""
    T, _, H = x_BTNH.shape[1:]
    frequency_P = 10000.0 ** (-2 * jnp.arange(H // 2) / H)
    angle_T1P = rearrange(jnp.outer(jnp.arange(T), frequency_P), "t p -> t 1 p")
    first_BTNP, second_BTNP = rearrange(x_BTNH, "b t n (two p) -> two b t n p", two=2)
    cos_T1P, sin_T1P = jnp.cos(angle_T1P), jnp.sin(angle_T1P)
    turned = (
        first_BTNP * cos_T1P - second_BTNP * sin_T1P,
        second_BTNP * cos_T1P + first_BTNP * sin_T1P,
    )
    return jnp.concatenate(turned, axis=-1)


def attend(query_BTNH, key_BSNH, value_BSNH):  # jaxformer.functional.dot_product_attention
    """Average of the values up to each token, weighted by how well their keys fit its query."""
    T, H = query_BTNH.shape[1], query_BTNH.shape[-1]
    scores_BNTS = jnp.einsum("btnh,bsnh->bnts", query_BTNH, key_BSNH) / H**0.5
    causal_TS = jnp.tril(jnp.ones((T, T), bool))
    weights_BNTS = jax.nn.softmax(jnp.where(causal_TS, scores_BNTS, -jnp.inf), axis=-1)
    return jnp.einsum("bnts,bsnh->btnh", weights_BNTS, value_BSNH)


class Attention(nn.Module):  # jaxformer.modules.MultiHeadAttention
    config: Config

    @nn.compact
    def __call__(self, x_BTD):
        D, N = self.config.D, self.config.N

        def kernel(name):
            return self.param(f"{name}_kernel", nn.initializers.lecun_normal(), (D, D))

        query_BTNH, key_BTNH, value_BTNH = (
            rearrange(x_BTD @ kernel(name), "b t (n h) -> b t n h", n=N)
            for name in ("query", "key", "value")
        )
        output_BTNH = attend(rotate(query_BTNH), rotate(key_BTNH), value_BTNH)
        return rearrange(output_BTNH, "b t n h -> b t (n h)") @ kernel("output")


class FeedForward(nn.Module):  # jaxformer.modules.FeedForward
    config: Config

    @nn.compact
    def __call__(self, x_BTD):
        D, F = self.config.D, self.config.F
        up_DF = self.param("up_kernel", nn.initializers.lecun_normal(), (D, F))
        down_FD = self.param("down_kernel", nn.initializers.lecun_normal(), (F, D))
        return jax.nn.gelu(x_BTD @ up_DF, approximate=False) @ down_FD


class Block(nn.Module):  # jaxformer.modules.Block
    config: Config

    @nn.compact
    def __call__(self, x_BTD, _):
        x_BTD += Attention(self.config, name="attention")(Norm(name="attention_norm")(x_BTD))
        x_BTD += FeedForward(self.config, name="feed_forward")(
            Norm(name="feed_forward_norm")(x_BTD)
        )
        return x_BTD, None


class Stack(nn.Module):  # jaxformer.modules.Stack
    config: Config

    @nn.compact
    def __call__(self, x_BTD):
        # The parameters of all layers lie in one array each, [L, ...], and one layer is compiled.
        layers = nn.scan(
            Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.config.L
        )
        return layers(self.config, name="layers")(x_BTD, None)[0]


class OnePageDecoder(nn.Module):  # jaxformer.models.Decoder
    config: Config

    @nn.compact
    def __call__(self, tokens_BT):
        V, D = self.config.V, self.config.D
        embedding = nn.Embed(V, D, embedding_init=nn.initializers.normal(D**-0.5), name="embedding")
        x_BTD = Stack(self.config, name="stack")(embedding(tokens_BT))
        return embedding.attend(Norm(name="final_norm")(x_BTD))  # logits_BTV


def make_step(model, optimizer):  # jaxformer.training.make_train_step, PmapRunner
    """One step on all devices, each with its rows of the batch; they average their gradients."""

    def loss_of(params, tokens_BT):  # jaxformer.functional.cross_entropy
        logits_BTV = model.apply({"params": params}, tokens_BT[:, :-1])
        loss_BT = optax.softmax_cross_entropy_with_integer_labels(logits_BTV, tokens_BT[:, 1:])
        return loss_BT.mean()

    @functools.partial(jax.pmap, axis_name="devices", in_axes=(None, 0), out_axes=None)
    def step(state, tokens_BT):
        params, moments = state
        loss, gradients = jax.value_and_grad(loss_of)(params, tokens_BT)
        loss, gradients = jax.lax.pmean((loss, gradients), "devices")
        updates, moments = optimizer.update(gradients, moments, params)
        return (optax.apply_updates(params, updates), moments), loss

    return step


@functools.partial(jax.jit, static_argnames=("model", "length"))
def sample(model, params, prompt, rng, length, temperature=0.7):  # jaxformer.inference.generate
    """Continues a prompt: each byte is drawn from what the model expects after those before it."""
    tokens_1T = jnp.zeros((1, length), jnp.int32).at[0, : len(prompt)].set(prompt)

    def draw(place, tokens_1T):
        logits_V = model.apply({"params": params}, tokens_1T)[0, place - 1]
        token = jax.random.categorical(jax.random.fold_in(rng, place), logits_V / temperature)
        return tokens_1T.at[0, place].set(token)

    return jax.lax.fori_loop(len(prompt), length, draw, tokens_1T)[0]


def main(steps=300, rows=16):
    config, batches = Config(), np.random.default_rng(0)
    text = np.frombuffer("\n".join(python_documents()).encode(), np.uint8).astype(np.int32)
    model = OnePageDecoder(config)
    optimizer = optax.adamw(optax.warmup_cosine_decay_schedule(0, 4e-3, 20, steps))
    params = model.init(jax.random.key(0), text[None, : config.T])["params"]
    state, step = (params, optimizer.init(params)), make_step(model, optimizer)
    began = time.perf_counter()
    for number in range(1, steps + 1):
        starts_B1 = batches.integers(len(text) - config.T, size=(rows, 1))
        tokens_BT = text[starts_B1 + np.arange(config.T + 1)]
        by_device = rearrange(tokens_BT, "(d b) t -> d b t", d=jax.local_device_count())
        state, loss = step(state, by_device)
        if number % 100 == 0:
            seconds = time.perf_counter() - began
            print(f"step {number}: {loss / np.log(2):.2f} bits per byte, after {seconds:.0f} s")
    prompt = jnp.asarray(list(b"The assert statement "))
    tokens = sample(model, state[0], prompt, jax.random.key(0), length=config.T)
    print(bytes(tokens.tolist()).decode("utf-8", "replace"))


if __name__ == "__main__":
    main()

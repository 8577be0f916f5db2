"""What a user may bring to a model, for the tests of it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.functional import attention_mask
from jaxformer.modules import BlockOutput, FeedForward, MultiHeadAttention, Norm, Positions

B, T, VOCAB, CAPACITY = 2, 7, 11, 13
CONFIG = ModelConfig(
    vocab_size=VOCAB, max_len=16, num_layers=3, d_model=12, num_heads=2, d_ff=17, init_std=0.3
)
ENCODER = dataclasses.replace(CONFIG, architecture="encoder")
BOTH = dataclasses.replace(CONFIG, architecture="encoder_decoder")
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, VOCAB, (B, T), np.int32)
MASK = RNG.random((B, 1, T, T)) < 0.6
BIAS = np.float32(RNG.standard_normal((1, 2, T, T)))


def softmax_with_sink(query, key, value, mask=None, **structure):
    """A score of 0 takes part in the softmax and has no value (Xiao et al., 2023)."""
    mask = attention_mask(query, key, mask, **structure)
    scores = jnp.einsum("...tnh,...snh->...nts", query, key) / query.shape[-1] ** 0.5
    scores = scores if mask is None else jnp.where(mask, scores, -jnp.inf)
    sink = jnp.zeros_like(scores[..., :1])
    weights = jax.nn.softmax(jnp.concatenate([scores, sink], axis=-1))[..., :-1]
    return jnp.einsum("...nts,...snh->...tnh", weights, value)


PATTERN = (LayerConfig(attention="sink", local_window_size=2), LayerConfig())


class Angles(Positions):
    """Adds, rotates and biases, each as a built-in scheme does, to be told from them by parts."""

    width: int

    def setup(self):
        self.scale = self.param("scale", nn.initializers.ones, ())

    def encoding(self, positions):
        return self.scale * jnp.cos(positions[..., None] * jnp.arange(self.width)[None, None])

    def rotation(self, positions, room):
        turn = jnp.where(positions % 2 == 0, 1.0, -1.0)[..., None, None]
        return lambda query, key: (query * turn, key * turn)

    def bias(self, num_queries, num_keys, query_offset=0):
        offset = jnp.reshape(jnp.asarray(query_offset), (-1, 1, 1, 1))
        query = jnp.arange(num_queries)[None, None, :, None] + offset
        return -0.3 * jnp.abs(query - jnp.arange(num_keys)[None, None, None])


class ParallelBlock(nn.Module):
    """Attention and feed-forward on the same normed input, as in GPT-J."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x, context, *, cache=None, cross_cache=None, **options):
        inputs = Norm(self.config, name="norm")(x)
        attention = MultiHeadAttention(self.config, name="attention")
        attended = attention(inputs, context, cache=cache, **options)
        x = x + attended.output + FeedForward(self.config, name="feed_forward")(inputs)
        return BlockOutput(x, cache=attended.cache)

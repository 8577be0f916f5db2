"""Decoders of attention alone, and what their heads do with tokens that come again."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.models import Decoder, Taps
from jaxformer.modules import Block

__all__ = ["NAMES", "decoder", "look_inside"]

# Of the last layer: gain with all heads, without induction heads, with them alone; largest score
# and number of induction heads.
NAMES = "gain", "without", "alone", "score", "number"


class NoFeedForward(nn.Module):
    """A feed-forward layer that adds nothing."""

    config: ModelConfig

    def __call__(self, x: jax.Array) -> jax.Array:
        """Zeros like x."""
        return jnp.zeros_like(x)


@functools.cache
def decoder(vocab_size: int, max_len: int, num_layers: int, width: int, heads: int) -> Decoder:
    """A decoder without feed-forward layers."""
    config = ModelConfig(
        vocab_size=vocab_size, max_len=max_len, num_layers=num_layers, d_model=width,
        num_heads=heads, tied_embeddings=False, init_std=width**-0.5,
    )  # fmt: skip
    return Decoder(config, block=functools.partial(Block, feed_forward=NoFeedForward))


@functools.partial(jax.jit, static_argnums=0)
def look_inside(model: Decoder, params: Any, passages: Any, repeated: Any) -> tuple[Any, ...]:
    """What `NAMES` says; attention `[L, N, T, T]` of the first repeated tokens; the best head."""
    output = model.apply({"params": params}, repeated, return_weights=True)
    weights, places = jnp.stack(output.weights.self_attention), np.arange(repeated.shape[1])
    period, ahead = repeated.shape[1] // 4, places - places[:, None]  # of a key, from its query
    matching = ((ahead <= 0) & (ahead % period == 1)).astype(np.float32)
    scores = jnp.einsum("bnts,ts->bnt", weights[-1], matching)[..., period:].mean((0, 2))

    def gain(kept_heads: jax.Array) -> jax.Array:
        def knock_out(x: jax.Array, layer: jax.Array) -> jax.Array:
            is_last = layer == model.config.num_layers - 1
            return jnp.where(~is_last | kept_heads[None, None, :, None], x, 0)

        taps = Taps(edit={"head_outputs": knock_out})
        logits = model.apply({"params": params}, passages["tokens"], taps=taps).logits
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, passages["labels"])
        eighth = losses.shape[1] // 8
        return losses[:, eighth : 2 * eighth].mean() - losses[:, -2 * eighth :].mean()

    gains = jax.vmap(gain)(jnp.stack([scores >= 0, scores <= 0.3, scores > 0.3]))
    values = *gains, scores.max(), (scores > 0.3).sum()
    return dict(zip(NAMES, values, strict=True)), weights[:, 0], scores.argmax()

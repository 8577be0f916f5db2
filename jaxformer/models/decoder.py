"""The decoder: a causal language model."""

from typing import Any, Unpack

import jax
import jax.numpy as jnp

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.cache import KVCache, WindowCache
from jaxformer.models.inputs import TransformerInputs
from jaxformer.models.transformer import Transformer, TransformerOutput
from jaxformer.modules.stack import Cache

__all__ = ["Decoder", "init_cache"]


class Decoder(Transformer):
    """A `Transformer` whose tokens attend to themselves and those before them, with logits.

    Args:
        config: the model, of architecture "decoder"; its vocab_size must be set.
        causal: False lets tokens attend to later ones as well, for a prefix language model: pass
            a mask that says which.
        cross_attention: not of a decoder alone; see `EncoderDecoder`.
        block: makes the block of all layers.
        attention_fn: what computes self-attention, in all layers or by name.
        position_scheme: the model's positions, in place of `config.positions`.
        shared_embedding: a table that is shared with another model; its own when not given.
        has_output: whether hidden states are ever scored against the vocabulary.

    Raises:
        ConfigError: the config is of another architecture.

    References:
        Vaswani et al., "Attention Is All You Need", 2017; Radford et al., "Language Models are
        Unsupervised Multitask Learners", 2019.

    Example:
        >>> config = ModelConfig(vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2)
        >>> model, tokens = Decoder(config), jnp.array([[1, 2, 3]])
        >>> variables = jax.jit(model.init)(jax.random.key(0), tokens)
        >>> model.apply(variables, tokens).logits.shape
        (1, 3, 11)
    """

    causal: bool = True

    def setup(self) -> None:
        """Makes the submodules."""
        if self.config.architecture != "decoder":
            raise ConfigError(
                f"a Decoder needs architecture 'decoder', got {self.config.architecture!r}"
            )
        super().setup()

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Scores the next token at every position.

        Args:
            tokens: integer `[B, T]`.
            **inputs: lengths, positions, segment_ids, mask, bias, cache, deterministic and
                return_weights, as in `hidden_states`.

        Returns:
            Logits `[B, T, V]`, the cache, the weights and the hidden states.
        """
        output = self.hidden_states(tokens, **inputs)
        return output._replace(logits=self.logits(output.hidden))


def init_cache(config: ModelConfig, batch_size: int, capacity: int) -> Cache:
    """Makes an empty cache for every layer of a model, in its dtype.

    A layer with a window that is smaller than the capacity keeps a window's keys only.

    Args:
        config: the model.
        batch_size: B.
        capacity: the most tokens that a row can hold.

    Returns:
        num_layers caches.

    Example:
        >>> config = ModelConfig(
        ...     max_len=64, num_layers=2, d_model=4, num_heads=2, local_window_size=5
        ... )
        >>> [type(cache).__name__ for cache in init_cache(config, batch_size=3, capacity=64)]
        ['WindowCache', 'WindowCache']
    """
    caches: list[KVCache | WindowCache] = []
    shape: dict[str, Any] = {
        "num_kv_heads": config.kv_heads,
        "head_dim": config.key_dim,
        "value_head_dim": config.value_dim,
        "dtype": jnp.dtype(config.dtype),
    }
    for layer in config.layer_overrides:
        window = layer.local_window_size
        window = config.local_window_size if window is None else window
        if window is not None and window < capacity:
            caches.append(WindowCache.init(batch_size, window, **shape))
        else:
            caches.append(KVCache.init(batch_size, capacity, **shape))
    return tuple(caches)

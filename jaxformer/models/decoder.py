"""Decoder, a causal language model, and its key/value caches."""

from typing import Any, Unpack

import jax
import jax.numpy as jnp
from einops import repeat

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.checks import static_bool
from jaxformer.functional.multi_head import KVCache, WindowCache
from jaxformer.models.transformer import Transformer, TransformerOutput
from jaxformer.models.transformer_inputs import TransformerInputs
from jaxformer.modules.stacked_layers import Cache, LayerCache, ScannedCache


class Decoder(Transformer):
    """A causal `Transformer` with logits: every token attends to itself and to earlier tokens.

    Takes the arguments of `Transformer`; `config` has architecture "decoder". For a prefix language
    model, pass causal=False and a mask that is causal outside the prefix.

    Raises:
        ConfigError: the config has another architecture, or num_classes.

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
        """Checks the architecture, and creates the submodules."""
        self._require_architecture("decoder", "a Decoder")
        if self.config.num_classes is not None:
            raise ConfigError(
                "a Decoder predicts tokens, got num_classes="
                f"{self.config.num_classes}; remove it, or use a SequenceClassifier"
            )
        super().setup()

    def __call__(self, tokens: jax.Array, **inputs: Unpack[TransformerInputs]) -> TransformerOutput:
        """Logits of the next token at every position.

        Args:
            tokens: integer `[B, T]`.
            **inputs: as in `TransformerInputs`.

        Returns:
            Logits `[B, T, V]`, the cache, the weights and the hidden states.
        """
        output = self.hidden_states(tokens, **inputs)
        return output._replace(logits=self.logits(output.hidden))


def computation_dtype(config: ModelConfig, params: Any) -> jnp.dtype:
    """Dtype that a model computes in: float64 if its parameters are, else the config's."""
    is_wide = any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(params))
    return jnp.dtype(jnp.float64 if is_wide else config.dtype)


def init_cache(
    config: ModelConfig, batch_size: int, capacity: int, *,
    dtype: jax.typing.DTypeLike | None = None, scanned: bool = False,
) -> Cache:  # fmt: skip
    """Empty key/value caches of the layers of a model.

    A layer whose window is smaller than the capacity gets a `WindowCache`, which keeps only the
    keys of the window. A jitted function that makes its cache itself knows that it is empty:
    attention to the first tokens is then that of a forward pass without a cache.

    Args:
        config: the model.
        batch_size: number of rows, B.
        capacity: maximum number of tokens in a row.
        dtype: dtype of keys and values; the config's when not given. Use float64 for a model with
            float64 parameters.
        scanned: whether layers with this cache run in a scan, as `generate` runs them on
            accelerators: a program is compiled as fast for many layers as for few. On a CPU, a
            loop decodes 1.8 times as fast.

    Returns:
        num_layers caches; a `ScannedCache` of them if scanned.

    Example:
        >>> config = ModelConfig(
        ...     max_len=64, num_layers=2, d_model=4, num_heads=2, local_window_size=5
        ... )
        >>> [type(cache).__name__ for cache in init_cache(config, batch_size=3, capacity=64)]
        ['WindowCache', 'WindowCache']
    """
    shape: dict[str, Any] = {
        "num_kv_heads": config.kv_heads,
        "head_dim": config.key_dim,
        "value_head_dim": config.value_dim,
        "dtype": jnp.dtype(config.dtype if dtype is None else dtype),
    }

    def empty(layer: LayerConfig) -> LayerCache:
        window = config.window_of(layer)
        if window and window < capacity:  # a window of 0 keeps nothing, so it uses a full cache
            return WindowCache.init(batch_size, window, **shape)
        return KVCache.init(batch_size, capacity, **shape)

    caches = tuple(map(empty, config.layer_overrides))
    if not static_bool("scanned", scanned):
        return caches
    first, period = len(config.first_layers), max(1, len(config.layers))
    num_repeats = (len(caches) - first) // period

    def stacked(cache: LayerCache) -> LayerCache:
        key, value = (repeat(x, "b ... -> b l ...", l=num_repeats) for x in cache[:2])
        return cache._replace(key=key, value=value)

    repeats = tuple(map(stacked, caches[first : first + period]))
    return ScannedCache(caches[:first], repeats, caches[first + num_repeats * period :])

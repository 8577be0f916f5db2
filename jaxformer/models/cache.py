"""Key/value caches of a model, and the dtype that it computes in."""

from typing import Any

import jax
import jax.numpy as jnp
from einops import repeat

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.functional.checks import static_bool
from jaxformer.functional.multi_head import KVCache, WindowCache
from jaxformer.modules.stacked_layers import Cache, LayerCache, ScannedCache


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
        >>> config = ModelConfig(max_len=64, num_layers=2, local_window_size=5)
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

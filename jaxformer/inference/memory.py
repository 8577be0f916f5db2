"""Check of the memory that decoding needs, before it is allocated."""

import math

import jax
import jax.numpy as jnp

from jaxformer.config import ModelConfig
from jaxformer.memory import device_memory, require_memory
from jaxformer.models import init_cache


def require_cache_memory(
    config: ModelConfig, rows: int, capacity: int, dtype: jnp.dtype, *, remedy: str
) -> None:
    """Raises ConfigError if the key/value cache of all rows and beams does not fit in memory."""
    cache = jax.eval_shape(lambda: init_cache(config, rows, capacity, dtype=dtype))
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
    needs = {
        "the key/value cache": size,
        "the logits": rows * (config.vocab_size or 0) * jnp.dtype(jnp.float32).itemsize,
    }
    available = device_memory(jax.local_devices()[0])
    what = f"decoding {rows:,} rows of {capacity:,} tokens"
    require_memory(needs, available, what=what, remedy=remedy)

"""Key/value caches of all layers of a model."""

import dataclasses
import functools
from typing import overload

import jax
from einops import rearrange

from jaxformer.functional.multi_head import KVCache, WindowCache

LayerCache = KVCache | WindowCache


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("first", "repeats", "rest"), meta_fields=()
)
@dataclasses.dataclass(frozen=True, eq=False)
class ScannedCache:
    """Caches of layers that run as a scan over the repeats of the layer pattern.

    Every array keeps its batch axis in front, so that rows can be gathered as of any cache.

    Args:
        first: caches of `config.first_layers`.
        repeats: one cache per layer of the pattern, with the arrays of all its repeats:
            `[B, L, K, S, H]`.
        rest: caches of the layers after the last whole repeat.
    """

    first: tuple[LayerCache, ...]
    repeats: tuple[LayerCache, ...]
    rest: tuple[LayerCache, ...]

    @property
    def layers(self) -> tuple[LayerCache, ...]:
        """The cache of each layer; those of the repeats share arrays."""
        num_repeats = self.repeats[0].key.shape[1]
        repeated = (
            cache._replace(layer=layer) for layer in range(num_repeats) for cache in self.repeats
        )
        return (*self.first, *repeated, *self.rest)


Cache = tuple[LayerCache, ...] | ScannedCache
"""Key/value caches of a model: one for each layer, or those of a scan over layers."""


@overload
def caches_of_layers(cache: Cache) -> tuple[LayerCache, ...]: ...


@overload
def caches_of_layers(cache: None) -> None: ...


def caches_of_layers(cache: Cache | None) -> tuple[LayerCache, ...] | None:
    """One cache per layer; None without a cache."""
    return cache.layers if isinstance(cache, ScannedCache) else cache


def rows_first(cache: KVCache, place: int) -> KVCache:
    """Cache of a layer of the pattern, of those `[L, P, B, ...]` that a scan has put out."""
    key, value = (
        rearrange(array[:, place], "l b ... -> b l ...") for array in (cache.key, cache.value)
    )
    return KVCache(key, value, cache.lengths[0, place])

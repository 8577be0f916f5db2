"""Stacked layers: variables, caches and inputs of all layers of a model, and of single ones."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from einops import rearrange

from jaxformer.errors import ConfigError
from jaxformer.functional.multi_head import KVCache, WindowCache
from jaxformer.functional.taps import Taps
from jaxformer.modules.attention import AttentionContext

LayerCache = KVCache | WindowCache


@jax.tree_util.register_dataclass
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


def caches_of_layers(cache: Cache | None) -> tuple[LayerCache, ...]:
    """One cache per layer; () without a cache."""
    return cache.layers if isinstance(cache, ScannedCache) else cache or ()


def cache_capacity(cache: Cache) -> int | None:
    """Capacity of the caches of all keys; None if all layers have windows."""
    layers = caches_of_layers(cache)
    return next((layer.capacity for layer in layers if isinstance(layer, KVCache)), None)


def whole_caches(caches: Iterable[LayerCache | None]) -> tuple[LayerCache, ...]:
    """The caches of a layer pattern as the carry of a scan: with the arrays of all repeats."""
    return tuple(cache._replace(layer=None) for cache in caches if cache is not None)


def rows_first(cache: KVCache) -> KVCache:
    """Cache of all repeats of a layer, from arrays `[L, B, ...]` that a scan has put out."""
    key, value = (rearrange(array, "l b ... -> b l ...") for array in (cache.key, cache.value))
    return KVCache(key, value, cache.lengths[0])


def join_caches(parts: list[Any], *, scan_index: int | None) -> Cache | None:
    """Cache of a stack from those of its calls: of layers, and at `scan_index` of a whole scan."""
    if not jax.tree.leaves(parts):
        return None
    if scan_index is None:
        return tuple(parts)
    first, repeats, rest = parts[:scan_index], parts[scan_index], parts[scan_index + 1 :]
    return ScannedCache(tuple(first), repeats, tuple(rest))


def check_one_per_layer(name: str, count: int, num_layers: int) -> None:
    """Raises ConfigError unless there are as many contexts or caches as layers."""
    if count != num_layers:
        raise ConfigError(
            f"{name} must have one entry per layer, got {count} and num_layers={num_layers}"
        )


class LayerInputs(NamedTuple):
    """Inputs of one layer other than x."""

    context: AttentionContext
    cache: LayerCache | None
    cross_cache: KVCache | None
    number: int | jax.Array
    taps: Taps | None

    def in_repeat(self, index: jax.Array, period: int, cache: LayerCache | None) -> "LayerInputs":
        """This layer in a repeat of the pattern; the cache is the scan's, with all repeats."""
        layer = self._replace(number=self.number + index * period)
        if cache is None or self.cache is None:
            return layer
        # The lengths are those before the scan: the same in all layers, and known if empty.
        cache = cache._replace(lengths=self.cache.lengths, layer=index)
        cross_cache = self.cross_cache and self.cross_cache._replace(layer=index)
        return layer._replace(cache=cache, cross_cache=cross_cache)


def inputs_by_layer(
    num_layers: int, contexts: Sequence[AttentionContext], cache: Cache | None,
    cross_cache: Cache | None, taps: Taps | None,
) -> list[LayerInputs]:  # fmt: skip
    """Inputs of each layer; ConfigError unless contexts and caches have an entry for each."""
    columns: dict[str, Any] = {"contexts": contexts}
    for name, caches in (("cache", cache), ("cross_cache", cross_cache)):
        columns[name] = (None,) * num_layers if caches is None else caches_of_layers(caches)
    for name, entries in columns.items():
        check_one_per_layer(name, len(entries), num_layers)
    rows = zip(*columns.values(), range(num_layers), (taps,) * num_layers, strict=True)
    return [LayerInputs(*row) for row in rows]


GROUPS = ("first_layers", "layers")
"""Names of the stacked parameters."""


def layer_variables(variables: Any, start: int, stop: int) -> list[Any]:
    """Variables of each layer from `start` on, stacked or from `split_layers`."""
    leaves, tree = jax.tree.flatten(variables, is_leaf=_is_split)
    if not leaves or start == stop:
        return [variables] * (stop - start)
    parts = [leaf[start:] if start else leaf for leaf in leaves]
    parts = [part if _is_split(part) else _split(part) for part in parts]
    return [jax.tree.unflatten(tree, list(layer)) for layer in zip(*parts, strict=True)]


def has_split_layers(variables: Any) -> bool:
    """Whether variables are from `split_layers`, which no scan takes."""
    return any(map(_is_split, jax.tree.leaves(variables, is_leaf=_is_split)))


def _is_split(leaf: Any) -> bool:
    return isinstance(leaf, tuple)


def _split(leaf: jax.Array) -> tuple[jax.Array, ...]:
    # The gradient of lax.split is one concatenation. The gradient of indexing would be a sum of
    # arrays as large as the stack, one per layer.
    parts = jax.lax.split(leaf, (1,) * leaf.shape[0])
    return tuple(rearrange(part, "1 ... -> ...") for part in parts)


def split_layers(params: Any) -> Any:
    """Splits stacked parameters on a CPU: a tuple per array in a "stack", which a loop accepts."""
    # Decoding reads all parameters for every token. On a CPU, slicing them out of a stack each time
    # is 2.6 times slower (measured), and layers share the stack's memory. Elsewhere each would be
    # a copy.
    on_host = all(_is_on_one_cpu(leaf) for leaf in jax.tree.leaves(params))
    return _split_stacks(params) if on_host else params


def _split_stacks(params: Any, in_stack: bool = False) -> Any:
    if not isinstance(params, dict):
        return params
    return {
        name: jax.tree.map(_views, inner)
        if in_stack and name in GROUPS
        else _split_stacks(inner, in_stack=name.lower().startswith("stack"))
        for name, inner in params.items()
    }


def _is_on_one_cpu(leaf: Any) -> bool:
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return False
    devices: set[jax.Device] = leaf.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def _views(leaf: jax.Array) -> tuple[jax.Array, ...]:
    # On CPU, NumPy views the array without a copy, and so does device_put if it is aligned.
    device = leaf.sharding if leaf.committed else None
    return tuple(jax.device_put(part, device) for part in np.asarray(leaf))

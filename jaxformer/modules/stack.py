"""N blocks, as one `nn.scan` with stacked parameters or as a loop, and the way between the two."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.cache import KVCache
from jaxformer.modules.attention import NO_CONTEXT, AttentionContext
from jaxformer.modules.block import Block

__all__ = ["Stack", "stack_layers", "unstack_layers"]

_SCANNED = "layers"
_LOOPED = "layer_{}"

_REMAT_POLICIES = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


class Stack(nn.Module):
    """`num_layers` blocks, one after the other.

    With `scan_layers` the block is traced and compiled once, and every parameter has a leading
    axis of num_layers under "layers"; without, each block has its own, "layer_0" and so on.

    Args:
        config: the model.

    Example:
        >>> config = ModelConfig(max_len=8, num_layers=3, d_model=4, num_heads=2)
        >>> variables = Stack(config).init(jax.random.key(0), jnp.ones((2, 5, 4)))
        >>> variables["params"]["layers"]["attention"]["query_kernel"].shape
        (3, 4, 4)
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        context: AttentionContext = NO_CONTEXT,
        *,
        cache: tuple[KVCache, ...] | None = None,
        deterministic: bool = True,
    ) -> tuple[jax.Array, tuple[KVCache, ...] | None]:
        """Maps float `[B, T, D]` to `[B, T, D]`, with one cache per layer.

        Raises:
            ConfigError: a cache with scanned layers, or not one per layer.
        """
        config = self.config

        def layer(
            block: Block, x: jax.Array, cache: KVCache | None = None
        ) -> tuple[jax.Array, KVCache | None]:
            return block(x, context, cache=cache, deterministic=deterministic)

        if config.remat != "none":
            # Inside a scan nothing is merged across iterations, so CSE need not be prevented.
            policy, prevent_cse = _REMAT_POLICIES[config.remat], not config.scan_layers
            layer = nn.remat(layer, policy=policy, prevent_cse=prevent_cse)

        if cache is not None:
            if config.scan_layers:
                raise ConfigError(
                    "a cache needs looped layers, got scan_layers=True; decode with "
                    "dataclasses.replace(config, scan_layers=False) and unstack_layers(params)"
                )
            if len(cache) != config.num_layers:
                raise ConfigError(
                    f"cache must have one entry per layer, got {len(cache)} and "
                    f"num_layers={config.num_layers}"
                )
        if config.scan_layers:
            scan = nn.scan(
                lambda block, x, _: (layer(block, x)[0], None),
                variable_axes={"params": 0},
                split_rngs={"params": True, "dropout": True},
                length=config.num_layers,
            )
            return scan(Block(config, name=_SCANNED), x, None)[0], None

        new_cache = []
        for index in range(config.num_layers):
            block = Block(config, name=_LOOPED.format(index))
            x, layer_cache = layer(block, x, None if cache is None else cache[index])
            new_cache.append(layer_cache)
        return x, None if cache is None else tuple(c for c in new_cache if c is not None)


def unstack_layers(params: Any) -> Any:
    """Turns the parameters of a scanned model into those of the looped one.

    Args:
        params: nested dict of a whole model or a stack.

    Returns:
        The same with "layers" `[L, ...]` replaced by "layer_0" to "layer_{L-1}".

    Example:
        >>> sorted(unstack_layers({"layers": {"scale": jnp.ones((2, 3))}}))
        ['layer_0', 'layer_1']
    """
    if not isinstance(params, dict):
        return params
    result = {k: unstack_layers(v) for k, v in params.items() if k != _SCANNED}
    if _SCANNED in params:
        stacked = params[_SCANNED]
        for index in range(jax.tree.leaves(stacked)[0].shape[0]):
            result[_LOOPED.format(index)] = jax.tree.map(lambda leaf, i=index: leaf[i], stacked)
    return result


def stack_layers(params: Any) -> Any:
    """Turns the parameters of a looped model into those of the scanned one.

    Args:
        params: nested dict of a whole model or a stack.

    Returns:
        The same with "layer_0" to "layer_{L-1}" replaced by "layers" `[L, ...]`.

    Example:
        >>> looped = {"layer_0": {"scale": jnp.ones(3)}, "layer_1": {"scale": jnp.ones(3)}}
        >>> stack_layers(looped)["layers"]["scale"].shape
        (2, 3)
    """
    if not isinstance(params, dict):
        return params
    count = 0
    while _LOOPED.format(count) in params:
        count += 1
    names = [_LOOPED.format(index) for index in range(count)]
    result = {k: stack_layers(v) for k, v in params.items() if k not in names}
    if names:
        layers = [params[name] for name in names]
        result[_SCANNED] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
    return result

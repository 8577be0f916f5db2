"""N blocks, as one `nn.scan` with stacked parameters or as a loop, and the way between the two."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.cache import KVCache
from jaxformer.modules.attention import NO_CONTEXT, AttentionContext
from jaxformer.modules.block import AttentionWeights, Block, BlockOutput

__all__ = ["Stack", "StackOutput", "stack_layers", "unstack_layers"]

_SCANNED = "layers"
_LOOPED = "layer_{}"

_REMAT_POLICIES = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


class StackOutput(NamedTuple):
    """Result of a `Stack`.

    Args:
        x: float `[B, T, D]`.
        cache: one longer cache per layer, when they were given.
        memory: keys and values of the encoder's output, one per layer; None where layers are
            scanned, which do not decode.
        weights: `[L, B, N, T, S]` of each kind of attention, when they were asked for.
    """

    x: jax.Array
    cache: tuple[KVCache, ...] | None
    memory: tuple[KVCache, ...] | None
    weights: AttentionWeights | None


class Stack(nn.Module):
    """`num_layers` blocks, one after the other.

    Scanned, the block is traced and compiled once, and every parameter has a leading axis of
    num_layers under "layers"; with layer_execution "loop", each block has its own, "layer_0" and so
    on.

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
        memory: tuple[KVCache, ...] | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> StackOutput:
        """Maps float `[B, T, D]` to `[B, T, D]`.

        Args:
            x: float `[B, T, D]`.
            context: what all layers share.
            cache: earlier keys and values, one per layer.
            memory: keys and values of an encoder's output, one per layer; made from the
                context's when not given.
            deterministic: whether dropout is off.
            return_weights: whether the attention weights of all layers are returned as well.

        Returns:
            The output, and what there is beside it.

        Raises:
            ConfigError: a cache or memory with scanned layers, or not one per layer.
        """
        config = self.config

        def layer(block: Block, x: jax.Array, *caches: KVCache | None) -> BlockOutput:
            own, other = caches or (None, None)
            return block(
                x, context, cache=own, memory=other, deterministic=deterministic,
                return_weights=return_weights,
            )  # fmt: skip

        if config.remat != "none":
            # Inside a scan nothing is merged across iterations, so CSE need not be prevented.
            policy, prevent_cse = _REMAT_POLICIES[config.remat], config.layer_execution == "loop"
            layer = nn.remat(layer, policy=policy, prevent_cse=prevent_cse)

        for name, given in (("cache", cache), ("memory", memory)):
            self._check_caches(name, given)
        if config.layer_execution != "loop":

            def one(block: Block, x: jax.Array, _: None) -> tuple[jax.Array, Any]:
                output = layer(block, x)
                return output.x, output.weights

            scan = nn.scan(
                one,
                variable_axes={"params": 0},
                split_rngs={"params": True, "dropout": True},
                length=config.num_layers,
            )
            x, weights = scan(Block(config, name=_SCANNED), x, None)
            return StackOutput(x, None, None, weights)

        none = (None,) * config.num_layers
        outputs = []
        for index, caches in enumerate(zip(cache or none, memory or none, strict=True)):
            block = Block(config, name=_LOOPED.format(index))
            outputs.append(layer(block, x, *caches))
            x = outputs[-1].x
        weights = None
        if return_weights:
            weights = jax.tree.map(lambda *each: jnp.stack(each), *[o.weights for o in outputs])
        new_cache = tuple(o.cache for o in outputs if o.cache is not None)
        new_memory = tuple(o.memory for o in outputs if o.memory is not None)
        return StackOutput(x, new_cache or None, new_memory or None, weights)

    def _check_caches(self, name: str, caches: tuple[KVCache, ...] | None) -> None:
        config = self.config
        if caches is None:
            return
        if config.layer_execution != "loop":
            raise ConfigError(
                f"a {name} needs looped layers, got layer_execution={config.layer_execution!r}; "
                'decode with dataclasses.replace(config, layer_execution="loop") and '
                "unstack_layers(params)"
            )
        if len(caches) != config.num_layers:
            raise ConfigError(
                f"{name} must have one entry per layer, got {len(caches)} and "
                f"num_layers={config.num_layers}"
            )


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

"""The layers of a model, their parameters stacked; run by one compiled scan, or by a loop."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.cache import KVCache, WindowCache
from jaxformer.modules.attention import NO_CONTEXT, AttentionContext
from jaxformer.modules.block import AttentionWeights, Block, BlockOutput, check_block_output

__all__ = [
    "Cache",
    "LayerExecution",
    "Stack",
    "StackOutput",
    "layer_execution",
    "split_layers",
]

Cache = tuple[KVCache | WindowCache, ...]
"""One cache for each layer."""

_MOST_LOOPED = 12  # layers that "auto" loops over on a CPU; each is compiled by itself

_GROUPS = ("first_layers", "layers")  # names of the stacked parameters

_REMAT_POLICIES = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


class LayerExecution(NamedTuple):
    """How the layers of a stack run.

    Args:
        name: "scan" or "loop".
        reason: why, in words.
    """

    name: Literal["scan", "loop"]
    reason: str


def layer_execution(config: ModelConfig) -> LayerExecution:
    """Chooses how the layers of a model run, where no cache is given; with one they are looped.

    Args:
        config: the model; its `layer_execution` says, or leaves it to this function by "auto".

    Returns:
        The name and the reason.

    Example:
        >>> config = ModelConfig(
        ...     max_len=8, num_layers=3, d_model=4, num_heads=2, layer_execution="scan"
        ... )
        >>> layer_execution(config)
        LayerExecution(name='scan', reason='model.layer_execution says so')
    """
    if config.layer_execution != "auto":
        return LayerExecution(config.layer_execution, "model.layer_execution says so")
    backend = jax.default_backend()
    if backend == "cpu" and config.num_layers <= _MOST_LOOPED:
        return LayerExecution("loop", f"on a CPU {config.num_layers} layers are faster as a loop")
    if backend == "cpu":
        reason = f"more than {_MOST_LOOPED} layers would take long to compile as a loop"
        return LayerExecution("scan", reason)
    return LayerExecution("scan", "a scan compiles its layers once")


class StackOutput(NamedTuple):
    """Result of a `Stack`.

    Args:
        x: float `[B, T, D]`.
        cache: one cache per layer with the new tokens, when they were given.
        cross_cache: keys and values of the encoder's output, one per layer; with a cache only.
        weights: `[L, B, N, T, S]` of each kind of attention, when they were asked for.
    """

    x: jax.Array
    cache: Cache | None = None
    cross_cache: tuple[KVCache, ...] | None = None
    weights: AttentionWeights | None = None


class Stack(nn.Module):
    """`num_layers` blocks, one after the other.

    Every parameter has a leading axis of the layers, under "layers", and those of
    `config.first_layers` under "first_layers", however the layers run: by one `nn.scan` over the
    repeats of the layer pattern, or by a loop over slices. A cache is always looped over, which is
    1.8 times as fast as carrying it through a scan.

    Args:
        config: the model.
        cross_attention: whether the blocks attend to an encoder's output as well.
        block: makes the block of all layers: a module of config, with the call of `Block`.

    Example:
        >>> config = ModelConfig(max_len=8, num_layers=3, d_model=4, num_heads=2)
        >>> variables = Stack(config).init(jax.random.key(0), jnp.ones((2, 5, 4)))
        >>> variables["params"]["layers"]["attention"]["query_kernel"].shape
        (3, 4, 4)
    """

    config: ModelConfig
    cross_attention: bool = False
    block: Callable[..., nn.Module] = Block

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        contexts: AttentionContext | Sequence[AttentionContext] = NO_CONTEXT,
        *,
        cache: Cache | None = None,
        cross_cache: tuple[KVCache, ...] | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
    ) -> StackOutput:
        """Maps float `[B, T, D]` to `[B, T, D]`.

        Args:
            x: float `[B, T, D]`.
            contexts: structure of the attention, for all layers, or one for each of them.
            cache: earlier keys and values, one per layer.
            cross_cache: keys and values of an encoder's output, one per layer; made from the
                contexts' when not given.
            deterministic: whether dropout is off.
            return_weights: whether the attention weights of all layers are returned as well.

        Returns:
            The output, and what there is beside it.

        Raises:
            ConfigError: not one cache, or one context, per layer.
        """
        config = self.config
        if isinstance(contexts, AttentionContext):
            contexts = [contexts] * config.num_layers
        for name, given in (("contexts", contexts), ("cache", cache), ("cross_cache", cross_cache)):
            if given is not None and len(given) != config.num_layers:
                raise ConfigError(
                    f"{name} must have one entry per layer, got {len(given)} and "
                    f"num_layers={config.num_layers}"
                )
        none = (None,) * config.num_layers
        layers = [
            _Layer(*each) for each in zip(contexts, cache or none, cross_cache or none, strict=True)
        ]
        cached = cache is not None or cross_cache is not None
        looped = cached or layer_execution(config).name == "loop"
        options = {"deterministic": deterministic, "return_weights": return_weights}
        first, outputs = len(config.first_layers), []
        for name, group in zip(_GROUPS, (layers[:first], layers[first:]), strict=True):
            if not group:
                continue
            block = self._make_block(name, x, group)
            if looped or name == "first_layers":
                results = self._loop(block, x, group, options)
            else:
                results = self._scan(block, x, group, options)
            outputs += results
            x = results[-1].x
        weights = None
        if return_weights:
            found = [o.weights for o in outputs if o.weights is not None]
            weights = jax.tree.map(lambda *each: jnp.concatenate(each), *found)
        if cache is None:
            return StackOutput(x, weights=weights)
        new_cross_cache = tuple(o.cross_cache for o in outputs if o.cross_cache is not None)
        new_cache = tuple(o.cache for o in outputs if o.cache is not None)
        return StackOutput(x, new_cache, new_cross_cache or None, weights)

    def _make_block(self, name: str, x: jax.Array, group: list["_Layer"]) -> nn.Module:
        """The block whose parameters are those of all layers of a group, drawn at initialization.

        A scan draws them whichever way the layers will run, so that they do not depend on it.
        """
        options: dict[str, Any] = {"cross_attention": True} if self.cross_attention else {}
        if name == "first_layers" and self.config.first_layers[0].attention_norm is False:
            options["attention_norm"] = False
        block = self.block(self.config, name=name, **options)
        if self.is_initializing():

            def draw(block: nn.Module, x: jax.Array, _: None) -> tuple[jax.Array, None]:
                return _call(block, x, layer=group[0], options={}).x, None

            axes, rngs = {"params": 0}, {"params": True}
            nn.scan(draw, variable_axes=axes, split_rngs=rngs, length=len(group))(block, x, None)
        return block

    def _loop(
        self, block: nn.Module, x: jax.Array, group: list["_Layer"], options: dict[str, bool],
        start: int = 0,
    ) -> list[BlockOutput]:  # fmt: skip
        """Runs the layers of a group one by one, from number `start` on."""
        slices = _slices(block.variables.get("params", {}), len(group))
        outputs = []
        for layer, params in zip(group[start:], slices[start:], strict=True):
            take = functools.partial(_replace, by=params)
            output = self._on(take, layer, options, prevent_cse=True)(block, x)
            x = output.x
            weights = jax.tree.map(lambda leaf: leaf[None], output.weights)
            outputs.append(output._replace(weights=weights))
        return outputs

    def _scan(
        self, block: nn.Module, x: jax.Array, group: list["_Layer"], options: dict[str, bool]
    ) -> list[BlockOutput]:
        """Runs the repeats of the pattern by one scan, and loops over what is left."""
        period = max(1, len(self.config.layers))
        repeats = len(group) // period

        def repeat(block: nn.Module, x: jax.Array, _: None) -> tuple[jax.Array, Any]:
            weights = []
            for index in range(period):
                # Inside a scan nothing is merged across iterations, so CSE need not be prevented.
                take = functools.partial(_take, index=index)
                output = self._on(take, group[index], options, prevent_cse=False)(block, x)
                x = output.x
                weights.append(output.weights)
            return x, jax.tree.map(lambda *each: jnp.stack(each), *weights)

        scan = nn.scan(
            repeat,
            variable_axes={"params": 0, "losses": 0, "intermediates": 0},
            split_rngs={"params": True, "dropout": True},
            length=repeats,
        )

        def by_repeat(params: Any) -> Any:
            return jax.tree.map(
                lambda leaf: rearrange(leaf[: repeats * period], "(r p) ... -> r p ...", p=period),
                params,
            )

        def run(block: nn.Module, x: jax.Array) -> tuple[jax.Array, Any]:
            return scan(block, x, None)

        x, weights = _with_params(run, by_repeat)(block, x)
        weights = jax.tree.map(lambda leaf: rearrange(leaf, "r p ... -> (r p) ..."), weights)
        rest = self._loop(block, x, group, options, start=repeats * period)
        return [BlockOutput(x, weights=weights), *rest]

    def _on(
        self, take: Callable[[Any], Any], layer: "_Layer", options: dict[str, bool], *,
        prevent_cse: bool,
    ) -> Callable[..., BlockOutput]:  # fmt: skip
        """A function of (block, x) that runs one layer on its part of the stacked parameters.

        The backward pass computes again what the config says.
        """
        call: Callable[..., Any] = functools.partial(_call, layer=layer, options=options)
        if self.config.remat != "none":
            policy = _REMAT_POLICIES[self.config.remat]
            call = nn.remat(call, policy=policy, prevent_cse=prevent_cse)
        return _with_params(call, take)


class _Layer(NamedTuple):
    """What one layer is called with."""

    context: AttentionContext
    cache: KVCache | WindowCache | None
    cross_cache: KVCache | None


def _call(
    block: nn.Module, x: jax.Array, *, layer: _Layer, options: dict[str, bool]
) -> BlockOutput:
    context, cache, cross_cache = layer
    output = block(x, context, cache=cache, cross_cache=cross_cache, **options)
    crosses = context.encoded is not None or cross_cache is not None
    return check_block_output(
        block, output, x, cached=cache is not None, cross_cached=crosses and cache is not None,
        return_weights=options.get("return_weights", False),
    )  # fmt: skip


def _with_params(
    function: Callable[..., Any], transform: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Has a function of a module see other parameters than those stored."""

    def change(variables: Any) -> Any:
        return {"params": transform(variables["params"])} if "params" in variables else variables

    return nn.map_variables(function, "params", trans_in_fn=change)


def _replace(params: Any, *, by: Any) -> Any:
    del params
    return by


def _take(params: Any, *, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], params)


def _slices(params: Any, count: int) -> list[Any]:
    """Parameters of each layer of a group: stacked leaves cut, those of `split_layers` as is."""
    leaves, tree = jax.tree.flatten(params, is_leaf=_is_split)
    parts = [leaf if _is_split(leaf) else _split(leaf) for leaf in leaves]
    return [jax.tree.unflatten(tree, [each[i] for each in parts]) for i in range(count)]


def _is_split(leaf: Any) -> bool:
    return isinstance(leaf, tuple)


def _split(leaf: jax.Array) -> tuple[jax.Array, ...]:
    # By lax.split, whose gradient is one concatenation; that of indexing would be a sum of arrays
    # as large as the stack, one for each layer.
    parts = jax.lax.split(leaf, (1,) * leaf.shape[0])
    return tuple(rearrange(part, "1 ... -> ...") for part in parts)


@jax.jit
def split_layers(params: Any) -> Any:
    """Parameters of a model with those of its layers cut apart, for a loop that only reads them.

    Decoding reads all parameters for every token. To slice them out of a stack costs as much as
    the reading (measured: 2.6 times slower), so a decoding loop cuts them once, before it starts.

    Args:
        params: nested dict of a model.

    Returns:
        The same, with a tuple of one array for each layer in place of every stacked array. A
        `Stack` that loops takes either.

    Example:
        >>> split_layers({"stack": {"layers": {"scale": jnp.ones((2, 3))}}})["stack"]["layers"]
        {'scale': (Array([1., 1., 1.], dtype=float32), Array([1., 1., 1.], dtype=float32))}
    """
    if not isinstance(params, dict):
        return params
    return {
        name: jax.tree.map(_split, inner) if name in _GROUPS else split_layers(inner)
        for name, inner in params.items()
    }

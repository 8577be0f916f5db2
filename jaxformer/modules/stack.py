"""Stack of layers with stacked parameters, run as one compiled scan or as a loop."""

import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from einops import rearrange
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional import platforms
from jaxformer.functional.attention.block import SAVED
from jaxformer.functional.multi_head import KVCache, WindowCache
from jaxformer.functional.taps import LayerTaps, Taps
from jaxformer.modules.attention import NO_CONTEXT, AttentionContext, check_needs_no_context
from jaxformer.modules.block import AttentionWeights, Block, BlockOutput, check_block_output
from jaxformer.modules.layer_caches import Cache, ScannedCache, caches_of_layers, rows_first
from jaxformer.modules.layer_variables import GROUPS, layer_variables

# A loop compiles each layer separately, so "auto" scans deeper models, even on a CPU. On TPUs a
# layer compiles so long, with chunked attention for minutes, that "auto" scans all.
_MAX_LOOPED_LAYERS = 12

# Logical axis names (Flax) of the residual stream [B, T, D]. They shard it when a program is split
# over a mesh, and otherwise do nothing.
_RESIDUAL_AXES = ("batch", "sequence", "embed")

# Sown collections are outputs of every layer; all others are stacked by layer, like parameters.
_SOWN = ("losses", "intermediates")
_STORED = nn.DenyList(_SOWN)

_REMAT_POLICIES = {
    "full": jax.checkpoint_policies.nothing_saveable,
    # The products with parameters, and of attention an output row and up to three numbers per
    # query, so that the backward pass does not attend again.
    "dots": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
        jax.checkpoint_policies.save_only_these_names(*SAVED),
    ),
}


class LayerExecution(NamedTuple):
    """How the layers of a stack run, "scan" or "loop", and the reason in words."""

    name: Literal["scan", "loop"]
    reason: str


def layer_execution(config: ModelConfig) -> LayerExecution:
    """Resolves `config.layer_execution` for calls without a cache.

    Calls with a cache run as it is held: a tuple of caches in a loop, a `ScannedCache` in a scan.

    Example:
        >>> config = ModelConfig(
        ...     max_len=8, num_layers=3, d_model=4, num_heads=2, layer_execution="scan"
        ... )
        >>> layer_execution(config)
        LayerExecution(name='scan', reason='model.layer_execution says so')
    """
    if config.layer_execution != "auto":
        return LayerExecution(config.layer_execution, "model.layer_execution says so")
    platform = platforms.default_platform()
    if platform == "cpu" and config.num_layers <= _MAX_LOOPED_LAYERS:
        return LayerExecution("loop", f"on a CPU {config.num_layers} layers are faster as a loop")
    if platform == "cpu":
        reason = f"more than {_MAX_LOOPED_LAYERS} layers would take long to compile as a loop"
        return LayerExecution("scan", reason)
    return LayerExecution("scan", "a scan compiles its layers once")


class StackOutput(NamedTuple):
    """Result of a `Stack`: x `[B, T, D]`, caches per layer, and weights and taps `[L, ...]`."""

    x: jax.Array
    cache: Cache | None = None
    cross_cache: Cache | None = None
    weights: AttentionWeights | None = None
    taps: dict[str, jax.Array] | None = None


class Stack(nn.Module):
    """`num_layers` blocks in sequence, with stacked parameters.

    Every parameter has a leading layer axis. Parameters of `config.first_layers` are under
    "first_layers", all others under "layers". The layout does not depend on how the layers run: as
    one `nn.scan` over the repeats of the layer pattern, or as a loop over slices. With a cache it
    depends on the cache alone: a `ScannedCache` is carried through a scan.

    Args:
        config: the model.
        cross_attention: whether the blocks also attend to an encoder's output.
        block: makes the block of all layers: a module with the arguments and call of `Block`.

    Example:
        >>> config = ModelConfig(
        ...     max_len=8, num_layers=3, d_model=4, num_heads=2, positions="none"
        ... )
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
        contexts: AttentionContext | Sequence[AttentionContext] | None = None,
        *,
        cache: Cache | None = None,
        cross_cache: Cache | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
        taps: Taps | None = None,
    ) -> StackOutput:
        """Maps float `[B, T, D]` to `[B, T, D]`.

        Args:
            x: float `[B, T, D]`.
            contexts: attention context of all layers, or one per layer: positions, windows,
                causality. None = none of these.
            cache: keys and values of earlier tokens, one cache per layer or a `ScannedCache`.
            cross_cache: keys and values of the encoder's output, likewise; projected from the
                contexts' `encoded` when not given.
            deterministic: whether dropout is off.
            return_weights: whether to also return the attention weights of all layers.
            taps: what to read and edit inside the blocks.

        Returns:
            The output, with caches and attention weights if any.

        Raises:
            ConfigError: the number of caches or contexts is not the number of layers; or the config
                has positions or windows, but there is no context; or taps name an unknown place.
        """
        config = self.config
        if contexts is None:
            check_needs_no_context(config, "Stack", acts_on=("embeddings", "heads", "scores"))
            contexts = NO_CONTEXT
        if isinstance(contexts, AttentionContext):
            contexts = [contexts] * config.num_layers
        per_layer: dict[str, Any] = {
            "contexts": contexts,
            "cache": caches_of_layers(cache),
            "cross_cache": caches_of_layers(cross_cache),
        }
        none = (None,) * config.num_layers
        for name, entries in per_layer.items():
            if entries is not None and len(entries) != config.num_layers:
                raise ConfigError(
                    f"{name} must have one entry per layer, got {len(entries)} and "
                    f"num_layers={config.num_layers}"
                )
        x = nn.with_logical_constraint(x, _RESIDUAL_AXES)
        numbers, all_taps = range(config.num_layers), (taps,) * config.num_layers
        parts = (entries or none for entries in per_layer.values())
        layers = list(itertools.starmap(_Layer, zip(*parts, numbers, all_taps, strict=True)))
        scanned = isinstance(cache, ScannedCache)
        looped = layer_execution(config).name == "loop" if cache is None else not scanned
        options = {"deterministic": deterministic, "return_weights": return_weights}
        first, outputs = len(config.first_layers), []
        for name, group in zip(GROUPS, (layers[:first], layers[first:]), strict=True):
            if not group:
                continue
            block = self._make_block(name, x, group)
            if looped or name == "first_layers":
                results = self._loop(block, x, group, options)
            else:
                results = self._scan(block, x, group, options)
            outputs += results
            x = results[-1].x
        values = [(o.weights if return_weights else None, o.taps) for o in outputs]
        weights, read = jax.tree.map(lambda *parts: jnp.concatenate(parts), *values)
        # Without a cache, returning cross_cache would keep keys and values of all layers alive.
        if cache is None:
            return StackOutput(x, weights=weights, taps=read)
        new_cache, new_cross_cache = (
            _joined([getattr(output, name) for output in outputs], first, scanned=scanned)
            for name in ("cache", "cross_cache")
        )
        return StackOutput(x, new_cache, cross_cache or new_cross_cache, weights, read)

    def _make_block(self, name: str, x: jax.Array, group: list["_Layer"]) -> nn.Module:
        """Creates the block that holds the stacked parameters of a group of layers."""
        options: dict[str, Any] = {"cross_attention": True} if self.cross_attention else {}
        # Passed only if not the default, so that custom blocks need not accept it.
        if name == "first_layers" and self.config.first_layers[0].attention_norm is False:
            options["attention_norm"] = False
        try:
            block = self.block(self.config, name=name, **options)
        except TypeError as error:
            raise ConfigError(
                "block must make a module from a config and "
                f"{', '.join(['name', *options])}, as modules.Block does, got {error}"
            ) from None
        if self.is_initializing():
            # By a scan, so that layout and values do not depend on how the layers run.
            def initialize(block: nn.Module, x: jax.Array, _: None) -> tuple[jax.Array, None]:
                return _call(block, x, layer=group[0], options={}).x, None

            axes, rngs = {_STORED: 0}, {"params": True}
            nn.scan(initialize, variable_axes=axes, split_rngs=rngs, length=len(group))(
                block, x, None
            )
        return block

    def _loop(
        self, block: nn.Module, x: jax.Array, group: list["_Layer"], options: dict[str, bool],
        start: int = 0,
    ) -> list[BlockOutput]:  # fmt: skip
        """Runs the layers of a group one by one, from index `start` on."""
        outputs: list[BlockOutput] = []
        # Split once, outside the layers; see `layer_variables`.
        stored = {name: tree for name, tree in block.variables.items() if name not in _SOWN}
        variables_of_layers = layer_variables(stored, start, len(group))
        for layer, variables in zip(group[start:], variables_of_layers, strict=True):
            select = functools.partial(lambda selected, _: selected, variables)
            output = self._layer_function(select, layer, options, prevent_cse=True)(block, x)
            x = output.x
            weights, taps = jax.tree.map(lambda leaf: leaf[None], (output.weights, output.taps))
            outputs.append(output._replace(weights=weights, taps=taps))
        return outputs

    def _scan(
        self, block: nn.Module, x: jax.Array, group: list["_Layer"], options: dict[str, bool]
    ) -> list[BlockOutput]:
        """Runs the repeats of the pattern as one scan, and loops over the remaining layers."""
        period = max(1, len(self.config.layers))
        repeats, pattern = len(group) // period, group[:period]
        caches = tuple(
            layer.cache._replace(layer=None) for layer in pattern if layer.cache is not None
        )
        # Only edits and caches need the index of the repeat.
        indices, edits = None, group[0].taps is not None and group[0].taps.edit
        if caches or edits:
            indices = jnp.arange(repeats, dtype=jnp.int32)

        def repeat(block: nn.Module, carry: Any, index: Any) -> tuple[Any, Any]:
            x, caches = carry
            new_caches, values = [], []
            for place, layer in enumerate(pattern):
                select = functools.partial(jax.tree.map, operator.itemgetter(place))
                if index is not None:
                    layer = layer.in_repeat(index, period, *caches[place : place + 1])
                # XLA merges nothing across scan iterations, so remat does not need the barriers
                # against CSE, which would cost speed.
                run_layer = self._layer_function(select, layer, options, prevent_cse=False)
                output = run_layer(block, x)
                x, memory = output.x, None
                if output.cache is not None:
                    new_caches.append(output.cache._replace(layer=None))
                    memory = output.cross_cache if layer.cross_cache is None else None
                values.append((output.weights, output.taps, memory))
            return (x, tuple(new_caches)), jax.tree.map(lambda *leaves: jnp.stack(leaves), *values)

        scan = nn.scan(
            repeat,
            variable_axes={True: 0},  # Flax drops the variables of collections not named here
            split_rngs={True: True},
            length=repeats,
        )

        def by_repeat(variables: Any) -> Any:
            return jax.tree.map(
                lambda leaf: rearrange(leaf[: repeats * period], "(r p) ... -> r p ...", p=period),
                variables,
            )

        def run(block: nn.Module, carry: Any) -> tuple[Any, Any]:
            return scan(block, carry, indices)

        run_all = nn.map_variables(run, _STORED, trans_in_fn=by_repeat)
        (x, new_caches), values = run_all(block, (x, caches))
        join = functools.partial(rearrange, pattern="r p ... -> (r p) ...")
        (weights, taps), memory = jax.tree.map(join, values[:2]), values[2]
        memories = () if memory is None else (rows_first(memory, place) for place in range(period))
        of_repeats: Any = new_caches or None, tuple(memories) or None
        output = BlockOutput(x, of_repeats[0], of_repeats[1], weights, taps)
        return [output, *self._loop(block, x, group, options, start=repeats * period)]

    def _layer_function(
        self, select: Callable[[Any], Any], layer: "_Layer", options: dict[str, bool], *,
        prevent_cse: bool,
    ) -> Callable[..., BlockOutput]:  # fmt: skip
        """Function of (block, x) that runs one layer with the variables that `select` returns."""

        # Closed over context and caches, some of whose static fields hold traced arrays.
        def run_layer(block: nn.Module, x: jax.Array) -> Any:  # nn.tabulate needs a name
            return _call(block, x, layer=layer, options=options)

        if self.config.remat != "none":
            policy = _REMAT_POLICIES[self.config.remat]
            run_layer = nn.remat(run_layer, policy=policy, prevent_cse=prevent_cse)
        # Selected outside remat, so that the backward pass does not select again.
        return nn.map_variables(run_layer, _STORED, trans_in_fn=select)


class _Layer(NamedTuple):
    """Inputs of one layer other than x."""

    context: AttentionContext
    cache: KVCache | WindowCache | None
    cross_cache: KVCache | None
    number: int | jax.Array
    taps: Taps | None

    def in_repeat(
        self, index: jax.Array, period: int, stacked: KVCache | WindowCache | None = None
    ) -> "_Layer":
        """This layer of the pattern in a repeat, with its part of the caches of all repeats."""
        layer = self._replace(number=self.number + index * period)
        if stacked is None or self.cache is None:
            return layer
        # The lengths are those before the scan: the same in all layers, and known if empty.
        cache = stacked._replace(lengths=self.cache.lengths, layer=index)
        cross_cache = self.cross_cache and self.cross_cache._replace(layer=index)
        return layer._replace(cache=cache, cross_cache=cross_cache)


def _joined(parts: list[Any], first: int, *, scanned: bool) -> Cache | None:
    """Caches of all layers, in the form in which the stack was given them."""
    if not jax.tree.leaves(parts):
        return None
    if not scanned:
        return tuple(parts)
    return ScannedCache(tuple(parts[:first]), parts[first], tuple(parts[first + 1 :]))


def _call(
    block: nn.Module, x: jax.Array, *, layer: _Layer, options: dict[str, bool]
) -> BlockOutput:
    context, cache, cross_cache, number, taps = layer
    known, tap = {}, None
    if taps is not None:
        tap = LayerTaps(taps, number)
        x = tap("inputs", x)
        parameters = inspect.signature(type(block).__call__).parameters.values()
        if any(p.name == "tap" or p.kind is p.VAR_KEYWORD for p in parameters):
            known["tap"] = tap
    output = block(x, context, cache=cache, cross_cache=cross_cache, **options, **known)
    crosses = context.encoded is not None or cross_cache is not None
    output = check_block_output(
        block, output, x, cache=cache, cross_cached=crosses and cache is not None,
        return_weights=options.get("return_weights", False),
    )  # fmt: skip
    if tap is not None:
        output = output._replace(x=tap("hidden", output.x), taps=tap.values)
        tap.check_all_found(type(block).__name__, is_custom=type(block) is not Block)
    return output._replace(x=nn.with_logical_constraint(output.x, _RESIDUAL_AXES))

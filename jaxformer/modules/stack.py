"""Stack of layers with stacked parameters, run as one compiled scan or as a loop."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from einops import rearrange
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.taps import LayerTaps, Taps
from jaxformer.modules.attention import AttentionContext
from jaxformer.modules.block import Block, BlockOutput, check_block_output, known_arguments
from jaxformer.modules.execution import REMAT_POLICIES, layer_execution
from jaxformer.modules.stacked_layers import (
    GROUPS,
    Cache,
    LayerInputs,
    ScannedCache,
    has_split_layers,
    inputs_by_layer,
    join_caches,
    layer_variables,
    rows_first,
    whole_caches,
)

# Logical axis names (Flax) of the residual stream [B, T, D]. They shard it when a program is split
# over a mesh, and otherwise do nothing.
_RESIDUAL_AXES = ("batch", "sequence", "embed")

# Sown collections are outputs of every layer; all others are stacked by layer, like parameters.
_SOWN = ("losses", "metrics", "intermediates")
_STORED = nn.DenyList(_SOWN)


class Stack(nn.Module):
    """`num_layers` blocks in sequence, with stacked parameters.

    Every parameter has a leading layer axis. Parameters of `config.first_layers` are under
    "first_layers", all others under "layers". The layout does not depend on how the layers run: as
    one `nn.scan` over the repeats of the layer pattern, or as a loop over slices. With a cache it
    depends on the cache alone: a `ScannedCache` is carried through a scan.

    Args:
        config: the model.
        block: makes the block of all layers: a module with the arguments and call of `Block`.

    Example:
        >>> config = ModelConfig(max_len=8, num_layers=3, d_model=4, positions="none")
        >>> x, causal = jnp.ones((2, 5, 4)), AttentionContext(is_causal=True)
        >>> variables = Stack(config).init(jax.random.key(0), x, causal)
        >>> nn.unbox(variables)["params"]["layers"]["attention"]["query_kernel"].shape
        (3, 4, 4)
    """

    config: ModelConfig
    block: Callable[..., nn.Module] = Block

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        contexts: AttentionContext | Sequence[AttentionContext],
        *,
        cache: Cache | None = None,
        cross_cache: Cache | None = None,
        deterministic: bool = True,
        return_weights: bool = False,
        taps: Taps | None = None,
    ) -> BlockOutput:
        """Maps float `[B, T, D]` to `[B, T, D]`.

        Args:
            x: float `[B, T, D]`.
            contexts: attention context of all layers, or one per layer: positions, windows and
                causality, which are not those of the config.
            cache: keys and values of earlier tokens, one cache per layer or a `ScannedCache`.
            cross_cache: keys and values of the encoder's output, likewise; projected from the
                contexts' `encoded` when not given.
            deterministic: whether dropout is off.
            return_weights: whether to also return the attention weights of all layers.
            taps: what to read and edit inside the blocks.

        Returns:
            The output, with caches and attention weights if any.

        Raises:
            ConfigError: the number of caches or contexts is not the number of layers; or taps name
                an unknown place.
        """
        config = self.config
        if isinstance(contexts, AttentionContext):
            contexts = [contexts] * config.num_layers
        layers = inputs_by_layer(config.num_layers, contexts, cache, cross_cache, taps)
        is_scanned = isinstance(cache, ScannedCache)
        if cache is None:
            is_scanned = layer_execution(config) == "scan"
        options = {"deterministic": deterministic, "return_weights": return_weights}
        x = nn.with_logical_constraint(x, _RESIDUAL_AXES)  # [B, T, D]
        first, period = len(config.first_layers), max(1, len(config.layers))
        outputs: list[BlockOutput] = []
        for name, group in zip(GROUPS, (layers[:first], layers[first:]), strict=True):
            if not group:
                continue
            block, num_scanned = self._make_block(name, x, group), 0
            if is_scanned and name == "layers" and not has_split_layers(block.variables):
                num_scanned = len(group) // period * period  # whole repeats of the pattern
                repeats = num_scanned // period
                outputs.append(self._scan(block, x, group[:period], repeats, options))
                x = outputs[-1].x  # [B, T, D]
            for layer, call in _layer_calls(
                block, group[num_scanned:], options, remat=config.remat, start=num_scanned
            ):
                outputs.append(_finished(block, call(block, x), x, layer, options))
                x = outputs[-1].x  # [B, T, D]
        weights, read = _weights_and_taps(outputs)  # [L, ...]
        # Without a cache, returning cross_cache would keep keys and values of all layers alive.
        if cache is None:
            return BlockOutput(x, weights=weights, taps=read)
        scan_index = first if is_scanned else None
        new_cache = join_caches([output.cache for output in outputs], scan_index=scan_index)
        if cross_cache is None:
            memory = [output.cross_cache for output in outputs]
            cross_cache = join_caches(memory, scan_index=scan_index)
        return BlockOutput(x, new_cache, cross_cache, weights, read)

    def _make_block(self, name: str, x: jax.Array, group: list[LayerInputs]) -> nn.Module:
        """Creates the block that holds the stacked parameters of a group of layers."""
        options: dict[str, Any] = {}
        # Passed only if not the default, so that custom blocks need not accept it.
        if name == "first_layers" and self.config.first_layers[0].attention_norm is False:
            options["attention_norm"] = False
        try:
            block = self.block(self.config.of_group(name), name=name, **options)
        except TypeError as error:
            raise ConfigError(
                "block must make a module from a config and "
                f"{', '.join(['name', *options])}, as modules.Block does, got {error}"
            ) from error
        if self.is_initializing():
            # By a scan, so that layout and values do not depend on how the layers run.
            def initialize(block: nn.Module, x: jax.Array, _: None) -> tuple[jax.Array, None]:
                layer = group[0]
                output = block(x, layer.context, cache=layer.cache, cross_cache=layer.cross_cache)
                return check_block_output(block, output, x, layer).x, None

            axes, rngs = {_STORED: 0}, {"params": True}
            names = {nn.PARTITION_NAME: "layers"}
            nn.scan(
                initialize, variable_axes=axes, split_rngs=rngs, length=len(group),
                metadata_params=names,
            )(block, x, None)  # fmt: skip
        return block

    def _scan(
        self, block: nn.Module, x: jax.Array, pattern: list[LayerInputs], repeats: int,
        options: dict[str, bool],
    ) -> BlockOutput:  # fmt: skip
        """Runs the repeats of the layer pattern as one scan."""
        period, taps = len(pattern), pattern[0].taps
        caches = whole_caches(layer.cache for layer in pattern)
        # Only edits and caches need the index of the repeat.
        needs_index = bool(caches) or (taps is not None and bool(taps.edit))
        indices = jnp.arange(repeats, dtype=jnp.int32) if needs_index else None  # [R]

        def repeat(block: nn.Module, carry: Any, index: jax.Array | None) -> tuple[Any, Any]:
            (x, caches), layers = carry, pattern
            if index is not None:
                pairs = itertools.zip_longest(pattern, caches)
                layers = [layer.in_repeat(index, period, cache) for layer, cache in pairs]
            outputs = []
            for layer, call in _layer_calls(
                block, layers, options, remat=self.config.remat, is_in_scan=True
            ):
                outputs.append(_finished(block, call(block, x), x, layer, options))
                x = outputs[-1].x  # [B, T, D]
            # New keys and values of the encoder's output; the stack returns them only with a cache.
            is_new = bool(caches) and pattern[0].cross_cache is None
            memory = [output.cross_cache if is_new else None for output in outputs]
            carry = x, whole_caches(output.cache for output in outputs)
            return carry, (_weights_and_taps(outputs), memory)  # weights and taps [P, ...]

        def by_repeat(variables: Any) -> Any:
            split = functools.partial(rearrange, pattern="(r p) ... -> r p ...", p=period)
            return jax.tree.map(lambda leaf: split(leaf[: repeats * period]), nn.unbox(variables))

        # Flax drops the variables of collections not named here.
        axes, rngs = {True: 0}, {True: True}
        scan = nn.scan(repeat, variable_axes=axes, split_rngs=rngs, length=repeats)
        (x, caches), (values, memory) = nn.map_variables(scan, _STORED, trans_in_fn=by_repeat)(
            block, (x, caches), indices
        )
        weights, read = jax.tree.map(
            functools.partial(rearrange, pattern="r p ... -> (r p) ..."), values
        )
        cross_caches = tuple(rows_first(cache) for cache in memory if cache is not None)
        return BlockOutput(x, caches or None, cross_caches or None, weights, read)


def _layer_calls(
    block: nn.Module, layers: list[LayerInputs], options: dict[str, bool],
    *, remat: str, start: int = 0, is_in_scan: bool = False,
) -> Iterator[tuple[LayerInputs, Callable[[nn.Module, jax.Array], Any]]]:  # fmt: skip
    """Each layer, and the block's call with its variables; those of the first are at `start`."""
    # Split once, outside the layers; see `layer_variables`. While the model is initialized,
    # parameters are in boxes with the names of all their axes.
    stored = {name: tree for name, tree in block.variables.items() if name not in _SOWN}
    variables = layer_variables(nn.unbox(stored), start, start + len(layers))
    for layer, layer_tree in zip(layers, variables, strict=True):
        # Bound to context and caches, some of whose static fields hold traced arrays.
        inputs: dict[str, Any] = {
            "context": layer.context, "cache": layer.cache, "cross_cache": layer.cross_cache,
            **options,
        }  # fmt: skip
        call = functools.partial(type(block).__call__, **inputs)
        if layer.taps is not None:
            call = functools.partial(_call_with_taps, layer=layer, inputs=inputs)
        functools.update_wrapper(call, call.func)  # nn.tabulate needs a name
        # Not with a cache: decoding has no backward pass, and under remat a cache that the block
        # returns unchanged would have other arrays.
        if remat != "none" and layer.cache is None:
            # XLA merges nothing across scan iterations, so remat does not need the barriers
            # against CSE there, which would cost speed.
            call = nn.remat(call, policy=REMAT_POLICIES[remat], prevent_cse=not is_in_scan)
        # Selected outside remat, so that the backward pass does not select again.
        select = functools.partial(lambda selected, _: selected, layer_tree)
        yield layer, nn.map_variables(call, _STORED, trans_in_fn=select)


def _call_with_taps(
    block: nn.Module, x: jax.Array, *, layer: LayerInputs, inputs: dict[str, Any]
) -> BlockOutput:
    """Calls the block with the taps of a layer, and adds what they read to its output."""
    assert layer.taps is not None
    tap = LayerTaps(layer.taps, layer.number)
    x = tap("inputs", x)
    output = block(x, **inputs, **known_arguments(block, {"tap": tap}))
    output = check_block_output(block, output, x, layer)
    output = output._replace(x=tap("hidden", output.x), taps=tap.values)
    tap.check_all_found(type(block).__name__, is_custom=type(block) is not Block)
    return output


def _finished(
    block: nn.Module, output: Any, x: jax.Array, layer: LayerInputs, options: dict[str, bool]
) -> BlockOutput:
    """The checked output of a layer; weights and taps get a leading layer axis."""
    output = check_block_output(block, output, x, layer)
    weights = output.weights if options["return_weights"] else None
    weights, read = jax.tree.map(lambda leaf: leaf[None], (weights, output.taps))
    x = nn.with_logical_constraint(output.x, _RESIDUAL_AXES)  # [B, T, D]
    return output._replace(x=x, weights=weights, taps=read)


def _weights_and_taps(outputs: list[BlockOutput]) -> tuple[Any, Any]:
    """Attention weights and tapped arrays of all layers, along one leading axis."""
    values = [(output.weights, output.taps) for output in outputs]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *values)

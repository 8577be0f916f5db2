"""How the layers of a stack run: as a scan or a loop, and what their backward pass recomputes."""

from typing import Literal, NamedTuple

import jax

from jaxformer.config import ModelConfig
from jaxformer.functional import platforms
from jaxformer.functional.attention.block import SAVED

# A loop compiles each layer separately, so "auto" scans deeper models, even on a CPU. On TPUs a
# layer compiles so long, with chunked attention for minutes, that "auto" scans all.
_MAX_LOOPED_LAYERS = 12

REMAT_POLICIES = {
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

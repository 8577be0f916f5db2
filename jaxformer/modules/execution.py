"""How the layers of a stack run: as a scan or a loop, and what their backward pass recomputes."""

from typing import Literal

import jax

from jaxformer.config import ModelConfig
from jaxformer.functional import platforms
from jaxformer.functional.attention.block import SAVED

# A loop is faster on a CPU, but compiles each layer separately, so "auto" scans deeper models. On
# TPUs a layer compiles so long, with chunked attention for minutes, that "auto" scans all.
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


def layer_execution(config: ModelConfig) -> Literal["scan", "loop"]:
    """Resolves `config.layer_execution` for calls without a cache.

    Calls with a cache run as it is held: a tuple of caches in a loop, a `ScannedCache` in a scan.

    Example:
        >>> config = ModelConfig(max_len=8, layer_execution="scan")
        >>> layer_execution(config)
        'scan'
    """
    if config.layer_execution != "auto":
        return config.layer_execution
    is_shallow = config.num_layers <= _MAX_LOOPED_LAYERS
    return "loop" if is_shallow and platforms.default_platform() == "cpu" else "scan"

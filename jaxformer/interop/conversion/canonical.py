"""Comparison of two configs by what they compute."""

import dataclasses
import math
from typing import Any

from jaxformer.config import ModelConfig, config_differences
from jaxformer.interop.conversion.fields import filled_values
from jaxformer.interop.conversion.layers import layer_windows, positions_of_layers

# Keys of training and execution; max_len, because a position table has its own length; and keys
# that `_meaning` compares by their effect.
_NOT_COMPARED = frozenset({
    "init_std", "max_len", "dropout_rate", "dtype", "param_dtype", "remat",
    "layer_execution", "attention_implementation",
    "positions", "layers", "first_layers", "local_window_size", "use_bias", "scale_embeddings",
})  # fmt: skip


def differences(config: ModelConfig, other: ModelConfig) -> list[str]:
    """Keys with a different effect: "model.norm = 'rms_norm' (here 'layer_norm')"."""
    first, second = _meaning(config), _meaning(other)
    return [
        f"model.{name} = {theirs!r} (here {here!r})"
        for key in first
        if not _equal(first[key], second[key])
        for name, (here, theirs) in _first_difference(key, first[key], second[key]).items()
    ]


def _first_difference(key: str, first: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """Both values, of the first layer that differs; for positions, the kinds or else the keys."""
    if isinstance(first, list) and len(first) == len(other):
        first, other = next(pair for pair in zip(first, other, strict=True) if pair[0] != pair[1])
    kinds = getattr(first, "kind", None), getattr(other, "kind", None)
    if kinds[0] != kinds[1]:
        return {key: kinds}
    if kinds[0] is None:
        return {key: (first, other)}
    return config_differences(first, other, f"{key}.")


def _meaning(config: ModelConfig) -> dict[str, Any]:
    experts = config.experts and dataclasses.replace(  # as they compute, without keys of training
        config.experts, d_ff=config.experts.d_ff or config.ff_dim, capacity_factor=None,
        load_balancing_weight=0.0, router_z_weight=0.0,
    )  # fmt: skip
    of_layers = [None if layer.experts is False else experts for layer in config.layer_overrides]
    values = {
        key: value
        for key, value in (vars(config) | filled_values(config)).items()
        if key not in _NOT_COMPARED
    }
    return values | {
        "norm_bias": config.norm == "layer_norm" and config.has_bias("norm"),
        "positions": positions_of_layers(config),
        "local_window_size": layer_windows(config),
        "num_token_types": config.num_token_types,  # none is not one
        "d_ff": config.ff_dim if None in of_layers else None,
        "attention_norm": [layer.attention_norm is not False for layer in config.layer_overrides],
        "experts": of_layers,
        "attention": [layer.attention for layer in config.layer_overrides],
    }  # fmt: skip


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=1e-9)
    return bool(value == other)

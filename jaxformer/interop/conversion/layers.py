"""Fields that differ by layer: windows, and the positions of layers with and without one.

A `sliding_window` counts the token itself; a `local_window_size` does not.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jaxformer.config import LayerConfig, ModelConfig, PositionsConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.fields import Values

FULL, SLIDING = "full_attention", "sliding_attention"  # values of layer_types


def read_windows(
    fields: ConfigFields, values: Values, is_near: Callable[[int], bool], size: int | None, *,
    local: PositionsConfig | None = None, attention_norm: bool | None = None,
) -> Values:  # fmt: skip
    """Keys of a model in which some layers have a window, and perhaps `local` positions."""
    # Without `layer_types`, `is_near` says which layers have the window.
    near = read_layer_types(fields, [is_near(layer) for layer in range(values["num_layers"])])
    size = None if size is None else size - 1
    layers = [
        LayerConfig(local_window_size=size, positions=local) if has_window else LayerConfig()
        for has_window in near
    ]
    layers[0] = dataclasses.replace(layers[0], attention_norm=attention_norm)
    return layer_keys(values["positions"], layers)


def read_layer_types(fields: ConfigFields, default: Sequence[bool]) -> list[bool]:
    """Whether each layer has a window, by `layer_types`."""
    types = fields.take("layer_types", list, [SLIDING if near else FULL for near in default])
    if len(types) != len(default) or not set(types) <= {FULL, SLIDING}:
        raise ConfigError(
            f"config.json: layer_types must be {FULL} or {SLIDING} for each of {len(default)} "
            f"layers, got {types}; other kinds are not supported"
        )
    return [kind == SLIDING for kind in types]


def layer_keys(positions: PositionsConfig, layers: Sequence[LayerConfig]) -> Values:
    """Keys of a model with these layers: the shortest first layers and pattern."""
    if all(layer == layers[0] for layer in layers):
        layer_positions = layers[0].positions
        return {
            "positions": positions if layer_positions is None else layer_positions,
            "local_window_size": layers[0].local_window_size,
        }
    # Layers with a setting that only first layers can have must be first layers.
    least = sum(layer.attention_norm is not None for layer in layers)
    splits = ((first, size) for size in range(2, len(layers)) for first in range(least, size))
    for first, size in splits:
        rest, period = layers[first:], size - first
        if all(layer == rest[i % period] for i, layer in enumerate(rest)):
            break
    else:
        first, rest, period = least, layers[least:], len(layers)
    return {
        "positions": positions,
        "first_layers": tuple(layers[:first]),
        "layers": tuple(rest[:period]),
    }


def layer_windows(model: ModelConfig) -> list[int | None]:
    """`sliding_window` of every layer."""
    sizes = (model.window_of(layer) for layer in model.layer_overrides)
    return [None if size is None else size + 1 for size in sizes]


def positions_of_layers(model: ModelConfig) -> list[PositionsConfig]:
    """Positions of every layer."""
    return [layer.positions or model.positions for layer in model.layer_overrides]


def write_layer_types(model: ModelConfig, unused: int | None = None) -> dict[str, Any]:
    """`sliding_window` (the first, if sizes differ; `unused` if none) and `layer_types`."""
    # Some families need `unused`, because transformers always makes both masks for them.
    windows = layer_windows(model)
    return {
        "sliding_window": next((window for window in windows if window is not None), unused),
        "layer_types": [FULL if window is None else SLIDING for window in windows],
    }

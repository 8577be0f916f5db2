"""Fields shared by several families: rotary positions, and settings that differ by layer.

Rotary positions pair feature i with i + H/2. A `sliding_window` counts the token itself; a
`local_window_size` does not.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer.config import (
    LayerConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    LongropeScalingConfig,
    ModelConfig,
    PositionsConfig,
    RotaryConfig,
    RotaryScalingConfig,
    YarnScalingConfig,
)
from jaxformer.errors import ConfigError
from jaxformer.interop.conversion.config_fields import ConfigFields

__all__ = [
    "FULL",
    "SLIDING",
    "layer_keys",
    "layer_windows",
    "one_window",
    "positions_of_layers",
    "read_layer_types",
    "read_rotary",
    "rotary_config",
    "rotary_values",
    "window_size",
    "write_layer_types",
    "write_rotary",
    "write_rotary_by_type",
    "write_window",
]

FULL, SLIDING = "full_attention", "sliding_attention"  # values of layer_types


def read_rotary(
    fields: ConfigFields, head_dim: int, max_len: int, share: float | None = None
) -> RotaryConfig:
    """Rotary positions of a config: `rope_parameters`, or the older rope_theta and rope_scaling.

    Args:
        fields: fields of the config.
        head_dim: width of a head; `partial_rotary_factor` is a share of it.
        max_len: `max_position_embeddings`: where scaling ends, and by default starts.
        share: default of `partial_rotary_factor`; None for families without it, which rotate whole
            heads.
    """
    newer, older = (fields.take(name, dict, {}) for name in ("rope_parameters", "rope_scaling"))
    values = {
        "rope_theta": fields.take("rope_theta", float, 10_000.0),
        "partial_rotary_factor": fields.take("partial_rotary_factor", float, share or 1.0),
        **(older or newer),
    }
    # A field of the whole config takes precedence, as in Phi-3.
    original = fields.take("original_max_position_embeddings", int, None)
    if original is not None and _kind(values) in ("llama3", "yarn", "longrope"):
        values["original_max_position_embeddings"] = original
    if share is None:
        fields.inner(values, "rope_parameters").require("partial_rotary_factor", 1.0, 1)
    return rotary_config(fields, values, head_dim, max_len)


def rotary_config(
    fields: ConfigFields, values: Mapping[str, Any], head_dim: int, max_len: int
) -> RotaryConfig:
    """Rotary positions of one `rope_parameters`.

    Args:
        fields: fields of the config.
        values: content of `rope_parameters`.
        head_dim: width of a head.
        max_len: `max_position_embeddings`: where scaling ends, and by default starts.
    """
    inner = fields.inner(values, "rope_parameters")
    inner.skip("type", "rope_type")
    kind = _kind(values)
    width = int(head_dim * inner.take("partial_rotary_factor", float, 1.0))
    base = float(inner.take("rope_theta", float))
    scaling = _scaling(kind, inner, max_len)
    inner.finish()
    return RotaryConfig(base=base, rotary_dim=None if width == head_dim else width, scaling=scaling)


def _kind(values: Mapping[str, Any]) -> Any:
    """`rope_type`, or the older `type`."""
    return values.get("rope_type") or values.get("type") or "default"


def _scaling(kind: str, fields: ConfigFields, max_len: int) -> RotaryScalingConfig | None:
    if kind == "default":
        return None
    if kind not in ("linear", "llama3", "yarn", "longrope"):
        raise ConfigError(
            f"rope_type {kind!r} is not supported, only default, linear, llama3, yarn and longrope"
            "; dynamic changes the angles with every token, which would invalidate cached keys"
        )
    if kind == "linear":
        return LinearScalingConfig(factor=float(fields.take("factor", float)))
    original = fields.take("original_max_position_embeddings", int, max_len)
    if kind == "longrope":
        return LongropeScalingConfig(
            # transformers treats values below 1 as 1.
            factor=max(float(fields.take("factor", float, max_len / original)), 1.0),
            original_max_len=original,
            short_factor=tuple(fields.take("short_factor", list)),
            long_factor=tuple(fields.take("long_factor", list)),
            attention_factor=fields.take("attention_factor", float, None),
        )
    factor = float(fields.take("factor", float))
    if kind == "llama3":
        return Llama3ScalingConfig(
            factor=factor,
            low_freq_factor=float(fields.take("low_freq_factor", float)),
            high_freq_factor=float(fields.take("high_freq_factor", float)),
            original_max_len=original,
        )
    share = fields.take("attention_factor", float, None)
    scales = [fields.take(name, float, None) for name in ("mscale", "mscale_all_dim")]
    if share is not None or not all(scales):
        scales = [None, None]  # both or neither apply, and the attention factor wins
    return YarnScalingConfig(
        factor=factor,
        original_max_len=original,
        # 0 counts as missing.
        beta_fast=float(fields.take("beta_fast", float, 32.0) or 32.0),
        beta_slow=float(fields.take("beta_slow", float, 1.0) or 1.0),
        attention_factor=share,
        truncate=fields.take("truncate", bool, True),
        mscale=scales[0],
        mscale_all_dim=scales[1],
    )


def write_rotary(model: ModelConfig) -> dict[str, Any]:
    """`rope_parameters` of a model whose rotary layers are all the same."""
    rotated = [each for each in positions_of_layers(model) if each.kind != "none"]
    return rotary_values(rotated[0] if rotated else RotaryConfig(), model.key_dim)


def write_rotary_by_type(model: ModelConfig) -> dict[str, Any]:
    """`rope_parameters` of a model with different rotary positions in layers with a window."""
    by_type = {
        FULL if window is None else SLIDING: rotary_values(scheme, model.key_dim)
        for window, scheme in zip(layer_windows(model), positions_of_layers(model), strict=True)
    }
    default = next(iter(by_type.values()))  # for a type that no layer has
    return {FULL: default, SLIDING: default} | by_type


def rotary_values(positions: PositionsConfig, head_dim: int) -> dict[str, Any]:
    """`rope_parameters` of rotary positions; the default ones for other positions."""
    positions = positions if isinstance(positions, RotaryConfig) else RotaryConfig()
    values: dict[str, Any] = {"rope_theta": positions.base, "rope_type": "default"}
    if positions.rotary_dim is not None:
        values["partial_rotary_factor"] = positions.rotary_dim / head_dim
    scaling = positions.scaling
    if scaling is None:
        return values
    given = dataclasses.asdict(scaling)
    values["rope_type"] = given.pop("kind")
    if "original_max_len" in given:
        values["original_max_position_embeddings"] = given.pop("original_max_len")
    return values | {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None
    }


def layer_keys(positions: PositionsConfig, layers: Sequence[LayerConfig]) -> dict[str, Any]:
    """Keys of a `ModelConfig` with these layers: the shortest first layers and pattern.

    Args:
        positions: positions of the layers without their own.
        layers: every layer of the model.

    Returns:
        positions, local_window_size, first_layers and layers.

    Example:
        >>> near, far = LayerConfig(local_window_size=3), LayerConfig()
        >>> keys = layer_keys(RotaryConfig(), [far, near, near, near])
        >>> keys["first_layers"] == (far,), keys["layers"] == (near,)
        (True, True)
    """
    if all(layer == layers[0] for layer in layers):
        own = layers[0].positions
        return {
            "positions": positions if own is None else own,
            "local_window_size": layers[0].local_window_size,
        }
    # Layers with a setting that only first layers can have must be first layers.
    least = sum(layer.attention_norm is not None for layer in layers)
    for size in range(2, len(layers)):
        for first in range(least, size):
            rest, period = layers[first:], size - first
            if all(layer == rest[i % period] for i, layer in enumerate(rest)):
                return {
                    "positions": positions,
                    "first_layers": tuple(layers[:first]),
                    "layers": tuple(rest[:period]),
                }
    return {
        "positions": positions,
        "first_layers": tuple(layers[:least]),
        "layers": tuple(layers[least:]),
    }


def window_size(window: int | None) -> int | None:
    """`local_window_size` of a `sliding_window`.

    Example:
        >>> window_size(4096), window_size(1), window_size(None)
        (4095, 0, None)
    """
    return None if window is None else window - 1


def one_window(fields: ConfigFields, default: int | None = None) -> int | None:
    """Window of a family with the same window, or none, in all layers."""
    return window_size(fields.optional("sliding_window", int, default))


def write_window(model: ModelConfig) -> dict[str, Any]:
    """`sliding_window` of a family with the same window, or none, in all layers."""
    size = model.local_window_size
    return {"sliding_window": None if size is None else size + 1}


def read_layer_types(fields: ConfigFields, default: Sequence[bool]) -> list[bool]:
    """Whether each layer has a window, by `layer_types`.

    Args:
        fields: fields of the config.
        default: default for each layer.
    """
    types = fields.take("layer_types", list, [SLIDING if near else FULL for near in default])
    if len(types) != len(default) or not set(types) <= {FULL, SLIDING}:
        raise ConfigError(
            f"config.json: layer_types must be {FULL} or {SLIDING} for each of {len(default)} "
            f"layers, got {types}; other kinds are not supported"
        )
    return [each == SLIDING for each in types]


def layer_windows(model: ModelConfig) -> list[int | None]:
    """`sliding_window` of every layer."""
    sizes = (
        model.local_window_size if layer.local_window_size is None else layer.local_window_size
        for layer in model.layer_overrides
    )
    return [None if size is None else size + 1 for size in sizes]


def positions_of_layers(model: ModelConfig) -> list[PositionsConfig]:
    """Positions of every layer."""
    return [layer.positions or model.positions for layer in model.layer_overrides]


def write_layer_types(model: ModelConfig, unused: int | None = None) -> dict[str, Any]:
    """`sliding_window` (the first, if sizes differ) and `layer_types`.

    Args:
        model: the model's config.
        unused: `sliding_window` if no layer has one, for a family for which transformers always
            makes both masks.
    """
    windows = layer_windows(model)
    return {
        "sliding_window": next((window for window in windows if window is not None), unused),
        "layer_types": [FULL if window is None else SLIDING for window in windows],
    }

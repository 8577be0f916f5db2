"""Fields of positions and windows, which may differ by layer.

A `sliding_window` counts the token itself; a `local_window_size` does not. Rotary positions pair
feature i with i + H/2.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
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
from jaxformer.interop.conversion.fields import Field, Values, default_head_dim

FULL, SLIDING = "full_attention", "sliding_attention"  # values of layer_types


def read_windows(
    fields: ConfigFields, values: Values, is_near: Callable[[int], bool], size: int | None, *,
    bases: Mapping[str, float] | None = None, scaled: Collection[str] = (FULL,),
    attention_norm: bool | None = None, num_dense: int = 0,
) -> Values:  # fmt: skip
    """Keys of a model in which some layers have a window.

    Args:
        fields: fields of the file.
        values: values read so far.
        is_near: whether a layer has the window, for files without `layer_types`.
        size: the window.
        bases: if layers with and without a window have their own rotary positions, their default
            bases, by type of layer.
        scaled: types of layers that the older `rope_scaling` is for.
        attention_norm: that of the first layer.
        num_dense: number of first layers without experts.
    """
    near = read_layer_types(fields, [is_near(layer) for layer in range(values["num_layers"])])
    size = None if size is None else size - 1
    positions, local = values.get("positions"), None
    if bases is not None:
        tables = fields.inner(fields.take("rope_parameters", dict, {}), "rope_parameters")
        older = fields.take("rope_scaling", dict, {})
        ropes = (
            {"rope_theta": bases[name], **tables.take(name, dict, {})}
            | (older if name in scaled else {})
            for name in (FULL, SLIDING)
        )
        positions, local = (_rotary_config(fields, rope, values) for rope in ropes)
    layers = [
        LayerConfig(local_window_size=size, positions=local) if has_window else LayerConfig()
        for has_window in near
    ]
    layers[0] = dataclasses.replace(layers[0], attention_norm=attention_norm)
    layers[:num_dense] = [dataclasses.replace(layer, experts=False) for layer in layers[:num_dense]]
    return layer_keys(positions, layers)


def read_layer_types(fields: ConfigFields, default: Sequence[bool]) -> list[bool]:
    """Whether each layer has a window, by `layer_types`."""
    types = fields.take("layer_types", list, [SLIDING if near else FULL for near in default])
    if len(types) != len(default) or not set(types) <= {FULL, SLIDING}:
        raise ConfigError(
            f"config.json: layer_types must be {FULL} or {SLIDING} for each of {len(default)} "
            f"layers, got {types}; other kinds are not supported"
        )
    return [kind == SLIDING for kind in types]


def layer_keys(positions: Any, layers: Sequence[LayerConfig]) -> Values:
    """Keys of a model with these layers: the shortest first layers and pattern."""
    # Layers with a setting that only first layers can have are the first layers.
    least = sum((layer.attention_norm, layer.experts) != (None, None) for layer in layers)
    if not least and all(layer == layers[0] for layer in layers):
        layer_positions = layers[0].positions
        return {
            "positions": positions if layer_positions is None else layer_positions,
            "local_window_size": layers[0].local_window_size,
        }
    splits = (
        (first, size)
        for size in range(max(2, least + 1), len(layers))
        for first in ([least] if least else range(size))
    )
    for first, size in splits:
        repeated, period = layers[first:], size - first
        if all(layer == repeated[i % period] for i, layer in enumerate(repeated)):
            break
    else:
        first, repeated, period = least, layers[least:], len(layers)
    return {
        "positions": positions,
        "first_layers": tuple(layers[:first]),
        "layers": tuple(repeated[:period]),
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


def rotary(share: float | None = None) -> Field:
    """`rope_parameters` of a family whose rotary layers are all the same."""
    # `share` is the family's default of partial_rotary_factor, which a missing factor has.
    default = {} if share is None or share == 1 else {"partial_rotary_factor": 1.0}
    return Field(
        lambda fields, _, values: {"positions": _read_rotary(fields, values, share)},
        lambda model: default | write_rotary(model),
    )


def _read_rotary(fields: ConfigFields, values: Values, share: float | None) -> RotaryConfig:
    """Rotary positions: `rope_parameters`, or the older rope_theta and rope_scaling."""
    newer, older = (fields.take(name, dict, {}) for name in ("rope_parameters", "rope_scaling"))
    rope = {
        "rope_theta": fields.take("rope_theta", float, 10_000.0),
        "partial_rotary_factor": fields.take("partial_rotary_factor", float, share or 1.0),
        **(older or newer),
    }
    # A field of the whole config takes precedence, as in Phi-3.
    original = fields.take("original_max_position_embeddings", int, None)
    if original is not None and _kind(rope) in ("llama3", "yarn", "longrope"):
        rope["original_max_position_embeddings"] = original
    if share is None:
        fields.inner(rope, "rope_parameters").require("partial_rotary_factor", 1.0, 1)
    return _rotary_config(fields, rope, values)


def _rotary_config(fields: ConfigFields, rope: Mapping[str, Any], values: Values) -> RotaryConfig:
    """Rotary positions of one `rope_parameters`, for a model with the arguments read so far."""
    inner = fields.inner(rope, "rope_parameters")
    has_own_width = "head_dim" in values
    head_dim = values["head_dim"] if has_own_width else default_head_dim(values)
    width = int(head_dim * inner.take("partial_rotary_factor", float, 1.0))
    base = float(inner.take("rope_theta", float))
    scaling = _scaling(_kind(rope), inner, values["max_len"])
    return RotaryConfig(base=base, rotary_dim=None if width == head_dim else width, scaling=scaling)


def _kind(values: Mapping[str, Any]) -> Any:
    """`rope_type`, or the older `type`."""
    return values.get("rope_type") or values.get("type") or "default"


def _scaling(kind: str, fields: ConfigFields, max_len: int) -> RotaryScalingConfig | None:
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScalingConfig(factor=fields.take("factor", float))
    original = fields.take("original_max_position_embeddings", int, max_len)
    if kind == "llama3":
        names = ("factor", "low_freq_factor", "high_freq_factor")
        numbers = {name: fields.take(name, float) for name in names}
        return Llama3ScalingConfig(original_max_len=original, **numbers)
    if kind == "longrope":
        return LongropeScalingConfig(
            # transformers treats values below 1 as 1.
            factor=max(fields.take("factor", float, max_len / original), 1.0),
            original_max_len=original,
            short_factor=tuple(fields.take("short_factor", list)),
            long_factor=tuple(fields.take("long_factor", list)),
            attention_factor=fields.take("attention_factor", float, None),
        )
    if kind != "yarn":
        raise ConfigError(
            f"rope_type {kind!r} is not supported, only default, linear, llama3, yarn and longrope"
            "; dynamic changes the angles with every token, which would invalidate cached keys"
        )
    share = fields.take("attention_factor", float, None)
    scales = [fields.take(name, float, None) for name in ("mscale", "mscale_all_dim")]
    if share is not None or not all(scales):
        scales = [None, None]  # both or neither apply, and the attention factor wins
    return YarnScalingConfig(
        factor=fields.take("factor", float),
        original_max_len=original,
        # 0 counts as missing.
        beta_fast=fields.take("beta_fast", float, 32.0) or 32.0,
        beta_slow=fields.take("beta_slow", float, 1.0) or 1.0,
        attention_factor=share,
        truncate=fields.take("truncate", bool, True),
        mscale=scales[0],
        mscale_all_dim=scales[1],
    )


def write_rotary(model: ModelConfig) -> dict[str, Any]:
    """`rope_parameters` of a model whose rotary layers are all the same."""
    rotated = [scheme for scheme in positions_of_layers(model) if scheme.kind != "none"]
    return _rotary_values(rotated[0] if rotated else RotaryConfig(), model.key_dim)


def write_rotary_by_type(model: ModelConfig) -> dict[str, Any]:
    """`rope_parameters` of a model with different rotary positions in layers with a window."""
    by_type = {
        FULL if window is None else SLIDING: _rotary_values(scheme, model.key_dim)
        for window, scheme in zip(layer_windows(model), positions_of_layers(model), strict=True)
    }
    default = next(iter(by_type.values()))  # for a type that no layer has
    return {FULL: default, SLIDING: default} | by_type


def write_by_type(model: ModelConfig) -> dict[str, Any]:
    """Fields of windows and of rotary positions, of families that always make both masks."""
    return write_layer_types(model, 4096) | {"rope_parameters": write_rotary_by_type(model)}


def _rotary_values(positions: PositionsConfig, head_dim: int) -> dict[str, Any]:
    """`rope_parameters` of rotary positions; the default ones for other positions."""
    positions = positions if isinstance(positions, RotaryConfig) else RotaryConfig()
    values: dict[str, Any] = {"rope_theta": positions.base, "rope_type": "default"}
    if positions.rotary_dim is not None:
        values["partial_rotary_factor"] = positions.rotary_dim / head_dim
    scaling = positions.scaling
    if scaling is None:
        return values
    keys = dataclasses.asdict(scaling)
    values["rope_type"] = keys.pop("kind")
    if "original_max_len" in keys:
        values["original_max_position_embeddings"] = keys.pop("original_max_len")
    return values | {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in keys.items()
        if value is not None
    }

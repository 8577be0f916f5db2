"""Qwen 2, Qwen 3 and SmolLM 3: Llama with windows, or without positions, in some layers."""

from typing import Any

from jaxformer.config import LayerConfig, ModelConfig, NoPositionsConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind
from jaxformer.interop.conversion.fields import Values
from jaxformer.interop.conversion.layers import (
    layer_keys,
    positions_of_layers,
    read_layer_types,
    read_windows,
    write_layer_types,
)
from jaxformer.interop.families.llama import llama_family

__all__ = ["QWEN_FAMILIES"]


def _read_windows(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Windows of Qwen: if used, in the layers from `max_window_layers` on."""
    used = fields.take("use_sliding_window", bool, False)
    size = fields.optional("sliding_window", int, 4096)
    first = fields.take("max_window_layers", int, 28)
    return read_windows(fields, values, lambda layer: used and layer >= first, size)


def _write_windows(model: ModelConfig) -> dict[str, Any]:
    """Fields of windows; only layer_types says which layers have one."""
    types = write_layer_types(model)
    used = types["sliding_window"] is not None
    return types | {"use_sliding_window": used, "max_window_layers": 0 if used else 28}


def _read_smollm3(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Some layers, by default every fourth, have no positions."""
    depth, every = values["num_layers"], fields.take("no_rope_layer_interval", int, 4)
    default = [int((layer + 1) % every != 0) for layer in range(depth)]
    turned = fields.take("no_rope_layers", list, default)  # 1 = rotated, whatever the name says
    if len(turned) != depth or not set(turned) <= {0, 1}:
        raise ConfigError(f"no_rope_layers must be 0 or 1 for each of {depth} layers, got {turned}")
    used = fields.take("use_sliding_window", bool, False)
    size = fields.take("sliding_window", int, None)
    near = read_layer_types(fields, [used and size is not None and not each for each in turned])
    layers = [
        LayerConfig(
            positions=None if is_turned else NoPositionsConfig(),
            local_window_size=size - 1 if is_near and size is not None else None,
        )
        for is_turned, is_near in zip(turned, near, strict=True)
    ]
    return layer_keys(values["positions"], layers)


def _write_smollm3(model: ModelConfig) -> dict[str, Any]:
    types = write_layer_types(model)
    turned = [int(each.kind != "none") for each in positions_of_layers(model)]
    used = types["sliding_window"] is not None
    return types | {"no_rope_layers": turned, "use_sliding_window": used}


QWEN_FAMILIES = (
    llama_family(
        "qwen2", "Qwen2", without=("attention_bias",), unwritten=("mlp_bias", "head_dim"),
        fixed={"qkv_bias": True},
        defaults={"max_position_embeddings": 32_768, "num_key_value_heads": 32},
        special_read=_read_windows, special_write=_write_windows,
    ),
    llama_family(
        "qwen3", "Qwen3", unwritten=("mlp_bias",), fixed={"qk_norm": True},
        defaults={"max_position_embeddings": 32_768, "num_key_value_heads": 32, "head_dim": 128},
        special_read=_read_windows, special_write=_write_windows,
    ),
    llama_family(
        "smollm3", "SmolLM3", unwritten=("head_dim",),
        defaults={
            "tie_word_embeddings": True, "rope_theta": 2e6, "max_position_embeddings": 32_768,
            "num_key_value_heads": 4,
        },
        special_read=_read_smollm3, special_write=_write_smollm3,
    ),
)  # fmt: skip

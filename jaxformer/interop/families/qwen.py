"""Qwen 2, Qwen 3 and SmolLM 3: Llama with windows, or without positions, in some layers."""

from typing import Any

from jaxformer.config import LayerConfig, ModelConfig, NoPositionsConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind
from jaxformer.interop.conversion.layer_fields import (
    layer_keys,
    positions_of_layers,
    read_layer_types,
    window_size,
    write_layer_types,
)
from jaxformer.interop.families.llama import LLAMA_TENSORS, decoder_family, read_llama, write_llama

__all__ = ["QWEN_FAMILIES"]


def _read_windows(fields: ConfigFields, values: dict[str, Any]) -> dict[str, Any]:
    """Windows of Qwen: if used, in the layers from `max_window_layers` on."""
    used = fields.take("use_sliding_window", bool, False)
    size = window_size(fields.optional("sliding_window", int, 4096))
    first, depth = fields.take("max_window_layers", int, 28), values["num_layers"]
    near = read_layer_types(fields, [used and layer >= first for layer in range(depth)])
    layers = [LayerConfig(local_window_size=size if is_near else None) for is_near in near]
    return values | layer_keys(values["positions"], layers)


def _write_windows(model: ModelConfig) -> dict[str, Any]:
    """Fields of windows; only layer_types says which layers have one."""
    types = write_layer_types(model)
    used = types["sliding_window"] is not None
    return types | {"use_sliding_window": used, "max_window_layers": 0 if used else 28}


def _read_qwen2(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.fill(max_position_embeddings=32_768, num_key_value_heads=32)
    return _read_windows(fields, read_llama(fields, has_biases=False) | {"qkv_bias": True})


def _write_qwen2(model: ModelConfig) -> dict[str, Any]:
    return write_llama(model, "attention_bias", "mlp_bias", "head_dim") | _write_windows(model)


def _read_qwen3(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.fill(max_position_embeddings=32_768, num_key_value_heads=32, head_dim=128)
    return _read_windows(fields, read_llama(fields) | {"qk_norm": True})


def _write_qwen3(model: ModelConfig) -> dict[str, Any]:
    return write_llama(model, "mlp_bias") | _write_windows(model)


def _read_smollm3(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Some layers, by default every fourth, have no positions."""
    fields.fill(
        tie_word_embeddings=True, rope_theta=2e6, max_position_embeddings=32_768,
        num_key_value_heads=4,
    )  # fmt: skip
    values = read_llama(fields)
    depth, every = values["num_layers"], fields.take("no_rope_layer_interval", int, 4)
    default = [int((layer + 1) % every != 0) for layer in range(depth)]
    turned = fields.take("no_rope_layers", list, default)  # 1 = rotated, whatever the name says
    if len(turned) != depth or not set(turned) <= {0, 1}:
        raise ConfigError(f"no_rope_layers must be 0 or 1 for each of {depth} layers, got {turned}")
    used = fields.take("use_sliding_window", bool, False)
    size = window_size(fields.take("sliding_window", int, None))
    near = read_layer_types(fields, [used and size is not None and not each for each in turned])
    layers = [
        LayerConfig(
            positions=None if is_turned else NoPositionsConfig(),
            local_window_size=size if is_near else None,
        )
        for is_turned, is_near in zip(turned, near, strict=True)
    ]
    return values | layer_keys(values["positions"], layers)


def _write_smollm3(model: ModelConfig) -> dict[str, Any]:
    types = write_layer_types(model)
    turned = [int(each.kind != "none") for each in positions_of_layers(model)]
    return write_llama(model, "head_dim") | types | {
        "no_rope_layers": turned, "use_sliding_window": types["sliding_window"] is not None,
    }  # fmt: skip


QWEN_FAMILIES = (
    decoder_family("qwen2", "Qwen2", _read_qwen2, _write_qwen2, LLAMA_TENSORS),
    decoder_family("qwen3", "Qwen3", _read_qwen3, _write_qwen3, LLAMA_TENSORS),
    decoder_family("smollm3", "SmolLM3", _read_smollm3, _write_smollm3, LLAMA_TENSORS),
)

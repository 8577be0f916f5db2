"""Llama, Mistral, Arcee, Qwen 2, Qwen 3 and SmolLM 3: decoders with Llama's tensors."""

from typing import Any

from jaxformer.config import LayerConfig, ModelConfig, NoPositionsConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, ModelKind, decoder_family
from jaxformer.interop.conversion.fields import (
    COMMON,
    GATED,
    Field,
    FieldTable,
    Values,
    activation,
    biases,
    default_head_dim,
    window,
)
from jaxformer.interop.conversion.layers import (
    layer_keys,
    positions_of_layers,
    read_layer_types,
    read_windows,
    write_layer_types,
)
from jaxformer.interop.conversion.layouts import block, norm, same
from jaxformer.interop.conversion.rotary import rotary

LAYER = "model.layers.{layer}."
ENDS = {
    "model.embed_tokens.weight": same("embedding/embedding"),
    **norm("model.norm", "final_norm"),
    "lm_head.weight": same("embedding/output_embedding"),
}
PRE_NORMS = block(LAYER, "{stack}", norms="input_layernorm post_attention_layernorm")
ATTENTION = {
    **block(LAYER, "{stack}", attention="self_attn q_proj k_proj v_proj o_proj"),
    LAYER + "self_attn.q_norm.weight": same("{stack}/attention/query_norm_scale"),
    LAYER + "self_attn.k_norm.weight": same("{stack}/attention/key_norm_scale"),
}
FEED_FORWARD = block(LAYER, "{stack}", feed_forward="mlp.gate_proj mlp.up_proj mlp.down_proj")
LLAMA_TENSORS = ENDS | PRE_NORMS | ATTENTION | FEED_FORWARD


def _kv_heads(fields: ConfigFields, name: str, values: Values) -> Values:
    """Null means num_attention_heads, whatever the family's default."""
    count = fields.optional(name, int, values["num_heads"])
    return {"num_kv_heads": values["num_heads"] if count is None else count}


_FIELDS: FieldTable = {
    **COMMON,
    "max_position_embeddings": ("max_len", 2048),
    "num_key_value_heads": Field(_kv_heads, lambda model: model.kv_heads),
    "head_dim": ("head_dim", default_head_dim),
    "intermediate_size": "d_ff",
    "rms_norm_eps": ("norm_eps", 1e-6),
    "tie_word_embeddings": ("tied_embeddings", False),
    "hidden_act": activation("silu", GATED),
    "attention_bias": biases(False),
    "rope_parameters": rotary(),
}
_FIXED = {
    "architecture": "decoder", "norm": "rms_norm", "use_bias": False, "qkv_bias": False,
    "attention_output_bias": False,
}  # fmt: skip


def llama_family(
    model_type: str, name: str, *, fields: FieldTable | None = None, without: tuple[str, ...] = (),
    fixed: Values | None = None, tensors: Any = LLAMA_TENSORS, **settings: Any,
) -> Family:  # fmt: skip
    """A family with Llama's fields, `without` some of them, and more; else as `Family`."""
    table = {field: entry for field, entry in _FIELDS.items() if field not in without}
    return decoder_family(
        model_type, name, fields=table | dict(fields or {}), fixed=_FIXED | (fixed or {}),
        tensors=tensors, prefix="model.", **settings,
    )  # fmt: skip


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
    used = fields.take("use_sliding_window", bool, False)
    size = fields.take("sliding_window", int, None)
    near = read_layer_types(
        fields, [used and size is not None and not is_rotated for is_rotated in turned]
    )
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
    turned = [int(scheme.kind != "none") for scheme in positions_of_layers(model)]
    used = types["sliding_window"] is not None
    return types | {"no_rope_layers": turned, "use_sliding_window": used}


MLP_BIAS: FieldTable = {"mlp_bias": ("feed_forward_bias", False)}
LLAMA_FAMILIES = (
    llama_family("llama", "Llama", more=("LLaMAForCausalLM",), fields=MLP_BIAS),  # the oldest name
    llama_family(
        "mistral", "Mistral", without=("attention_bias",),
        fields={"sliding_window": window(4096)},
        defaults={"max_position_embeddings": 131_072, "num_key_value_heads": 8},
    ),
    # Llama without a gate.
    llama_family(
        "arcee", "Arcee", fields=dict(MLP_BIAS) | {"hidden_act": activation("relu2")},
        defaults={"max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
    ),
    llama_family(
        "qwen2", "Qwen2", without=("attention_bias",), fixed={"qkv_bias": True},
        defaults={"max_position_embeddings": 32_768, "num_key_value_heads": 32},
        special_read=_read_windows, special_write=_write_windows,
    ),
    llama_family(
        "qwen3", "Qwen3", fixed={"qk_norm": True},
        defaults={"max_position_embeddings": 32_768, "num_key_value_heads": 32, "head_dim": 128},
        special_read=_read_windows, special_write=_write_windows,
    ),
    llama_family(
        "smollm3", "SmolLM3", fields=MLP_BIAS,
        defaults={
            "tie_word_embeddings": True, "rope_theta": 2e6, "max_position_embeddings": 32_768,
            "num_key_value_heads": 4,
        },
        special_read=_read_smollm3, special_write=_write_smollm3,
    ),
)  # fmt: skip

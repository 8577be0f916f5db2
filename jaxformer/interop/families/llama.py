"""Llama, Mistral, Arcee, Qwen 2 and 3, SmolLM 3, and Llama with other norms, tensors or factors.

The last are Phi-3, OLMo 1 to 3, StarCoder 2 and Granite.
"""

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
    only,
    whole,
    window,
)
from jaxformer.interop.conversion.layers import (
    FULL,
    SLIDING,
    layer_keys,
    positions_of_layers,
    read_layer_types,
    read_windows,
    rotary,
    write_by_type,
    write_layer_types,
    write_rotary,
)
from jaxformer.interop.conversion.layouts import block, dense, norm, same

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
_LLAMA = ENDS | PRE_NORMS | ATTENTION | FEED_FORWARD


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
    fixed: Values | None = None, tensors: Any = _LLAMA, **settings: Any,
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


_MLP_BIAS: FieldTable = {"mlp_bias": ("feed_forward_bias", False)}

# Queries, keys and values share one tensor, and so do gate and up.
_PHI3 = ENDS | PRE_NORMS | {
    **block(LAYER, "{stack}", attention="self_attn qkv_proj o_proj"),
    **dense(LAYER + "mlp.gate_up_proj", "{stack}/feed_forward/gate", "{stack}/feed_forward/up"),
    **dense(LAYER + "mlp.down_proj", "{stack}/feed_forward/down"),
}  # fmt: skip

_OLMO = {name: layout for name, layout in _LLAMA.items() if "norm" not in name}

# The norms are on the sublayers' outputs.
_OLMO2 = ENDS | ATTENTION | FEED_FORWARD | {
    **norm(LAYER + "post_attention_layernorm", "{stack}/attention_output_norm"),
    **norm(LAYER + "post_feedforward_layernorm", "{stack}/feed_forward_output_norm"),
}  # fmt: skip

_STARCODER2 = (
    ENDS | PRE_NORMS | ATTENTION | block(LAYER, "{stack}", feed_forward="mlp.c_fc mlp.c_proj")
)


def _read_phi3_rotary(fields: ConfigFields, name: str, values: Values) -> Values:
    """Older files call longrope "su", or wrongly "yarn"."""
    for table in ("rope_parameters", "rope_scaling"):
        rope = fields.take(table, dict, {})
        if (rope.get("rope_type") or rope.get("type")) in ("su", "yarn"):
            fields = fields.changed(**{table: {**rope, "rope_type": "longrope"}})
    return rotary(1.0).read(fields, name, values)


def _write_phi3(model: ModelConfig) -> dict[str, Any]:
    # transformers checks it against max_position_embeddings even without scaling.
    name = "original_max_position_embeddings"
    return {name: write_rotary(model).get(name, model.max_len)}


def _read_olmo3(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Three of four layers have a window; only the fourth has scaled rotary positions."""
    # transformers applies rope_theta of older files only to layers without a window.
    fields.require("rope_theta", 500_000.0, 500_000)
    size, bases = fields.optional("sliding_window", int, 4096), dict.fromkeys((FULL, SLIDING), 5e5)
    return read_windows(fields, values, lambda layer: (layer + 1) % 4 != 0, size, bases=bases)


def _use_bias(fields: ConfigFields, name: str, values: Values) -> Values:
    parts = ("qkv_bias", "attention_output_bias", "feed_forward_bias")
    return dict.fromkeys(parts, fields.take(name, bool, True))


_OLMO2_FIXED = {"norm_position": "output", "qk_norm": True, "qk_norm_over": "all_heads"}
LLAMA_FAMILIES = (
    llama_family("llama", "Llama", more=("LLaMAForCausalLM",), fields=_MLP_BIAS),  # the oldest name
    llama_family(
        "mistral", "Mistral", without=("attention_bias",),
        fields={"sliding_window": window(4096)},
        defaults={"max_position_embeddings": 131_072, "num_key_value_heads": 8},
    ),
    # Llama without a gate.
    llama_family(
        "arcee", "Arcee", fields=dict(_MLP_BIAS) | {"hidden_act": activation("relu2")},
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
        "smollm3", "SmolLM3", fields=_MLP_BIAS,
        defaults={
            "tie_word_embeddings": True, "rope_theta": 2e6, "max_position_embeddings": 32_768,
            "num_key_value_heads": 4,
        },
        special_read=_read_smollm3, special_write=_write_smollm3,
    ),
    llama_family(
        "phi3", "Phi3", tensors=_PHI3, without=("attention_bias",),
        fields={
            "rope_parameters": Field(_read_phi3_rotary, rotary(1.0).write),
            "sliding_window": window(),
        },
        defaults={
            "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
        },
        special_write=_write_phi3,
    ),
    # Layer norms without scale and bias.
    llama_family(
        "olmo", "Olmo", tensors=_OLMO, without=("rms_norm_eps",), fields={"clip_qkv": only(None)},
        fixed={"norm": "layer_norm", "norm_scale": False, "norm_bias": False, "norm_eps": 1e-5},
    ),
    llama_family(
        "olmo2", "Olmo2", tensors=_OLMO2, fixed=_OLMO2_FIXED, defaults={"rms_norm_eps": 1e-5},
    ),
    llama_family(
        "olmo3", "Olmo3", tensors=_OLMO2, without=("rope_parameters",), fixed=_OLMO2_FIXED,
        defaults={"rms_norm_eps": 1e-5},
        special_read=_read_olmo3, special_write=write_by_type,
    ),
    llama_family(
        "starcoder2", "Starcoder2", tensors=_STARCODER2,
        without=("attention_bias", "rms_norm_eps"),
        fields={
            "hidden_act": activation("gelu_pytorch_tanh"),
            "norm_epsilon": ("norm_eps", 1e-5),
            "use_bias": Field(_use_bias, lambda model: model.has_bias("qkv")),
            "sliding_window": window(),
        },
        fixed={"norm": "layer_norm", "norm_bias": True},
        defaults={
            "tie_word_embeddings": True, "max_position_embeddings": 4096, "num_key_value_heads": 2,
        },
    ),
    llama_family(
        "granite", "Granite", classified=None,  # transformers has no classifier for it
        fields={
            **_MLP_BIAS,
            "embedding_multiplier": ("embedding_scale", 1.0),
            "attention_multiplier": ("attention_scale", 1.0),
            "residual_multiplier": ("residual_scale", 1.0),
            "logits_scaling": Field(
                lambda fields, name, _: {"logit_scale": 1 / fields.take(name, float, 1.0)},
                lambda model: whole(1 / (model.logit_scale or 1.0)),
            ),
        },
    ),
)  # fmt: skip
